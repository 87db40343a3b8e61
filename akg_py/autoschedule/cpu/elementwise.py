"""Element-wise stages on the CPU: few long loops, of which the innermost runs over lanes.

In: a root stage without reduction. Out: neighbouring axes that every operand steps through without
a gap are fused, so that a plain kernel is one flat loop and a broadcast operand leaves a loop over
rows; large ones are dealt to threads in contiguous pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from akg_py import dtypes
from akg_py.codegen.strides import flat_index, lane_stride
from akg_py.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Var,
    free_vars,
    is_index,
    loads,
    rebuild,
    substitute,
    walk,
)
from akg_py.ir.expr import children as operands
from akg_py.ir.stmt import Buffer
from akg_py.te.schedule import Schedule
from akg_py.te.stage import ScheduleState, StageState
from akg_py.te.tensor import IterVar, Tensor

PARALLEL_NS = 50_000  # of work in one thread, below which waking another doesn't pay
PIECE = 1 << 15  # elements in one piece of a parallel loop, the same for neighbours that may join
BYTE_NS = 0.03  # of memory traffic
OPERATION_NS, CALL_NS = 0.02, 0.2  # of one element in a float32 vector
PIECES = 64  # of a parallel loop are enough
TURNED_BYTES = 2048  # of a row of a transpose in one piece

BLOCK, BLOCK_ROWS = 32, 16  # a run of elements that moves as one; runs written side by side
NEIGHBOURS = 4  # written side by side, as channels of an image
MIN_DIGIT = 8  # smaller ones are shuffled in the lanes

Access = tuple[Tensor, tuple[Expr, ...]]
Strides = tuple[int | None, ...]


def nodes_with(state: ScheduleState, consumer: StageState, producer: StageState) -> int:
    """Size of the expression around `consumer` once `producer` is inlined too."""
    while consumer.is_inline:
        consumer = state.consumers(consumer)[0]
    return sum(1 for e in _body(state, consumer, producer) for _ in walk(e))


def _body(
    state: ScheduleState, stage: StageState, also: StageState | None = None
) -> tuple[Expr, ...]:
    """What a stage computes, with the stages that are inlined into it, and `also`."""

    def expand(e: Expr) -> Expr:
        e = rebuild(e, expand)
        if isinstance(e, Load) and isinstance(e.source, Tensor):
            producer = state.producer(e.source)
            if producer is not None and (producer.is_inline or producer is also):
                mapping = dict(zip(producer.op.axis, e.indices, strict=True))
                return expand(substitute(producer.op.body[0], mapping))
        return e

    return tuple(map(expand, stage.op.body))


def schedule_elementwise(s: Schedule, stage: StageState) -> None:
    """Loops of a root stage that reduces nothing."""
    if any(a.extent == 0 for a in stage.op.axis) or not stage.op.axis:
        return
    values = _body(s.state, stage)
    cost = _nanoseconds(stage, values)
    is_large = math.prod(a.extent for a in stage.op.axis) * cost >= PARALLEL_NS
    axes, strides = _split_digits(s, stage, list(_accesses(stage, values)))
    groups = _groups(axes, strides, set().union(*map(_counted, values)))
    *outer, inner = [s[stage.name].fuse(*g) if len(g) > 1 else g[0] for g in groups]
    ends = [axes.index(max(reversed(g), key=lambda a: a.extent > 1)) for g in groups]
    turned = _turned([tuple(row[n] for n in ends) for row in strides], inner.extent)
    if turned == len(outer) - 1 and inner.extent <= NEIGHBOURS:
        _deal_neighbours(s, stage.name, outer, inner, is_large)
        return
    if turned is None or not is_large:
        if is_large:
            inner = _deal(s, stage.name, outer, inner)
    elif inner.extent <= BLOCK and turned < len(outer) - 1:
        _deal_blocks(s, stage.name, outer, turned, inner)
    else:
        inner = _deal_turned(s, stage.name, outer, turned, inner)
    if (turned is None or inner.extent <= BLOCK) and inner.extent > 1:
        s[stage.name].vectorize(inner)


def _split_digits(
    s: Schedule, stage: StageState, accesses: list[Access]
) -> tuple[list[IterVar], list[Strides]]:
    """Split axes that are read by quotient and remainder, as layouts of small blocks are."""
    axes: list[IterVar] = []
    mapping: dict[Expr, Expr] = {}
    for a in stage.op.axis:
        rows = [_strides([a], x) for x in accesses]
        factors = {f for (_, indices) in accesses for i in indices for f in _divisors(i, a)}
        factor = factors.pop() if len(factors) == 1 else 0
        if (None,) in rows and factor >= MIN_DIGIT and a.extent % factor == 0:
            high, low = s[stage.name].split(a, factor=factor)
            mapping[a] = high * factor + low
            axes += [high, low]
        else:
            axes.append(a)
    moved = [(t, tuple(substitute(i, mapping) for i in indices)) for t, indices in accesses]
    return axes, [_strides(axes, x) for x in moved]


def _divisors(index: Expr, axis: IterVar) -> Iterator[int]:
    for e in walk(index):
        if isinstance(e, Binary) and e.op in ("//", "%") and isinstance(e.b, Const):
            if axis in free_vars(e.a):
                yield int(e.b.value)


def _deal(s: Schedule, name: str, outer: list[IterVar], inner: IterVar) -> IterVar:
    """Threads take rows, or pieces of long ones; returns the innermost axis."""
    if inner.extent >= 2 * PIECE:
        chunk, inner = s[name].split(inner, factor=PIECE)
        outer = [*outer, chunk]
    rows = outer[:1]
    while len(rows) < len(outer) and math.prod(a.extent for a in rows) < PIECES:
        rows.append(outer[len(rows)])
    _parallel(s, name, rows)
    return inner


def _deal_turned(
    s: Schedule, name: str, outer: list[IterVar], turned: int, inner: IterVar
) -> IterVar:
    """Threads take batches, or blocks of the axis that `inner` swaps places with."""
    across = outer[turned]
    rows = [a for a in outer if a is not across]
    if math.prod(a.extent for a in rows) < PIECES:
        run = TURNED_BYTES // dtypes.size_bytes(s.state.stage(name).outputs[0].dtype)
        if inner.extent >= 2 * run:  # reads stay whole rows
            chunk, inner = s[name].split(inner, factor=_even(inner.extent, run))
            rows.append(chunk)
        else:
            half = -(-across.extent // 128) * 64
            block = max(min(run, half), PIECE // inner.extent // 64 * 64)
            block = _even(across.extent, block)
            if block < across.extent:
                chunk, across = s[name].split(across, factor=block)
                rows.append(chunk)
    if rows:
        s[name].reorder(*rows, across, inner)
    _parallel(s, name, rows)
    return inner


def _even(extent: int, size: int) -> int:
    """The largest size of equal pieces not far below `size`, or `size`: edges cost masks."""
    return next((n for n in range(min(size, extent), size // 2, -1) if extent % n == 0), size)


def _deal_neighbours(
    s: Schedule, name: str, outer: list[IterVar], inner: IterVar, is_large: bool
) -> None:
    """Lanes run along what is read; the few neighbours that are written are woven together."""
    *rows, across = outer
    if is_large and across.extent >= 2 * PIECE // inner.extent:
        chunk, across = s[name].split(across, factor=PIECE // NEIGHBOURS)
        rows.append(chunk)
    if is_large:
        _parallel(s, name, rows)
    s[name].vectorize(across)
    s[name].unroll(inner)


def _deal_blocks(s: Schedule, name: str, outer: list[IterVar], turned: int, inner: IterVar) -> None:
    """Short runs swap places: a few rows are read side by side, so that writes join."""
    across, near = outer[turned], outer[-1]
    rows = [a for a in outer[:-1] if a is not across]
    if near.extent >= 2 * BLOCK_ROWS:
        chunk, near = s[name].split(near, factor=BLOCK_ROWS)
        rows.append(chunk)
    if rows:
        s[name].reorder(*rows, across, near, inner)
    _parallel(s, name, rows)


def _parallel(s: Schedule, name: str, rows: list[IterVar]) -> None:
    if rows:
        s[name].parallel(s[name].fuse(*rows) if len(rows) > 1 else rows[0])


def _accesses(stage: StageState, values: tuple[Expr, ...]) -> Iterator[Access]:
    """What a stage stores to, first, and what it reads."""
    yield stage.outputs[0], stage.op.axis
    for e in values:
        for x in loads(e):
            if isinstance(x.source, Tensor):
                yield x.source, x.indices


def _strides(axes: list[IterVar], access: Access) -> Strides:
    """Elements that an access moves by along each axis; None where there is no such number."""
    tensor, indices = access
    flat = flat_index(Buffer(tensor.name, tensor.shape, tensor.dtype), indices)
    return tuple(None if flat is None else lane_stride(flat, a) for a in axes)


def _counted(e: Expr) -> set[Expr]:
    """Variables whose number itself `e` uses, as conditions do, not to find an element."""
    if isinstance(e, Load):
        return set()
    return {e} if isinstance(e, Var) else set().union(*map(_counted, operands(e)))


def _groups(axes: list[IterVar], strides: list[Strides], counted: set[Expr]) -> list[list[IterVar]]:
    """Runs of axes that are one axis for every access; those of one element fit anywhere.

    A long axis stays apart if it is or follows one whose number counts: finding that out of the
    number along both would take a division for each element.
    """
    groups = [[axes[0]]]
    last = 0  # of the axes before that has several elements, if one has
    for n in range(1, len(axes)):
        extent = axes[n].extent
        joined = all(
            row[n] is not None and row[last] == row[n] * extent  # type: ignore[operator]
            for row in strides
        )
        apart = extent >= BLOCK and not counted.isdisjoint({axes[last], axes[n]})
        if 1 in (extent, axes[last].extent) or (joined and not apart):
            groups[-1].append(axes[n])
        else:
            groups.append([axes[n]])
        last = n if extent > 1 else last
    return groups


def _turned(strides: list[Strides], inner: int) -> int | None:
    """The loop along which an operand is contiguous other than the result, if any.

    Args:
        strides: of each access along the loops; the result comes first.
        inner: extent of the last loop, whose whole runs may be what swaps places.
    """
    result, *operands = strides
    for n in range(len(result) - 1):
        for row in operands:
            if row[n] == 1 and row[-1] not in (0, 1):
                return n
            is_block = inner <= BLOCK and row[-1] == 1 and row[n] == inner
            if is_block and result[n] != inner and n < len(result) - 2:
                return n
    return None


def _nanoseconds(stage: StageState, values: tuple[Expr, ...]) -> float:
    """About how long one element takes in one thread."""
    sources = {x.source: dtypes.size_bytes(x.dtype) for e in values for x in loads(e)}
    moved = sum(sources.values()) + sum(dtypes.size_bytes(t.dtype) for t in stage.outputs)
    return BYTE_NS * moved + sum(map(_work, values))


def _work(e: Expr) -> float:
    if isinstance(e, Load) or is_index(e) or not operands(e):
        return 0.0
    heavy = isinstance(e, Call) or (isinstance(e, Binary) and e.op in ("/", "//", "%", "pow"))
    return (CALL_NS if heavy else OPERATION_NS) + sum(map(_work, operands(e)))
