"""Math functions against float64: special values exactly, samples within the stated ulp."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from akg_py import dtypes
from akg_py.codegen import emitter, target
from akg_py.codegen.host import CpuKernel
from akg_py.ir.evaluate import apply_call
from akg_py.ir.expr import MATH_FUNCTIONS, Call, binary
from tests.codegen.funcs import at, axis, buffer, func, loop, put

#: largest error in units in the last place of float32
ULP = {
    "exp": 1,
    "exp2": 1,
    "expm1": 1.5,
    "log": 1,
    "log2": 2,
    "log10": 2,
    "log1p": 1,
    "tanh": 4,
    "erf": 5.5,
    "sigmoid": 2.5,
    "sin": 1.5,
    "cos": 1.6,
    "rsqrt": 1.5,
}
DEFAULT_ULP = 0.51  # rounded from float64
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    3.0,
    -2.0,
    -3.0,
    1e-45,
    -1e-45,
    1e-38,
    3.4e38,
    -3.4e38,
    88.7,
    88.8,
    -87.4,
    -103.9,
    -104.1,
    127.99,
    128.0,
    -149.0,
    -150.5,
    9.02,
    -9.1,
    3.93,
    16777216.0,
    1e7,
    1.1e7,
    1e30,
    1.5,
]


def samples(count: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    every = rng.integers(0, 1 << 32, count // 4, np.uint32).view(np.float32)
    near_one = 1 + rng.standard_normal(count // 4) * 10.0 ** rng.uniform(-6, 0, count // 4)
    parts = [
        np.array(SPECIAL),
        every,
        near_one,
        rng.uniform(-110, 110, count // 4),
        rng.standard_normal(count // 4) * 2,
    ]
    with np.errstate(all="ignore"):
        return np.concatenate([p.astype(np.float32) for p in parts])


def ulp_error(
    actual: np.ndarray[Any, Any], args: list[np.ndarray[Any, Any]], name: str, dtype: str
) -> float:
    """The largest distance to float64 in ulp of `dtype`; infinite if a special value differs."""
    kind = dtypes.numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        exact = np.asarray(apply_call(name, [a.astype(np.float64) for a in args], "float64"))
        rounded = exact.astype(kind)
        wide, got = rounded.astype(np.float64), actual.astype(np.float64)
    special = ~np.isfinite(wide) | ~np.isfinite(got)
    if dtype == "float64":
        spacing = np.spacing(np.abs(np.where(special, 1.0, wide)))
    else:
        bits, least = {"float32": (23, -149), "float16": (10, -24), "bfloat16": (7, -133)}[dtype]
        exponent = np.frexp(np.where(special, 1.0, wide))[1] - 1
        spacing = 2.0 ** np.maximum(exponent - bits, least)
    with np.errstate(all="ignore"):
        error = np.abs(got - np.where(special, got, exact)) / spacing
        largest = float(np.finfo(np.float32).max) if dtype == "float32" else float("inf")
        same = (np.isnan(wide) & np.isnan(got)) | (wide == got)
        edge = (
            ~np.isnan(wide)
            & ~np.isnan(got)
            & (np.abs(wide) >= largest * 0.999999)
            & (np.abs(got) >= largest * 0.999999)
        )
    error = np.where(special & ~(same | edge), np.inf, np.where(special, 0.0, error))
    worst = int(np.argmax(error))
    print(
        f"{name} {dtype}: {error[worst]:.2f} ulp at {[a[worst] for a in args]}: "
        f"{got[worst]} for {wide[worst]}"
    )
    return float(error[worst])


def run(name: str, dtype: str, kind: str, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    n = args[0].size
    inputs = [buffer(f"A{i}", (n,), dtype) for i in range(len(args))]
    result = "bool" if name.startswith("is") else dtype
    C = buffer("C", (n,), result)
    i = axis("i", n)
    value = Call(name, tuple(at(b, i) for b in inputs), result)
    out: np.ndarray[Any, Any] = CpuKernel(
        func([*inputs, C], [C], loop(i, n, put(C, (i,), value), kind))
    )(*args)
    return out


@pytest.mark.parametrize("kind", ["unroll", "vector"])
@pytest.mark.parametrize(
    "name", [n for n, count in MATH_FUNCTIONS.items() if count == 1 and not n.startswith("is")]
)
def test_float32(name: str, kind: str) -> None:
    x = samples(400_000 if kind == "vector" else 4000)
    assert ulp_error(run(name, "float32", kind, [x]), [x], name, "float32") <= ULP.get(
        name, DEFAULT_ULP
    )


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod"])
def test_two_arguments(name: str) -> None:
    x = samples(100_000)
    y = np.random.default_rng(1).permutation(x)
    with np.errstate(all="ignore"):
        y[::3] = np.round(np.clip(y[::3], -9, 9))
    grid = np.array(np.meshgrid(SPECIAL, SPECIAL), np.float32).reshape(2, -1)
    x, y = np.concatenate([x, grid[0], np.abs(x[:9000])]), np.concatenate([y, grid[1], y[:9000]])
    assert ulp_error(run(name, "float32", "vector", [x, y]), [x, y], name, "float32") <= ULP.get(
        name, DEFAULT_ULP
    )


def test_pow_operator() -> None:
    n = 64
    A, B, C = (buffer(x, (n,)) for x in "ABC")
    i = axis("i", n)
    f = func([A, B, C], [C], loop(i, n, put(C, (i,), binary("pow", at(A, i), at(B, i)))))
    a, b = np.linspace(0.1, 4, n, dtype=np.float32), np.linspace(-3, 3, n, dtype=np.float32)
    np.testing.assert_allclose(CpuKernel(f)(a, b), a.astype(np.float64) ** b, rtol=3e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "name", [n for n, count in MATH_FUNCTIONS.items() if count == 1 and not n.startswith("is")]
)
def test_other_floats(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        x = samples(20_000).astype(dtypes.numpy_dtype(dtype))
        if dtype != "float64":
            bits = np.arange(65536, dtype=np.uint16)
            x = bits.view(dtypes.numpy_dtype(dtype))
    limit = 2.5 if dtype == "float64" else 1.0
    assert ulp_error(run(name, dtype, "vector", [x]), [x], name, dtype) <= limit


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "log", "tanh", "sin", "pow"])
def test_other_processors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a fused multiply-add and a scaling instruction the error grows by one ulp at most."""
    plain = dataclasses.replace(target.host(), vector_bytes=16, has_fma=False, has_scale=False)
    monkeypatch.setattr(emitter, "host", lambda: plain)
    x = samples(50_000)
    args = [x, x] if name == "pow" else [x]
    limit = ULP.get(name, DEFAULT_ULP) + 1
    assert ulp_error(run(name, "float32", "vector", args), args, name, "float32") <= limit
