"""Data types by name: sizes, numpy equivalents, promotion, limits.

A dtype is a plain string (`"float16"`); this module answers questions about it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from akg_py.errors import ExpressionError

_BITS = {
    "bool": 8,
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "uint32": 32,
    "int64": 64,
    "uint64": 64,
    "float16": 16,
    "bfloat16": 16,
    "float32": 32,
    "float64": 64,
}
DTYPES = tuple(_BITS)
_SHORT = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
}


def check_dtype(dtype: object) -> str:
    """Return the canonical name of `dtype` (a name, or anything `np.dtype` takes)."""
    if isinstance(dtype, str):
        if dtype in _BITS:
            return dtype
        if dtype in _SHORT:
            return _SHORT[dtype]
    else:
        try:
            name = np.dtype(dtype).name  # type: ignore[call-overload]
        except TypeError:
            name = ""
        if name in _BITS:
            return str(name)
    raise ExpressionError(f"unknown dtype {dtype!r}", hint=f"use one of: {', '.join(DTYPES)}")


def size_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return _BITS[dtype] // 8


def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_int(dtype: str) -> bool:
    """Whether `dtype` is a signed or unsigned integer (bool is neither)."""
    return "int" in dtype


def is_bool(dtype: str) -> bool:
    return dtype == "bool"


@functools.cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of the same values (bfloat16 comes from ml_dtypes)."""
    if dtype == "bfloat16":
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(dtype)


def promote(a: str, b: str) -> str:
    """The dtype of `x + y` for two expressions: float beats int, wider beats narrower.

    Of two equally wide floats (float16, bfloat16) the result is float32; of a signed and an
    unsigned integer of one width it is the unsigned one, as in TVM.
    """
    if a == b:
        return a
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    if is_bool(a) or is_bool(b):
        return b if is_bool(a) else a
    if _BITS[a] != _BITS[b]:
        return a if _BITS[a] > _BITS[b] else b
    return "float32" if is_float(a) else (a if a.startswith("u") else b)


def accumulator(dtype: str) -> str:
    """Default dtype a reduction of `dtype` accumulates in."""
    return {"float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32"}.get(
        dtype, dtype
    )


def lowest(dtype: str) -> float | int:
    """Identity of max: -inf for floats, the smallest value otherwise."""
    if is_float(dtype):
        return float("-inf")
    return 0 if is_bool(dtype) else int(np.iinfo(dtype).min)


def highest(dtype: str) -> float | int:
    """Identity of min: inf for floats, the largest value otherwise."""
    if is_float(dtype):
        return float("inf")
    return 1 if is_bool(dtype) else int(np.iinfo(dtype).max)
