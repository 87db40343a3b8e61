"""Products whose operands both lie along the sum: shapes, dtypes, no gathers, nothing rounded."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import ops, te
from akg_py.autoschedule.cpu import contraction, dots
from akg_py.autoschedule.cpu.dots import tile_dots
from akg_py.codegen.target import host
from akg_py.codegen.threads import threads
from tests.comparison import assert_exact, small_integers

SHAPES = [
    (2, 30, 64),
    (3, 17, 2048),
    (4, 6, 16),
    (7, 90, 320),
    (8, 1, 64),
    (13, 50, 512),
    (47, 25, 1152),
    (2, 30, 33),
    (5, 40, 1001),
    (8, 20, 130),
]
FEW_COLUMNS = [
    (32, 2, 64),
    (33, 3, 1000),
    (50, 5, 512),
    (40, 7, 1024),
    (1000, 10, 784),
    (35, 20, 2048),
]

DTYPES = [
    ("float64", "float64"),
    ("int32", "int32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("int8", "int32"),
    ("uint8", "int32"),
]


def product(
    shape: tuple[int, ...],
    dtype: str = "float32",
    total: str = "float32",
    is_turned: bool = True,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """A, B and C[.., m, n] = sum of A[.., m, k] * B[.., n, k], or of B[.., k, n] if not turned."""
    *batch, M, N, K = shape
    A = te.placeholder((*batch, M, K), dtype, name="A")
    B = te.placeholder((*batch, *((N, K) if is_turned else (K, N))), dtype, name="B")
    k = te.reduce_axis((0, K), name="k")

    def element(*at: te.IterVar) -> Any:
        *b, m, n = at
        b_at = (*b, *((n, k) if is_turned else (k, n)))
        return te.sum(A[(*b, m, k)].astype(total) * B[b_at].astype(total), axis=k)

    return A, B, te.compute((*batch, M, N), element, name="C")


plain = functools.partial(product, is_turned=False)


def run(out: te.Tensor, *inputs: te.Tensor) -> Any:
    """Build `out` untouched and compare with the oracle bit for bit."""
    kernel = akg.build(te.create_schedule(out.op), [*inputs, out], target="cpu")
    rng = np.random.default_rng(0)
    feeds = [small_integers(t.shape, t.dtype, rng) for t in inputs]
    assert_exact(kernel(*feeds), te.evaluate([out], feeds)[0])
    return kernel


def takes(out: te.Tensor) -> bool:
    return bool(tile_dots(te.create_schedule(out.op), out.op.name))


@pytest.fixture(params=[(16, 16), (16, 32), (32, 64)], ids=["sse", "avx2", "avx512"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles for a processor, which run on this one."""
    registers, width = request.param
    other = replace(host(), registers=registers, vector_bytes=width)
    for module in (contraction, dots):
        monkeypatch.setattr(module, "host", lambda: other)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)], ids=str)
@pytest.mark.usefixtures("processor")
def test_shapes(shape: tuple[int, int, int], batch: tuple[int, ...]) -> None:
    A, B, C = product((*batch, *shape))
    assert takes(C) == (shape[1] > 1)
    run(C, A, B)


@pytest.mark.parametrize("dtype, total", DTYPES)
def test_dtypes(dtype: str, total: str) -> None:
    for shape in ((4, 70, 256), (2, 3, 30, 64)):
        A, B, C = product(shape, dtype, total)
        assert takes(C)
        run(C, A, B)


def test_partial_sums_are_not_rounded() -> None:
    A, B, C = product((5, 70, 256), "float16", "float16")
    assert not takes(C)
    run(C, A, B)


@pytest.mark.parametrize("shape", [(5, 70, 256), (8, 300, 64), (3, 4, 5, 256)], ids=str)
def test_consumers_join_the_block(shape: tuple[int, ...]) -> None:
    A, B, C = product(shape)
    bias = te.placeholder(shape[-2:-1], name="bias")
    out = ops.relu(te.compute(C.shape, lambda *i: C[i] + bias[i[-1]], name="biased"))
    run(out, A, B, bias)
    run(te.compute(C.shape, lambda *i: C[i].astype("float16"), name="narrow"), A, B)


@pytest.mark.parametrize(
    "shape",
    [(4, 200, 70), (9, 90, 64), (60, 200, 64), (20, 40, 1001), (3, 50, 40, 64), (2, 512, 4096)],
    ids=str,
)
def test_rows_are_never_gathered(shape: tuple[int, ...]) -> None:
    """Whichever way such a product goes, it reads both operands along their rows."""
    A, B, C = product(shape)
    assert "gather" not in run(C, A, B).llvm


def test_what_stays_with_packed_panels() -> None:
    for shape in ((48, 64, 1024), (12, 64, 256), (4, 64, 20), (8, 64, 100)):
        assert not takes(product(shape)[2])
    if host().has_vnni:
        assert not takes(product((5, 70, 1024), "int8", "int32")[2])
    A, B = te.placeholder((4, 64), name="A"), te.placeholder((64, 30), name="B")
    assert not takes(ops.matmul(A, B))


@pytest.mark.parametrize("shape", FEW_COLUMNS, ids=str)
@pytest.mark.parametrize("declare", [plain, product], ids=["plain", "turned"])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.usefixtures("processor")
def test_few_columns(shape: tuple[int, int, int], declare: Any, batch: tuple[int, ...]) -> None:
    A, B, C = declare((*batch, *shape))
    run(C, A, B)


@pytest.mark.parametrize("shape", FEW_COLUMNS, ids=str)
def test_few_columns_are_taken_where_lanes_would_idle(shape: tuple[int, int, int]) -> None:
    if host().vector_bytes == 64:
        assert takes(plain(shape)[2]) and takes(product(shape)[2])


@pytest.mark.parametrize("dtype, total", DTYPES)
@pytest.mark.parametrize("declare", [plain, product], ids=["plain", "turned"])
def test_dtypes_of_few_columns(dtype: str, total: str, declare: Any) -> None:
    for shape in ((64, 2, 1024), (40, 3, 1000), (2, 33, 3, 512)):
        A, B, C = declare(shape, dtype, total)
        assert takes(C) or shape[-1] == 1000
        run(C, A, B)


@pytest.mark.parametrize("shape", [(100, 3, 256), (200, 10, 1000), (3, 40, 5, 256)], ids=str)
def test_consumers_join_few_columns(shape: tuple[int, ...]) -> None:
    A, B, C = plain(shape)
    bias = te.placeholder(shape[-2:-1], name="bias")
    out = ops.relu(te.compute(C.shape, lambda *i: C[i] + bias[i[-1]], name="biased"))
    run(out, A, B, bias)
    run(te.compute(C.shape, lambda *i: C[i].astype("float16"), name="narrow"), A, B)


def test_columns_that_stay_in_lanes() -> None:
    for shape in ((100, 25, 1000), (31, 3, 1000), (100, 3, 20), (100, 16, 1000), (1000, 8, 64)):
        assert not takes(plain(shape)[2])
    A, B = te.placeholder((1000, 100), name="A"), te.placeholder((1000, 3), name="B")
    k = te.reduce_axis((0, 1000), name="k")
    C = te.compute((100, 3), lambda i, j: te.sum(A[k, i] * B[k, j], axis=k), name="C")
    assert not takes(C)  # A would have to be turned round too
    run(C, A, B)


def test_threads_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((6, 1024), (1000, 1024)))
    results = []
    for count in (1, 2, 3):
        with threads(count):
            A, B, C = product((6, 1000, 1024))
            results.append(akg.build(te.create_schedule(C.op), [A, B, C], target="cpu")(a, b))
    assert_exact(results[0], results[1])
    assert_exact(results[0], results[2])
