"""Products of int8, bfloat16 and float16 as completion schedules them, for all forms and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import dtypes, te
from akg_py.codegen.target import host
from akg_py.codegen.threads import threads
from akg_py.ops.matmul import batch_matmul, matmul
from tests.comparison import assert_within_bound, random_floats

Array = np.ndarray[Any, Any]
SHAPES = [(1, 70, 33), (3, 5, 1), (5, 17, 65), (63, 127, 64), (70, 513, 130), (200, 64, 40)]


def full(inputs: list[te.Tensor], out: te.Tensor) -> Any:
    return akg.build(te.create_schedule(out.op), [*inputs, out], target="cpu", auto="full")


def integers(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """All of int8 or uint8; what is exact in sums as floats."""
    if dtypes.is_float(dtype):
        return rng.integers(-3, 4, shape).astype(dtypes.numpy_dtype(dtype))
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def exact(a: Array, b: Array, dtype: str) -> Array:
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(dtypes.numpy_dtype(dtype))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "dtype,out",
    [
        ("int8", "int32"),
        ("uint8", "int32"),
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
        ("float16", "float16"),
        ("float16", "float32"),
    ],
)
def test_matmul(shape: tuple[int, int, int], dtype: str, out: str) -> None:
    m, k, n = shape
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    rng = np.random.default_rng(m)
    a, b = integers((m, k), dtype, rng), integers((k, n), dtype, rng)
    kernel = full([A, B], matmul(A, B, out))
    for count in (1, 2):
        with threads(count):
            np.testing.assert_array_equal(kernel(a, b), exact(a, b, out))


@pytest.mark.parametrize("k", [131, 2050, 5001])
@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT", "batch"])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float16"])
def test_forms(dtype: str, form: str, k: int) -> None:
    m, n = 37, 75
    total = dtypes.accumulator(dtype)
    rng = np.random.default_rng(3)
    if form == "batch":
        A, B = (
            te.placeholder((3, m, k), dtype, name="A"),
            te.placeholder((3, k, n), dtype, name="B"),
        )
        C = batch_matmul(A, B, total)
        a, b = integers(A.shape, dtype, rng), integers(B.shape, dtype, rng)
        np.testing.assert_array_equal(full([A, B], C)(a, b), exact(a, b, total))
        return
    A = te.placeholder((k, m) if form[0] == "T" else (m, k), dtype, name="A")
    B = te.placeholder((n, k) if form[1] == "T" else (k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(
            (A[r, i] if form[0] == "T" else A[i, r]).astype(total)
            * (B[j, r] if form[1] == "T" else B[r, j]).astype(total),
            axis=r,
        ),
        name="C",
    )
    a, b = integers(A.shape, dtype, rng), integers(B.shape, dtype, rng)
    left, right = a.T if form[0] == "T" else a, b.T if form[1] == "T" else b
    np.testing.assert_array_equal(full([A, B], C)(a, b), exact(left, right, total))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("out", ["", "float32"])
def test_rounding_stays_within_the_bound(dtype: str, out: str) -> None:
    A, B = te.placeholder((40, 90), dtype, name="A"), te.placeholder((90, 70), dtype, name="B")
    C = matmul(A, B, out or dtype)
    rng = np.random.default_rng(5)
    a, b = random_floats(A.shape, dtype, rng), random_floats(B.shape, dtype, rng)
    assert_within_bound(full([A, B], C)(a, b), C, [a, b])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_written_in_16_bits_accumulate_in_float32(dtype: str) -> None:
    A, B = te.placeholder((40, 90), dtype, name="A"), te.placeholder((90, 70), dtype, name="B")
    k = te.reduce_axis((0, 90), name="k")
    C = te.compute((40, 70), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    rng = np.random.default_rng(6)
    a, b = random_floats(A.shape, dtype, rng), random_floats(B.shape, dtype, rng)
    kernel = full([A, B], C)
    assert_within_bound(kernel(a, b), C, [a, b])
    assert dtype == "float16" or not host().has_bf16 or "vdpbf16ps" in kernel.assembly


def test_int8_sums_in_int8_are_no_dots() -> None:
    A, B = te.placeholder((40, 90), "int8", name="A"), te.placeholder((90, 70), "int8", name="B")
    k = te.reduce_axis((0, 90), name="k")
    C = te.compute((40, 70), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    rng = np.random.default_rng(6)
    a, b = integers(A.shape, "int8", rng), integers(B.shape, "int8", rng)
    expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int8)
    np.testing.assert_array_equal(full([A, B], C)(a, b), expected)


@pytest.mark.parametrize(
    "dtype,instruction,has",
    [("int8", "vpdpbusd", host().has_vnni), ("bfloat16", "vdpbf16ps", host().has_bf16)],
)
@pytest.mark.parametrize("k", [128, 2050, 5001, 8200])
def test_dot_instructions(dtype: str, instruction: str, has: bool, k: int) -> None:
    """Also where the sum isn't a whole number of blocks, or of groups."""
    A, B = te.placeholder((96, k), dtype, name="A"), te.placeholder((k, 128), dtype, name="B")
    text = full([A, B], matmul(A, B, dtypes.accumulator(dtype))).assembly
    assert (text.count(instruction) >= 24) == has


def test_float16_is_converted_in_the_copies() -> None:
    A, B = (te.placeholder((256, 256), "float16", name=n) for n in "AB")
    kernel = full([A, B], matmul(A, B, "float32"))
    lines = kernel.assembly.splitlines()
    products = [n for n, line in enumerate(lines) if "fmadd" in line]
    conversions = [n for n, line in enumerate(lines) if "cvtph2ps" in line]
    assert products and (not host().has_half or conversions)
    between = set(range(products[0], products[-1])) & set(conversions)
    assert not between
