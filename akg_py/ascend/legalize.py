"""Math functions that the vector unit lacks, as expressions over those it has.

`expand_math` is applied when a call is selected. Error: a few float32 ulp, see the fit of each
coefficient table in `codegen.polynomials`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from akg_py.codegen.polynomials import ERF_LIMIT, ERF_P, ERF_Q, TANH_LIMIT, TANH_P, TANH_Q
from akg_py.ir.expr import Binary, Call, Const, Expr, Select, binary, const


def _call(name: str, x: Expr) -> Expr:
    return Call(name, (x,), x.dtype)


def _scaled(name: str, factor: float) -> Callable[[Expr], Expr]:
    return lambda x: _call(name, x) * factor


def _sigmoid(x: Expr) -> Expr:
    return 1.0 / (_call("exp", -x) + 1.0)


def _exp2(x: Expr) -> Expr:
    return _call("exp", x * math.log(2))


def _log1p(x: Expr) -> Expr:
    """log(1 + x), corrected for the rounding of 1 + x where that is not 1."""
    u = x + 1.0
    exact = Binary("==", u, const(1.0, x.dtype), "bool")
    infinite = Binary("==", u, const(math.inf, x.dtype), "bool")
    safe = Select(exact, const(2.0, x.dtype), u, x.dtype)
    corrected = _call("log", safe) * (x / (safe - 1.0))
    return Select(exact, x, Select(infinite, u, corrected, x.dtype), x.dtype)


def _tanh(x: Expr) -> Expr:
    return _rational(x, TANH_P["float"], TANH_Q["float"], TANH_LIMIT)


def _erf(x: Expr) -> Expr:
    return _rational(x, ERF_P["float"], ERF_Q["float"], ERF_LIMIT)


def _rational(x: Expr, p: tuple[float, ...], q: tuple[float, ...], limit: float) -> Expr:
    """x P(x^2) / Q(x^2) for |x| < limit, and within -1 .. 1."""
    x = binary("max", binary("min", x, const(limit, x.dtype)), const(-limit, x.dtype))
    y = x * x
    value = x * _horner(y, p) / _horner(y, q)
    return binary("max", binary("min", value, const(1.0, x.dtype)), const(-1.0, x.dtype))


def _horner(y: Expr, coefficients: tuple[float, ...]) -> Expr:
    """A polynomial, lowest coefficient first."""
    e: Expr = const(coefficients[-1], y.dtype)
    for c in reversed(coefficients[:-1]):
        e = e * y + c
    return e


_EXPANSIONS: dict[str, Callable[[Expr], Expr]] = {
    "sigmoid": _sigmoid,
    "exp2": _exp2,
    "log2": _scaled("log", 1 / math.log(2)),
    "log10": _scaled("log", 1 / math.log(10)),
    "log1p": _log1p,
    "tanh": _tanh,
    "erf": _erf,
}


def expand_math(e: Call | Binary) -> Expr | None:
    """`e` over functions of the vector unit, or None."""
    if isinstance(e, Call) and e.name in _EXPANSIONS:
        return _EXPANSIONS[e.name](e.args[0])
    base, exponent = (
        (e.args[0], e.args[1])
        if isinstance(e, Call) and e.name == "pow"
        else ((e.a, e.b) if isinstance(e, Binary) else (None, None))
    )
    if base is not None and isinstance(exponent, Const):
        return _power(base, float(exponent.value))
    return None


def _power(base: Expr, exponent: float) -> Expr | None:
    if exponent == 0.5:
        return _call("sqrt", base)
    if exponent < 0:
        inner = _power(base, -exponent)
        return None if inner is None else 1.0 / inner
    if exponent != int(exponent) or exponent > 64:
        return None
    result: Expr | None = None
    square, n = base, int(exponent)
    while n:
        if n & 1:
            result = square if result is None else result * square
        square, n = square * square, n >> 1
    return const(1.0, base.dtype) if result is None else result
