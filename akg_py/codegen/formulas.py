"""Formulas over floats or doubles as LLVM IR: short names over a Builder, and formats' constants.

In: operands of one format, scalars or vectors; out: code that reads like the formula. Nothing here
uses fast-math flags, and NaN is never converted to an integer: what must become one is rounded by
adding a large number, which leaves the integer in the low bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from akg_py.codegen.llvm import Builder, Val, constant
from akg_py.records import dataclass

INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Format:
    """A binary floating-point format."""

    elem: str
    ints: str  # the integer of the same size
    fraction: int  # bits
    bias: int
    three_quarters: int  # its bits

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer, kept in the low bits."""
        return 1.5 * 2.0**self.fraction

    @property
    def magic_bits(self) -> int:
        return ((self.bias + self.fraction) << self.fraction) | (1 << (self.fraction - 1))


FORMATS = {
    "float": Format("float", "i32", 23, 127, 0x3F400000),
    "double": Format("double", "i64", 52, 1023, 0x3FE8000000000000),
}


class Formula:
    """Short names over a Builder; `elem` is the format of the operands."""

    def __init__(self, b: Builder, elem: str) -> None:
        self.b, self.elem = b, elem
        self.format = FORMATS[elem]

    def num(self, value: float, like: Val) -> Val:
        return constant(value, like.elem)

    def wide(self, value: float, like: Val) -> Val:
        """`value` in all lanes of `like`."""
        return self.b.splat(constant(value, like.elem), like.lanes)

    # ------------------------------------------------------------ arithmetic

    def add(self, x: Val, y: Val | float) -> Val:
        return self.b.bin("fadd", x, y if isinstance(y, Val) else self.num(y, x))

    def sub(self, x: Val, y: Val | float) -> Val:
        return self.b.bin("fsub", x, y if isinstance(y, Val) else self.num(y, x))

    def mul(self, x: Val, y: Val | float) -> Val:
        return self.b.bin("fmul", x, y if isinstance(y, Val) else self.num(y, x))

    def div(self, x: Val | float, y: Val) -> Val:
        return self.b.bin("fdiv", x if isinstance(x, Val) else self.num(x, y), y)

    def negative(self, x: Val) -> Val:
        return self.b.op(f"fneg {x.typed}", x.elem, x.lanes)

    def fma(self, x: Val, y: Val | float, z: Val | float) -> Val:
        """x y + z, rounded once where the processor can."""
        if self.b.module.processor.has_fma:
            return self.exact_fma(x, y, z)
        return self.add(self.mul(x, y), z)

    def exact_fma(self, x: Val, y: Val | float, z: Val | float) -> Val:
        """x y + z, rounded once on every processor: a call of the C library on old ones."""
        y = y if isinstance(y, Val) else self.num(y, x)
        z = z if isinstance(z, Val) else self.num(z, x)
        return self.b.intrinsic("fma", x, y, z)

    def poly(self, x: Val, coefficients: Sequence[float]) -> Val:
        """Horner's scheme, lowest coefficient first."""
        total = self.num(coefficients[-1], x)
        for c in reversed(coefficients[:-1]):
            total = self.fma(x, total, c)
        return total

    def sqrt(self, x: Val) -> Val:
        return self.b.intrinsic("sqrt", x)

    def size(self, x: Val) -> Val:
        return self.b.intrinsic("fabs", x)

    def with_sign(self, x: Val, sign: Val) -> Val:
        return self.b.intrinsic("copysign", x, sign)

    # ------------------------------------------------------------ choices

    def test(self, kind: str, x: Val, y: Val | float) -> Val:
        return self.b.compare(kind, x, y if isinstance(y, Val) else self.num(y, x))

    def pick(self, c: Val, x: Val | float, y: Val | float) -> Val:
        like = x if isinstance(x, Val) else y
        assert isinstance(like, Val)
        sides = [v if isinstance(v, Val) else self.num(v, like) for v in (x, y)]
        return self.b.select(c, *sides)

    def both(self, c: Val, d: Val) -> Val:
        return self.b.bin("and", c, d)

    def either(self, c: Val, d: Val) -> Val:
        return self.b.bin("or", c, d)

    def clamp(self, x: Val, lo: float, hi: float) -> Val:
        """NaN stays."""
        x = self.pick(self.test("ogt", x, hi), hi, x)
        return self.pick(self.test("olt", x, lo), lo, x)

    def unless(self, rare: Val, usual: Val, make: Callable[[], Val]) -> Val:
        """`usual`, and in the lanes of `rare` what `make` gives; its code is branched around."""
        some = rare
        if rare.lanes > 1:
            some = self.b.call(f"llvm.vector.reduce.or.v{rare.lanes}i1", "i1", 1, rare)
        slow, near, done = self.b.block("rare"), self.b.at, self.b.block("done")
        self.b.branch(some, slow, done)
        self.b.at = slow
        mixed = self.b.splat(self.pick(rare, make(), usual), usual.lanes)
        end = self.b.at
        self.b.jump(done)
        self.b.at = done
        return self.b.phi(usual.elem, usual.lanes, [(usual.ref, near), (mixed.ref, end)])

    # ------------------------------------------------------------ bits

    def bits(self, x: Val) -> Val:
        return self.b.cast("bitcast", x, FORMATS[x.elem].ints)

    def number(self, x: Val) -> Val:
        return self.b.cast("bitcast", x, "float" if x.elem == "i32" else "double")

    def int(self, op: str, x: Val, y: Val | int) -> Val:
        return self.b.bin(op, x, y if isinstance(y, Val) else constant(y, x.elem))

    def is_negative(self, x: Val) -> Val:
        """Whether the sign bit is set."""
        return self.b.compare("slt", self.bits(x), constant(0, self.format.ints))

    def nearest(self, x: Val, factor: float = 1.0) -> tuple[Val, Val]:
        """`factor` x rounded to an integer, and that with `magic` added; below magic / 3."""
        magic = self.format.magic
        shifted = self.add(x, magic) if factor == 1.0 else self.fma(x, factor, magic)
        return self.sub(shifted, magic), shifted

    def whole(self, shifted: Val) -> Val:
        """The integer of `nearest`, as one."""
        return self.int("sub", self.bits(shifted), self.format.magic_bits)

    def small_number(self, n: Val) -> Val:
        """A small integer as a number; few processors convert vectors of 64-bit integers."""
        if n.elem == "i32":
            return self.b.cast("sitofp", n, "float")
        shifted = self.number(self.int("add", n, self.format.magic_bits))
        return self.sub(shifted, self.format.magic)

    def power_of_two(self, n: Val) -> Val:
        """2**n for an integer `n` in the normal range."""
        return self.number(
            self.int("shl", self.int("add", n, self.format.bias), self.format.fraction)
        )

    def scale(self, x: Val, n: Val, shifted: Val) -> Val:
        """x * 2**n right into the denormals and infinity; n and shifted as from `nearest`.

        In two steps, of which the first one is exact and the second by 2**-half or 2**half.
        """
        if self.b.module.processor.has_scale:
            return self._instruction("scalef", x, n)
        half, bias, low = (self.format.bias + 1) // 2, self.format.bias, self.is_negative(n)
        ints = [constant(bias + k, self.format.ints, n.lanes) for k in (half, -half)]
        first = self.int("add", self.bits(shifted), self.b.select(low, *ints))
        x = self.mul(x, self.number(self.int("shl", first, self.format.fraction)))
        return self.mul(x, self.pick(low, self.num(2.0**-half, n), 2.0**half))

    def binary_parts(self, x: Val) -> tuple[Val, Val]:
        """e and m with x = 2**e m and 3/4 <= m < 3/2, for positive finite x.

        With instructions for it, e is also right (or m is NaN) for every other x.
        """
        if self.b.module.processor.has_scale:
            mantissa = self._instruction("getmant", x)
            return self.sub(
                self._instruction("getexp", x), self._instruction("getexp", mantissa)
            ), mantissa
        bits, least = self.format.fraction, self.format.three_quarters
        small = self.test("olt", x, 2.0 ** (1 - self.format.bias))
        x = self.pick(small, self.mul(x, 2.0**bits), x)
        shifted = self.int("sub", self.bits(x), least)
        e = self.small_number(self.int("ashr", shifted, bits))
        e = self.pick(small, self.sub(e, float(bits)), e)
        return e, self.number(self.int("add", self.int("and", shifted, (1 << bits) - 1), least))

    def _instruction(self, name: str, *args: Val) -> Val:
        """An AVX-512 instruction on vectors of any length."""
        x = args[0]
        most = 64 // (4 if x.elem == "float" else 8)
        if x.lanes > most:  # by halves
            sides = list(range(x.lanes // 2)), list(range(x.lanes // 2, x.lanes))
            low, high = (
                self._instruction(name, *(self.b.shuffle(a, s) for a in args)) for s in sides
            )
            return self.b.shuffle(low, list(range(x.lanes)), high)
        lanes = max(x.lanes, most // 4)
        if lanes != x.lanes:
            order = [min(i, x.lanes - 1) for i in range(lanes)]
            few = x.lanes == 1
            args = tuple(self.b.splat(a, lanes) if few else self.b.shuffle(a, order) for a in args)
            wide = self._instruction(name, *args)
            return self.b.lane(wide, 0) if few else self.b.shuffle(wide, list(range(x.lanes)))
        kind = "ps" if x.elem == "float" else "pd"
        # the mantissa from 3/4 to 3/2 without a sign, NaN for negative numbers
        options = [constant(0b1111, "i32")] if name == "getmant" else []
        every = constant(-1, "i16" if lanes == 16 else "i8")
        rounding = [constant(4, "i32")] if lanes == most else []  # the one in force
        name = f"llvm.x86.avx512.mask.{name}.{kind}.{lanes * 512 // most}"
        return self.b.call(name, x.elem, lanes, *args, *options, args[0], every, *rounding)
