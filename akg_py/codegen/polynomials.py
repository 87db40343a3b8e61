"""Functions of floats as polynomials, inline and without branches where possible.

Coefficients are fitted by `tests/codegen/fit_polynomials.py`; the largest error in units in the
last place of the correctly rounded result, measured by `tests/codegen/test_math.py`, stands at
each function. Each function becomes one internal function of the module per number of lanes, which
LLVM inlines. NaN is never converted to an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from akg_py.codegen.llvm import Builder, Val, constant, suffix, type_text

EXP = (
    0.5,
    0.1666666716337204,
    0.041666269302368164,
    0.008333265781402588,
    0.0013946086401119828,
    0.0001991783210542053,
)
EXPM1 = (
    0.5,
    0.1666666716337204,
    0.0416666679084301,
    0.008333289064466953,
    0.0013888808898627758,
    0.00019904959481209517,
    2.4882510842871852e-05,
)
LOG = (
    0.3333331048488617,
    -0.24999986588954926,
    0.20002226531505585,
    -0.16669251024723053,
    0.14218656718730927,
    -0.12384352833032608,
    0.11872994154691696,
    -0.1178978979587555,
    0.0691530779004097,
)
SIN = (-0.1666666716337204, 0.008333329111337662, -0.00019839330343529582, 2.7182743451703573e-06)
COS = (0.0416666679084301, -0.0013888883404433727, 2.4799515813356265e-05, -2.720989300541987e-07)
TANH_P = (
    1.0,
    0.13083180785179138,
    0.003103027818724513,
    1.1144525160489138e-05,
    -2.0185007443274117e-08,
    5.258246962847046e-11,
    -8.437153563691305e-14,
)
TANH_Q = (1.0, 0.4641650915145874, 0.024491487070918083, 0.0002544789167586714)
ERF_P = (
    1.1283791065216064,
    0.19078117609024048,
    0.0527898445725441,
    0.003779467660933733,
    0.0002848007425200194,
    2.0419313386810245e-06,
)
ERF_Q = (
    1.0,
    0.5024081468582153,
    0.11425633728504181,
    0.01499716192483902,
    0.0011651694076135755,
    3.800325430347584e-05,
)
LOG2_DOUBLE = (
    2.8853900817779263,
    0.9617966939257538,
    0.5770780164806664,
    0.4121985581273839,
    0.3206012989180051,
    0.26219163729192946,
    0.22458085679174994,
    0.1765400613217787,
)
EXP2_DOUBLE = (
    1.000000000000013,
    0.6931471805598715,
    0.24022650695649533,
    0.05550410866870305,
    0.009618129192170354,
    0.0013333557613839097,
    0.0001540343485088208,
    1.5252986957883839e-05,
    1.3259429435855324e-06,
    1.0149989697416201e-07,
)
LN2 = (0.693115234375, 3.194618329871446e-05)
LOG10_2 = (0.301025390625, 4.605039066518657e-06)
HALF_PI = (1.5707963276654482, -8.705515695504166e-10)
LOG2_E, LOG10_E, TWO_OVER_PI = 1.4426950408889634, 0.4342944819032518, 0.6366197723675814
TANH_LIMIT, ERF_LIMIT = 9.02, 3.93
REDUCTION_LIMIT = 1e7  # beyond it, sin and cos of a float need more digits of pi than a double has

_MAGIC, _MAGIC_BITS = (
    12582912.0,
    0x4B400000,
)  # 1.5 * 2**23: adding it rounds to an integer, kept in the low bits
_MAGIC_DOUBLE = 6755399441055744.0  # 1.5 * 2**52
_ROOT_HALF_BITS = 0x3F3504F3
_INF, _NAN = float("inf"), float("nan")


class _Math:
    """Short names over a Builder, for code that reads like the formula."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def num(self, value: float, like: Val) -> Val:
        return constant(value, like.elem)

    def add(self, x: Val, y: Val | float) -> Val:
        return self.b.bin("fadd", x, y if isinstance(y, Val) else self.num(y, x))

    def sub(self, x: Val, y: Val | float) -> Val:
        return self.b.bin("fsub", x, y if isinstance(y, Val) else self.num(y, x))

    def mul(self, x: Val, y: Val | float) -> Val:
        return self.b.bin("fmul", x, y if isinstance(y, Val) else self.num(y, x))

    def div(self, x: Val, y: Val) -> Val:
        return self.b.bin("fdiv", x, y)

    def fma(self, x: Val, y: Val | float, z: Val | float) -> Val:
        y = y if isinstance(y, Val) else self.num(y, x)
        z = z if isinstance(z, Val) else self.num(z, x)
        if self.b.module.processor.has_fma:
            return self.b.intrinsic("fma", x, y, z)
        return self.b.bin("fadd", self.b.bin("fmul", x, y), z)

    def poly(self, x: Val, coefficients: Sequence[float]) -> Val:
        """Horner's scheme, lowest coefficient first."""
        total = self.num(coefficients[-1], x)
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c) if total.lanes == x.lanes else self.fma(x, total, c)
        return total

    def test(self, kind: str, x: Val, y: Val | float) -> Val:
        return self.b.compare(kind, x, y if isinstance(y, Val) else self.num(y, x))

    def pick(self, c: Val, x: Val | float, y: Val) -> Val:
        return self.b.select(c, x if isinstance(x, Val) else self.num(x, y), y)

    def clamp(self, x: Val, lo: float, hi: float) -> Val:
        """NaN stays."""
        x = self.pick(self.test("ogt", x, hi), hi, x)
        return self.pick(self.test("olt", x, lo), lo, x)

    def size(self, x: Val) -> Val:
        return self.b.intrinsic("fabs", x)

    def bits(self, x: Val) -> Val:
        return self.b.cast("bitcast", x, "i32" if x.elem == "float" else "i64")

    def number(self, x: Val) -> Val:
        return self.b.cast("bitcast", x, "float" if x.elem == "i32" else "double")

    def int(self, op: str, x: Val, y: Val | int) -> Val:
        return self.b.bin(op, x, y if isinstance(y, Val) else constant(y, x.elem))

    def power_of_two(self, n: Val) -> Val:
        """2**n for an integer `n` in the normal range of float."""
        return self.number(self.int("shl", self.int("add", n, 127), 23))

    def scale(self, x: Val, n: Val) -> Val:
        """x * 2**n, right into the denormals."""
        if self.b.module.processor.has_scale:
            name = f"llvm.ldexp.{suffix(x)}.{suffix(n)}"
            return self.b.call(name, "float", x.lanes, x, n)
        first = self.int("ashr", n, 1)
        return self.mul(
            self.mul(x, self.power_of_two(first)), self.power_of_two(self.int("sub", n, first))
        )

    def nearest(self, t: Val) -> tuple[Val, Val]:
        """`t` rounded, as a float and as an integer."""
        shifted = self.add(t, _MAGIC)
        return self.sub(shifted, _MAGIC), self.int("sub", self.bits(shifted), _MAGIC_BITS)

    def exp_parts(self, x: Val) -> tuple[Val, Val]:
        """n and r with x = n ln 2 + r."""
        n, whole = self.nearest(self.mul(x, LOG2_E))
        r = self.fma(n, -LN2[0], x)
        return whole, self.fma(n, -LN2[1], r)

    def log_parts(self, x: Val) -> tuple[Val, Val]:
        """e and f with x = 2**e (1 + f), f around 0; for positive finite x."""
        small = self.test("olt", x, 2.0**-126)
        x = self.pick(small, self.mul(x, 2.0**23), x)
        shifted = self.int("sub", self.bits(x), _ROOT_HALF_BITS)
        e = self.b.cast("sitofp", self.int("ashr", shifted, 23), "float")
        e = self.pick(small, self.sub(e, 23.0), e)
        m = self.number(self.int("add", self.int("and", shifted, 0x7FFFFF), _ROOT_HALF_BITS))
        return e, self.sub(m, 1.0)

    def log_tail(self, f: Val, more: Val | None = None) -> Val:
        """log(1 + f) - f, plus `more`."""
        square = self.mul(f, f)
        cube = self.mul(self.mul(square, f), self.poly(f, LOG))
        return self.fma(square, -0.5, cube if more is None else self.add(cube, more))

    def log_domain(self, x: Val, result: Val, zero: float = 0.0) -> Val:
        """Infinity at `zero`, NaN below, and what is no number as it is."""
        outside = self.pick(
            self.test("oeq", x, zero), -_INF, self.b.splat(self.num(_NAN, x), x.lanes)
        )
        result = self.pick(self.test("ogt", x, zero), result, outside)
        return self.pick(self.test("oeq", x, _INF), x, result)


def _exp(m: _Math, x: Val) -> Val:  # 1 ulp
    n, r = m.exp_parts(m.clamp(x, -105.0, 89.0))
    return m.scale(m.add(m.fma(m.mul(r, r), m.poly(r, EXP), r), 1.0), n)


def _exp2(m: _Math, x: Val) -> Val:  # 1 ulp
    x = m.clamp(x, -151.0, 129.0)
    n, whole = m.nearest(x)
    r = m.mul(m.sub(x, n), 0.6931471805599453)
    return m.scale(m.add(m.fma(m.mul(r, r), m.poly(r, EXP), r), 1.0), whole)


def _expm1(m: _Math, x: Val) -> Val:  # 1.5 ulp
    n, r = m.exp_parts(m.clamp(x, -25.0, 88.9))
    p = m.fma(m.mul(r, r), m.poly(r, EXPM1), r)
    half = m.power_of_two(m.int("sub", n, 1))  # 2**n itself may be too large
    result = m.mul(m.fma(half, p, m.sub(half, 0.5)), 2.0)
    return m.pick(m.test("oeq", x, 0.0), x, result)


def _log(m: _Math, x: Val) -> Val:  # 1 ulp
    e, f = m.log_parts(x)
    y = m.add(f, m.log_tail(f, m.mul(e, LN2[1])))
    return m.log_domain(x, m.fma(e, LN2[0], y))


def _log2(m: _Math, x: Val) -> Val:  # 2 ulp
    e, f = m.log_parts(x)
    return m.log_domain(x, m.fma(m.add(f, m.log_tail(f)), LOG2_E, e))


def _log10(m: _Math, x: Val) -> Val:  # 2 ulp
    e, f = m.log_parts(x)
    y = m.fma(m.add(f, m.log_tail(f)), LOG10_E, m.mul(e, LOG10_2[1]))
    return m.log_domain(x, m.fma(e, LOG10_2[0], y))


def _log1p(m: _Math, x: Val) -> Val:  # 1 ulp
    u = m.add(x, 1.0)
    lost = m.pick(m.test("oge", x, 1.0), m.sub(m.num(1.0, x), m.sub(u, x)), m.sub(x, m.sub(u, 1.0)))
    e, f = m.log_parts(u)
    y = m.add(f, m.log_tail(f, m.fma(e, LN2[1], m.div(lost, u))))
    result = m.log_domain(x, m.fma(e, LN2[0], y), -1.0)
    return m.pick(m.test("oeq", x, 0.0), x, result)


def _tanh(m: _Math, x: Val) -> Val:  # 4 ulp
    c = m.clamp(x, -TANH_LIMIT, TANH_LIMIT)
    t = m.mul(c, c)
    return m.clamp(m.div(m.mul(c, m.poly(t, TANH_P)), m.poly(t, TANH_Q)), -1.0, 1.0)


def _erf(m: _Math, x: Val) -> Val:  # 5.5 ulp
    c = m.clamp(x, -ERF_LIMIT, ERF_LIMIT)
    t = m.mul(c, c)
    return m.clamp(m.div(m.mul(c, m.poly(t, ERF_P)), m.poly(t, ERF_Q)), -1.0, 1.0)


def _sigmoid(m: _Math, x: Val) -> Val:  # 2.5 ulp
    e = _exp(m, m.sub(m.num(-0.0, x), m.size(x)))
    return m.div(m.pick(m.test("olt", x, 0.0), e, m.b.splat(m.num(1.0, x), x.lanes)), m.add(e, 1.0))


def _circular(m: _Math, x: Val, quarter: int, name: str) -> Val:  # sin 1.5, cos 1.6 ulp
    wide = m.b.cast("fpext", x, "double")
    shifted = m.add(m.mul(wide, TWO_OVER_PI), _MAGIC_DOUBLE)
    n = m.sub(shifted, _MAGIC_DOUBLE)
    r = m.b.cast("fptrunc", m.fma(n, -HALF_PI[1], m.fma(n, -HALF_PI[0], wide)), "float")
    quadrant = m.int("add", m.b.cast("trunc", m.bits(shifted), "i32"), quarter)
    t = m.mul(r, r)
    sin = m.fma(m.mul(t, r), m.poly(t, SIN), r)
    cos = m.fma(m.mul(t, t), m.poly(t, COS), m.fma(t, -0.5, 1.0))
    odd = m.b.compare("ne", m.int("and", quadrant, 1), constant(0, "i32"))
    flip = m.int("shl", m.int("and", quadrant, 2), 30)
    result = m.number(m.int("xor", m.bits(m.pick(odd, cos, sin)), flip))
    if name == "sin":
        result = m.pick(m.test("oeq", x, 0.0), x, result)
    far = m.test("ogt", m.size(x), REDUCTION_LIMIT)
    some = far
    if far.lanes > 1:
        some = m.b.call(f"llvm.vector.reduce.or.v{far.lanes}i1", "i1", 1, far)
    slow, near, done = m.b.block("far"), m.b.at, m.b.block("done")
    m.b.branch(some, slow, done)
    m.b.at = slow
    exact = m.b.cast("fptrunc", m.b.per_lane(name, wide), "float")
    exact = m.pick(far, exact, result)
    m.b.jump(done)
    m.b.at = done
    return m.b.phi("float", x.lanes, [(result.ref, near), (exact.ref, slow)])


def _pow(m: _Math, x: Val, y: Val) -> Val:  # 0.51 ulp: in double precision, rounded once
    size, power = m.b.cast("fpext", m.size(x), "double"), m.b.cast("fpext", y, "double")
    shifted = m.int("sub", m.bits(size), 0x3FE6A09E667F3BCD)
    e = m.int("ashr", shifted, 52)
    e_double = m.sub(m.number(m.int("add", e, 0x4338000000000000)), _MAGIC_DOUBLE)
    mantissa = m.number(m.int("add", m.int("and", shifted, (1 << 52) - 1), 0x3FE6A09E667F3BCD))
    u = m.div(m.sub(mantissa, 1.0), m.add(mantissa, 1.0))
    log = m.fma(u, m.poly(m.mul(u, u), LOG2_DOUBLE), e_double)
    log = m.pick(m.test("oeq", size, 0.0), -_INF, log)
    log = m.pick(m.test("oeq", size, _INF), _INF, log)
    z = m.pick(m.test("oeq", size, 1.0), 0.0, m.mul(power, log))
    z = m.clamp(z, -200.0, 200.0)
    rounded = m.add(z, _MAGIC_DOUBLE)
    r = m.sub(z, m.sub(rounded, _MAGIC_DOUBLE))
    scale = m.number(m.int("shl", m.int("add", m.bits(rounded), 1023), 52))
    result = m.b.cast("fptrunc", m.mul(m.poly(r, EXP2_DOUBLE), scale), "float")

    half = m.mul(y, 0.5)
    whole = m.test("oeq", m.b.intrinsic("trunc", y), y)
    odd = m.b.bin("and", whole, m.test("une", m.b.intrinsic("trunc", half), half))
    odd = m.b.bin("and", odd, m.test("olt", m.size(y), 2.0**24))
    negative = m.b.compare("slt", m.bits(x), constant(0, "i32"))
    flipped = m.b.op(f"fneg {result.typed}", "float", result.lanes)
    result = m.pick(m.b.bin("and", odd, negative), flipped, result)
    undefined = m.b.bin("and", m.test("olt", x, 0.0), m.test("ogt", x, -_INF))
    undefined = m.b.bin("and", undefined, m.b.invert(whole))
    result = m.pick(m.b.bin("or", undefined, m.test("uno", x, y)), _NAN, result)
    return m.pick(m.b.bin("or", m.test("oeq", y, 0.0), m.test("oeq", x, 1.0)), 1.0, result)


FUNCTIONS: dict[str, Callable[..., Val]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "pow": _pow,
    "sin": lambda m, x: _circular(m, x, 0, "sin"),
    "cos": lambda m, x: _circular(m, x, 1, "cos"),
}


def call(b: Builder, name: str, args: list[Val]) -> Val:
    """Call a function of FUNCTIONS on floats, defining it in the module when it is new."""
    joined = b.join(*args)
    lanes = joined[0].lanes
    function = f"akg.{name}.{lanes}"
    module = b.module
    if function not in module.definitions:
        inner = Builder(module)
        wide = type_text("float", lanes)
        result = FUNCTIONS[name](
            _Math(inner), *(Val(f"%a{n}", "float", lanes) for n in range(len(joined)))
        )
        inner.at.end = f"ret {inner.splat(result, lanes).typed}"
        params = ", ".join(f"{wide} %a{n}" for n in range(len(joined)))
        module.definitions[function] = (
            f"define internal {wide} @{function}({params}) alwaysinline #0 {{\n{inner.body()}\n}}"
        )
    return b.call(function, "float", lanes, *joined)
