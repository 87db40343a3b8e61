"""Small Funcs by hand, and the comparison with `interpret` that all tests of this folder use."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.codegen.host import CpuKernel
from akg_py.ir.expr import Const, Expr, Load, Var
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Buffer, For, Func, Stmt, Store

_count = itertools.count()


def axis(name: str, extent: int) -> Var:
    return Var(name, "int32", 0, max(extent - 1, 0))


def buffer(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Buffer:
    return Buffer(name, shape, dtype)


def at(b: Buffer, *indices: Any) -> Load:
    return Load(b, tuple(i if isinstance(i, Expr) else Const(i, "int32") for i in indices), b.dtype)


def put(b: Buffer, indices: tuple[Any, ...], value: Expr) -> Store:
    return Store(
        (b,), tuple(i if isinstance(i, Expr) else Const(i, "int32") for i in indices), (value,)
    )


def loop(var: Var, extent: Any, body: Stmt, kind: str = "serial") -> For:
    return For(var, extent if isinstance(extent, Expr) else Const(extent, "int32"), kind, body)


def func(params: list[Buffer], outputs: list[Buffer], body: Stmt, name: str = "") -> Func:
    return Func(name or f"f{next(_count)}", tuple(params), tuple(outputs), body)


def random_array(
    rng: np.random.Generator, b: Buffer, low: int = -8, high: int = 8
) -> np.ndarray[Any, Any]:
    """Small integers, for which arithmetic is exact in any order."""
    if dtypes.is_bool(b.dtype):
        return rng.integers(0, 2, b.shape).astype(np.bool_)
    if b.dtype.startswith("u"):
        low = 0
    return rng.integers(low, high, b.shape).astype(dtypes.numpy_dtype(b.dtype))


def check(
    f: Func, *arrays: np.ndarray[Any, Any], seed: int = 0, tolerance: float = 0.0
) -> list[np.ndarray[Any, Any]]:
    """Kernel and meaning must agree in every bit on the same data (NaN equals NaN)."""
    rng = np.random.default_rng(seed)
    given = list(arrays) or [random_array(rng, p) for p in f.params]
    expected = [a.copy() for a in given]
    actual = [a.copy() for a in given]
    interpret(f, *expected)
    CpuKernel(f)(*actual)
    for p, a, e in zip(f.params, actual, expected, strict=True):
        if tolerance and dtypes.is_float(p.dtype):
            np.testing.assert_allclose(
                a.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        else:
            assert_same(a, e, p.name)
    return actual


def assert_same(a: np.ndarray[Any, Any], e: np.ndarray[Any, Any], name: str = "") -> None:
    """Equal bits, except that all NaNs are one."""
    if a.dtype.kind == "f" or a.dtype.name == "bfloat16":
        nan = np.isnan(e.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(a.astype(np.float64)), nan, err_msg=name)
        bits = f"u{a.dtype.itemsize}"
        zero = np.zeros((), bits)
        a, e = np.where(nan, zero, a.view(bits)), np.where(nan, zero, e.view(bits))
    np.testing.assert_array_equal(a, e, err_msg=name)
