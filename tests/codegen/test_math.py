"""Math functions against wider formats: special values exactly, samples within the stated ulp."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from akg_py import dtypes, te
from akg_py.codegen import target
from akg_py.codegen.host import CpuKernel
from akg_py.ir.evaluate import apply_binary, apply_call
from akg_py.ir.expr import MATH_FUNCTIONS, Binary, Call, binary
from akg_py.ops.elementwise import gelu_value
from tests.codegen.funcs import assert_same, at, axis, buffer, func, loop, put

#: largest error in units in the last place, of float32 and of float64; others are exact
ULP = {
    "exp": (1, 1),
    "exp2": (1, 1),
    "expm1": (1.5, 2),
    "log": (1, 1),
    "log2": (2, 2),
    "log10": (2, 2),
    "log1p": (1, 1),
    "sinh": (2, 2),
    "cosh": (1.5, 1.5),
    "tanh": (5, 1.6),
    "erf": (5.5, 1.5),
    "sigmoid": (2.5, 2.5),
    "sin": (1.3, 1.3),
    "cos": (1.3, 1.3),
    "tan": (3, 3),
    "asin": (2.5, 2.5),
    "acos": (1.5, 1.5),
    "atan": (1.5, 1.5),
    "atan2": (1.5, 1.5),
    "pow": (0.52, 2),
    "rsqrt": (1.5, 1.5),
}
ROUNDED = (0.501, 0.501)
ONE_ARGUMENT = [n for n, count in MATH_FUNCTIONS.items() if count == 1 and not n.startswith("is")]
TWO_ARGUMENTS = ["pow", "atan2", "fmod"]
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
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_float32(name: str, kind: str) -> None:
    x = samples(400_000 if kind == "vector" else 4000)
    limit = ULP.get(name, ROUNDED)[0]
    assert ulp_error(run(name, "float32", kind, [x]), [x], name, "float32") <= limit


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ONE_ARGUMENT if n in ULP])
def test_whole_float32_range(name: str) -> None:
    """One float in 257, of both signs, from denormals to NaN; erf's oracle is slow: one in 4099."""
    step, chunk = 4099 if name == "erf" else 257, 1 << 30
    for start in range(0, 1 << 32, chunk):
        x = np.arange(start, start + chunk, step).astype(np.uint32).view(np.float32)
        error = ulp_error(run(name, "float32", "vector", [x]), [x], name, "float32")
        assert error <= ULP[name][0]


def pairs(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Two arguments: the samples with each other and with small integers, all special pairs."""
    y = np.random.default_rng(1).permutation(x)
    with np.errstate(all="ignore"):
        y[::3] = np.round(np.clip(y[::3], -9, 9))
    grid = np.array(np.meshgrid(SPECIAL, SPECIAL), x.dtype).reshape(2, -1)
    return [np.concatenate([x, grid[0], np.abs(x[:9000])]), np.concatenate([y, grid[1], y[:9000]])]


@pytest.mark.parametrize("name", TWO_ARGUMENTS)
def test_two_arguments(name: str) -> None:
    args = pairs(samples(100_000))
    limit = ULP.get(name, ROUNDED)[0]
    assert ulp_error(run(name, "float32", "vector", args), args, name, "float32") <= limit


def wide_samples(name: str, count: int) -> list[np.ndarray[Any, Any]]:
    """Doubles of every size, and many where the function is neither flat nor infinite."""
    rng = np.random.default_rng(2)
    parts = [
        np.array(SPECIAL),
        rng.integers(0, 1 << 64, count, np.uint64).view(np.float64),
        rng.standard_normal(count) * 2,
        rng.uniform(-1, 1, count),
        rng.uniform(-750, 750, count),
        1 + rng.standard_normal(count) * 10.0 ** rng.uniform(-12, 0, count),
        rng.standard_normal(count) * 10.0 ** rng.uniform(-300, 9, count),
        np.pi / 2 * rng.integers(-(1 << 24), 1 << 24, count),
    ]
    x = np.concatenate(parts)
    if name not in TWO_ARGUMENTS:
        return [x]
    with np.errstate(all="ignore"):
        reach = 1000 / np.log2(np.abs(x)) * rng.uniform(-1.1, 1.1, x.size)
    x2, y2 = pairs(x)
    return [np.concatenate([x2, np.abs(x)]), np.concatenate([y2, reach])]


def widest(name: str, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The function in numpy's long double where that is longer, else (and erf) by mpmath."""
    if name != "erf" and np.finfo(np.longdouble).nmant >= 63:
        own: dict[str, Callable[..., Any]] = {
            "asin": np.arcsin,
            "acos": np.arccos,
            "atan": np.arctan,
            "atan2": np.arctan2,
            "pow": np.power,
            "rsqrt": lambda x: 1 / np.sqrt(x),
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
            "round": np.rint,
        }
        function = own.get(name) or getattr(np, name)
        return np.asarray(function(*(a.astype(np.longdouble) for a in args)))
    mp.mp.dps = 40
    exact = [_by_mpmath(name, [float(a[i]) for a in args]) for i in range(args[0].size)]
    high = np.array([_as_float(v) for v in exact])
    low = [
        _as_float(v - mp.mpf(h)) if math.isfinite(h) else 0.0
        for v, h in zip(exact, high, strict=True)
    ]
    return high.astype(np.longdouble) + np.array(low)


def _as_float(v: Any) -> float:
    """mpmath's own conversion loses denormals."""
    return math.ldexp(float(mp.ldexp(v, 300)), -300) if abs(v) < 1e-300 else float(v)


def _by_mpmath(name: str, values: list[float]) -> Any:
    special = float(apply_call(name, [np.float64(v) for v in values], "float64"))
    zero = special == 0 and name != "sigmoid"  # whose exp overflows where it is a denormal
    if not math.isfinite(special) or zero or not all(map(math.isfinite, values)):
        return mp.mpf(special)
    own: dict[str, Callable[..., Any]] = {
        "exp2": lambda x: 2**x,
        "log2": lambda x: mp.log(x, 2),
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
        "pow": mp.power,
        "round": mp.nint,
        "trunc": lambda x: mp.sign(x) * mp.floor(abs(x)),
        "abs": abs,
        "fmod": lambda x, y: mp.mpf(math.fmod(float(x), float(y))),
    }
    return (own.get(name) or getattr(mp, name))(*map(mp.mpf, values))


def wide_error(got: np.ndarray[Any, Any], args: list[np.ndarray[Any, Any]], name: str) -> float:
    """As `ulp_error`, for doubles."""
    with np.errstate(all="ignore"):
        exact = widest(name, args)
        rounded = exact.astype(np.float64)
        special = ~np.isfinite(rounded) | ~np.isfinite(got)
        error = np.abs(got - exact) / np.spacing(np.abs(np.where(special, 1.0, rounded)))
        edge = (np.abs(rounded) > 1.797e308) & (np.abs(got) > 1.797e308)
    differs = special & ~edge
    assert_same(np.where(differs, got, 0.0), np.where(differs, rounded, 0.0), name)
    error = np.where(special, 0.0, error)
    worst = int(np.argmax(error))
    print(f"{name}: {error[worst]:.2f} ulp at {[a[worst] for a in args]}")
    return float(error[worst])


@pytest.mark.parametrize("name", ONE_ARGUMENT + TWO_ARGUMENTS)
def test_float64(name: str) -> None:
    args = wide_samples(name, 20_000)
    if name == "erf":
        args = [np.concatenate([args[0][: len(SPECIAL)], args[0][len(SPECIAL) :: 50]])]
    limit = ULP.get(name, ROUNDED)[1]
    assert wide_error(run(name, "float64", "vector", args), args, name) <= limit


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["fmod", "%", "//"])
def test_remainders_are_exact(name: str, dtype: str) -> None:
    """Every bit as numpy's, for quotients from none to the largest."""
    kind = dtypes.numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        x, y = pairs(samples(200_000).astype(kind))
    exponents = np.random.default_rng(3).integers(-140, 120, x.size)
    with np.errstate(all="ignore"):
        x = np.concatenate([x, np.ldexp(x, exponents)])
        y = np.concatenate([y, np.ldexp(y, -exponents)])
    n = x.size
    A, B, C = (buffer(b, (n,), dtype) for b in "ABC")
    i = axis("i", n)
    operands = at(A, i), at(B, i)
    value = Call(name, operands, dtype) if name == "fmod" else Binary(name, *operands, dtype)
    got = CpuKernel(func([A, B, C], [C], loop(i, n, put(C, (i,), value), "vector")))(x, y)
    with np.errstate(all="ignore"):
        exact = np.fmod(x, y) if name == "fmod" else apply_binary(name, x, y, dtype)
    assert_same(np.asarray(got), np.asarray(exact), name)


def normal_distribution(x: float) -> float:
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (
            gelu_value,
            lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ),
        (lambda x: gelu_value(x, "erf"), lambda x: x * np.vectorize(normal_distribution)(x)),
        (lambda x: x / (te.exp(-x) + 1.0), lambda x: x / (1 + np.exp(-x))),
    ],
    ids=["gelu tanh", "gelu erf", "silu"],
)
def test_activations_in_the_tails(
    value: Callable[[Any], Any], exact: Callable[[Any], np.ndarray[Any, Any]]
) -> None:
    """No NaN for any finite argument; errors are absolute in the tail, where 1 + erf cancels."""
    x = samples(100_000)
    x = x[np.isfinite(x)]
    A, C = buffer("A", x.shape), buffer("C", x.shape)
    i = axis("i", x.size)
    got = CpuKernel(func([A, C], [C], loop(i, x.size, put(C, (i,), value(at(A, i))), "vector")))(x)
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64))
    assert (np.abs(got - wanted) <= 2e-6 * np.maximum(1.0, np.abs(wanted))).all()


def test_pow_operator() -> None:
    n = 64
    A, B, C = (buffer(x, (n,)) for x in "ABC")
    i = axis("i", n)
    f = func([A, B, C], [C], loop(i, n, put(C, (i,), binary("pow", at(A, i), at(B, i)))))
    a, b = np.linspace(0.1, 4, n, dtype=np.float32), np.linspace(-3, 3, n, dtype=np.float32)
    np.testing.assert_allclose(CpuKernel(f)(a, b), a.astype(np.float64) ** b, rtol=3e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_16_bit_floats(name: str, dtype: str) -> None:
    x = np.arange(65536, dtype=np.uint16).view(dtypes.numpy_dtype(dtype))
    assert ulp_error(run(name, dtype, "vector", [x]), [x], name, dtype) <= 1.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*ULP, "fmod"])
def test_other_processors(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a fused multiply-add and a scaling instruction the error grows by one ulp at most."""
    plain = dataclasses.replace(target.host(), vector_bytes=16, has_fma=False, has_scale=False)
    monkeypatch.setattr(target, "host", lambda: plain)
    wide = dtype == "float64"
    x = wide_samples("exp", 500 if name == "erf" else 3000)[0] if wide else samples(20_000)
    args = pairs(x) if name in TWO_ARGUMENTS else [x]
    got = run(name, dtype, "vector", args)
    error = wide_error(got, args, name) if wide else ulp_error(got, args, name, dtype)
    assert error <= ULP.get(name, ROUNDED)[wide] + 1
