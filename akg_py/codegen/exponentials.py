"""exp, log and what is made of them, inline for floats and doubles: a function per formula.

The largest error stands at each function, for float and for double, in units in the last place of
the exact result; `tests/codegen/test_math.py` measures it. Formulas are the same for both formats
unless their cost differs much; the coefficients are in `polynomials`.
"""

from __future__ import annotations

from akg_py.codegen import polynomials as table
from akg_py.codegen.formulas import INF, NAN, Formula
from akg_py.codegen.llvm import Val

#: beyond, the result is 0 or infinite; the polynomial needs a small remainder there too
EXP_RANGE = {"float": (-105.0, 89.0), "double": (-746.0, 710.0)}
EXP2_RANGE = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}
EXPM1_RANGE = {"float": (-25.0, 88.9), "double": (-44.0, 709.9)}
SIGMOID_RANGE = {"float": (-50.0, 105.0), "double": (-100.0, 746.0)}
TANH_NEAR, ERF_DOUBLE_LIMIT = 0.55, 5.95


def exp_parts(m: Formula, x: Val) -> tuple[Val, Val, Val]:
    """n (twice, as from `nearest`) and r with x = n ln 2 + r."""
    n, shifted = m.nearest(x, table.LOG2_E)
    high, low = table.LN2[x.elem]
    return n, shifted, m.fma(n, -low, m.fma(n, -high, x))


def exp_tail(m: Formula, r: Val) -> Val:
    """exp(r) for |r| <= ln 2 / 2."""
    return m.poly(r, (1.0, 1.0, *table.EXP[r.elem]))


def exp(m: Formula, x: Val) -> Val:  # 1, 1 ulp
    n, shifted, r = exp_parts(m, m.clamp(x, *EXP_RANGE[m.elem]))
    return m.scale(exp_tail(m, r), n, shifted)


def exp2(m: Formula, x: Val) -> Val:  # 1, 1 ulp
    x = m.clamp(x, *EXP2_RANGE[m.elem])
    n, shifted = m.nearest(x)
    return m.scale(m.poly(m.sub(x, n), (1.0, *table.EXP2[m.elem])), n, shifted)


def expm1(m: Formula, x: Val) -> Val:  # 1.5, 2 ulp
    _, shifted, r = exp_parts(m, m.clamp(x, *EXPM1_RANGE[m.elem]))
    p = m.fma(m.mul(r, r), m.poly(r, table.EXPM1[m.elem]), r)
    half = m.power_of_two(m.int("sub", m.whole(shifted), 1))  # 2**n itself may be too large
    result = m.mul(m.fma(half, p, m.sub(half, 0.5)), 2.0)
    return m.pick(m.test("oeq", x, 0.0), x, result)


def half_exp(m: Formula, x: Val) -> Val:
    """exp(x) / 2, finite where cosh is."""
    lo, hi = EXP_RANGE[m.elem]
    n, shifted, r = exp_parts(m, m.clamp(x, lo, hi + 1.0))
    return m.scale(exp_tail(m, r), m.sub(n, 1.0), m.sub(shifted, 1.0))


def sinh(m: Formula, x: Val) -> Val:  # 2, 2 ulp
    t = m.mul(x, x)
    near = m.fma(m.mul(t, x), m.poly(t, table.SINH[m.elem]), x)
    e = half_exp(m, m.size(x))
    far = m.with_sign(m.sub(e, m.div(0.25, e)), x)
    return m.pick(m.test("olt", m.size(x), 1.0), near, far)


def cosh(m: Formula, x: Val) -> Val:  # 1.5, 1.5 ulp
    e = half_exp(m, m.size(x))
    return m.add(e, m.div(0.25, e))


def tanh(m: Formula, x: Val) -> Val:  # 5, 1.6 ulp
    if m.elem == "float":
        return _odd_quotient(m, x, table.TANH_LIMIT, table.TANH_P, table.TANH_Q)
    t = m.mul(x, x)
    near = m.fma(m.mul(t, x), m.poly(t, table.TANH["double"]), x)
    e = half_exp(m, m.mul(m.size(x), 2.0))
    far = m.with_sign(m.sub(m.wide(1.0, x), m.div(1.0, m.add(e, 0.5))), x)
    return m.pick(m.test("olt", m.size(x), TANH_NEAR), near, far)


def erf(m: Formula, x: Val) -> Val:  # 5.5, 1.5 ulp
    if m.elem == "float":
        return _odd_quotient(m, x, table.ERF_LIMIT, table.ERF_P, table.ERF_Q)
    t = m.mul(x, x)
    near = m.fma(x, m.poly(t, table.ERF["double"]), x)
    size = m.clamp(m.size(x), 0.0, ERF_DOUBLE_LIMIT)
    u = m.sub(m.wide(1.0, x), m.div(2 * table.ERFC_CENTRE, m.add(size, table.ERFC_CENTRE)))
    rest = m.mul(exp(m, m.negative(m.mul(size, size))), m.poly(u, table.ERFC["double"]))
    far = m.with_sign(m.sub(m.wide(1.0, x), rest), x)
    return m.pick(m.test("olt", m.size(x), 1.0), near, far)


def _odd_quotient(m: Formula, x: Val, limit: float, p: table.Table, q: table.Table) -> Val:
    """x P(x^2) / Q(x^2), constant beyond the limit."""
    c = m.clamp(x, -limit, limit)
    t = m.mul(c, c)
    return m.clamp(m.div(m.mul(c, m.poly(t, p[m.elem])), m.poly(t, q[m.elem])), -1.0, 1.0)


def sigmoid(m: Formula, x: Val) -> Val:  # 2.5, 2.5 ulp
    """c / (c + c exp(-x)), where c is so small that the exponential stays finite."""
    n, shifted, r = exp_parts(m, m.clamp(m.negative(x), *SIGMOID_RANGE[m.elem]))
    c = 2.0 ** -(m.format.fraction + 1)
    scaled = [c * k for k in (1.0, 1.0, *table.EXP[m.elem])]
    return m.div(c, m.add(m.scale(m.poly(r, scaled), n, shifted), c))


def log_parts(m: Formula, x: Val) -> tuple[Val, Val]:
    """e and f with x = 2**e (1 + f), f from -1/4 to 1/2."""
    e, mantissa = m.binary_parts(x)
    return e, m.sub(mantissa, 1.0)


def log_tail(m: Formula, f: Val, more: Val | None = None) -> Val:
    """log(1 + f) - f, plus `more`."""
    square = m.mul(f, f)
    if m.elem == "float":
        cube = m.mul(m.mul(square, f), m.poly(f, table.LOG["float"]))
        return m.fma(square, -0.5, cube if more is None else m.add(cube, more))
    s = m.div(f, m.add(f, 2.0))  # a quotient converges with half the terms
    t, half = m.mul(s, s), m.mul(square, 0.5)
    rest = m.mul(s, m.fma(t, m.poly(t, table.LOG_QUOTIENT["double"]), half))
    return m.sub(rest if more is None else m.add(rest, more), half)


def log_domain(m: Formula, x: Val, result: Val) -> Val:
    """Infinity at 0, NaN below, and what is no number as it is."""
    if m.b.module.processor.has_scale:
        return result  # the parts were right already
    outside = m.pick(m.test("oeq", x, 0.0), -INF, m.wide(NAN, x))
    result = m.pick(m.test("ogt", x, 0.0), result, outside)
    return m.pick(m.test("oeq", x, INF), x, result)


def log(m: Formula, x: Val) -> Val:  # 1, 1 ulp
    e, f = log_parts(m, x)
    high, low = table.LN2[m.elem]
    y = m.add(f, log_tail(m, f, m.mul(e, low)))
    return log_domain(m, x, m.fma(e, high, y))


def log2(m: Formula, x: Val) -> Val:  # 2, 2 ulp
    e, f = log_parts(m, x)
    return log_domain(m, x, m.fma(m.add(f, log_tail(m, f)), table.LOG2_E, e))


def log10(m: Formula, x: Val) -> Val:  # 2, 2 ulp
    e, f = log_parts(m, x)
    high, low = table.LOG10_2[m.elem]
    y = m.fma(m.add(f, log_tail(m, f)), table.LOG10_E, m.mul(e, low))
    return log_domain(m, x, m.fma(e, high, y))


def log1p(m: Formula, x: Val) -> Val:  # 1, 1 ulp
    u = m.add(x, 1.0)
    lost = m.pick(
        m.test("oge", x, 1.0), m.sub(m.wide(1.0, x), m.sub(u, x)), m.sub(x, m.sub(u, 1.0))
    )
    e, f = log_parts(m, u)
    high, low = table.LN2[m.elem]
    lost = m.pick(m.test("one", lost, 0.0), m.div(lost, u), 0.0)  # not NaN at -1 and infinity
    y = m.add(f, log_tail(m, f, m.fma(e, low, lost)))
    result = log_domain(m, u, m.fma(e, high, y))
    return m.pick(m.test("oeq", x, 0.0), x, result)


# ---------------------------------------------------------------- powers


def pow(m: Formula, x: Val, y: Val) -> Val:  # 0.52, 2 ulp
    """x ** y as 2 ** (y log2 |x|), with more digits than the format has."""
    if m.elem == "float":
        d = Formula(m.b, "double")
        size, power = m.b.cast("fpext", m.size(x), "double"), m.b.cast("fpext", y, "double")
        z = d.mul(power, _log2_short(d, size))
        z = d.clamp(d.pick(d.test("oeq", size, 1.0), 0.0, z), -200.0, 200.0)
        n, shifted = d.nearest(z)
        scale = d.number(d.int("shl", d.int("add", d.bits(shifted), 1023), 52))
        result = d.mul(d.poly(d.sub(z, n), (1.0, *table.EXP2_SHORT["double"])), scale)
        return _pow_domain(m, x, y, m.b.cast("fptrunc", result, "float"))
    size = m.size(x)
    high, low = _log2_long(m, size)
    z = m.mul(y, high)
    rest = m.fma(y, low, m.exact_fma(y, high, m.negative(z)))
    # where the product is infinite or NaN the rest is too, and means nothing
    rest = m.pick(m.test("olt", m.size(z), 1e4), rest, 0.0)
    z = m.clamp(m.pick(m.test("oeq", size, 1.0), 0.0, z), -1100.0, 1100.0)
    n, shifted = m.nearest(z)
    r = m.add(m.sub(z, n), rest)
    return _pow_domain(m, x, y, m.scale(m.poly(r, (1.0, *table.EXP2["double"])), n, shifted))


def _log2_short(d: Formula, x: Val) -> Val:
    """log2 to 35 bits."""
    e, mantissa = d.binary_parts(x)
    u = d.div(d.sub(mantissa, 1.0), d.add(mantissa, 1.0))
    log = d.fma(u, d.poly(d.mul(u, u), table.LOG2["double"]), e)
    return log_domain(d, x, log)


def _log2_long(m: Formula, x: Val) -> tuple[Val, Val]:
    """log2 as a sum of two doubles, to 2**-65 of itself."""
    e, f = log_parts(m, x)
    # s = f / (2 + f) in two parts, where 2 + f is below + lost
    below = m.add(f, 2.0)
    lost = m.sub(f, m.sub(below, 2.0))
    inverse = m.div(1.0, below)
    s = m.mul(f, inverse)
    rest = m.exact_fma(m.negative(s), below, f)
    s_low = m.mul(m.fma(m.negative(s), lost, rest), inverse)
    t = m.mul(s, s)
    t_low = m.fma(m.mul(s, 2.0), s_low, m.exact_fma(s, s, m.negative(t)))
    # first + t (second + t tail): each sum is led by one term
    first, first_low = table.LOG2_FIRST["double"]
    second, second_low = table.LOG2_SECOND["double"]
    tail = m.mul(t, m.poly(t, table.LOG2_TAIL["double"]))
    inner = m.add(tail, second)
    inner_low = m.add(m.sub(tail, m.sub(inner, second)), second_low)
    product = m.mul(t, inner)
    product_low = m.fma(t, inner_low, m.exact_fma(t, inner, m.negative(product)))
    product_low = m.fma(t_low, inner, product_low)
    outer = m.add(product, first)
    outer_low = m.sub(product, m.sub(outer, first))
    outer_low = m.add(m.add(outer_low, first_low), product_low)
    high = m.mul(s, outer)
    low = m.fma(s, outer_low, m.exact_fma(s, outer, m.negative(high)))
    low = m.fma(s_low, outer, low)
    # e is 0 or larger than the rest
    total = m.add(e, high)
    low = m.add(m.add(m.sub(e, total), high), low)
    return log_domain(m, x, total), low


def _pow_domain(m: Formula, x: Val, y: Val, result: Val) -> Val:
    """`result` for finite positive x and finite y, and the right one elsewhere."""
    usual = m.both(m.test("ogt", x, 0.0), m.test("olt", x, INF))
    usual = m.both(usual, m.test("olt", m.size(y), INF))

    def unusual() -> Val:
        half = m.mul(y, 0.5)
        whole = m.test("oeq", m.b.intrinsic("trunc", y), y)
        odd = m.both(whole, m.test("une", m.b.intrinsic("trunc", half), half))
        odd = m.both(odd, m.test("olt", m.size(y), 2.0 ** (m.format.fraction + 1)))
        signed = m.pick(m.both(odd, m.is_negative(x)), m.negative(result), result)
        undefined = m.both(m.test("olt", x, 0.0), m.test("ogt", x, -INF))
        undefined = m.both(undefined, m.b.invert(whole))
        signed = m.pick(m.either(undefined, m.test("uno", x, y)), NAN, signed)
        return m.pick(m.either(m.test("oeq", y, 0.0), m.test("oeq", x, 1.0)), 1.0, signed)

    return m.unless(m.b.invert(usual), result, unusual)
