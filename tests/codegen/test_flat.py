"""Long loops over lanes: several vectors at once, tails, stores around the cache, joined nests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akg_py import build, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.fusion import fuse_loops
from akg_py.codegen.streams import plan_streams
from akg_py.codegen.target import Processor, host
from akg_py.ir.expr import Select, cast, const, maximum, minimum
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import For, Func, Seq
from tests.codegen.funcs import assert_same, at, axis, buffer, check, func, loop, put, random_array
from tests.codegen.processors import available, check_on, run_emitted

LENGTHS = (255, 256, 257, 300, 511, 513, 1000, 1029)


def scale_and_shift(n: int, dtype: str, out: str = "") -> Func:
    A, B, C = buffer("A", (n,), dtype), buffer("B", (n,), dtype), buffer("C", (n,), out or dtype)
    i = axis("i", n)
    value = cast(out or dtype, maximum(at(A, i), at(B, i)))
    return func([A, B, C], [C], loop(i, n, put(C, (i,), value), "vector"))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtypes", ["float32", "int8", "float16", "float64 float16", "bool int32"])
def test_lengths(processor: Processor, dtypes: str) -> None:
    for n in LENGTHS:
        check_on(processor, scale_and_shift(n, *dtypes.split()))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtypes", ["float32", "int8", "float16", "float64", "int8 int32"])
@pytest.mark.parametrize("offset", [0, 1, 5, 31])
def test_around_the_cache(processor: Processor, dtypes: str, offset: int) -> None:
    """Wherever the output starts on or beside a line, it is written whole and nothing else is."""
    small = replace(processor, cache_bytes=0)
    for n in (1024, 1600, 9001):
        f = scale_and_shift(n, *dtypes.split())
        arrays = [random_array(np.random.default_rng(1), p) for p in f.params]
        expected = [a.copy() for a in arrays]
        interpret(f, *expected)
        space = np.full(n + 128, 7, arrays[2].dtype)
        space = space[-space.ctypes.data % 64 // space.itemsize :]
        arrays[2] = space[offset : offset + n]
        emitted = emit_func(f, processor=small)
        assert "!nontemporal" in emitted.text
        run_emitted(emitted, arrays)
        assert_same(arrays[2], expected[2])
        assert (space[:offset] == 7).all() and (space[offset + n :] == 7).all()


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "float64"])
@pytest.mark.parametrize("offset", [0, 1, 16])
def test_repeated_elements_around_the_cache(processor: Processor, dtype: str, offset: int) -> None:
    """Each element twice, by shuffles: vectors keep in step with the pairs, not with the lines."""
    n = 9001
    A, B = buffer("A", (n // 2 + 1,), dtype), buffer("B", (n,), dtype)
    i = axis("i", n)
    f = func([A, B], [B], loop(i, n, put(B, (i,), at(A, i // 2)), "vector"))
    emitted = emit_func(f, processor=replace(processor, cache_bytes=0))
    assert "!nontemporal" in emitted.text
    a = random_array(np.random.default_rng(1), f.params[0])
    space = np.full(n + 128, 7, a.dtype)
    space = space[-space.ctypes.data % 64 // space.itemsize :]
    run_emitted(emitted, [a, space[offset : offset + n]])
    assert_same(space[offset : offset + n], np.repeat(a, 2)[:n])
    assert (space[:offset] == 7).all() and (space[offset + n :] == 7).all()


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("offset", [0, 1, 16])
@pytest.mark.parametrize("length", [16, 24, 48, 64])
def test_lines_around_the_cache(processor: Processor, dtype: str, offset: int, length: int) -> None:
    """Blocks as of fractal layouts, whose rows may be a few lines."""
    rows, blocks = 9, 5
    X = buffer("X", (rows, blocks * length), dtype)
    Y = buffer("Y", (blocks, rows, length), dtype)
    b, r, i = axis("b", blocks), axis("r", rows), axis("i", length)
    for order in ((b, r), (r, b)):
        nest = loop(i, length, put(Y, (b, r, i), at(X, r, b * length + i)), "vector")
        for v in reversed(order):
            nest = loop(v, v.hi + 1, nest)
        f = func([X, Y], [Y], nest)
        arrays = [random_array(np.random.default_rng(1), p) for p in f.params]
        expected = [a.copy() for a in arrays]
        interpret(f, *expected)
        count = blocks * rows * length
        space = np.full(count + 128, 7, arrays[1].dtype)
        space = space[-space.ctypes.data % 64 // space.itemsize :]
        arrays[1] = space[offset : offset + count].reshape(Y.shape)
        emitted = emit_func(f, processor=replace(processor, cache_bytes=0))
        run = length * space.itemsize
        is_short = run <= 8 * processor.vector_bytes
        assert ("!nontemporal" in emitted.text) == (run >= 512 or (is_short and run % 64 == 0))
        run_emitted(emitted, arrays)
        assert_same(arrays[1], expected[1])
        assert (space[:offset] == 7).all() and (space[offset + count :] == 7).all()


def shifted_rows(rows: int, extent: int, pitch: int, dtype: str, last: int = 0) -> Func:
    """The first elements of every row, of the last row perhaps fewer."""
    A, B = buffer("A", (rows, pitch), dtype), buffer("B", (rows, pitch), dtype)
    r, i = axis("r", rows), axis("i", extent)
    count = minimum(extent, (rows - 1 - r) * extent + last) if last else const(extent)
    inner = loop(i, count, put(B, (r, i), maximum(at(A, r, i), at(A, r, 0))), "vector")
    return func([A, B], [B], loop(r, rows, inner))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "float64"])
@pytest.mark.parametrize("offset", [0, 1, 16])
def test_rows_around_the_cache(processor: Processor, dtype: str, offset: int) -> None:
    """Rows that begin and end within lines; what lies between them is left alone."""
    small = replace(processor, cache_bytes=0)
    for extent, pitch, last in ((1001, 1001, 0), (1024, 1100, 0), (1003, 1003, 2)):
        f = shifted_rows(12, extent, pitch, dtype, last)
        a = random_array(np.random.default_rng(1), f.params[0])
        space = np.full(a.size + 128, 7, a.dtype)
        space = space[-space.ctypes.data % 64 // space.itemsize :]
        expected = space.copy()
        interpret(f, a, expected[offset : offset + a.size].reshape(a.shape))
        emitted = emit_func(f, processor=small)
        assert "!nontemporal" in emitted.text
        assert "i32 1, i32 3, i32 1)" in emitted.text  # the line that a later row begins in
        run_emitted(emitted, [a, space[offset : offset + a.size].reshape(a.shape)])
        assert_same(space, expected)


def test_short_runs_stay_in_the_cache() -> None:
    small = replace(available()[0].values[0], cache_bytes=0)
    assert "!nontemporal" not in emit_func(scale_and_shift(200, "float16"), processor=small).text


def test_one_run_fetches_no_other() -> None:
    small = replace(available()[0].values[0], cache_bytes=0)
    assert "i32 1, i32 3" not in emit_func(scale_and_shift(9001, "float32"), processor=small).text


@pytest.mark.parametrize("n", [1024, 3000])
@pytest.mark.parametrize("offsets", [(0, 0), (3, 3), (1, 2)])
def test_two_outputs_around_the_cache(n: int, offsets: tuple[int, int]) -> None:
    """Outputs that are aligned alike, and ones that never are; the second reads the first."""
    A, B, C = buffer("A", (n,)), buffer("B", (n,)), buffer("C", (n,))
    i = axis("i", n)
    body = Seq((put(B, (i,), at(A, i) + 1.0), put(C, (i,), at(B, i) * 2.0)))
    f = func([A, B, C], [B, C], loop(i, n, body, "vector"))
    processor = replace(available()[0].values[0], cache_bytes=0)
    assert len(plan_streams(f, {}, processor).stores) == 2
    a = np.arange(n, dtype=np.float32)
    b, c = (np.zeros(n + 16, np.float32)[k : k + n] for k in offsets)
    run_emitted(emit_func(f, processor=processor), [a, b, c])
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, (a + 1) * 2)


def test_what_stays_in_the_cache() -> None:
    """Outputs that are read again, or written twice, or may be an input."""
    n = 2000
    A, B, C = buffer("A", (n,)), buffer("B", (n,)), buffer("C", (n,))
    i, j = axis("i", n), axis("j", n)
    processor = replace(available()[0].values[0], cache_bytes=0)

    def stores(f: Func, alias: dict[int, int] | None = None) -> int:
        return len(plan_streams(f, alias or {}, processor).stores)

    first, second = put(B, (i,), at(A, i)), put(C, (j,), at(B, j))
    again = func([A, B, C], [B, C], Seq((loop(i, n, first), loop(j, n, second))))
    assert stores(again) == 1
    twice = func([A, B], [B], Seq((loop(i, n, first), loop(j, n, put(B, (j,), at(A, j))))))
    assert stores(twice) == 0
    once = func([A, B], [B], loop(i, n, first))
    assert stores(once) == 1 and stores(once, {id(B): id(A)}) == 0
    assert stores(func([A, B], [B], loop(i, n, put(B, (i,), at(B, i) + at(A, i))))) == 0


def test_bits_are_kept() -> None:
    for dtype, bits in (("float32", np.uint32), ("float16", np.uint16), ("bfloat16", np.uint16)):
        n = 1000
        A, B = buffer("A", (n,), dtype), buffer("B", (n,), dtype)
        i = axis("i", n)
        f = func([A, B], [B], loop(i, n, put(B, (i,), at(A, i)), "vector"))
        a = np.random.default_rng(0).integers(0, np.iinfo(bits).max, n, bits, endpoint=True)
        b = np.zeros_like(a)
        run_emitted(emit_func(f), [a, b])
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("processor", available())
def test_guards_in_long_loops(processor: Processor) -> None:
    n = 700
    A, B = buffer("A", (n - 3,)), buffer("B", (n,))
    i = axis("i", n)
    inside = (i < n - 3) & (at(A, i % (n - 3)) > const(0.0, "float32"))
    value = Select(inside, at(A, i), const(-1.0, "float32"), "float32", True)
    check_on(processor, func([A, B], [B], loop(i, n, put(B, (i,), value), "vector")))


# ---------------------------------------------------------------- joined nests


def chain(second_index: Any, inplace: bool = False) -> tuple[Func, dict[Any, Any]]:
    """B = A + 1, then C[i] = B[index of i] * A."""
    n = 40
    A, B, C = buffer("A", (n,)), buffer("B", (n,)), buffer("C", (n,))
    i, j = axis("i", n), axis("j", n)
    body = Seq((
        loop(i, n, put(B, (i,), at(A, i) + 1.0)),
        loop(j, n, put(C, (j,), at(B, second_index(j)) * at(A, j))),
    ))  # fmt: skip
    return func([A, B, C], [B, C], body), {C: A} if inplace else {}


def test_neighbours_join() -> None:
    f, _ = chain(lambda j: j)
    fused = fuse_loops(f, {})
    assert isinstance(fused.body, For)
    check(fused)
    assert interpret(f, *(a := [np.ones(40, np.float32) for _ in range(3)])) is None
    assert (a[2] == 2).all()


@pytest.mark.parametrize("index", [lambda j: 39 - j, lambda j: j // 2, lambda j: const(5)])
def test_others_stay_apart(index: Any) -> None:
    f, _ = chain(index)
    assert isinstance(fuse_loops(f, {}).body, Seq)


def test_inplace_neighbours_join_only_at_the_same_element() -> None:
    n = 40
    A, B, C = buffer("A", (n,)), buffer("B", (n,)), buffer("C", (n,))
    i, j = axis("i", n), axis("j", n)
    first = loop(i, n, put(C, (i,), at(A, i) + 1.0))
    for index, joins in ((j, True), (39 - j, False)):
        f = func([A, B, C], [C, B], Seq((first, loop(j, n, put(B, (j,), at(A, index))))))
        assert isinstance(fuse_loops(f, {C: A}).body, For) is joins


def test_optimiser_step_is_one_loop() -> None:
    """Three outputs of an AdamW step share one pass over their operands."""
    shape = (30, 50)
    p, g, m, v = (te.placeholder(shape, name=x) for x in "pgmv")
    m2 = te.compute(shape, lambda i, j: m[i, j] * 0.9 + g[i, j] * 0.1, name="m2")
    v2 = te.compute(shape, lambda i, j: v[i, j] * 0.99 + g[i, j] * g[i, j] * 0.01, name="v2")
    p2 = te.compute(
        shape, lambda i, j: p[i, j] - 0.01 * m2[i, j] / (te.sqrt(v2[i, j]) + 1e-8), name="p2"
    )
    args = [p, g, m, v, p2, m2, v2]
    kernel = build(te.create_schedule([p2.op, m2.op, v2.op]), args)
    assert isinstance(kernel.func.body, For)
    rng = np.random.default_rng(0)
    feeds = {t: rng.random(shape).astype(np.float32) for t in args[:4]}
    for result, t in zip(kernel(*feeds.values()), (p2, m2, v2), strict=True):
        np.testing.assert_allclose(result, te.evaluate(t, feeds), rtol=1e-6)


@pytest.mark.parametrize("n", [3, 5, 6, 7, 11, 12, 19, 22])
@pytest.mark.parametrize("processor", available())
def test_ends_of_short_rows(n: int, processor: Processor) -> None:
    """Whole vectors, then a narrow one under a mask or two narrower ones without."""
    X, Y, Z = buffer("X", (7, n)), buffer("Y", (n,)), buffer("Z", (7, n))
    i, j = axis("i", 7), axis("j", n)
    row = loop(j, n, put(Z, (i, j), maximum(at(X, i, j), at(Y, j))), "vector")
    check_on(processor, func([X, Y, Z], [Z], loop(i, 7, row)))


@pytest.mark.parametrize("n, parts", [(5, [8]), (6, [8]), (12, [8, 4])])
def test_one_step_under_a_mask_replaces_two(n: int, parts: list[int]) -> None:
    wide = replace(host(), vector_bytes=64, has_masks=True)
    X, Z = buffer("X", (7, n)), buffer("Z", (7, n))
    i, j = axis("i", 7), axis("j", n)
    row = loop(j, n, put(Z, (i, j), at(X, i, j) * at(X, i, j)), "vector")
    text = emit_func(func([X, Z], [Z], loop(i, 7, row)), processor=wide).text
    assert [lanes for lanes in (16, 8, 4, 2) if f"fmul <{lanes} x float>" in text] == parts
