"""Emission of one vector operation over the loops of a nest.

From the strides of its operands: neighbouring loops merge where all operands are dense, one loop
becomes lanes (256 B), one becomes repeats (at most 255), the others stay loops. Tails are masked
lanes and shorter repeat counts. An operation that no loop can put into lanes runs element by
element on the scalar pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from akg_py import dtypes
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import BLOCK, Loop, Node, TileRef, depends_on, is_multiple
from akg_py.ir.expr import (
    Const,
    Expr,
    Var,
    bounds,
    ceildiv,
    const,
    is_zero,
    linear_combination,
    minimum,
)
from akg_py.ir.stmt import For, Origin
from akg_py.records import dataclass

REPEAT_BYTES = 256
MAX_REPEATS = 255


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A loop of a nest: its Var, its extent and the static bound of that."""

    var: Var
    extent: Expr
    size: int

    @property
    def is_static(self) -> bool:
        return isinstance(self.extent, Const)


def make_axes(loops: Sequence[For]) -> list[Axis]:
    return [Axis(f.var, f.extent, max(min(bounds(f.extent)[1], f.var.hi + 1), 0)) for f in loops]


@dataclass(frozen=True, slots=True)
class Lane:
    """How an operation is laid out: start addresses, lane axis, repeat axis, the loops left."""

    starts: list[Expr]
    strides: list[dict[Var, int]]
    lane: Axis | None
    others: list[Axis]


def strip(e: Expr, axes: Sequence[Axis]) -> Expr:
    """`e` at the start of the axes it is affine in."""
    terms, _ = linear_combination(e)
    for a in axes:
        if a.var in terms:
            e = e - a.var * terms[a.var]
    return e


def merge_axes(axes: list[Axis], strides: list[dict[Var, int]]) -> list[Axis]:
    """Merge neighbours that every operand walks without a gap; the inner strides are kept."""
    merged: list[Axis] = []
    for axis in reversed(axes):
        if merged:
            inner = merged[0]
            dense = inner.is_static and all(
                s.get(axis.var, 0) == s.get(inner.var, 0) * inner.size for s in strides
            )
            if dense:
                merged[0] = Axis(inner.var, axis.extent * inner.size, axis.size * inner.size)
                continue
        merged.insert(0, axis)
    return merged


def plan_lanes(
    refs: Sequence[TileRef], axes: Sequence[Axis], pinned: Var | None = None
) -> Lane | None:
    """Choose the lane axis; None if the operation must go element by element.

    The first of `refs` is the destination. A source that stands still along the lanes is read from
    blocks of its own (see `VectorSelector._spread`), so its other strides don't matter here.
    """
    live = [a for a in axes if not (a.is_static and a.size == 1)]
    strides: list[dict[Var, int]] = []
    for ref in refs:
        own: dict[Var, int] = {}
        for a in axes:
            step = ref.stride(a.var)
            if step is None:
                return None
            own[a.var] = step
        strides.append(own)
    starts = [strip(ref.address, axes) for ref in refs]
    sizes = [dtypes.size_bytes(ref.dtype) for ref in refs]
    aligned = [is_multiple(start, BLOCK) for start in starts]
    live = merge_axes(live, strides)
    if not live:
        return Lane(starts, strides, None, []) if all(aligned) else None
    candidates = [a for a in reversed(live) if strides[0][a.var] == sizes[0]]
    candidates.sort(key=lambda a: a.var is not pinned)
    for lane in candidates:
        if any(s[lane.var] not in (0, size) for s, size in zip(strides, sizes, strict=True)):
            continue
        others = [a for a in live if a is not lane]
        spread = [
            n > 0 and s[lane.var] == 0 and not refs[n].is_spread for n, s in enumerate(strides)
        ]
        if all(
            done or (fits and all(s[a.var] % BLOCK == 0 for a in others))
            for done, fits, s in zip(spread, aligned, strides, strict=True)
        ):
            return Lane(starts, strides, lane, others)
    return None


EmitInstruction = Callable[[list[Expr], Expr, Expr, list[Expr], list[int]], Instruction]


def emit_lanes(
    lane: Lane,
    refs: Sequence[TileRef],
    make: EmitInstruction,
    out: list[Node],
    origin: Origin | None,
) -> None:
    """Emit the loops and instructions of a planned operation.

    Args:
        make: (addresses, lanes, repeats, repeat strides, block strides) -> instruction.
    """
    sizes = [dtypes.size_bytes(ref.dtype) for ref in refs]
    per_repeat = REPEAT_BYTES // max(sizes)
    count = len(refs)
    if lane.lane is None:
        out.append(make(lane.starts, const(1), const(1), [const(0)] * count, [BLOCK] * count))
        return
    axis = lane.lane
    moving = [s[axis.var] != 0 for s in lane.strides]
    blocks = [BLOCK if m else 0 for m in moving]
    others = list(lane.others)
    repeat = max(others, key=lambda a: a.size, default=None)
    chunks = -(-axis.size // per_repeat)
    if repeat is not None:
        by_rows = chunks * -(-repeat.size // MAX_REPEATS)
        by_lanes = repeat.size * (
            -(-(axis.size // per_repeat) // MAX_REPEATS)
            + (axis.size % per_repeat > 0 or not axis.is_static)
        )
        if by_lanes < by_rows:
            repeat = None
    loops = [a for a in others if a is not repeat]
    addresses = list(lane.starts)
    for a in loops:
        loop = Loop(Var(a.var.name, "int32", 0, max(a.size - 1, 0)), a.extent, origin=origin)
        addresses = [e + loop.var * s[a.var] for e, s in zip(addresses, lane.strides, strict=True)]
        out.append(loop)
        out = loop.body
    steps = [size * per_repeat if m else 0 for m, size in zip(moving, sizes, strict=True)]
    if repeat is not None:
        rows: list[Expr] = [const(s[repeat.var]) for s in lane.strides]
        out, addresses, lanes = chunk_axis(
            axis.extent, axis.size, per_repeat, addresses, steps, out, origin, "lanes"
        )
        row_steps = [s[repeat.var] * MAX_REPEATS for s in lane.strides]
        out, addresses, repeats = chunk_axis(
            repeat.extent, repeat.size, MAX_REPEATS, addresses, row_steps, out, origin, "rows"
        )
        out.append(make(addresses, lanes, repeats, rows, blocks))
        return
    if axis.size <= per_repeat:
        out.append(make(addresses, axis.extent, const(1), [const(s) for s in steps], blocks))
        return
    whole = axis.extent // per_repeat
    rest = axis.extent - whole * per_repeat
    inner, at, repeats = chunk_axis(
        whole,
        axis.size // per_repeat,
        MAX_REPEATS,
        addresses,
        [s * MAX_REPEATS for s in steps],
        out,
        origin,
        "repeats",
    )
    inner.append(make(at, const(per_repeat), repeats, [const(s) for s in steps], blocks))
    if not is_zero(rest):
        if not isinstance(rest, Const):
            tail = Loop(Var("tail", "int32", 0, 0), minimum(1, rest), origin=origin)
            out.append(tail)
            out = tail.body
        at = [e + whole * s for e, s in zip(addresses, steps, strict=True)]
        out.append(make(at, rest, const(1), [const(s) for s in steps], blocks))


def chunk_axis(
    extent: Expr,
    size: int,
    limit: int,
    addresses: list[Expr],
    steps: list[int],
    out: list[Node],
    origin: Origin | None,
    name: str,
) -> tuple[list[Node], list[Expr], Expr]:
    """Split `extent` into chunks of `limit`: a loop if there can be several, and a chunk's size."""
    if size <= limit:
        return out, addresses, extent
    n = -(-size // limit)
    loop = Loop(Var(name, "int32", 0, n - 1), ceildiv(extent, limit), origin=origin)
    out.append(loop)
    moved = [e + loop.var * s for e, s in zip(addresses, steps, strict=True)]
    return loop.body, moved, minimum(limit, extent - loop.var * limit)


def emit_scalar(
    refs: Sequence[TileRef],
    axes: Sequence[Axis],
    make: EmitInstruction,
    out: list[Node],
    origin: Origin | None,
) -> None:
    """Emit an operation element by element: all axes are loops, one lane on the scalar pipe."""
    for a in axes:
        if a.is_static and a.size == 1 and not any(depends_on(r.address, a.var) for r in refs):
            continue
        loop = Loop(a.var, a.extent, origin=origin)
        out.append(loop)
        out = loop.body
    made = make(
        [r.address for r in refs], const(1), const(1), [const(0)] * len(refs), [BLOCK] * len(refs)
    )
    out.append(Instruction(made.op, made.operands, "S", made.origin))
