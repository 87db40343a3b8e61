"""Products on the CPU: tiles, tails, packed panels and joined consumers never change a value."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import akg_py as akg
from akg_py import ops, te
from akg_py.autoschedule import ProductTiles, tile_product
from akg_py.autoschedule.cpu import contraction
from akg_py.codegen.target import host
from akg_py.codegen.threads import threads
from tests.comparison import assert_exact, small_integers

SHAPES = [
    (1, 1, 1),
    (1, 70, 9),
    (70, 1, 9),
    (2, 3, 4),
    (5, 17, 33),
    (6, 64, 512),
    (7, 65, 513),
    (13, 100, 1030),
    (100, 100, 100),
    (193, 33, 64),
    (40, 700, 65),  # few rows: columns are dealt
    (4, 304, 1100),  # very few: whole rows of B pass by
    (7, 523, 600),
    (300, 20, 1),
    (0, 5, 3),
    (5, 0, 3),
    (5, 3, 0),
]


def run(out: te.Tensor, inputs: list[te.Tensor], schedule: te.Schedule | None = None) -> None:
    """Build `out` untouched, or as scheduled, and compare with the oracle bit for bit."""
    s = schedule or te.create_schedule(out.op)
    kernel = akg.build(s, [*inputs, out], target="cpu")
    rng = np.random.default_rng(0)
    feeds = [small_integers(t.shape, t.dtype, rng) for t in inputs]
    assert_exact(kernel(*feeds), te.evaluate([out], feeds)[0])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int, int]) -> None:
    M, N, K = shape
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    run(ops.matmul(A, B), [A, B])


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int8"])
def test_dtypes(dtype: str) -> None:
    A, B = te.placeholder((37, 600), dtype, name="A"), te.placeholder((600, 130), dtype, name="B")
    if dtype == "float16":
        run(ops.matmul(A, B, out_dtype="float32"), [A, B])
    else:
        run(ops.matmul(A, B), [A, B])


def product(transposed: str, M: int, N: int, K: int) -> tuple[te.Tensor, list[te.Tensor]]:
    """C = A * B where `transposed` names the operands that are stored the other way round."""
    A = te.placeholder((K, M) if "A" in transposed else (M, K), name="A")
    B = te.placeholder((N, K) if "B" in transposed else (K, N), name="B")
    k = te.reduce_axis((0, K), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> object:
        a = A[k, i] if "A" in transposed else A[i, k]
        b = B[j, k] if "B" in transposed else B[k, j]
        return te.sum(a * b, axis=k)

    return te.compute((M, N), element, name="C"), [A, B]


@pytest.mark.parametrize("transposed", ["A", "B", "AB"])
@pytest.mark.parametrize("shape", [(35, 70, 20), (200, 150, 300), (16, 400, 300)], ids=str)
def test_transposed_operands(transposed: str, shape: tuple[int, int, int]) -> None:
    run(*product(transposed, *shape))


@pytest.mark.parametrize("K, copied", [(1030, True), (500, False)])
def test_a_scattered_operand_is_copied(K: int, copied: bool) -> None:
    """Elements of a row of A that lie a power of two apart, in an A that is large."""
    C, inputs = product("A", 2048, 20, K)
    schedule = te.create_schedule(C.op)
    assert ("cache_read" in str(akg.complete(schedule, "cpu"))) == copied
    run(C, inputs, akg.complete(schedule, "cpu"))


@pytest.mark.parametrize("M", [17, 19, 33, 37])
def test_no_row_of_tiles_is_a_single_row(M: int) -> None:
    """Each vector of B that is loaded serves several rows, also where M has no divisors."""
    C, _ = product("", M, 1000, 333)
    leaves = akg.complete(te.create_schedule(C.op), "cpu").state.stage("C").leaves
    assert max(a.extent for a in leaves if a.name.startswith("i.inner")) > 1


@pytest.mark.parametrize("transposed", ["B", "AB"])
def test_panels_of_a_turned_operand_are_transposed(transposed: str) -> None:
    C, inputs = product(transposed, 300, 400, 512)
    kernel = akg.build(te.create_schedule(C.op), [*inputs, C], target="cpu")
    packing = kernel.source.split("B_global[", 1)[0].rsplit("for", 3)
    assert [part.split()[0][:5] for part in packing[1:]] == ["ax0_o", "ax1", "ax0_i"]


@pytest.mark.parametrize("shape", [(3, 5, 7, 9), (8, 64, 64, 64), (2, 130, 70, 600)], ids=str)
def test_batches(shape: tuple[int, ...]) -> None:
    batch, M, N, K = shape
    A, B = te.placeholder((batch, M, K), name="A"), te.placeholder((batch, K, N), name="B")
    run(ops.batch_matmul(A, B), [A, B])


@pytest.mark.parametrize("shape", [(5, 17, 33), (100, 100, 600), (30, 800, 70)], ids=str)
def test_consumers_join_the_block(shape: tuple[int, int, int]) -> None:
    M, N, K = shape
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    bias = te.placeholder((N,), name="bias")
    C = ops.matmul(A, B)
    D = te.compute((M, N), lambda i, j: C[i, j] + bias[j], name="D")
    E = te.compute((M, N), lambda i, j: te.abs(D[i, j]) * D[i, j], name="E")
    kernel = akg.build(te.create_schedule(E.op), [A, B, bias, E], target="cpu")
    assert [x.name for x in kernel.func.params] == ["A", "B", "bias", "E"]
    assert f's["{C.op.name}"].compute_at("E"' in str(kernel.schedule.trace)
    run(E, [A, B, bias])


@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize("pack", ["", "first", "panel"])
@pytest.mark.parametrize("block_rows", [0, 7, 24])
@pytest.mark.parametrize("block_columns", [0, 40, 64])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_any_tiles(
    batch: tuple[int, ...], block_columns: int, block_rows: int, pack: str, along_rows: bool
) -> None:
    A, B = te.placeholder((*batch, 50, 90), name="A"), te.placeholder((*batch, 90, 130), name="B")
    C = ops.batch_matmul(A, B) if batch else ops.matmul(A, B)
    s = te.create_schedule(C.op)
    tiles = ProductTiles(5, 24, 32, block_rows, block_columns, pack, along_rows)
    assert tile_product(s, C.op.name, tiles) == {C.op.name}
    run(C, [A, B], s)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("init", [0, 7])
def test_sums_begin_anywhere(dtype: str, first: int, init: int) -> None:
    acc = "int32" if dtype == "int8" else "float32"
    A, B = te.placeholder((64, 600), dtype, name="A"), te.placeholder((600, 130), dtype, name="B")
    k = te.reduce_axis((first, 600), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> object:
        return te.sum(A[i, k].astype(acc) * B[k, j].astype(acc), axis=k, init=init)

    run(te.compute((64, 130), element, name="C"), [A, B])


def test_threads_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((300, 300)).astype("float32") for _ in range(2))
    results = []
    for count in (1, 2, 3):
        with threads(count):
            A, B = te.placeholder((300, 300), name="A"), te.placeholder((300, 300), name="B")
            C = ops.matmul(A, B)
            results.append(akg.build(te.create_schedule(C.op), [A, B, C], target="cpu")(a, b))
    assert_exact(results[0], results[1])
    assert_exact(results[0], results[2])


@pytest.mark.parametrize(
    "shape",
    [(4096, 64, 64), (8192, 32, 128), (64, 64, 4096), (128, 128, 128), (1024, 1024, 64),
     (300, 300, 300), (20, 1024, 1024), (4, 4096, 1024), (2, 1100, 600)],
    ids=str,
)  # fmt: skip
def test_large_products_are_dealt_out(shape: tuple[int, int, int]) -> None:
    M, N, K = shape
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    C = ops.matmul(A, B)
    with threads(2):
        kernel = akg.build(te.create_schedule(C.op), [A, B, C], target="cpu")
    main = kernel.source[kernel.source.index("def main") :]
    pieces = [int(n) for n in re.findall(r"prange\((\d+)\)", main)]
    assert pieces and all(n >= 2 for n in pieces)


@pytest.mark.parametrize("N, even", [(512, True), (555, False)])
def test_threads_take_columns_that_deal_out_evenly(
    N: int, even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With panels of their own; the bits are those of rows dealt out."""
    wide = replace(host(), registers=32, vector_bytes=64)
    monkeypatch.setattr(contraction, "host", lambda: wide)
    A, B = te.placeholder((96, 300), name="A"), te.placeholder((300, N), name="B")
    rng = np.random.default_rng(3)
    feeds = [rng.standard_normal(t.shape).astype("float32") for t in (A, B)]
    results = []
    for count in (1, 2):
        with threads(count):
            C = ops.matmul(A, B)
            kernel = akg.build(te.create_schedule(C.op), [A, B, C], target="cpu")
            results.append(kernel(*feeds))
            packed = [stage.name for stage in kernel.schedule.state.stages if "." in stage.name]
            assert packed == [f"B.{'local' if even and count > 1 else 'global'}"]
    assert_exact(results[0], results[1])


def test_what_is_no_product_stays() -> None:
    A = te.placeholder((8, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    rows = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="rows")
    s = te.create_schedule(rows.op)
    assert tile_product(s, "rows") == set()
    assert len(s.trace) == 0


@pytest.fixture(params=[(16, 16), (16, 32), (32, 64)], ids=["sse", "avx2", "avx512"])
def tiles_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles for another processor, which run on this one."""
    registers, width = request.param
    other = replace(host(), registers=registers, vector_bytes=width)
    monkeypatch.setattr(contraction, "host", lambda: other)


@pytest.mark.parametrize(
    "shape",
    [
        (50, 600, 64),
        (300, 257, 128),
        (2, 1024, 90),
        (20, 1024, 90),
        (300, 130, 200),
        (9, 40, 2500),
        (4, 700, 405),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.usefixtures("tiles_for")
def test_tiles_for_other_processors(shape: tuple[int, int, int], batch: int) -> None:
    M, N, K = shape
    A = te.placeholder((batch, M, K) if batch else (M, K), name="A")
    B = te.placeholder((batch, K, N) if batch else (K, N), name="B")
    run(ops.batch_matmul(A, B) if batch else ops.matmul(A, B), [A, B])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", [(1, 20, 13, 7), (3, 64, 16, 32), (2, 1, 9, 9), (1, 130, 8, 8)])
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.usefixtures("tiles_for")
def test_convolutions_of_single_pixels(
    shape: tuple[int, int, int, int], dtype: str, joins: bool
) -> None:
    X = te.placeholder(shape, dtype, name="X")
    W = te.placeholder((34, shape[1], 1, 1), dtype, name="W")
    wide = "int32" if dtype == "int8" else "float32"
    out = ops.conv2d(X, W, out_dtype=wide)
    if joins:
        C = out
        out = te.compute(C.shape, lambda *at: te.maximum(C[at] * 2, 1), name="D")
    run(out, [X, W])


@pytest.mark.parametrize(
    "channels, out, takes", [(64, 34, 2), (128, 32, 2), (200, 34, 1), (200, 32, 0)]
)
@pytest.mark.parametrize("registers, width", [(16, 32), (32, 64)])
def test_which_pixels_are_columns(
    channels: int, out: int, takes: int, registers: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of short sums; with many registers those of channels that fill no vectors, too."""
    other = replace(host(), registers=registers, vector_bytes=width)
    monkeypatch.setattr(contraction, "host", lambda: other)
    X = te.placeholder((2, channels, 9, 9), name="X")
    Y = ops.conv2d(X, te.placeholder((out, channels, 1, 1), name="W"))
    found = contraction.match_product(te.create_schedule(Y.op).state.stage(Y.op.name))
    assert (found is not None) == (takes > (registers == 16))


@pytest.mark.parametrize("image", [(1, 15, 21, 1), (1, 15, 1, 1), (3, 21, 1, 1), (2, 1, 5, 5)])
@pytest.mark.parametrize("out", [1, 8])
@pytest.mark.usefixtures("tiles_for")
def test_pixels_in_a_line_and_single_channels(image: tuple[int, int, int, int], out: int) -> None:
    """They are reductions too, of which a stage is only one."""
    X, W = te.placeholder(image, name="X"), te.placeholder((out, image[1], 1, 1), name="W")
    run(ops.conv2d(X, W), [X, W])


@pytest.mark.usefixtures("tiles_for")
def test_steps_and_rims_are_no_products() -> None:
    X, W = te.placeholder((1, 8, 12, 12), name="X"), te.placeholder((16, 8, 1, 1), name="W")
    run(ops.conv2d(X, W, stride=2), [X, W])
    run(ops.conv2d(X, W, padding=1), [X, W])
    V = te.placeholder((16, 4, 1, 1), name="V")
    run(ops.conv2d(X, V, groups=2), [X, V])


@pytest.mark.parametrize("reading", ["turned", "shifted"])
@pytest.mark.usefixtures("tiles_for")
def test_other_pixels_are_no_columns(reading: str) -> None:
    X, W = te.placeholder((1, 8, 12, 12), name="X"), te.placeholder((16, 8, 1, 1), name="W")
    c, r, q = (te.reduce_axis((0, extent)) for extent in (8, 1, 1))

    def element(n: te.Expr, k: te.Expr, y: te.Expr, x: te.Expr) -> te.Expr:
        row, column = (x, y) if reading == "turned" else ((y + 1) % 12, x)
        return te.sum(X[n, c, row + r, column + q] * W[k, c, r, q], axis=[c, r, q])

    run(te.compute((1, 16, 12, 12), element, name="Y"), [X, W])
