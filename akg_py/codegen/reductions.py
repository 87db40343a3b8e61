"""Innermost loops that combine into fixed elements: several vector accumulators, a fixed order.

A body may hold several reductions, and stores of elements that they share a pass with. The order
depends on the extent and the processor's vector width, never on threads. Loads that are not
contiguous over the loop are taken one by one, into several scalar accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.choices import find_choice
from akg_py.codegen.dependence import is_independent
from akg_py.codegen.extrema import as_extremum
from akg_py.codegen.folds import Combination, Fold, accumulated, only_store
from akg_py.codegen.indices import Linear
from akg_py.codegen.lanes import walk_values
from akg_py.codegen.llvm import ELEM_BYTES, Val, constant, constant_lanes, first_lanes
from akg_py.codegen.strides import stride_along
from akg_py.codegen.values import stays_inside
from akg_py.ir.expr import Call, Expr, Var, bounds, free_vars, is_index, loads
from akg_py.ir.stmt import Alloc, Buffer, For, If, Intrinsic, Seq, Stmt, Store, buffer_of
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

ACCUMULATORS = 4
MOST_BESIDE = 16  # elements that join the same accumulators one after another
LEAST_LANES = 4  # of a vector that a short loop is taken in
SHORT = 8  # vectors of a loop for which few registers are enough with two accumulators


@dataclass
class _Part:
    """A Store of the body, the condition it stands under, and the folds that it is (or none)."""

    store: Store
    condition: Expr | None
    folds: list[Fold] = field(default_factory=list)

    def expressions(self) -> Iterator[Expr]:
        """What is evaluated for each element."""
        if self.condition is not None:
            yield self.condition
        if not self.folds:
            yield from self.store.values
        for fold in self.folds:
            yield from fold.operands


def emit_extremes(loops: Loops, s: For) -> bool:
    """Emit `s` if each lane takes the largest or smallest of a few floats there; else False."""
    extent, (store, condition) = loops.constant_extent(s), only_store(s.body)
    if store is None or condition is not None or len(store.buffers) != 1:
        return False
    if extent is None or not 2 <= extent <= MOST_BESIDE:
        return False
    operand = accumulated(store, loops.alias)
    if operand is None or any(s.var in free_vars(i) for i in store.indices):
        return False
    (buffer,), (value,) = store.buffers, store.values
    fold = Combination(buffer, store, operand, value.op)  # type: ignore[attr-defined]
    if not fold.is_bounded or loops.position(buffer, store.indices).is_uniform:
        return False
    fold.take_in_turn(loops, s.var, extent)
    return True


def emit_reduction(loops: Loops, s: For) -> bool:
    """Emit `s` as a reduction over lanes if it is one; False leaves it to the caller."""
    found = _qualify(loops, s)
    if found is None:
        return False
    parts, width = found
    extent = loops.constant_extent(s)
    if extent is None:  # with nothing to add, the element may not even exist
        total = loops.extent_value(s)
        some, after = loops.b.block("some"), loops.b.block("none")
        loops.b.branch(loops.b.compare("sgt", total, constant(0, "i64")), some, after)
        loops.b.at = some
        _Reduction(loops, s, parts, width).emit_open(total)
        loops.b.jump(after)
        loops.b.at = after
    else:
        _Reduction(loops, s, parts, width).emit(extent)
    return True


# ---------------------------------------------------------------- what qualifies


def is_reduction(loops: Loops, s: For, least_lanes: int = 2) -> bool:
    """Whether `emit_reduction` takes `s`, over so many lanes at least."""
    found = _qualify(loops, s)
    return found is not None and found[1] >= least_lanes


def _qualify(loops: Loops, s: For) -> tuple[list[_Part], int] | None:
    """The parts of a reduction and its lanes."""
    parts = _find_parts(loops, s)
    if parts is None:
        return None
    width = _lane_count(loops, s, parts)
    if width == 1 and any(p.condition is not None or not p.folds for p in parts):
        return None
    extent = loops.constant_extent(s) or bounds(s.extent)[1]
    if all(_is_exact(fold) for part in parts for fold in part.folds):  # LLVM finds vectors itself
        return None if extent < (2 * width if width > 1 else ACCUMULATORS) else (parts, width)
    while width > LEAST_LANES and extent < 2 * width:
        width //= 2
    return None if extent < (width if width > 1 else ACCUMULATORS) else (parts, width)


def _is_exact(fold: Fold) -> bool:
    """Whether any order of a reduction gives the same bits."""
    return isinstance(fold, Combination) and not dtypes.is_float(fold.dtype)


def _find_parts(loops: Loops, s: For) -> list[_Part] | None:
    """The stores of `s` if it is a reduction whose iterations meet in its folds only."""
    parts = list(_stores(s.body, None))
    folded: list[Buffer] = []
    for part in parts:
        if part is None or not all(map(is_index, part.store.indices)):
            return None
        if not any(s.var in free_vars(e) for e in part.store.indices):
            found = _find_folds(part.store, s.var, loops.alias, part.condition is not None)
            if found is None:
                return None
            part.folds = found
            folded += part.store.buffers
    found_parts = [p for p in parts if p is not None]
    if not folded or not _are_apart(loops, s, found_parts, folded):
        return None
    return found_parts


def _find_folds(store: Store, var: Var, alias: dict[int, int], guarded: bool) -> list[Fold] | None:
    """The folds that `store` is over the loop of `var`, or None."""
    combined = [accumulated(store, alias, n) for n in range(len(store.buffers))]
    if all(e is not None for e in combined):
        return [
            Combination(buffer, store, e, value.op)  # type: ignore[attr-defined]
            for buffer, value, e in zip(store.buffers, store.values, combined, strict=True)
            if e is not None
        ]
    choice = find_choice(store, var, alias)
    return None if choice is None else [choice if guarded else as_extremum(choice)]


def _stores(s: Stmt, condition: Expr | None) -> Iterator[_Part | None]:
    """The stores that a body consists of, in order; None for anything else."""
    match s:
        case Intrinsic():
            yield from _stores(s.body, condition)
        case Seq():
            for inner in s.stmts:
                yield from _stores(inner, condition)
        case If(orelse=None) if condition is None and s.condition.dtype == "bool":
            yield from _stores(s.body, s.condition)
        case Store():
            yield _Part(s, condition)
        case _:
            yield None


def _are_apart(loops: Loops, s: For, parts: list[_Part], folded: list[Buffer]) -> bool:
    roots = [loops.alias.get(id(b), id(b)) for b in folded]
    if len(set(roots)) < len(roots):
        return False
    for part in parts:
        reads = {loops.alias.get(id(x.source), id(x.source)) for e in part.expressions()
                 for x in loads(e)}  # fmt: skip
        reads |= (
            set() if part.folds else {loops.alias.get(id(b), id(b)) for b in part.store.buffers}
        )
        if reads & set(roots):
            return False
        # an element is touched even if its condition never holds, so it must surely exist
        if part.folds and part.condition is not None:
            if not all(stays_inside(b, part.store.indices) for b in part.store.buffers):
                return False
    body = s.body
    for buffer in folded:  # the loop's own, as far as other iterations are concerned
        body = Alloc(buffer, body)
    return is_independent(replace(s, body=body), loops.alias)


def _lane_count(loops: Loops, s: For, parts: list[_Part]) -> int:
    """Lanes of one vector; 1 if some access is not contiguous over the loop."""
    widest = 1
    for part in parts:
        for e in part.expressions():
            if any(
                stride_along(buffer_of(x), x.indices, s.var) not in (0, 1, -1) for x in loads(e)
            ):
                return 1
            widest = max(widest, *(_compute_bytes(x.dtype) for x in walk_values(e)))
        if not part.folds and stride_along(part.store.buffers[0], part.store.indices, s.var) != 1:
            return 1
        for fold in part.folds:
            widest = max(widest, fold.lane_bytes)
    return loops.processor.vector_bytes // widest


def _compute_bytes(dtype: str) -> int:
    return ELEM_BYTES[arithmetic.compute_elem(dtype)]


# ---------------------------------------------------------------- code


class _Reduction:
    """Emits one loop."""

    def __init__(self, loops: Loops, s: For, parts: list[_Part], width: int) -> None:
        self.loops, self.s, self.parts, self.width = loops, s, parts, width
        self.folds = [fold for part in parts for fold in part.folds]
        values = [x for p in parts for e in p.expressions() for x in walk_values(e)]
        extent = loops.constant_extent(s) or SHORT * width + 1
        is_busy = any(isinstance(x, Call) for x in values) or extent <= SHORT * width
        has_few = loops.processor.has_few_registers and width > 1
        self.most = ACCUMULATORS // 2 if has_few and is_busy else ACCUMULATORS

    def emit(self, extent: int) -> None:
        """For a known extent: whole blocks, the vectors that are left, then one masked vector."""
        width = self.width
        count = max(1, min(self.most, extent // width))
        self._start(count, constant(extent, "i64"))
        whole = extent // (count * width) * count * width
        self.loops.counted(constant(whole, "i64"), count * width, self._block, [])
        for n, at in enumerate(range(whole, extent, width)):
            rest = extent - at
            mask = None if rest >= width else first_lanes(rest, width)
            self._step(Linear(const=at), n % count, mask, more=rest >= 2 * width)
        self._finish()

    def emit_open(self, total: Val) -> None:
        """For an extent that is only known when it runs."""
        b, width = self.loops.b, self.width
        self._start(self.most, total)
        many = b.bin("and", total, constant(-self.most * width, "i64"))
        self.loops.counted(many, self.most * width, self._block, [])
        rest = b.bin("sub", total, many)

        def tail(i: Linear) -> None:
            mask = None
            if width > 1:
                left = b.bin("sub", rest, self.loops.materialise(i))
                mask = b.compare("slt", constant_lanes(list(range(width)), "i64"), left)
            self._step(Linear({**i.terms, many.ref: 1}), 0, mask, more=False)

        self.loops.counted(rest, width, tail, [])
        self._finish()

    def _start(self, count: int, total: Val) -> None:
        self.count = count
        for fold in self.folds:
            fold.start(self.loops, count, self.width, total)

    def _finish(self) -> None:
        for fold in self.folds:
            fold.finish(self.loops)

    def _block(self, i: Linear) -> None:
        self.loops.reducing = True
        for n in range(self.count):
            self._step(Linear(i.terms, n * self.width), n, None, more=n + 1 < self.count)
        self.loops.reducing = False

    def _step(self, where: Linear, n: int, mask: Val | None, more: bool) -> None:
        """One vector of the loop; its folds go to their accumulators `n`."""
        loops = self.loops
        loops.lanes = self.width
        loops.env[self.s.var] = Linear(where.terms, where.const, int(self.width > 1))
        for part in self.parts:
            loops.mask, loops.guarded = mask, False
            if part.condition is not None:
                holds = loops.b.splat(loops.value(part.condition), self.width)
                loops.mask, loops.guarded = loops.b.both(mask, holds), True
            for fold in part.folds:
                fold.step(loops, n, more and part.condition is None)
            if not part.folds:
                loops.store(part.store)
        del loops.env[self.s.var]
        loops.lanes, loops.mask, loops.guarded = 1, None, False
