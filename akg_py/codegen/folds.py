"""Accumulators of reductions while their loop runs: how they start, take an element, and join.

In: a Store such as `B[i] = B[i] + x`; out: a `Fold`. A `Combination` keeps partial results of one
operation; `choices` has the folds that keep one of two candidates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import ELEM_BYTES, Val, constant
from akg_py.codegen.values import stays_inside
from akg_py.ir.expr import (
    Binary,
    Expr,
    Load,
    Var,
    loads,
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
    def start(self, loops: Loops, count: int, lanes: int, total: Val) -> None:
        """Make the accumulators.

        Args:
            total: the extent of the loop.
        """

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
        self.slots = [loops.b.slot(start.elem, lanes) for _ in range(count)]
        first = loops.b.splat(start, lanes)
        for slot in self.slots:
            loops.b.hold(slot, first)

    def read(self, loops: Loops, n: int) -> Val:
        return loops.b.held(self.slots[n], self.elem, self.lanes)

    def write(self, loops: Loops, n: int, value: Val) -> None:
        loops.b.hold(self.slots[n], loops.b.splat(value, self.lanes))

    def all(self, loops: Loops) -> list[Val]:
        return [self.read(loops, n) for n in range(len(self.slots))]


class NanFlag:
    """Whether a NaN came by, for each lane; one comparison looks at two vectors."""

    def __init__(self, loops: Loops, lanes: int) -> None:
        self.slots = Slots(loops, constant(False, "i1"), 1, lanes)
        self.pending: Val | None = None

    def note(self, loops: Loops, x: Val, more: bool, mask: Val | None = None) -> None:
        """Look at `x`, where `mask` is set; with the next vector if there are `more`."""
        if more and self.pending is None and mask is None:
            self.pending = x
            return
        other, self.pending = self.pending or x, None
        found = loops.b.compare("uno", other, x)
        if mask is not None:
            found = loops.b.bin("and", found, mask)
        self.slots.write(loops, 0, loops.b.bin("or", self.slots.read(loops, 0), found))

    def any(self, loops: Loops) -> Val:
        """Whether any lane saw one."""
        seen = self.slots.read(loops, 0)
        if seen.lanes > 1:
            seen = loops.b.call(f"llvm.vector.reduce.or.v{seen.lanes}i1", "i1", 1, seen)
        return seen


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
        if is_old(own, buffer, store.indices):
            reads = list(loads(other))
            if any(alias.get(id(x.source), id(x.source)) in roots for x in reads):
                return None
            hidden = value.op in _LOGICAL and own is value.a  # what a short circuit may skip
            if hidden and not all(stays_inside(buffer_of(x), x.indices) for x in reads):
                return None
            return other
    return None


def is_old(e: Expr, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
    """Whether `e` is the element itself."""
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


def write_element(loops: Loops, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
    """Store a value in its compute type, in registers or in memory."""
    where = loops.position(buffer, indices)
    held = loops.registers.get(id(buffer))
    raw = arithmetic.store_form(loops.b, value, buffer.dtype)
    if held is not None:
        held.write(loops, where, raw)
    else:
        loops.write(buffer, where, raw)


def halves(loops: Loops, v: Val) -> tuple[Val, Val]:
    """The lower and the upper lanes of a vector."""
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

    def start(self, loops: Loops, count: int, lanes: int, total: Val) -> None:
        self.slots = Slots(loops, arithmetic.literal(self._identity(), self.dtype), count, lanes)
        if self.is_bounded:
            self.nan = NanFlag(loops, lanes)

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
            self.nan.note(loops, x, more, mask)
        else:
            new = combine(loops, self.op, old, self.operand, self.dtype)
        if mask is not None:
            new = loops.b.select(mask, new, old)
        self.slots.write(loops, n, new)

    def take_in_turn(self, loops: Loops, var: Var, count: int) -> None:
        """Combine the elements at `var` = 0 .. `count` - 1 of each lane; only if `is_bounded`."""
        b = loops.b
        best = loops.load(self.buffer, self.indices)
        ordered, pending = None, None
        for n in range(count):
            with loops.bound(var, Linear(const=n)):
                x = b.splat(loops.value(self.operand), best.lanes)
            best = self._larger(loops, x, best)  # which stays if it is NaN
            if pending is None and n + 1 < count:
                pending = x
            else:
                ordered = b.both(ordered, b.compare("ord", pending or x, x))
                pending = None
        assert ordered is not None
        result = b.select(ordered, best, constant(float("nan"), best.elem))
        write_element(loops, self.buffer, self.indices, result)

    def _larger(self, loops: Loops, x: Val, y: Val) -> Val:
        test = "ogt" if self.op == "max" else "olt"
        return loops.b.select(loops.b.compare(test, x, y), x, y)

    def finish(self, loops: Loops) -> None:
        parts = self.slots.all(loops)
        while len(parts) > 1:
            parts = [
                self._join(loops, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                for i in range(0, len(parts), 2)
            ]
        result = parts[0]
        while result.lanes > 1:
            result = self._join(loops, *halves(loops, result))
        if self.is_bounded:
            result = loops.b.select(
                self.nan.any(loops), constant(float("nan"), result.elem), result
            )
        old = loops.load(self.buffer, self.indices)
        final = arithmetic.binary(loops.b, self.op, old, result, self.dtype)
        write_element(loops, self.buffer, self.indices, final)

    def _join(self, loops: Loops, x: Val, y: Val) -> Val:
        if self.is_bounded:
            return self._larger(loops, x, y)
        return arithmetic.binary(loops.b, self.op, x, y, self.dtype)
