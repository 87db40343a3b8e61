"""Index expressions as LLVM IR: sums over 64-bit values, with one coefficient for the lane number.

A `Linear` is `const + sum(coef * ref) + lane_coef * lane + steps[lane] + extra`. While it has no
`extra` an access knows how it steps over the lanes: stride 0 is a broadcast, 1 a vector load, other
small steps are a load of all they span and a shuffle, and the rest is gathered. Quotients and
remainders by a constant that divides what the lanes start at keep their steps known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field

from akg_py.codegen import arithmetic
from akg_py.codegen.llvm import Builder, Val, constant, constant_lanes
from akg_py.errors import InternalError
from akg_py.ir.expr import (
    INDEX,
    Affine,
    Binary,
    Const,
    Expr,
    Var,
    binary,
    bounds,
    is_index,
)
from akg_py.records import dataclass

_INT32 = 1 << 31


@dataclass(frozen=True)
class Linear:
    terms: dict[str, int] = field(default_factory=dict)
    const: int = 0
    lane: int = 0
    extra: Val | None = None
    steps: tuple[int, ...] = ()  # of the lanes from lane 0, where they are no multiples

    @property
    def is_uniform(self) -> bool:
        return self.lane == 0 and self.extra is None and not self.steps

    @property
    def is_constant(self) -> bool:
        return not self.terms and self.is_uniform

    @property
    def key(self) -> tuple[object, ...]:
        return frozenset(self.terms.items()), self.const, self.lane, self.steps

    def offsets(self, lanes: int) -> list[int]:
        """Where the lanes are from lane 0, as far as it is known."""
        return [self.lane * n + (self.steps[n] if self.steps else 0) for n in range(lanes)]


class Indices(ABC):
    """Emits index expressions under an environment; `lanes` is 1 outside of vector loops."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.env: dict[Var, Linear] = {}
        self.lanes = 1
        self.memo: dict[Expr, Linear] = {}  # index expressions that are computed already
        self.multiples: dict[str, int] = {}  # what loop counters are multiples of

    def add(self, x: Linear, y: Linear, factor: int = 1) -> Linear:
        """`x + factor * y`."""
        if factor == 0:
            return x
        terms = dict(x.terms)
        for ref, coef in y.terms.items():
            terms[ref] = terms.get(ref, 0) + factor * coef
        terms = {ref: coef for ref, coef in terms.items() if coef}
        extra = y.extra
        if extra is not None and factor != 1:
            extra = self.b.bin("mul", extra, constant(factor, "i64"))
        if extra is not None and x.extra is not None:
            extra = self.b.bin("add", x.extra, extra)
        const, lane, extra = x.const + factor * y.const, x.lane + factor * y.lane, extra or x.extra
        if not x.steps and not y.steps:
            return Linear(terms, const, lane, extra)
        offsets = zip(x.offsets(self.lanes), y.offsets(self.lanes), strict=True)
        return _stepping(terms, const, [a + factor * b for a, b in offsets], extra)

    def linear(self, e: Expr) -> Linear:
        """An index expression, or any integer expression, in the present environment."""
        if isinstance(e, Const):
            return Linear(const=int(e.value))
        if isinstance(e, Var):
            found = self.env.get(e)
            if found is None:
                raise InternalError(f"the variable {e.name} is not defined here")
            return found
        if isinstance(e, Affine):
            total = Linear(const=e.const)
            for atom, coef in e.terms:
                total = self.add(total, self.linear(atom), coef)
            return total
        if isinstance(e, Binary) and is_index(e):
            if e in self.memo:
                return self.memo[e]
            return self._operation(e)
        return self.from_value(arithmetic.convert(self.b, self.value(e), e.dtype, "int64"))

    @abstractmethod
    def value(self, e: Expr) -> Val:
        """The value of an expression."""

    def from_value(self, v: Val) -> Linear:
        return Linear({v.ref: 1}) if v.lanes == 1 else Linear(extra=v)

    def _operation(self, e: Binary) -> Linear:
        x, y = self.linear(e.a), self.linear(e.b)
        if e.op == "*" and (x.is_constant or y.is_constant):
            return (
                self.add(Linear(), x, y.const) if y.is_constant else self.add(Linear(), y, x.const)
            )
        if x.is_constant and y.is_constant and (e.op not in ("//", "%") or y.const):
            folded = binary(e.op, Const(x.const, INDEX), Const(y.const, INDEX))
            return Linear(const=int(folded))
        if e.op in ("//", "%") and y.is_constant and y.const > 0:
            known = self._digit(e.op, x, y.const, bounds(e.a)[0] >= 0)
            if known is not None:
                return known
        uniform = x.is_uniform and y.is_uniform
        narrow = not uniform and all(self.fits_int32(s) for s in (e.a, e.b, e))
        elem, dtype = ("i32", "int32") if narrow else ("i64", "int64")
        a, b = self.materialise(x, elem), self.materialise(y, elem)
        if e.op in ("//", "%") and y.is_constant and y.const > 0:
            result = self._divide(e.op, a, y.const, bounds(e.a)[0] >= 0, dtype)
        else:
            result = arithmetic.binary(self.b, e.op, a, b, dtype)
        return self.from_value(self.b.cast("sext", result, "i64"))

    def _digit(self, op: str, x: Linear, divisor: int, positive: bool) -> Linear | None:
        """`x // divisor` or `x % divisor` where all lanes start at a multiple of it."""
        if x.extra is not None or x.is_uniform:
            return None
        if any(coef * self.multiples.get(ref, 1) % divisor for ref, coef in x.terms.items()):
            return None
        first = x.const % divisor
        offsets = [first + n for n in x.offsets(self.lanes)]
        if op == "%":
            digits = [n % divisor for n in offsets]
            return _stepping({}, digits[0], [n - digits[0] for n in digits], None)
        quotients = [n // divisor for n in offsets]
        start = self._quotient(Linear(x.terms, x.const - first), divisor, positive)
        steps = [n - quotients[0] for n in quotients]
        return _stepping(start.terms, start.const + quotients[0], steps, None)

    def _quotient(self, x: Linear, divisor: int, positive: bool) -> Linear:
        """A multiple of `divisor`, divided by it."""
        if all(coef % divisor == 0 for coef in x.terms.values()):
            return Linear({r: c // divisor for r, c in x.terms.items()}, x.const // divisor)
        return self.from_value(
            self._divide("//", self.materialise(x), divisor, positive and x.const >= 0, "int64")
        )

    def _divide(self, op: str, a: Val, divisor: int, positive: bool, dtype: str) -> Val:
        shift = divisor.bit_length() - 1
        if divisor == 1 << shift:
            if op == "//":
                return self.b.bin("ashr", a, constant(shift, a.elem))
            return self.b.bin("and", a, constant(divisor - 1, a.elem))
        if positive:
            return self.b.bin("udiv" if op == "//" else "urem", a, constant(divisor, a.elem))
        return arithmetic.binary(self.b, op, a, constant(divisor, a.elem), dtype)

    def fits_int32(self, e: Expr) -> bool:
        lo, hi = bounds(e)
        return lo >= -_INT32 and hi < _INT32

    def uniform(self, x: Linear, elem: str = "i64") -> Val | None:
        """The part of `x` that all lanes share; None stands for zero."""
        total: Val | None = None
        for ref, coef in x.terms.items():
            term = Val(ref, "i64")
            if coef != 1:
                term = self.b.bin("mul nsw", term, constant(coef, "i64"))
            total = term if total is None else self.b.bin("add nsw", total, term)
        if total is not None and elem != "i64":
            total = self.b.cast("trunc", total, elem)
        if x.const:
            addend = constant(x.const, elem)
            total = addend if total is None else self.b.bin("add", total, addend)
        return total

    def materialise(self, x: Linear, elem: str = "i64") -> Val:
        """`x` as a value, a vector when it differs between lanes."""
        total = self.uniform(x, elem) or constant(0, elem)
        if x.lane or x.steps:
            total = self.b.bin("add", total, constant_lanes(x.offsets(self.lanes), elem))
        if x.extra is not None:
            total = self.b.bin(
                "add", total, x.extra if elem == "i64" else self.b.cast("trunc", x.extra, elem)
            )
        return total


def _stepping(terms: dict[str, int], const: int, offsets: list[int], extra: Val | None) -> Linear:
    """A sum whose lanes are at `offsets` from lane 0."""
    stride = offsets[1] - offsets[0]
    if all(n == offsets[0] + stride * i for i, n in enumerate(offsets)):
        return Linear(terms, const + offsets[0], stride, extra)
    return Linear(terms, const + offsets[0], 0, extra, tuple(n - offsets[0] for n in offsets))
