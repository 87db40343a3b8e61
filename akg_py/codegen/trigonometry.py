"""Circular functions and their inverses, inline for floats and doubles: a function per formula.

The largest error stands at each function, for float and for double, in units in the last place of
the exact result; `tests/codegen/test_math.py` measures it. Arguments beyond REDUCTION_LIMIT need
more digits of pi and go to the C library lane by lane.
"""

from __future__ import annotations

from akg_py.codegen import polynomials as table
from akg_py.codegen.formulas import Formula
from akg_py.codegen.llvm import Val, constant

REDUCTION_LIMIT = {"float": 1e6, "double": 1e8}


def _reduce(m: Formula, x: Val) -> tuple[Val, Val, Val]:
    """Quarters of a turn in the low bits of an integer, and the rest in two parts.

    The first product leaves an exact difference; what the second loses is the low part.
    """
    n, shifted = m.nearest(x, table.TWO_OVER_PI)
    first, second, third = table.HALF_PI[m.elem]
    y = m.exact_fma(n, -first, x)
    product = m.mul(n, second)
    r = m.sub(y, product)
    low = m.sub(m.sub(m.sub(y, r), product), m.exact_fma(n, second, m.negative(product)))
    return m.bits(shifted), r, m.fma(n, -third, low)


def _sin_cos(m: Formula, r: Val, low: Val) -> tuple[Val, Val]:
    t = m.mul(r, r)
    sin = m.add(r, m.fma(m.mul(t, r), m.poly(t, table.SIN[m.elem]), low))
    tail = m.fma(m.mul(t, t), m.poly(t, table.COS[m.elem]), m.negative(m.mul(r, low)))
    return sin, m.add(m.fma(t, -0.5, m.wide(1.0, r)), tail)


def _is_odd(m: Formula, quarters: Val) -> Val:
    return m.b.compare("ne", m.int("and", quarters, 1), constant(0, quarters.elem))


def _flipped(m: Formula, x: Val, quarters: Val, bit: int) -> Val:
    """`x`, negated where a bit of `quarters` is set."""
    top = m.format.fraction + (8 if m.elem == "float" else 11)
    flip = m.int("shl", m.int("and", quarters, 1 << bit), top - bit)
    return m.number(m.int("xor", m.bits(x), flip))


def _near(m: Formula, name: str, x: Val, result: Val) -> Val:
    """`result`, except for what is too large to reduce here."""
    far = m.test("ogt", m.size(x), REDUCTION_LIMIT[m.elem])

    def exact() -> Val:
        wide = m.b.per_lane(name, m.b.cast("fpext", x, "double") if m.elem == "float" else x)
        return m.b.cast("fptrunc", wide, "float") if m.elem == "float" else wide

    return m.unless(far, result, exact)


def sin(m: Formula, x: Val) -> Val:  # 1.3, 1.3 ulp
    quarters, r, low = _reduce(m, x)
    s, c = _sin_cos(m, r, low)
    result = _flipped(m, m.pick(_is_odd(m, quarters), c, s), quarters, 1)
    return _near(m, "sin", x, m.pick(m.test("oeq", x, 0.0), x, result))


def cos(m: Formula, x: Val) -> Val:  # 1.3, 1.3 ulp
    quarters, r, low = _reduce(m, x)
    quarters = m.int("add", quarters, 1)
    s, c = _sin_cos(m, r, low)
    return _near(m, "cos", x, _flipped(m, m.pick(_is_odd(m, quarters), c, s), quarters, 1))


def tan(m: Formula, x: Val) -> Val:  # 3, 3 ulp
    quarters, r, low = _reduce(m, x)
    s, c = _sin_cos(m, r, low)
    odd = _is_odd(m, quarters)
    result = _flipped(m, m.div(m.pick(odd, c, s), m.pick(odd, s, c)), quarters, 0)
    return _near(m, "tan", x, m.pick(m.test("oeq", x, 0.0), x, result))


def _arc(m: Formula, x: Val, t: Val) -> Val:
    """asin(x) for |x| <= 1/2 and t = x^2."""
    return m.fma(m.mul(x, t), m.poly(t, table.ASIN[m.elem]), x)


def _arc_parts(m: Formula, x: Val) -> tuple[Val, Val]:
    """Whether |x| <= 1/2, and asin(x) there; elsewhere twice asin(sqrt((1 - |x|) / 2))."""
    size = m.size(x)
    near = m.test("ole", size, 0.5)
    t = m.pick(near, m.mul(x, x), m.fma(size, -0.5, m.wide(0.5, x)))
    root = m.pick(near, x, m.sqrt(t))
    arc = _arc(m, root, t)
    return near, m.pick(near, arc, m.add(arc, arc))


def asin(m: Formula, x: Val) -> Val:  # 2.5, 2.5 ulp
    near, arc = _arc_parts(m, x)
    high, low, _ = table.HALF_PI[m.elem]
    far = m.sub(m.wide(high, x), m.sub(arc, low))
    return m.pick(near, arc, m.with_sign(far, x))


def acos(m: Formula, x: Val) -> Val:  # 1.5, 1.5 ulp
    near, arc = _arc_parts(m, x)
    high, low, _ = table.HALF_PI[m.elem]
    middle = m.sub(m.wide(high, x), m.sub(arc, low))
    left = m.sub(m.wide(2 * high, x), m.sub(arc, 2 * low))
    return m.pick(near, middle, m.pick(m.is_negative(x), left, arc))


def _atan_below_one(m: Formula, z: Val) -> Val:
    """atan(z) for 0 <= z <= 1."""
    t = m.mul(z, z)
    return m.fma(m.mul(z, t), m.poly(t, table.ATAN[m.elem]), z)


def atan(m: Formula, x: Val) -> Val:  # 1.5, 1.5 ulp
    size = m.size(x)
    steep = m.test("ogt", size, 1.0)
    z = m.pick(steep, m.div(1.0, size), size)
    high, low, _ = table.HALF_PI[m.elem]
    arc = _atan_below_one(m, z)
    return m.with_sign(m.pick(steep, m.sub(m.wide(high, x), m.sub(arc, low)), arc), x)


def atan2(m: Formula, y: Val, x: Val) -> Val:  # 1.5, 1.5 ulp
    """The angle of the point (x, y)."""
    height, width = m.size(y), m.size(x)
    steep = m.test("ogt", height, width)
    short, long = m.pick(steep, width, height), m.pick(steep, height, width)
    z = m.div(short, long)
    z = m.pick(m.test("oeq", long, 0.0), 0.0, z)
    z = m.pick(m.test("oeq", short, float("inf")), 1.0, z)
    high, low, _ = table.HALF_PI[m.elem]
    arc = _atan_below_one(m, z)
    arc = m.pick(steep, m.sub(m.wide(high, x), m.sub(arc, low)), arc)
    left = m.sub(m.wide(2 * high, x), m.sub(arc, 2 * low))
    arc = m.with_sign(m.pick(m.is_negative(x), left, arc), y)
    return m.pick(m.test("uno", x, y), float("nan"), arc)
