"""Lane operations of the vector unit as code of the emitter: the same functions as on the CPU.

Values are float32 or int32 in registers whatever their dtype in memory: 16-bit floats widen when
loaded and are rounded (to nearest even, denormals kept) when stored, bytes wrap around.
"""

from __future__ import annotations

from akg_py.ascend.isa import DTYPE_BYTES, SHORT_DTYPE
from akg_py.codegen import arithmetic, math
from akg_py.codegen.llvm import Builder, Val, constant_lanes

LONG = {short: long for long, short in SHORT_DTYPE.items() if long != "bool"}
_COMPARE = {"LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!="}
_ARITHMETIC = {
    "VADD": "+",
    "VADDS": "+",
    "VSUB": "-",
    "VRSUBS": "-",
    "VMUL": "*",
    "VMULS": "*",
    "VDIV": "/",
    "VDIVS": "/",
    "VRDIVS": "/",
    "VMAX": "max",
    "VMAXS": "max",
    "VMIN": "min",
    "VMINS": "min",
}
_FUNCTIONS = {
    "VEXP": "exp",
    "VLN": "log",
    "VSQRT": "sqrt",
    "VRSQRT": "rsqrt",
    "VFLOOR": "floor",
    "VCEIL": "ceil",
    "VTRUNC": "trunc",
    "VROUND": "round",
}


def wide(dtype: str) -> str:
    """What lanes of a short dtype are computed in."""
    return "int32" if dtype in ("i32", "i8", "u8") else "float32"


def lanes_below(b: Builder, count: Val, width: int) -> Val:
    """The first `count` of `width` lanes, as a mask."""
    count = b.cast("trunc", count, "i32")
    return b.compare("slt", constant_lanes(list(range(width)), "i32"), count)


def load(b: Builder, address: Val, dtype: str, width: int, mask: Val | None = None) -> Val:
    """Lanes in the compute type of their own dtype; those outside the mask are zero."""
    elem = arithmetic.memory_elem(LONG[dtype])
    raw = b.load(b.pointer(address), elem, width, 1, mask)
    return arithmetic.load_form(b, raw, LONG[dtype])


def load_wide(b: Builder, address: Val, dtype: str, width: int, mask: Val | None = None) -> Val:
    """Lanes as float32 or int32."""
    value = load(b, address, dtype, width, mask)
    return value if wide(dtype) == "float32" else _converted(b, value, dtype, "int32")


def store(b: Builder, value: Val, address: Val, dtype: str, mask: Val | None = None) -> None:
    """Lanes of the wide dtype as they are in memory."""
    if wide(dtype) == "int32":
        value = arithmetic.convert(b, value, "int32", LONG[dtype])
    value = arithmetic.store_form(b, arithmetic.round_to(b, value, LONG[dtype]), LONG[dtype])
    b.store(b.pointer(address), value, 1, mask)


def _converted(b: Builder, value: Val, source: str, target: str) -> Val:
    return arithmetic.convert(b, value, LONG[source], target)


def convert(b: Builder, value: Val, source: str, target: str) -> Val:
    """Lanes of `source`, as `load` gives them, as wide lanes for a store as `target`."""
    result = _converted(b, value, source, LONG[target])
    return arithmetic.convert(b, result, LONG[target], wide(target))


def immediate(b: Builder, bits: Val, dtype: str) -> Val:
    """An immediate's raw bits, as a wide scalar."""
    raw = b.cast("trunc", bits, f"i{8 * DTYPE_BYTES[dtype]}")
    raw = b.cast("bitcast", raw, arithmetic.memory_elem(LONG[dtype]))
    return arithmetic.load_form(b, raw, LONG[dtype])


def operation(b: Builder, name: str, dtype: str, x: Val, y: Val) -> Val:
    """The value of an operation on wide lanes; y is the second source or immediate."""
    zero, one = arithmetic.literal(0, dtype), arithmetic.literal(1, dtype)
    if name in _ARITHMETIC:
        if name.startswith("VR"):
            x, y = y, x
        return arithmetic.binary(b, _ARITHMETIC[name], x, y, dtype)
    if name in _FUNCTIONS:
        return math.call(b, _FUNCTIONS[name], [x])
    if name.startswith("VCMP"):
        holds = arithmetic.binary(b, _COMPARE[name[4:]], x, y, dtype)
        return b.select(holds, one, zero)
    match name:
        case "VRELU":
            return arithmetic.binary(b, "max", x, zero, dtype)
        case "VABS" if dtype == "int32":
            return math.integer_call(b, "abs", x, dtype)
        case "VABS":
            return math.call(b, "abs", [x])
        case "VNEG" if dtype == "int32":
            return b.bin("sub", zero, x)
        case "VNEG":
            return b.op(f"fneg {x.typed}", x.elem, x.lanes)
        case "VREC":
            return b.bin("fdiv", one, x)
        case "VCOPY":
            return x
        case "VDUP":
            return y
    raise AssertionError(name)


def fused(b: Builder, x: Val, y: Val, z: Val) -> Val:
    """x y + z: rounded once, or wrapping around."""
    if x.elem == "float":
        return b.intrinsic("fma", x, y, z)
    return b.bin("add", z, b.bin("mul", x, y))
