"""Math functions on floats and doubles: which are computed inline and which call the C library.

`call` takes operands in the compute type and gives the unrounded result. The inline ones are in
`polynomials`; what is left goes to libm lane by lane, in double precision, and is rounded once.
"""

from __future__ import annotations

from akg_py import dtypes
from akg_py.codegen import polynomials
from akg_py.codegen.llvm import Builder, Val, constant
from akg_py.errors import InternalError

_ROUNDING = {
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
    "abs": "fabs",
    "sqrt": "sqrt",
}
#: functions of the C library, for doubles
LIBRARY = {
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "atan2",
    "erf",
    "pow",
}


def call(b: Builder, name: str, args: list[Val]) -> Val:
    """The function `name` of MATH_FUNCTIONS, for floats or doubles."""
    if name in _ROUNDING:
        return b.intrinsic(_ROUNDING[name], *args)
    elem = args[0].elem
    one = constant(1.0, elem)
    if name == "rsqrt":
        return b.bin("fdiv", one, b.intrinsic("sqrt", args[0]))
    if name == "fmod":
        return b.per_lane("fmodf" if elem == "float" else "fmod", *args)
    if elem == "float" and name in polynomials.FUNCTIONS:
        return polynomials.call(b, name, args)
    if name == "sigmoid":
        e = call(b, "exp", [b.op(f"fneg {args[0].typed}", elem, args[0].lanes)])
        return b.bin("fdiv", one, b.bin("fadd", one, e))
    if name not in LIBRARY:
        raise InternalError(f"no code for the function {name}")
    if elem == "double":
        return b.per_lane(name, *args)
    wide = [b.cast("fpext", a, "double") for a in args]
    return b.cast("fptrunc", b.per_lane(name, *wide), "float")


def integer_call(b: Builder, name: str, x: Val, dtype: str) -> Val:
    """Functions that keep integers: only abs has a meaning of its own."""
    if name == "abs":
        if dtypes.is_bool(dtype) or dtype.startswith("u"):
            return x
        negative = b.compare("slt", x, constant(0, x.elem))
        return b.select(negative, b.bin("sub", constant(0, x.elem), x), x)
    if name in ("floor", "ceil", "round", "trunc"):
        return x
    raise InternalError(f"no code for the function {name} of {dtype}")


def classify(b: Builder, name: str, x: Val, dtype: str) -> Val:
    """isnan, isinf, isfinite as an `i1`."""
    if not dtypes.is_float(dtype):
        return b.splat(constant(name == "isfinite", "i1"), x.lanes)
    if name == "isnan":
        return b.compare("uno", x, x)
    size = b.intrinsic("fabs", x)
    infinite = constant(float("inf"), x.elem)
    return b.compare("oeq" if name == "isinf" else "olt", size, infinite)
