"""Index expressions: integers over loop variables, kept canonical by their constructors.

Sums are `Affine` nodes (a constant plus coefficients times atoms), constants fold, and `//`, `%`,
min, max and comparisons are decided by the static bounds that every `Var` carries. So equal indices
meet without a prover.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from akg_py.errors import ExpressionError
from akg_py.ir.nodes import INDEX, UNBOUNDED, Affine, Binary, Const, Expr, Var, same

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_INDEX_NODES = (Var, Affine, Const)
_INDEX_OPS = frozenset(("*", "//", "%", "min", "max"))


def is_index(e: Expr) -> bool:
    """Whether `e` is an integer expression over Vars only (kept canonical)."""
    if e.dtype != INDEX:
        return False
    if isinstance(e, _INDEX_NODES):
        return True
    return isinstance(e, Binary) and e.op in _INDEX_OPS and is_index(e.a) and is_index(e.b)


def _terms(e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
    if isinstance(e, Const):
        return (), int(e.value)
    if isinstance(e, Affine):
        return e.terms, e.const
    return ((e, 1),), 0


def _affine(terms: dict[Expr, int], constant: int) -> Expr:
    items = []
    remainders = False
    for item in terms.items():
        if item[1]:
            items.append(item)
            remainders = remainders or (isinstance(item[0], Binary) and item[0].op == "%")
    return _sum(_join_quotients(terms) if remainders else tuple(items), constant)


def _sum(terms: tuple[tuple[Expr, int], ...], constant: int) -> Expr:
    """The node of terms that are distinct, not zero and joined."""
    if not terms:
        return Const(constant, INDEX)
    if constant == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return Affine(terms, constant)


def _join_quotients(terms: dict[Expr, int]) -> tuple[tuple[Expr, int], ...]:
    """Replace `(x // n) * n * c + (x % n) * c` by `x * c`."""
    joined = {a: c for a, c in terms.items() if c}
    for atom, coef in list(joined.items()):
        if isinstance(atom, Binary) and atom.op == "%" and isinstance(atom.b, Const):
            quotient = Binary("//", atom.a, atom.b, INDEX)
            inner, constant = _terms(atom.a)
            if constant == 0 and joined.get(quotient) == coef * int(atom.b.value):
                del joined[quotient], joined[atom]
                for a, c in inner:
                    joined[a] = joined.get(a, 0) + coef * c
    return tuple((a, c) for a, c in joined.items() if c)


def linear_combination(e: Expr) -> tuple[dict[Expr, int], int]:
    """Split an index expression into {atom: coefficient} and a constant."""
    terms, constant = _terms(e)
    return dict(terms), constant


def _add(a: Expr, b: Expr, sign: int) -> Expr:
    terms_b, const_b = _terms(b)
    if not terms_b and const_b == 0:
        return a
    terms_a, const_a = _terms(a)
    if not terms_b:
        return _sum(terms_a, const_a + sign * const_b)
    merged = dict(terms_a)
    for atom, coef in terms_b:
        merged[atom] = merged.get(atom, 0) + sign * coef
    return _affine(merged, const_a + sign * const_b)


def _scale(a: Expr, factor: int) -> Expr:
    if factor == 1:
        return a
    terms, constant = _terms(a)
    return _sum(tuple((e, c * factor) for e, c in terms) if factor else (), constant * factor)


def index_binary(op: str, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return _fold(op, int(a.value), int(b.value))
    if op == "+":
        return _add(a, b, 1)
    if op == "-":
        return _add(a, b, -1)
    if op == "*":
        if isinstance(b, Const):
            return _scale(a, int(b.value))
        if isinstance(a, Const):
            return _scale(b, int(a.value))
        return Binary("*", a, b, INDEX)
    if op == "//" or op == "%":
        return _divide(op, a, b)
    if op in ("min", "max"):
        lo, hi = bounds(_add(b, a, -1))  # b - a
        if lo >= 0:
            return a if op == "min" else b
        if hi <= 0:
            return b if op == "min" else a
        return Binary(op, a, b, INDEX)
    return _compare(op, a, b)


def _fold(op: str, a: int, b: int) -> Expr:
    if op in COMPARISONS:
        return Const(COMPARE[op](a, b), "bool")
    if op in ("//", "%") and b == 0:
        raise ExpressionError(f"division by zero: {a} {op} 0", hint="divide by a positive constant")
    return Const(FOLD[op](a, b), INDEX)


FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _divide(op: str, a: Expr, b: Expr) -> Expr:
    if not isinstance(b, Const):
        lo, hi = bounds(a)
        b_lo, _ = bounds(b)
        if lo >= 0 and hi < b_lo:
            return Const(0, INDEX) if op == "//" else a
        return Binary(op, a, b, INDEX)
    divisor = int(b.value)
    if divisor == 0:
        raise ExpressionError(f"division by zero: {a} {op} 0", hint="divide by a positive constant")
    if divisor == 1:
        return a if op == "//" else Const(0, INDEX)
    if divisor < 0:
        return Binary(op, a, b, INDEX)
    terms, constant = _terms(a)
    quotient = {atom: c // divisor for atom, c in terms if c % divisor == 0}
    rest = _affine({atom: c for atom, c in terms if c % divisor}, constant % divisor)
    lo, hi = bounds(rest)
    if lo // divisor == hi // divisor:
        inner: Expr = Const(lo // divisor, INDEX)
    elif (split := _whole_steps(rest, divisor)) is not None:
        step, steps, below = split
        inner = _divide(op, steps, Const(divisor // step, INDEX))
        if op == "%":
            return _add(_scale(inner, step), below, 1)
    elif isinstance(rest, Binary) and rest.op == "//" and isinstance(rest.b, Const):
        inner = _divide("//", rest.a, Const(int(rest.b.value) * divisor, INDEX))
    else:
        inner = Binary("//", rest, b, INDEX)
    if op == "//":
        return _add(_affine(quotient, constant // divisor), inner, 1)
    if isinstance(inner, Const):
        return _add(rest, Const(int(inner.value) * divisor, INDEX), -1)
    return Binary("%", rest, b, INDEX)


def _whole_steps(e: Expr, divisor: int) -> tuple[int, Expr, Expr] | None:
    """(step, s, b) such that `e` is `step * s + b` with 0 <= b < step, a part of `divisor`.

    Then `b` has no part in the quotient, nor in what the remainder leaves out.
    """
    terms, constant = _terms(e)
    for step in sorted({math.gcd(c, divisor) for _, c in terms} - {1}, reverse=True):
        below = _affine({atom: c for atom, c in terms if c % step}, constant % step)
        lo, hi = bounds(below)
        if not isinstance(below, Const) and lo >= 0 and hi < step:
            steps = {atom: c // step for atom, c in terms if c % step == 0}
            return step, _affine(steps, constant // step), below
    return None


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    lo, hi = bounds(_add(a, b, -1))  # a - b against 0
    if op in (">", ">=", "!="):
        positive = {">": "<=", ">=": "<", "!=": "=="}[op]
        answer = _decided(positive, lo, hi)
        answer = None if answer is None else not answer
    else:
        answer = _decided(op, lo, hi)
    return Const(answer, "bool") if answer is not None else Binary(op, a, b, "bool")


def _decided(op: str, lo: int, hi: int) -> bool | None:
    if op == "<":
        return True if hi < 0 else False if lo >= 0 else None
    if op == "<=":
        return True if hi <= 0 else False if lo > 0 else None
    if lo == hi == 0:
        return True
    return False if lo > 0 or hi < 0 else None


def bounds(e: Expr) -> tuple[int, int]:
    """Inclusive static bounds of an index expression, from the bounds of its Vars."""
    if isinstance(e, Const):
        return int(e.value), int(e.value)
    if isinstance(e, Var):
        return e.lo, e.hi
    if isinstance(e, Affine):
        lo = hi = e.const
        selections = quotients = 0
        for atom, coef in e.terms:
            if isinstance(atom, Var):
                atom_lo, atom_hi = atom.lo, atom.hi
            else:
                atom_lo, atom_hi = bounds(atom)
                if isinstance(atom, Binary):
                    selections += atom.op in ("min", "max")
                    quotients += atom.op == "//"
            lo += coef * (atom_lo if coef > 0 else atom_hi)
            hi += coef * (atom_hi if coef > 0 else atom_lo)
        if selections:
            lo, hi = _tighten(e, lo, hi)
        if quotients > 1:
            lo, hi = _tighten_quotients(e, lo, hi)
        return lo, hi
    if not isinstance(e, Binary):
        return -UNBOUNDED, UNBOUNDED
    (a_lo, a_hi), (b_lo, b_hi) = bounds(e.a), bounds(e.b)
    if e.op == "min":
        return min(a_lo, b_lo), min(a_hi, b_hi)
    if e.op == "max":
        return max(a_lo, b_lo), max(a_hi, b_hi)
    if e.op == "*":
        corners = [x * y for x in (a_lo, a_hi) for y in (b_lo, b_hi)]
        return min(corners), max(corners)
    if e.op == "//" and b_lo > 0:
        corners = [x // y for x in (a_lo, a_hi) for y in (b_lo, b_hi)]
        return min(corners), max(corners)
    if e.op == "%" and b_lo > 0:
        return (0, b_hi - 1) if a_lo < 0 or a_hi >= b_lo else (a_lo, a_hi)
    return -UNBOUNDED, UNBOUNDED


def _tighten(e: Affine, lo: int, hi: int) -> tuple[int, int]:
    """Bounds of a sum that has a min or max: `r + min(a, b)` is at most `r + a` and `r + b`."""
    for atom, coef in e.terms:
        if isinstance(atom, Binary) and atom.op in ("min", "max"):
            rest = _affine({a: c for a, c in e.terms if a is not atom}, e.const)
            sides = [bounds(_add(rest, _scale(x, coef), 1)) for x in (atom.a, atom.b)]
            if (atom.op == "min") == (coef > 0):
                hi = min(hi, sides[0][1], sides[1][1])
            else:
                lo = max(lo, sides[0][0], sides[1][0])
    return lo, hi


def _tighten_quotients(e: Affine, lo: int, hi: int) -> tuple[int, int]:
    """Bounds of a sum with `x // n - y // n`: that is in `(x - y) // n .. ceil((x - y) / n)`."""
    quotients = [
        (a, c)
        for a, c in e.terms
        if isinstance(a, Binary) and a.op == "//" and isinstance(a.b, Const)
    ]
    for x, coef in quotients:
        for y, other in quotients:
            n = int(x.b.value) if isinstance(x.b, Const) else 0
            if coef <= 0 or other != -coef or n <= 0 or not same(x.b, y.b):
                continue
            rest_lo, rest_hi = bounds(
                _affine({a: c for a, c in e.terms if a is not x and a is not y}, e.const)
            )
            gap_lo, gap_hi = bounds(_add(x.a, y.a, -1))
            lo = max(lo, rest_lo + coef * (gap_lo // n))
            hi = min(hi, rest_hi + coef * -(-gap_hi // n))
    return lo, hi
