"""Arithmetic on LLVM vectors: loads and stores of every dtype, exp and ln, numpy's max, min, casts.

Everything is emitted for `<n x float>` or `<n x i32>` lanes; f16 and bf16 widen on load and round
(to nearest even, denormals kept) on store. exp and ln are polynomials fitted in float64 for this
file (1-2 ulp), right for infinities, NaN and denormals. No fast-math flag anywhere.
"""

from __future__ import annotations

import struct
from typing import Any

from llvmlite import ir

from akg_py.codegen.memory import F32, I1, I8, I16, I32, I64, pointer

HALF = ir.HalfType()
STORED = {"f32": F32, "f16": I16, "bf16": I16, "i32": I32, "i8": I8, "u8": I8}
BITS = {"f32": 32, "f16": 16, "bf16": 16, "i32": 32, "i8": 8, "u8": 8}

# exp(r) on |r| <= ln2 / 2, relative minimax, highest power first
EXP_POLY = (1.38131444e-3, 8.36941885e-3, 4.16684568e-2, 1.66665148e-1, 4.99999931e-1, 1.0, 1.0)
# ln(1 + f) = f - f^2/2 + f^3 * P(f) on [sqrt(1/2) - 1, sqrt(2) - 1], highest power first
LN_POLY = (
    6.73090798e-2,
    -1.16822597e-1,
    1.18984378e-1,
    -1.24053813e-1,
    1.42182487e-1,
    -1.66679535e-1,
    2.00021741e-1,
    -2.50000112e-1,
    3.33333119e-1,
)


def f32(value: float) -> float:
    """The nearest float32, as LLVM constants need it."""
    return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]


class Lanes:
    """Emits operations on `width` lanes with one builder."""

    def __init__(self, builder: ir.IRBuilder, width: int) -> None:
        self.b, self.width = builder, width
        self.floats = ir.VectorType(F32, width)
        self.ints = ir.VectorType(I32, width)

    def vector(self, kind: ir.Type) -> ir.VectorType:
        return ir.VectorType(kind, self.width)

    def real(self, value: float) -> ir.Constant:
        return ir.Constant(self.floats, [f32(value)] * self.width)

    def integer(self, value: int) -> ir.Constant:
        return ir.Constant(self.ints, [value] * self.width)

    def call(self, name: str, kind: ir.Type, *args: ir.Value) -> ir.Value:
        function = self.b.module.declare_intrinsic(name, [kind])
        if len(function.args) != len(args):
            raise AssertionError(name)
        return self.b.call(function, args)

    def unary(self, name: str, x: ir.Value) -> ir.Value:
        return self._declared(f"llvm.{name}.v{self.width}f32", self.floats, [self.floats], [x])

    def fma(self, a: ir.Value, x: ir.Value, c: ir.Value) -> ir.Value:
        return self._declared(
            f"llvm.fma.v{self.width}f32", self.floats, [self.floats] * 3, [a, x, c]
        )

    def _declared(
        self, name: str, result: ir.Type, kinds: list[ir.Type], args: list[ir.Value]
    ) -> ir.Value:
        module = self.b.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, kinds), name)
        return self.b.call(function, args)

    def splat(self, scalar: ir.Value) -> ir.Value:
        kind = self.vector(scalar.type)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(
            one, ir.Constant(kind, ir.Undefined), ir.Constant(self.ints, [0] * self.width)
        )

    def mask(self, count: ir.Value) -> ir.Value:
        """Lanes below `count` (i64)."""
        iota = ir.Constant(self.ints, list(range(self.width)))
        return self.b.icmp_signed("<", iota, self.splat(self.b.trunc(count, I32)))

    def load(
        self,
        address: ir.Value,
        dtype: str,
        mask: ir.Value | None = None,
        fill: ir.Value | None = None,
    ) -> ir.Value:
        """Lanes of `dtype`, widened to float or i32; masked-off lanes are `fill` or zero."""
        kind = self.vector(STORED[dtype])
        if mask is None:
            raw = self.b.load(pointer(self.b, address, kind))
            raw.align = 1
        else:
            name = f"llvm.masked.load.v{self.width}{_name(STORED[dtype])}.p0"
            types = [kind.as_pointer(), I32, self.vector(I1), kind]
            zero = ir.Constant(kind, None)
            raw = self._declared(
                name, kind, types, [pointer(self.b, address, kind), I32(1), mask, zero]
            )
        value = self.widen(raw, dtype)
        return value if fill is None or mask is None else self.b.select(mask, value, fill)

    def widen(self, raw: ir.Value, dtype: str) -> ir.Value:
        b = self.b
        if dtype in ("f32", "i32"):
            return raw
        if dtype == "f16":
            return b.fpext(b.bitcast(raw, self.vector(HALF)), self.floats)
        if dtype == "bf16":
            return b.bitcast(b.shl(b.zext(raw, self.ints), self.integer(16)), self.floats)
        return b.sext(raw, self.ints) if dtype == "i8" else b.zext(raw, self.ints)

    def narrow(self, value: ir.Value, dtype: str) -> ir.Value:
        """The lanes as they are stored: floats round to nearest even, integers wrap."""
        b = self.b
        if dtype in ("f32", "i32"):
            return value
        if dtype == "f16":
            return b.bitcast(b.fptrunc(value, self.vector(HALF)), self.vector(I16))
        if dtype == "bf16":
            bits = b.bitcast(value, self.ints)
            odd = b.and_(b.lshr(bits, self.integer(16)), self.integer(1))
            rounded = b.lshr(b.add(bits, b.add(odd, self.integer(0x7FFF))), self.integer(16))
            quiet = b.or_(b.lshr(bits, self.integer(16)), self.integer(0x40))
            return b.trunc(
                b.select(b.fcmp_unordered("uno", value, value), quiet, rounded), self.vector(I16)
            )
        return b.trunc(value, self.vector(I8))

    def store(
        self, value: ir.Value, address: ir.Value, dtype: str, mask: ir.Value | None = None
    ) -> None:
        raw = self.narrow(value, dtype)
        if mask is None:
            self.b.store(raw, pointer(self.b, address, raw.type)).align = 1
            return
        name = f"llvm.masked.store.v{self.width}{_name(STORED[dtype])}.p0"
        types = [raw.type, raw.type.as_pointer(), I32, self.vector(I1)]
        self._declared(
            name, ir.VoidType(), types, [raw, pointer(self.b, address, raw.type), I32(1), mask]
        )

    def compare(self, op: str, x: ir.Value, y: ir.Value) -> ir.Value:
        if x.type == self.ints:
            return self.b.icmp_signed(op, x, y)
        return self.b.fcmp_unordered(op, x, y) if op == "!=" else self.b.fcmp_ordered(op, x, y)

    def extremum(self, op: str, x: ir.Value, y: ir.Value) -> ir.Value:
        """numpy's maximum (op '>=') or minimum ('<='): NaN wins."""
        first = self.compare(op, x, y)
        if x.type == self.floats:
            first = self.b.or_(first, self.b.fcmp_unordered("uno", x, x))
        return self.b.select(first, x, y)

    def to_int(self, x: ir.Value) -> ir.Value:
        """Float to int32, truncating; NaN and overflow give the lowest integer, as on x86."""
        b = self.b
        inside = b.and_(
            b.fcmp_ordered(">=", x, self.real(-2147483648.0)),
            b.fcmp_ordered("<", x, self.real(2147483648.0)),
        )
        safe = b.select(inside, x, self.real(0.0))
        return b.select(inside, b.fptosi(safe, self.ints), self.integer(-(1 << 31)))

    def exp(self, x: ir.Value) -> ir.Value:
        b = self.b
        low, high = self.real(-104.0), self.real(89.0)
        t = b.select(b.fcmp_ordered(">", x, low), x, low)
        t = b.select(b.fcmp_ordered("<", t, high), t, high)
        n = self.unary("rint", b.fmul(t, self.real(1.4426950408889634)))
        r = self.fma(n, self.real(-0.693145751953125), t)
        r = self.fma(n, self.real(-1.42860682030941723e-6), r)
        p = self.polynomial(EXP_POLY, r)
        k = b.fptosi(n, self.ints)
        half = b.ashr(k, self.integer(1))
        for part in (half, b.sub(k, half)):
            scale = b.bitcast(b.shl(b.add(part, self.integer(127)), self.integer(23)), self.floats)
            p = b.fmul(p, scale)
        return b.select(b.fcmp_unordered("uno", x, x), x, p)

    def ln(self, x: ir.Value) -> ir.Value:
        b = self.b
        tiny = b.fcmp_ordered("<", x, self.real(1.1754943508222875e-38))
        scaled = b.select(tiny, b.fmul(x, self.real(8388608.0)), x)
        bits = b.bitcast(scaled, self.ints)
        shifted = b.sub(bits, self.integer(0x3F3504F3))  # sqrt(1/2)
        e = b.ashr(shifted, self.integer(23))
        m = b.bitcast(b.sub(bits, b.shl(e, self.integer(23))), self.floats)
        e = b.sub(e, b.select(tiny, self.integer(23), self.integer(0)))
        n = b.sitofp(e, self.floats)
        f = b.fsub(m, self.real(1.0))
        square = b.fmul(f, f)
        p = b.fmul(b.fmul(self.polynomial(LN_POLY, f), f), square)
        p = self.fma(n, self.real(-2.12194440e-4), p)
        p = self.fma(square, self.real(-0.5), p)
        p = self.fma(n, self.real(0.693359375), b.fadd(f, p))
        p = b.select(b.fcmp_ordered("==", x, self.real(float("inf"))), x, p)
        p = b.select(b.fcmp_ordered("==", x, self.real(0.0)), self.real(float("-inf")), p)
        return b.select(b.fcmp_ordered(">=", x, self.real(0.0)), p, self.real(float("nan")))

    def polynomial(self, coefficients: tuple[float, ...], x: ir.Value) -> ir.Value:
        value = self.real(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, self.real(c))
        return value


def _name(kind: ir.Type) -> str:
    return "f32" if kind == F32 else f"i{kind.width}"


def convert(lanes: Lanes, value: ir.Value, source: str, result: str) -> ir.Value:
    """Widened lanes of `source` as widened lanes of `result`."""
    floats = ("f32", "f16", "bf16")
    if source in floats and result not in floats:
        return lanes.to_int(value)
    if source not in floats and result in floats:
        return lanes.b.sitofp(value, lanes.floats)
    return value


def immediate(lanes: Lanes, bits: ir.Value, dtype: str) -> ir.Value:
    """An immediate's raw bits (i64) in all lanes."""
    raw = lanes.b.trunc(bits, ir.IntType(BITS[dtype]))
    if dtype == "f32":
        raw = lanes.b.bitcast(raw, F32)
    return lanes.widen(lanes.splat(raw), dtype)


def operation(lanes: Lanes, name: str, dtype: str, x: Any, y: Any) -> ir.Value:
    """The value of a lane operation on widened lanes; y is the second source or immediate."""
    b, whole = lanes.b, dtype == "i32"
    one, zero = (
        (lanes.integer(1), lanes.integer(0)) if whole else (lanes.real(1.0), lanes.real(0.0))
    )
    match name:
        case "VADD" | "VADDS":
            return b.add(x, y) if whole else b.fadd(x, y)
        case "VSUB":
            return b.sub(x, y) if whole else b.fsub(x, y)
        case "VRSUBS":
            return b.sub(y, x) if whole else b.fsub(y, x)
        case "VMUL" | "VMULS":
            return b.mul(x, y) if whole else b.fmul(x, y)
        case "VDIV" | "VDIVS":
            return b.fdiv(x, y)
        case "VRDIVS":
            return b.fdiv(y, x)
        case "VMAX" | "VMAXS":
            return lanes.extremum(">=", x, y)
        case "VMIN" | "VMINS":
            return lanes.extremum("<=", x, y)
        case "VRELU":
            return lanes.extremum(">=", x, zero)
        case "VABS":
            return (
                b.select(b.icmp_signed("<", x, zero), b.sub(zero, x), x)
                if whole
                else lanes.unary("fabs", x)
            )
        case "VNEG":
            return b.sub(zero, x) if whole else b.fneg(x)
        case "VCOPY":
            return x
        case "VDUP":
            return y
        case "VEXP":
            return lanes.exp(x)
        case "VLN":
            return lanes.ln(x)
        case "VSQRT":
            return lanes.unary("sqrt", x)
        case "VRSQRT":
            return b.fdiv(one, lanes.unary("sqrt", x))
        case "VREC":
            return b.fdiv(one, x)
        case "VFLOOR" | "VCEIL" | "VTRUNC":
            return lanes.unary(name[1:].lower(), x)
        case "VROUND":
            return lanes.unary("rint", x)
    if name.startswith("VCMP"):
        op = {"LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!="}[name[4:]]
        return b.select(lanes.compare(op, x, y), one, zero)
    raise AssertionError(name)


__all__ = ["BITS", "I64", "Lanes", "convert", "immediate", "operation"]
