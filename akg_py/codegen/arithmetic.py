"""Operations on values of a dtype as LLVM IR: what numpy computes, without poison or traps.

Values live in a *compute type* (`float` for the 16-bit floats, `i1` for bool) and in a *memory
type*; `load_form` and `store_form` go between them. A 16-bit float is a float that its dtype can
hold, so each operation ends with `round_to`. Index values are `i64`, and of
dtype int64.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.codegen import functions
from akg_py.codegen.llvm import ELEM_BYTES, Builder, Val, constant
from akg_py.errors import InternalError

_COMPUTE = {
    "bool": "i1",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "uint16": "i16",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}
_MEMORY = {**_COMPUTE, "bool": "i8", "float16": "i16", "bfloat16": "i16"}
_FLOAT_COMPARE = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_SIGNED_COMPARE = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED_COMPARE = {"==": "eq", "!=": "ne", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}


def compute_elem(dtype: str) -> str:
    """The LLVM type that values of `dtype` have in registers."""
    return _COMPUTE[dtype]


def memory_elem(dtype: str) -> str:
    """The LLVM type that values of `dtype` have in memory."""
    return _MEMORY[dtype]


def is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


def literal(value: float | int | bool, dtype: str) -> Val:
    """A constant of `dtype`, rounded to it."""
    if dtype in ("float16", "bfloat16"):
        value = float(dtypes.numpy_dtype(dtype).type(value))
    return constant(value, compute_elem(dtype))


def load_form(b: Builder, raw: Val, dtype: str) -> Val:
    """A value just read from memory, as its compute type."""
    if dtype == "bool":
        return b.compare("ne", raw, constant(0, "i8"))
    if dtype == "float16":
        return _half_to_float(b, raw)
    if dtype == "bfloat16":
        return b.cast(
            "bitcast", b.bin("shl", b.cast("zext", raw, "i32"), constant(16, "i32")), "float"
        )
    return raw


def store_form(b: Builder, value: Val, dtype: str) -> Val:
    """A value in its compute type, as memory holds it."""
    if dtype == "bool":
        return b.cast("zext", value, "i8")
    if dtype == "float16":
        return _float_to_half(b, value)
    if dtype == "bfloat16":
        return b.cast(
            "trunc", b.bin("lshr", b.cast("bitcast", value, "i32"), constant(16, "i32")), "i16"
        )
    return value


def round_to(b: Builder, value: Val, dtype: str) -> Val:
    """A `float` rounded to the nearest even value of a 16-bit dtype; others pass through."""
    if dtype == "float16":
        return _half_to_float(b, _float_to_half(b, value))
    if dtype != "bfloat16":
        return value
    bits = b.cast("bitcast", value, "i32")
    odd = b.bin("and", b.bin("lshr", bits, constant(16, "i32")), constant(1, "i32"))
    rounded = b.bin("add", b.bin("add", bits, constant(0x7FFF, "i32")), odd)
    rounded = b.bin("and", rounded, constant(0xFFFF0000, "i32"))
    nan = b.compare("uno", value, value)
    return b.cast("bitcast", b.select(nan, constant(0x7FC00000, "i32"), rounded), "float")


def _half_to_float(b: Builder, raw: Val) -> Val:
    if b.module.processor.has_half:
        return b.cast("fpext", b.cast("bitcast", raw, "half"), "float")
    bits = b.cast("zext", raw, "i32")
    size = b.bin("and", bits, constant(0x7FFF, "i32"))
    moved = b.cast("bitcast", b.bin("shl", size, constant(13, "i32")), "float")
    scaled = b.cast("bitcast", b.bin("fmul", moved, constant(2.0**112, "float")), "i32")
    special = b.compare("uge", size, constant(0x7C00, "i32"))
    scaled = b.select(special, b.bin("or", scaled, constant(0x7F800000, "i32")), scaled)
    sign = b.bin("shl", b.bin("and", bits, constant(0x8000, "i32")), constant(16, "i32"))
    return b.cast("bitcast", b.bin("or", scaled, sign), "float")


def _float_to_half(b: Builder, value: Val) -> Val:
    if b.module.processor.has_half:
        return b.cast("bitcast", b.cast("fptrunc", value, "half"), "i16")
    bits = b.cast("bitcast", value, "i32")
    size = b.bin("and", bits, constant(0x7FFFFFFF, "i32"))
    odd = b.bin("and", b.bin("lshr", size, constant(13, "i32")), constant(1, "i32"))
    rounded = b.bin("add", b.bin("add", size, constant(0xFFF - (112 << 23), "i32")), odd)
    normal = b.bin("lshr", rounded, constant(13, "i32"))
    # adding 0.5 leaves the fraction in steps of the smallest float16
    shifted = b.bin("fadd", b.cast("bitcast", size, "float"), constant(0.5, "float"))
    tiny = b.bin("sub", b.cast("bitcast", shifted, "i32"), constant(0x3F000000, "i32"))
    result = b.select(b.compare("ult", size, constant(0x38800000, "i32")), tiny, normal)
    result = b.select(
        b.compare("uge", size, constant(0x47800000, "i32")), constant(0x7C00, "i32"), result
    )
    result = b.select(
        b.compare("ugt", size, constant(0x7F800000, "i32")), constant(0x7E00, "i32"), result
    )
    sign = b.bin("and", b.bin("lshr", bits, constant(16, "i32")), constant(0x8000, "i32"))
    return b.cast("trunc", b.bin("or", result, sign), "i16")


def binary(b: Builder, op: str, x: Val, y: Val, dtype: str) -> Val:
    """`x op y` of two values of `dtype`; comparisons give an `i1`. `pow` is not here."""
    if dtypes.is_float(dtype):
        return _float_binary(b, op, x, y, dtype)
    if dtype == "bool":
        return _bool_binary(b, op, x, y)
    signed = is_signed(dtype)
    compare = _SIGNED_COMPARE if signed else _UNSIGNED_COMPARE
    if op in compare:
        return b.compare(compare[op], x, y)
    match op:
        case "+" | "-" | "*":
            return b.bin({"+": "add", "-": "sub", "*": "mul"}[op], x, y)
        case "//" | "%":
            return _int_divide(b, op, x, y, signed)
        case "min" | "max":
            return b.select(b.compare(compare["<" if op == "min" else ">"], x, y), x, y)
    raise InternalError(f"no code for {op} of {dtype}")


def _bool_binary(b: Builder, op: str, x: Val, y: Val) -> Val:
    match op:
        case "&&" | "min" | "*":
            return b.bin("and", x, y)
        case "||" | "max" | "+":
            return b.bin("or", x, y)
    return b.compare(_UNSIGNED_COMPARE[op], x, y)


def _float_binary(b: Builder, op: str, x: Val, y: Val, dtype: str) -> Val:
    if op in _FLOAT_COMPARE:
        return b.compare(_FLOAT_COMPARE[op], x, y)
    match op:
        case "+" | "-" | "*" | "/":
            name = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[op]
            return round_to(b, b.bin(name, x, y), dtype)
        case "min" | "max":
            return minimum_maximum(b, op, x, y)
        case "%":
            return round_to(b, _float_modulo(b, x, y), dtype)
        case "//":
            return round_to(b, _float_floor_divide(b, x, y), dtype)
    raise InternalError(f"no code for {op} of {dtype}")


def minimum_maximum(b: Builder, op: str, x: Val, y: Val) -> Val:
    """min or max of floats; a NaN on either side makes one."""
    chosen = b.select(b.compare("olt" if op == "min" else "ogt", x, y), x, y)
    # with x in place of the constant, LLVM makes one choice of two, and no minps or maxps
    return b.select(b.compare("uno", x, x), constant(math.nan, x.elem), chosen)


def _float_modulo(b: Builder, x: Val, y: Val) -> Val:
    zero = constant(0.0, x.elem)
    raw = functions.call(b, "fmod", [x, y])
    differs = b.bin("xor", b.compare("olt", y, zero), b.compare("olt", raw, zero))
    moved = b.select(differs, b.bin("fadd", raw, y), raw)
    signed_zero = b.intrinsic("copysign", zero, y)
    inside = b.select(b.compare("une", raw, zero), moved, signed_zero)
    return b.select(b.compare("oeq", y, zero), raw, inside)


def _float_floor_divide(b: Builder, x: Val, y: Val) -> Val:
    zero, one = constant(0.0, x.elem), constant(1.0, x.elem)
    raw = functions.call(b, "fmod", [x, y])
    quotient = b.bin("fdiv", b.bin("fsub", x, raw), y)
    differs = b.bin("xor", b.compare("olt", y, zero), b.compare("olt", raw, zero))
    adjust = b.bin("and", b.compare("une", raw, zero), differs)
    quotient = b.select(adjust, b.bin("fsub", quotient, one), quotient)
    floor = b.intrinsic("floor", quotient)
    up = b.compare("ogt", b.bin("fsub", quotient, floor), constant(0.5, x.elem))
    floor = b.select(up, b.bin("fadd", floor, one), floor)
    exact = b.bin("fdiv", x, y)
    inside = b.select(b.compare("une", quotient, zero), floor, b.intrinsic("copysign", zero, exact))
    return b.select(b.compare("oeq", y, zero), exact, inside)


def _int_divide(b: Builder, op: str, x: Val, y: Val, signed: bool) -> Val:
    """Floor division or modulo; by zero gives 0, and the lowest value by -1 wraps."""
    elem = x.elem
    zero, one = constant(0, elem), constant(1, elem)
    divisor = _literal_value(y)
    if divisor is not None and divisor not in (0, -1):
        safe, bad = y, None
    else:
        bad = b.compare("eq", y, zero)
        special = b.bin("or", bad, b.compare("eq", y, constant(-1, elem))) if signed else bad
        safe = b.select(special, one, y)
    quotient, remainder = _truncated(b, x, safe, signed)
    if not signed:
        result = quotient if op == "//" else remainder
        return result if bad is None else b.select(bad, zero, result)
    crossing = b.compare("slt", b.bin("xor", remainder, safe), zero)
    inexact = b.bin("and", b.compare("ne", remainder, zero), crossing)
    if op == "%":
        result = b.bin("add", remainder, b.select(inexact, safe, zero))
        return result if bad is None else b.select(bad, zero, result)
    result = b.bin("sub", quotient, b.select(inexact, one, zero))
    if bad is None:
        return result
    negated = b.select(b.compare("eq", y, constant(-1, elem)), b.bin("sub", zero, x), result)
    return b.select(bad, zero, negated)


def _truncated(b: Builder, x: Val, y: Val, signed: bool) -> tuple[Val, Val]:
    """Quotient toward zero and remainder.

    Processors divide vectors of floats only. A quotient that isn't whole is at least 1/y from the
    next whole number; floats with more bits than x has are too fine to be rounded up to that.
    """
    kind = "s" if signed else "u"
    wide = {"i8": "float", "i16": "float", "i32": "double"}.get(x.elem)
    if x.lanes == 1 or wide is None or _literal_value(y) is not None:
        return b.bin(f"{kind}div", x, y), b.bin(f"{kind}rem", x, y)
    above, below = (b.cast(f"{kind}itofp", v, wide) for v in (x, y))
    quotient = b.cast(f"fpto{kind}i", b.bin("fdiv", above, below), x.elem)
    return quotient, b.bin("sub", x, b.bin("mul", quotient, y))


def _literal_value(v: Val) -> int | None:
    text = v.ref.removeprefix(f"splat ({v.elem} ").removesuffix(")")
    return int(text) if text.removeprefix("-").isdigit() else None


def power_of_ints(b: Builder, x: Val, y: Val, dtype: str) -> Val:
    """`x ** y` by squaring, wrapping around; a negative exponent gives 0."""
    bits = ELEM_BYTES[x.elem] * 8
    result, base, rest = constant(1, x.elem), x, y
    zero, one = constant(0, x.elem), constant(1, x.elem)
    for step in range(bits):
        odd = b.compare("ne", b.bin("and", rest, one), zero)
        result = b.select(odd, b.bin("mul", result, base), result)
        if step + 1 < bits:
            base, rest = b.bin("mul", base, base), b.bin("lshr", rest, one)
    if is_signed(dtype):
        result = b.select(b.compare("slt", y, zero), zero, result)
    return result


def convert(b: Builder, v: Val, source: str, target: str) -> Val:
    """`v` of dtype `source` as `target`, as numpy's astype does."""
    if source == target:
        return v
    to = compute_elem(target)
    if target == "bool":
        zero = constant(0, v.elem)
        return (
            b.compare("une" if dtypes.is_float(source) else "ne", v, zero) if v.elem != "i1" else v
        )
    if source == "bool":
        if dtypes.is_float(target):
            return b.cast("uitofp", v, to)
        return b.cast("zext", v, to)
    if dtypes.is_float(source):
        return _from_float(b, v, target, to)
    if dtypes.is_float(target):
        return _int_to_float(b, v, source, target)
    if ELEM_BYTES[v.elem] == ELEM_BYTES[to]:
        return v
    if ELEM_BYTES[v.elem] > ELEM_BYTES[to]:
        return b.cast("trunc", v, to)
    return b.cast("sext" if is_signed(source) else "zext", v, to)


def _int_to_float(b: Builder, v: Val, source: str, target: str) -> Val:
    op = "sitofp" if is_signed(source) else "uitofp"
    if target in ("float16", "bfloat16"):  # what float32 can't hold is infinite in float16
        return round_to(b, b.cast(op, v, "float"), target)
    return b.cast(op, v, compute_elem(target))


def _from_float(b: Builder, v: Val, target: str, to: str) -> Val:
    if dtypes.is_float(target):
        if target == "float64":
            return b.cast("fpext", v, to)
        if v.elem == "double":
            v = _narrow_to_odd(b, v) if target == "float16" else b.cast("fptrunc", v, "float")
        return round_to(b, v, target)
    if target == "uint64":
        half = constant(2.0**63, v.elem)
        high = b.compare("oge", v, half)
        low_part = _truncate(b, v, "i64")
        high_part = b.bin(
            "xor", _truncate(b, b.bin("fsub", v, half), "i64"), constant(-(1 << 63), "i64")
        )
        return b.select(high, high_part, low_part)
    wide = "i64" if target in ("int64", "uint32") else "i32"
    return b.cast("trunc", _truncate(b, v, wide), to)


def _narrow_to_odd(b: Builder, v: Val) -> Val:
    """A double as a float that is odd when inexact, so that rounding it again rounds the double."""
    near = b.cast("fptrunc", v, "float")
    back = b.cast("fpext", near, "double")
    bits = b.cast("bitcast", near, "i32")
    even = b.compare("eq", b.bin("and", bits, constant(1, "i32")), constant(0, "i32"))
    moves = b.bin("and", b.compare("one", back, v), even)
    beyond = b.compare("ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", v))
    odd = b.bin("add", bits, b.select(beyond, constant(-1, "i32"), constant(1, "i32")))
    return b.cast("bitcast", b.select(moves, odd, bits), "float")


def _truncate(b: Builder, v: Val, elem: str) -> Val:
    """A float towards zero as a signed integer; what doesn't fit gives the lowest, as on x86."""
    limit = 2.0 ** (ELEM_BYTES[elem] * 8 - 1)
    fits = b.bin(
        "and",
        b.compare("olt", v, constant(limit, v.elem)),
        b.compare("oge", v, constant(-limit, v.elem)),
    )
    safe = b.select(fits, v, constant(0.0, v.elem))
    return b.select(fits, b.cast("fptosi", safe, elem), constant(-int(limit), elem))
