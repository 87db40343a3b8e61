"""Every operation in every dtype, scalar and over lanes, against the interpreter, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from akg_py import dtypes
from akg_py.codegen import target
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.target import Processor
from akg_py.ir.expr import Call, Const, Expr, Select, Unary, binary, cast, const, logical
from tests.codegen.funcs import assert_same, at, axis, buffer, check, func, loop, put
from tests.codegen.processors import available, run_emitted

KINDS = ["unroll", "vector"]  # a long unrolled loop is scalar code, a serial one takes lanes
INTS = [d for d in dtypes.DTYPES if dtypes.is_int(d)]
FLOATS = [d for d in dtypes.DTYPES if dtypes.is_float(d)]


def interesting(dtype: str, rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, n).astype(np.bool_)
    if dtypes.is_int(dtype):
        info = np.iinfo(dtype)
        special = np.array([info.min, info.max, 0, 1, info.max - 1, 2, 3, info.min + 1], dtype)
        raw = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        small = rng.integers(0, 10, n).astype(dtype)
        raw = np.where(rng.random(n) < 0.4, small, raw)
        return np.where(rng.random(n) < 0.4, rng.choice(special, n), raw).astype(dtype)
    special_f = np.array(
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1.0,
            -1.0,
            0.5,
            2.5,
            -2.5,
            1e-40,
            1e-7,
            65504.0,
            3e38,
            6e-8,
        ]
    )
    with np.errstate(all="ignore"):
        raw_f = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)
        return np.where(rng.random(n) < 0.4, rng.choice(special_f, n), raw_f).astype(
            dtypes.numpy_dtype(dtype)
        )


def run_binary(op: str, dtype: str, kind: str, seed: int = 0) -> None:
    n = 331
    rng = np.random.default_rng(seed)
    A, B = buffer("A", (n,), dtype), buffer("B", (n,), dtype)
    i = axis("i", n)
    value = (
        binary(op, at(A, i), at(B, i))
        if op not in ("&&", "||")
        else logical(op, at(A, i), at(B, i))
    )
    C = buffer("C", (n,), value.dtype)
    f = func([A, B, C], [C], loop(i, n, put(C, (i,), value), kind))
    a, b = interesting(dtype, rng, n), interesting(dtype, rng, n)
    if op in ("min", "max"):  # which zero of two wins is not defined
        a, b = np.where(a == 0, np.abs(a), a), np.where(b == 0, np.abs(b), b)
    check(f, a, b, np.zeros(n, dtypes.numpy_dtype(C.dtype)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize(
    "op", ["+", "-", "*", "//", "%", "min", "max", "==", "!=", "<", "<=", ">", ">="]
)
def test_binary(op: str, dtype: str, kind: str) -> None:
    run_binary(op, dtype, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_division(dtype: str, kind: str) -> None:
    run_binary("/", dtype, kind)


def around_multiples(dtype: str) -> tuple[Any, Any]:
    """Dividends beside multiples of divisors; of the small dtypes every pair."""
    info = np.iinfo(dtype)
    if info.bits == 8:
        every = np.arange(info.min, info.max + 1, dtype=dtype)
        return np.repeat(every, 256), np.tile(every, 256)
    rng = np.random.default_rng(4)
    ends = [info.min, info.min + 1, info.max // 2, info.max - 1, info.max]
    draws = np.concatenate([rng.integers(2, 1 << k, 400) for k in range(2, info.bits)])
    y = np.array([1, *ends, *(draws * rng.choice([-1, 1], draws.size))]).astype(dtype)
    y = np.where(y == 0, np.ones((), dtype), y)
    far = rng.integers(info.min, info.max, y.size, dtype, endpoint=True)
    x = [far // y * y + np.array(d).astype(dtype) for d in (-1, 0, 1)]
    x += [np.full_like(y, n) for n in ends]
    return np.concatenate(x), np.tile(y, len(x))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("op", ["//", "%"])
@pytest.mark.parametrize("dtype", INTS)
def test_no_quotient_is_rounded_up(dtype: str, op: str, processor: Processor) -> None:
    with np.errstate(all="ignore"):
        x, y = around_multiples(dtype)
        expected = (np.floor_divide if op == "//" else np.mod)(x, y)
    A, B, C = (buffer(name, x.shape, dtype) for name in "ABC")
    i = axis("i", x.size)
    f = func([A, B, C], [C], loop(i, x.size, put(C, (i,), binary(op, at(A, i), at(B, i)))))
    c = np.zeros_like(x)
    run_emitted(emit_func(f, processor=processor), [x, y, c])
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["&&", "||", "==", "!=", "min", "max"])
def test_bool(op: str, kind: str) -> None:
    run_binary(op, "bool", kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", dtypes.DTYPES)
@pytest.mark.parametrize("source", dtypes.DTYPES)
def test_cast(source: str, target: str, kind: str) -> None:
    n = 300
    rng = np.random.default_rng(1)
    A, C = buffer("A", (n,), source), buffer("C", (n,), target)
    i = axis("i", n)
    a = interesting(source, rng, n)
    if dtypes.is_float(source) and dtypes.is_int(target):
        # numpy leaves what doesn't fit to the processor; what fits is defined
        with np.errstate(all="ignore"):
            wide = a.astype(np.float64)
        info = np.iinfo(target)
        fits = (np.trunc(wide) >= info.min) & (np.trunc(wide) <= info.max) & (wide < 2.0**63)
        a = np.where(fits, a, np.ones((), a.dtype))
    check(
        func([A, C], [C], loop(i, n, put(C, (i,), cast(target, at(A, i))), kind)),
        a,
        np.zeros(n, dtypes.numpy_dtype(target)),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", dtypes.DTYPES)
def test_unary_and_select(dtype: str, kind: str) -> None:
    n = 100
    rng = np.random.default_rng(2)
    A, B, C = (buffer(x, (n,), dtype) for x in "ABC")
    i = axis("i", n)
    value: Expr = at(A, i) if dtypes.is_bool(dtype) else Unary("-", at(A, i))
    value = Select(at(A, i) < at(B, i), value, at(B, i), dtype)
    f = func([A, B, C], [C], loop(i, n, put(C, (i,), value), kind))
    check(f, interesting(dtype, rng, n), interesting(dtype, rng, n), interesting(dtype, rng, n))


@pytest.mark.parametrize("kind", KINDS)
def test_not(kind: str) -> None:
    A, C = buffer("A", (37,), "bool"), buffer("C", (37,), "bool")
    i = axis("i", 37)
    check(func([A, C], [C], loop(i, 37, put(C, (i,), Unary("!", at(A, i))), kind)))


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint16", "int64"])
def test_power_of_ints(dtype: str) -> None:
    A, B, C = (buffer(x, (64,), dtype) for x in "ABC")
    i = axis("i", 64)
    f = func([A, B, C], [C], loop(i, 64, put(C, (i,), binary("pow", at(A, i), at(B, i))), "vector"))
    rng = np.random.default_rng(0)
    check(f, interesting(dtype, rng, 64), rng.integers(0, 9, 64).astype(dtype), np.zeros(64, dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["isnan", "isinf", "isfinite", "abs", "floor", "ceil", "round", "trunc", "sqrt"]
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_calls(name: str, dtype: str, kind: str) -> None:
    n = 200
    A = buffer("A", (n,), dtype)
    result = "bool" if name.startswith("is") else dtype
    C = buffer("C", (n,), result)
    i = axis("i", n)
    f = func([A, C], [C], loop(i, n, put(C, (i,), Call(name, (at(A, i),), result)), kind))
    check(
        f, interesting(dtype, np.random.default_rng(3), n), np.zeros(n, dtypes.numpy_dtype(result))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_loop_variable_as_value(dtype: str, kind: str) -> None:
    A, C = buffer("A", (5, 40), dtype), buffer("C", (5, 40), dtype)
    i, j = axis("i", 5), axis("j", 40)
    value = (
        cast(dtype, i * 3 - j)
        + at(A, i, j) * cast(dtype, (j - 7) // 3)
        + cast(dtype, (i * 5 - j) % 4)
    )
    check(func([A, C], [C], loop(i, 5, loop(j, 40, put(C, (i, j), value), kind))))


def test_constants() -> None:
    for dtype in dtypes.DTYPES:
        C = buffer("C", (7,), dtype)
        i = axis("i", 7)
        check(
            func(
                [C],
                [C],
                loop(i, 7, put(C, (i,), const(1.3 if dtypes.is_float(dtype) else 1, dtype))),
            )
        )
    for number in (float("inf"), float("nan"), -0.0, 1e-45, 1e39):
        C = buffer("C", (3,))
        i = axis("i", 3)
        check(func([C], [C], loop(i, 3, put(C, (i,), Const(number, "float32")))))


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_other_processors(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow vectors, no fused multiply-add, no float16 instructions: the same values."""
    plain = dataclasses.replace(
        target.host(), vector_bytes=vector_bytes, has_fma=False, has_half=False, has_scale=False
    )
    monkeypatch.setattr(target, "host", lambda: plain)
    for dtype in ("float16", "bfloat16", "float32"):
        for op in ("+", "*", "/", "<"):
            run_binary(op, dtype, "vector")
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    singles = interesting("float32", np.random.default_rng(0), 65536)
    for source, to, data in (("float16", "float32", every), ("float32", "float16", singles)):
        A, C = buffer("A", (65536,), source), buffer("C", (65536,), to)
        i = axis("i", 65536)
        f = func([A, C], [C], loop(i, 65536, put(C, (i,), cast(to, at(A, i))), "vector"))
        with np.errstate(all="ignore"):
            assert_same(CpuKernel(f)(data), data.astype(to))
