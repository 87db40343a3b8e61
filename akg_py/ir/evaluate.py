"""Values of single operations on numpy scalars and arrays: what each expression node computes.

Shared by `interpret` (loop IR) and `te.evaluate` (the language). Every operation yields its dtype's
value, rounded once; 16-bit floats compute in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.errors import InternalError

_erf = np.vectorize(math.erf, otypes=[np.float64])

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
}

_CALLS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "erf": lambda x: _erf(x) if np.size(x) else np.asarray(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "abs": np.abs,
    "pow": np.power,
    "fmod": np.fmod,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}


def convert(value: Any, dtype: str) -> Any:
    """`value` as `dtype`, as numpy's astype: floats round to nearest even, to int truncates."""
    return np.asarray(value).astype(dtypes.numpy_dtype(dtype))[()]


def apply_binary(op: str, a: Any, b: Any, dtype: str) -> Any:
    """`a op b` for operands of `dtype`; comparisons give bool."""
    if op not in _BINARY:
        raise InternalError(f"unknown operator {op}")
    if dtype == "bfloat16" or (dtype == "float16" and op == "pow"):
        a, b = np.asarray(a).astype(np.float32), np.asarray(b).astype(np.float32)
        result = _BINARY[op](a, b)
        return result if result.dtype == np.bool_ else convert(result, dtype)
    return _BINARY[op](a, b)


def apply_call(name: str, args: list[Any], dtype: str) -> Any:
    """The math function `name`, computed in float64 for float32 and narrower and rounded once."""
    if name not in _CALLS:
        raise InternalError(f"unknown function {name}")
    if name.startswith("is") or (name == "abs" and not dtypes.is_float(dtype)):
        return _CALLS[name](*args)
    wide = [np.asarray(a).astype(np.float64) for a in args]
    return convert(_CALLS[name](*wide), dtype)
