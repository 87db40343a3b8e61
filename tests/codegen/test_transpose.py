"""Transposes by tiles against numpy and the interpreter: sizes, dtypes, orders of loops, guards."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akg_py import build, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.target import Processor, host
from akg_py.ir.expr import Select, const, minimum
from akg_py.ir.stmt import Alloc, Func, Seq
from tests.codegen.funcs import at, axis, buffer, check, func, loop, put, random_array
from tests.codegen.processors import available, check_on, run_emitted

SIZES = (1, 5, 15, 16, 17, 33, 100)
KINDS = ("serial", "vector", "parallel")
DTYPES = ("float32", "float64", "float16", "int8", "bool", "bfloat16", "uint16", "int64")


def transpose(m: int, n: int, dtype: str, kinds: tuple[str, str] = ("serial", "serial")) -> Func:
    A, B = buffer("A", (n, m), dtype), buffer("B", (m, n), dtype)
    i, j = axis("i", m), axis("j", n)
    body = loop(i, m, loop(j, n, put(B, (i, j), at(A, j, i)), kinds[1]), kinds[0])
    return func([A, B], [B], body)


def transposed(A: te.Tensor) -> Any:
    return lambda i, j: A[j, i]


def uses_tiles(f: Func) -> bool:
    return "shufflevector" in emit_func(f).text


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(dtype: str) -> None:
    for m, n in zip(SIZES * 2, SIZES[3:] + SIZES + SIZES[:3], strict=True):
        check(transpose(m, n, dtype))


@pytest.mark.parametrize(
    "kinds", list(itertools.product(("serial", "vector", "parallel"), repeat=2))
)
def test_kinds(kinds: tuple[str, str]) -> None:
    f = transpose(70, 50, "float32", kinds)
    assert uses_tiles(f) or kinds[1] == "parallel"
    check(f)


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8", "float16"])
def test_processors(processor: Processor, dtype: str) -> None:
    for m, n in ((33, 70), (5, 100), (64, 128)):
        check_on(processor, transpose(m, n, dtype))


def test_bits_are_kept() -> None:
    """A copy keeps the payload of NaNs, also signalling ones."""
    for dtype, bits in (("float32", np.uint32), ("float16", np.uint16), ("float64", np.uint64)):
        f = transpose(40, 50, dtype)
        a = np.random.default_rng(0).integers(0, np.iinfo(bits).max, (50, 40), bits, endpoint=True)
        b = np.zeros((40, 50), bits)
        run_emitted(emit_func(f), [a, b])
        np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_loops_in_between(order: tuple[int, ...]) -> None:
    """out[n, c, h, w] = in[n, h, w, c], with the loops in any order."""
    c, h, w = 20, 6, 33
    A, B = buffer("A", (h, w, c)), buffer("B", (c, h, w))
    axes = [axis("c", c), axis("h", h), axis("w", w)]
    body: Any = put(B, tuple(axes), at(A, axes[1], axes[2], axes[0]))
    for n in reversed(order):
        body = loop(axes[n], (c, h, w)[n], body)
    check(func([A, B], [B], body))


@pytest.mark.parametrize("processor", available())
def test_expressions(processor: Processor) -> None:
    """Transposed, straight, broadcast and guarded operands in one body; two stores."""
    m, n = 37, 50
    A, B, C = buffer("A", (n, m)), buffer("B", (m, n)), buffer("C", (m, n))
    r, c, D = buffer("r", (m,)), buffer("c", (n,)), buffer("D", (m, n))
    i, j = axis("i", m), axis("j", n)
    near = Select(j > 0, at(A, j - 1, i), const(0.0, "float32"), "float32", True)
    row_only = Select(i < 20, at(A, j, i), at(c, j), "float32", False)
    value = at(A, j, i) * at(B, i, j) + at(r, i) - at(c, j) + near
    body = Seq((put(C, (i, j), value), put(D, (i, j), row_only + at(A, j, i))))
    f = func([A, B, r, c, C, D], [C, D], loop(i, m, loop(j, n, body)))
    assert uses_tiles(f)
    check_on(processor, f)


def test_mixed_dtypes() -> None:
    A, B, C = buffer("A", (40, 33), "float16"), buffer("B", (33, 40), "int8"), buffer("C", (33, 40))
    i, j = axis("i", 33), axis("j", 40)
    value = at(A, j, i).astype("float32") + at(B, i, j).astype("float32")
    check(func([A, B, C], [C], loop(i, 33, loop(j, 40, put(C, (i, j), value)))))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_packing(dtype: str) -> None:
    """Tiles with tails of a transposed operand go through a buffer in the middle of a kernel."""
    m, n, tile_m, tile_n = 70, 90, 32, 48
    A, B = buffer("A", (n, m), dtype), buffer("B", (m, n), dtype)
    T = buffer("T", (tile_m, tile_n), dtype)
    io, jo = axis("io", -(-m // tile_m)), axis("jo", -(-n // tile_n))
    rows, columns = minimum(tile_m, m - io * tile_m), minimum(tile_n, n - jo * tile_n)
    i, j, k, l = axis("i", tile_m), axis("j", tile_n), axis("k", tile_m), axis("l", tile_n)  # noqa: E741
    pack = put(T, (i, j), at(A, jo * tile_n + j, io * tile_m + i))
    use = put(B, (io * tile_m + k, jo * tile_n + l), at(T, k, l) + at(T, k, l))
    body = Alloc(
        T,
        Seq((
            loop(i, rows, loop(j, columns, pack)),
            loop(k, rows, loop(l, columns, use, "vector")),
        )),
    )  # fmt: skip
    f = func([A, B], [B], loop(io, -(-m // tile_m), loop(jo, -(-n // tile_n), body)))
    assert uses_tiles(f)
    check(f)


@pytest.mark.parametrize("processor", available())
def test_nests_share_their_shuffles(processor: Processor) -> None:
    """Copies of whole tiles are calls of one function, whatever their strides."""
    A, B = buffer("A", (40, 64)), buffer("B", (64, 40))
    C, D = buffer("C", (2, 100, 40)), buffer("D", (2, 40, 100))
    i, j = axis("i", 64), axis("j", 40)
    k, l, n = axis("k", 40), axis("l", 100), axis("n", 2)  # noqa: E741
    first = loop(i, 64, loop(j, 40, put(B, (i, j), at(A, j, i))))
    second = loop(n, 2, loop(k, 40, loop(l, 100, put(D, (n, k, l), at(C, n, l, k)))))
    f = func([A, B, C, D], [B, D], Seq((first, second)))
    text = emit_func(f, processor=processor).text
    assert text.count("define internal void @transpose.") == 1
    assert text.count("call void @transpose.") == 2
    check_on(processor, f)


def test_overlap_is_no_transpose() -> None:
    """Iterations that meet keep their order."""
    A = buffer("A", (40, 40))
    i, j = axis("i", 40), axis("j", 40)
    f = func([A], [A], loop(i, 40, loop(j, 40, put(A, (i, j), at(A, j, i) + 1.0))))
    check(f)


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("n", [64, 192, 256])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8"])
def test_around_the_cache(dtype: str, n: int, offset: int) -> None:
    """Large outputs are stored around the cache, at whole lines wherever the array starts."""
    f = transpose(80, n, dtype)
    emitted = emit_func(f, processor=replace(host(), cache_bytes=0))
    assert "nontemporal" in emitted.text or (dtype, n) == ("int8", 64)
    a = random_array(np.random.default_rng(0), f.params[0])
    space = np.zeros(80 * n + 64, a.dtype)
    b = space[offset : offset + 80 * n]
    run_emitted(emitted, [a, b])
    np.testing.assert_array_equal(b.reshape(80, n), a.T)
    assert not space[:offset].any() and not space[offset + 80 * n :].any()


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_wherever_the_arrays_start(processor: Processor, dtype: str, adds: bool) -> None:
    """Tiles at whole vectors of both arrays, those at the edges moved inside or masked."""
    m, n = 1061, 576
    A, B = buffer("A", (n, m + 27), dtype), buffer("B", (m, n), dtype)
    i, j = axis("i", m), axis("j", n)
    value = at(A, j, i) + at(B, i, j) if adds else at(A, j, i)
    f = func([A, B], [B], loop(i, m, loop(j, n, put(B, (i, j), value))))
    emitted = emit_func(f, processor=processor)
    rng = np.random.default_rng(2)
    for first, second in ((0, 0), (1, 0), (0, 1), (3, 5), (15, 31), (31, 2)):
        given, space = (random_array(rng, p).reshape(-1) for p in (A, B))
        given = np.concatenate([given[:first], given])
        space = np.concatenate([space[:second], space, space[:64]])
        a = given[first:].reshape(n, m + 27)
        b = space[second : second + m * n].reshape(m, n)
        before = space.copy()
        expected = a.T[:m] + b if adds else a.T[:m].copy()
        run_emitted(emitted, [a, b])
        np.testing.assert_array_equal(b, expected)
        np.testing.assert_array_equal(space[:second], before[:second])
        np.testing.assert_array_equal(space[second + m * n :], before[second + m * n :])


@pytest.mark.parametrize("perm", list(itertools.permutations(range(4)))[1:])
def test_completed_layouts(perm: tuple[int, ...]) -> None:
    """Any permutation of axes through `build`."""
    shape = (3, 18, 7, 35)
    A = te.placeholder(shape, "float32", name="A")
    inverse = [perm.index(d) for d in range(4)]
    out = tuple(shape[p] for p in perm)
    C = te.compute(out, lambda *i: A[tuple(i[d] for d in inverse)], name="C")
    a = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(build(te.create_schedule(C.op), [A, C])(a), a.transpose(perm))


def test_completed_large() -> None:
    """Pieces of threads, in either direction."""
    for shape in ((600, 3000), (3000, 600), (9, 5000), (5000, 9)):
        A = te.placeholder(shape, "float32", name="A")
        C = te.compute(shape[::-1], transposed(A), name="C")
        a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(build(te.create_schedule(C.op), [A, C])(a), a.T)


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("m, n", [(300, 700), (1030, 513), (512, 1024), (2000, 40)])
def test_walks_along_either_side(processor: Processor, m: int, n: int) -> None:
    """Long rows that are a power of two apart or not; more than a block of rows and lanes."""
    for dtype in ("float32", "float16"):
        f = transpose(m, n, dtype)
        a, b = (random_array(np.random.default_rng(1), p) for p in f.params)
        run_emitted(emit_func(f, processor=processor), [a, b])
        np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("shape", [(1000, 3000), (500, 600), (3001, 1024)])
def test_pieces_for_threads_are_equal_where_they_can_be(shape: tuple[int, int]) -> None:
    """An extent that isn't constant costs masks at the edge of every piece."""
    X = te.placeholder(shape, name="X")
    Y = te.compute(shape[::-1], transposed(X), name="Y")
    kernel = build(te.create_schedule(Y.op), [X, Y], target="cpu", auto="full")
    assert ("min(" in kernel.source) == (shape[0] == 3001)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_array_equal(kernel(x), x.T)


@pytest.mark.parametrize("shape", [(100, 33, 40, 28), (28, 100, 257, 8), (60, 300, 31, 5)])
def test_the_last_two_of_several_axes(shape: tuple[int, ...]) -> None:
    """A short last axis that swaps places with the one before it, often enough for threads."""
    X = te.placeholder(shape, name="X")
    a, b, c, d = shape
    Y = te.compute((a, b, d, c), lambda i, j, k, m: X[i, j, m, k], name="Y")
    Z = te.compute(shape, lambda i, j, k, m: Y[i, j, m, k] + X[i, j, k, m], name="Z")
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    s = te.create_schedule([Y.op])
    np.testing.assert_array_equal(build(s, [X, Y])(x), x.transpose(0, 1, 3, 2))
    np.testing.assert_array_equal(build(te.create_schedule(Z.op), [X, Z])(x), x + x)
