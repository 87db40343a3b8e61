"""Accumulators of reductions while their loop runs: how they start, take an element, and join.

In: a Store such as `B[i] = B[i] + x`; out: a `Fold`. A `Combination` keeps partial results of one
operation. A `Choice` keeps the better of two candidates with all that belongs to it (an argmax);
each lane remembers where its candidate came from, so that ties go as they do one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.llvm import ELEM_BYTES, Val, constant, type_text
from akg_py.codegen.values import stays_inside
from akg_py.ir.expr import (
    Binary,
    Cast,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    free_vars,
    is_index,
    loads,
    rebuild,
    same,
)
from akg_py.ir.stmt import Buffer, If, Intrinsic, Seq, Stmt, Store, buffer_of

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

_LOGICAL = {"||": 0, "&&": 1}


class Fold(ABC):
    """One reduction over a loop: `count` accumulators of as many lanes as the loop has."""

    #: expressions that are evaluated for each element
    operands: list[Expr]
    #: bytes of the widest value that a lane keeps
    lane_bytes: int

    @abstractmethod
    def start(self, loops: Loops, count: int, lanes: int) -> None:
        """Make the accumulators."""

    @abstractmethod
    def step(self, loops: Loops, n: int, more: bool) -> None:
        """Take the elements of the present lanes into accumulator `n`.

        Args:
            more: whether a step of whole vectors follows at once.
        """

    @abstractmethod
    def finish(self, loops: Loops) -> None:
        """Join the accumulators and store the result."""


class Slots:
    """Stack slots of one value in several accumulators; LLVM turns them into registers."""

    def __init__(self, loops: Loops, start: Val, count: int, lanes: int) -> None:
        self.elem, self.lanes = start.elem, lanes
        self.type = type_text(start.elem, lanes)
        size = max(ELEM_BYTES[start.elem] * lanes, 1)
        self.slots = [loops.b.alloca(self.type, size) for _ in range(count)]
        first = loops.b.splat(start, lanes)
        for slot in self.slots:
            loops.b.emit(f"store {first.typed}, ptr {slot}")

    def read(self, loops: Loops, n: int) -> Val:
        return loops.b.op(f"load {self.type}, ptr {self.slots[n]}", self.elem, self.lanes)

    def write(self, loops: Loops, n: int, value: Val) -> None:
        loops.b.emit(f"store {loops.b.splat(value, self.lanes).typed}, ptr {self.slots[n]}")

    def all(self, loops: Loops) -> list[Val]:
        return [self.read(loops, n) for n in range(len(self.slots))]


def find_folds(store: Store, var: Var, alias: dict[int, int]) -> list[Fold] | None:
    """The folds that `store` is over the loop of `var`, or None."""
    combined = [accumulated(store, alias, n) for n in range(len(store.buffers))]
    if all(e is not None for e in combined):
        return [
            Combination(buffer, store, e, value.op)  # type: ignore[attr-defined]
            for buffer, value, e in zip(store.buffers, store.values, combined, strict=True)
            if e is not None
        ]
    choice = _find_choice(store, var, alias)
    return None if choice is None else [choice]


def only_store(s: Stmt) -> tuple[Store | None, Expr | None]:
    """The store that a body consists of, and the condition it stands under."""
    condition: Expr | None = None
    while True:
        match s:
            case Intrinsic():
                s = s.body
            case Seq(stmts=(only,)):
                s = only
            case If(orelse=None) if condition is None and s.condition.dtype == "bool":
                condition, s = s.condition, s.body
            case Store():
                return s, condition
            case _:
                return None, None


def accumulated(store: Store, alias: dict[int, int], n: int = 0) -> Expr | None:
    """`x` of `B[i] = B[i] op x`, part `n` of `store`, if `x` reads nothing that `store` writes."""
    value, buffer = store.values[n], store.buffers[n]
    if not isinstance(value, Binary) or value.dtype != buffer.dtype:
        return None
    if value.op not in ("+", "*", "max", "min", *_LOGICAL):
        return None
    roots = {alias.get(id(b), id(b)) for b in store.buffers}
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if _is_old(own, buffer, store.indices):
            reads = list(loads(other))
            if any(alias.get(id(x.source), id(x.source)) in roots for x in reads):
                return None
            hidden = value.op in _LOGICAL and own is value.a  # what a short circuit may skip
            if hidden and not all(stays_inside(buffer_of(x), x.indices) for x in reads):
                return None
            return other
    return None


def _is_old(e: Expr, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
    return isinstance(e, Load) and buffer_of(e) is buffer and all(map(same, e.indices, indices))


def combine(loops: Loops, op: str, old: Val, operand: Expr, dtype: str) -> Val:
    """`old op operand`; a product is fused where the processor can."""
    fuses = op == "+" and dtype in ("float32", "float64")
    if fuses and isinstance(operand, Binary) and operand.op == "*":
        return multiply_add(loops, loops.value(operand.a), loops.value(operand.b), old)
    return arithmetic.binary(loops.b, op, old, loops.value(operand), dtype)


def multiply_add(loops: Loops, x: Val, y: Val, old: Val) -> Val:
    """`x * y + old` of floats, rounded once where the processor can."""
    if loops.processor.has_fma:
        return loops.b.intrinsic("fma", x, y, old)
    return loops.b.bin("fadd", old, loops.b.bin("fmul", x, y))


def _write_element(loops: Loops, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
    where = loops.position(buffer, indices)
    held = loops.registers.get(id(buffer))
    raw = arithmetic.store_form(loops.b, value, buffer.dtype)
    if held is not None:
        held.write(loops, where, raw)
    else:
        loops.write(buffer, where, raw)


def _halves(loops: Loops, v: Val) -> tuple[Val, Val]:
    half = v.lanes // 2
    if half == 1:
        return loops.b.lane(v, 0), loops.b.lane(v, 1)
    return (
        loops.b.shuffle(v, list(range(half))),
        loops.b.shuffle(v, list(range(half, 2 * half))),
    )


class Combination(Fold):
    """`B[i] = B[i] op x`.

    max and min of floats ignore NaN at first, which is one instruction, and note aside that there
    was one.
    """

    def __init__(self, buffer: Buffer, store: Store, operand: Expr, op: str) -> None:
        self.buffer, self.indices, self.op = buffer, store.indices, op
        self.operand = operand
        self.operands = [operand]
        self.dtype = buffer.dtype
        self.is_bounded = op in ("max", "min") and dtypes.is_float(buffer.dtype)
        self.lane_bytes = ELEM_BYTES[arithmetic.compute_elem(self.dtype)]
        self.pending: Val | None = None

    def start(self, loops: Loops, count: int, lanes: int) -> None:
        self.slots = Slots(loops, arithmetic.literal(self._identity(), self.dtype), count, lanes)
        if self.is_bounded:
            self.nan = Slots(loops, constant(False, "i1"), 1, lanes)

    def _identity(self) -> float | int:
        if self.op in _LOGICAL:
            return _LOGICAL[self.op]
        if self.op == "+":
            return -0.0 if dtypes.is_float(self.dtype) else 0
        if self.op == "*":
            return 1
        return dtypes.lowest(self.dtype) if self.op == "max" else dtypes.highest(self.dtype)

    def step(self, loops: Loops, n: int, more: bool) -> None:
        old, mask = self.slots.read(loops, n), loops.mask
        if self.is_bounded:
            x = loops.value(self.operand)
            new = self._larger(loops, old, x)
            self._note_nan(loops, x, more)
        else:
            new = combine(loops, self.op, old, self.operand, self.dtype)
        if mask is not None:
            new = loops.b.select(mask, new, old)
        self.slots.write(loops, n, new)

    def _larger(self, loops: Loops, x: Val, y: Val) -> Val:
        test = "ogt" if self.op == "max" else "olt"
        return loops.b.select(loops.b.compare(test, x, y), x, y)

    def _note_nan(self, loops: Loops, x: Val, more: bool) -> None:
        """One comparison finds a NaN in either of two vectors."""
        if more and self.pending is None and loops.mask is None:
            self.pending = x
            return
        other, self.pending = self.pending or x, None
        found = loops.b.compare("uno", other, x)
        if loops.mask is not None:
            found = loops.b.bin("and", found, loops.mask)
        self.nan.write(loops, 0, loops.b.bin("or", self.nan.read(loops, 0), found))

    def finish(self, loops: Loops) -> None:
        parts = self.slots.all(loops)
        while len(parts) > 1:
            parts = [
                self._join(loops, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                for i in range(0, len(parts), 2)
            ]
        result = parts[0]
        while result.lanes > 1:
            result = self._join(loops, *_halves(loops, result))
        if self.is_bounded:
            seen = self.nan.read(loops, 0)
            if seen.lanes > 1:
                seen = loops.b.call(f"llvm.vector.reduce.or.v{seen.lanes}i1", "i1", 1, seen)
            result = loops.b.select(seen, constant(float("nan"), result.elem), result)
        old = loops.load(self.buffer, self.indices)
        final = arithmetic.binary(loops.b, self.op, old, result, self.dtype)
        _write_element(loops, self.buffer, self.indices, final)

    def _join(self, loops: Loops, x: Val, y: Val) -> Val:
        if self.is_bounded:
            return self._larger(loops, x, y)
        return arithmetic.binary(loops.b, self.op, x, y, self.dtype)


class Choice(Fold):
    """`A[i], B[i] = (A[i], B[i]) if keep else (a, b)`, for any number of parts.

    Attributes:
        keep: the condition, reading the old parts from their buffers and the new from `new`.
        held: parts that each lane keeps; the others follow from the place of its candidate.
    """

    def __init__(self, store: Store, var: Var, news: list[Expr], keep: Expr) -> None:
        self.store, self.var, self.news = store, var, news
        self.new = [Buffer(f"{b.name}.new", (), b.dtype, "local") for b in store.buffers]
        self.keep = self._abstract(keep)
        mentioned = {id(x.source) for x in loads(self.keep)}
        self.held = [
            n
            for n, (old, new) in enumerate(zip(store.buffers, self.new, strict=True))
            if not _is_place(news[n]) or {id(old), id(new)} & mentioned
        ]
        self.operands = [news[n] for n in self.held]
        kept = [arithmetic.compute_elem(store.buffers[n].dtype) for n in self.held]
        self.lane_bytes = max(ELEM_BYTES[elem] for elem in (*kept, "i32"))

    def _abstract(self, e: Expr) -> Expr:
        for buffer, new in zip(self.new, self.news, strict=True):
            if same(e, new):
                return Load(buffer, (), buffer.dtype)
        return rebuild(e, self._abstract)

    def is_closed(self) -> bool:
        """Whether the condition depends on nothing but the old and the new parts."""
        known = {id(b) for b in (*self.store.buffers, *self.new)}
        return self.var not in free_vars(self.keep) and all(
            id(x.source) in known for x in loads(self.keep)
        )

    def start(self, loops: Loops, count: int, lanes: int) -> None:
        self.old = [loops.load(b, self.store.indices) for b in self.store.buffers]
        self.slots = [Slots(loops, self.old[n], count, lanes) for n in self.held]
        self.place = Slots(loops, constant(-1, "i32"), count, lanes)

    def _keeps(self, loops: Loops, old: list[Val], new: list[Val]) -> Val:
        """Whether `old` stays when `new` comes after it."""
        mask, loops.mask = loops.mask, None
        for n, x, y in zip(self.held, old, new, strict=True):
            loops.given[id(self.store.buffers[n])] = x
            loops.given[id(self.new[n])] = y
        result = loops.value(self.keep)
        for n in self.held:
            del loops.given[id(self.store.buffers[n])], loops.given[id(self.new[n])]
        loops.mask = mask
        return result

    def step(self, loops: Loops, n: int, more: bool) -> None:
        old = [slots.read(loops, n) for slots in self.slots]
        new = [loops.value(e) for e in self.operands]
        keep = self._keeps(loops, old, new)
        if loops.mask is not None:
            keep = loops.b.bin("or", keep, loops.b.invert(loops.mask))
        for slots, x, y in zip(self.slots, old, new, strict=True):
            slots.write(loops, n, loops.b.select(keep, x, y))
        here = loops.materialise(loops.env[self.var], "i32")
        self.place.write(loops, n, loops.b.select(keep, self.place.read(loops, n), here))

    def finish(self, loops: Loops) -> None:
        columns = [*(slots.all(loops) for slots in self.slots), self.place.all(loops)]
        parts = [list(row) for row in zip(*columns, strict=True)]
        while len(parts) > 1:
            parts = [
                self._join(loops, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                for i in range(0, len(parts), 2)
            ]
        result = parts[0]
        while result[-1].lanes > 1:
            pairs = [_halves(loops, v) for v in result]
            result = self._join(loops, [a for a, _ in pairs], [b for _, b in pairs])
        *values, place = result
        found = loops.b.compare("sge", place, constant(0, "i32"))
        outer = loops.env.get(self.var)
        loops.env[self.var] = loops.from_value(loops.b.cast("sext", place, "i64"))
        for n, (buffer, old) in enumerate(zip(self.store.buffers, self.old, strict=True)):
            if n in self.held:
                final = values[self.held.index(n)]
            else:
                final = loops.b.select(found, loops.value(self.news[n]), old)
            _write_element(loops, buffer, self.store.indices, final)
        del loops.env[self.var]
        if outer is not None:
            loops.env[self.var] = outer

    def _join(self, loops: Loops, x: list[Val], y: list[Val]) -> list[Val]:
        """What one after the other would have left: the earlier one asks whether it stays."""
        first = loops.b.compare("slt", x[-1], y[-1])
        stays = self._keeps(loops, x[:-1], y[:-1])
        goes = loops.b.invert(self._keeps(loops, y[:-1], x[:-1]))
        takes_x = loops.b.select(first, stays, goes)
        return [loops.b.select(takes_x, a, b) for a, b in zip(x, y, strict=True)]


def _is_place(e: Expr) -> bool:
    """Whether `e` follows from the loop's variable alone."""
    return is_index(e.a if isinstance(e, Cast) else e)


def _find_choice(store: Store, var: Var, alias: dict[int, int]) -> Choice | None:
    roots = {alias.get(id(b), id(b)) for b in store.buffers}
    news: list[Expr] = []
    keeps: list[tuple[Expr, bool]] = []
    for buffer, value in zip(store.buffers, store.values, strict=True):
        if not isinstance(value, Select) or value.dtype != buffer.dtype or value.guards:
            return None
        sides = [_is_old(e, buffer, store.indices) for e in (value.a, value.b)]
        if sum(sides) != 1:
            return None
        new = value.b if sides[0] else value.a
        reads = [alias.get(id(x.source), id(x.source)) for x in loads(new)]
        if any(root in roots for root in reads) or not (reads or var in free_vars(new)):
            return None
        news.append(new)
        keeps.append((value.condition, sides[0]))
    condition, stays = keeps[0]
    if not all(same(condition, c) and stays == s for c, s in keeps):
        return None
    choice = Choice(store, var, news, condition if stays else Unary("!", condition))
    return choice if choice.is_closed() else None
