"""The exact remainder of floats: C's fmod, inline.

|x| - q |y| is exact in a fused multiply-add when q is the integer part of the rounded quotient:
the difference is a multiple of |y|'s last place, and no larger than |y| when the quotient is small
enough to be off by one at most. Floats with larger quotients go through doubles, where divisors
|y| 2**216, |y| 2**144, |y| 2**72 and |y| leave each other quotients below 2**80.
"""

from __future__ import annotations

from akg_py.codegen.formulas import INF, Formula
from akg_py.codegen.llvm import Val

SMALL_QUOTIENT = {"float": 2.0**22, "double": 2.0**51}


def fmod(m: Formula, x: Val, y: Val) -> Val:  # exact
    if not m.b.module.processor.has_fma:
        return _by_library(m, x, y)
    a, b = m.size(x), m.size(y)
    quotient = m.b.intrinsic("trunc", m.div(a, b))
    r = m.exact_fma(m.negative(quotient), b, a)
    r = m.pick(m.test("olt", r, 0.0), m.add(r, b), r)
    r = m.pick(m.both(m.test("oeq", b, INF), m.test("olt", a, INF)), a, r)
    large = m.test("oge", quotient, SMALL_QUOTIENT[m.elem])
    exact = (lambda: _float_far(m, a, b)) if m.elem == "float" else (lambda: _by_library(m, a, b))
    return m.with_sign(m.unless(large, r, exact), x)


def _by_library(m: Formula, x: Val, y: Val) -> Val:
    return m.b.per_lane("fmodf" if m.elem == "float" else "fmod", x, y)


def _float_far(m: Formula, a: Val, b: Val) -> Val:
    """fmod of positive floats with any quotient."""
    d = Formula(m.b, "double")
    r, divisor = m.b.cast("fpext", a, "double"), m.b.cast("fpext", b, "double")
    for exponent in (216, 144, 72, 0):
        y = d.mul(divisor, 2.0**exponent)
        for _ in range(2):  # the first leaves a quotient of less than 2**29
            quotient = d.b.intrinsic("trunc", d.div(r, y))
            r = d.exact_fma(d.negative(quotient), y, r)
        r = d.pick(d.test("olt", r, 0.0), d.add(r, y), r)
    return m.b.cast("fptrunc", r, "float")
