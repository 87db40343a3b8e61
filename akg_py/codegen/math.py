"""Math functions on floats and doubles, by name: rounding is an instruction, the rest is inline.

`call` takes operands in the compute type and gives the unrounded result. What can't be reduced
inline goes to the C library (see `objects`) lane by lane, in double precision.
"""

from __future__ import annotations

from akg_py import dtypes
from akg_py.codegen import functions
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


def call(b: Builder, name: str, args: list[Val]) -> Val:
    """The function `name` of MATH_FUNCTIONS, for floats or doubles."""
    if name in _ROUNDING:
        return b.intrinsic(_ROUNDING[name], *args)
    if name not in functions.FUNCTIONS:
        raise InternalError(f"no code for the function {name}")
    return functions.call(b, name, args)


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
