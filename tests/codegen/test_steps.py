"""Loads, stores, tails and masks over the lanes, on every processor."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from akg_py import build, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.target import Processor
from akg_py.ir.expr import Expr, Select, binary, bounds, const, logical, minimum
from akg_py.ir.stmt import Func, If, Store
from tests.codegen.funcs import at, axis, buffer, func, loop, put
from tests.codegen.processors import available, check_on

STEPS: dict[str, Callable[[Any], Any]] = {
    "2": lambda i: i * 2,
    "2 + 1": lambda i: i * 2 + 1,
    "3": lambda i: i * 3,
    "4": lambda i: i * 4,
    "5": lambda i: i * 5,
    "11": lambda i: i * 11,
    "reverse": lambda i: 130 - i,
    "-2": lambda i: 260 - i * 2,
    "repeat 2": lambda i: i // 2,
    "repeat 3": lambda i: i // 3,
    "repeat 16": lambda i: i // 16,
    "shifted repeat": lambda i: (i + 3) // 4,
    "period 4": lambda i: i % 4,
    "period 5": lambda i: i % 5,
    "swap": lambda i: i // 2 * 2 + (1 - i % 2),
    "blocks": lambda i: i // 4 * 16 + i % 4,
    "blocks of 16": lambda i: i // 16 * 40 + i % 16,
    "halves": lambda i: i % 2 * 70 + i // 2,
    "rolled": lambda i: (i + 7) % 100,
    "rolled in pairs": lambda i: (i * 2 + 7) % 100,
    "clamped": lambda i: minimum(i + 3, 90),
}


def steps(index: Callable[[Any], Any], n: int, dtype: str, stores: bool = False) -> Func:
    i = axis("i", n)
    e = index(i)
    A, B = buffer("A", (bounds(e)[1] + 1,), dtype), buffer("B", (n,), dtype)
    body = put(A, (e,), at(B, i)) if stores else put(B, (i,), at(A, e) + at(A, e))
    return func([A, B], [A if stores else B], loop(i, n, body, "vector"))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("name", STEPS)
def test_loads(name: str, processor: Processor) -> None:
    for dtype, n in (("float32", 131), ("int8", 128), ("float16", 64), ("int64", 19)):
        check_on(processor, steps(STEPS[name], n, dtype))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("name", ["2", "3", "reverse", "11", "swap", "blocks", "halves"])
def test_stores(name: str, processor: Processor) -> None:
    for dtype, n in (("float32", 131), ("int8", 128), ("int64", 19)):
        check_on(processor, steps(STEPS[name], n, dtype, stores=True))


@pytest.mark.parametrize("n", [128, 119])
@pytest.mark.parametrize("name", ["2", "3", "4", "-2", "reverse", "repeat 2", "halves", "rolled"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
def test_nothing_outside_is_read(name: str, n: int) -> None:
    """The array is followed, and preceded, by pages that can't be read."""
    page = mmap.PAGESIZE
    f = steps(STEPS[name], n, "float32")
    kernel = CpuKernel(f)
    size = f.params[0].shape[0] * 4
    expected = np.arange(f.params[0].shape[0], dtype=np.float32)
    libc = ctypes.CDLL(None, use_errno=True)
    space = mmap.mmap(-1, 4 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(space))
    for guard, place in ((start + 2 * page, start + 2 * page - size), (start, start + page)):
        ctypes.memmove(place, expected.ctypes.data, size)
        for protection in (0, 3):
            assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), protection) == 0
            if protection == 0:
                b = np.empty(n, np.float32)
                kernel.compiled.run([place, b.ctypes.data])
        index = [int(_value(STEPS[name], k)) for k in range(n)]
        np.testing.assert_array_equal(b, 2 * expected[index])


def _value(index: Callable[[Any], Any], i: int) -> int:
    result = index(i)
    return int(result.value) if isinstance(result, Expr) else result  # type: ignore[attr-defined]


def test_no_gather_for_short_steps() -> None:
    for name in ("2", "3", "4", "reverse", "repeat 2", "swap", "blocks", "halves"):
        assert "masked.gather" not in emit_func(steps(STEPS[name], 128, "float32")).text
    for name in ("2", "3", "reverse", "blocks"):  # tails
        assert "masked.gather" not in emit_func(steps(STEPS[name], 123, "float32")).text


@pytest.mark.parametrize("processor", available())
def test_steps_under_a_mask(processor: Processor) -> None:
    """Lanes that a guard keeps out touch nothing."""
    n = 100
    A, B = buffer("A", (150,)), buffer("B", (n,))
    i = axis("i", n)
    value = Select(i * 2 < 150, at(A, i * 2), const(0.5, "float32"), "float32", True)
    check_on(processor, func([A, B], [B], loop(i, n, put(B, (i,), value), "vector")))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
def test_indices_from_data(dtype: str, processor: Processor) -> None:
    n = 101
    A, I, B = buffer("A", (60,), dtype), buffer("I", (n,), "int32"), buffer("B", (n,), dtype)  # noqa: E741
    i = axis("i", n)
    f = func([A, I, B], [B], loop(i, n, put(B, (i,), at(A, at(I, i))), "vector"))
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 60).astype(np.dtype(dtype))
    runs = (np.arange(n) + 5) % 60
    nearly = runs.copy()
    nearly[[2, 3, 40, 41, 100]] = nearly[[3, 2, 41, 42, 0]]  # first and last of a run in place
    for index in (rng.integers(0, 60, n), runs, nearly, nearly[::-1]):
        check_on(processor, f, a, index.astype(np.int32), np.zeros(n, a.dtype))


# ---------------------------------------------------------------- through completion


def run(shape: tuple[int, ...], fn: Any, *arrays: np.ndarray[Any, Any]) -> Any:
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"a{n}") for n, a in enumerate(arrays)]
    C = te.compute(shape, lambda *i: fn(inputs, *i), name="C")
    return build(te.create_schedule(C.op), [*inputs, C])(*arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_completed_layouts(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 9, (96, 160)).astype(dtype)
    nz = a.reshape(6, 16, 10, 16).transpose(2, 0, 1, 3)
    got = run((10, 6, 16, 16), lambda t, w, x, y, z: t[0][x * 16 + y, w * 16 + z], a)
    np.testing.assert_array_equal(got, nz)
    got = run((96, 160), lambda t, m, n: t[0][n // 16, m // 16, m % 16, n % 16], nz.copy())
    np.testing.assert_array_equal(got, a)
    b = rng.integers(-9, 9, (3, 4, 20, 24)).astype(dtype)
    got = run((3, 40, 48), lambda t, n, y, x: t[0][n, y % 2 * 2 + x % 2, y // 2, x // 2], b)
    expected = b.reshape(3, 2, 2, 20, 24).transpose(0, 3, 1, 4, 2).reshape(3, 40, 48)
    np.testing.assert_array_equal(got, expected)
    got = run((12, 480), lambda t, i, j: t[0][(i * 480 + j) // 160 % 96, (i * 480 + j) % 160], a)
    np.testing.assert_array_equal(got, a.reshape(32, 480)[:12])


def test_completed_large_layouts() -> None:
    """Large enough for threads and blocks."""
    a = np.random.default_rng(0).standard_normal((1040, 1040)).astype(np.float32)
    nz = a.reshape(65, 16, 65, 16).transpose(2, 0, 1, 3).copy()
    got = run((65, 65, 16, 16), lambda t, w, x, y, z: t[0][x * 16 + y, w * 16 + z], a)
    np.testing.assert_array_equal(got, nz)
    got = run((1040, 1040), lambda t, m, n: t[0][n // 16, m // 16, m % 16, n % 16], nz)
    np.testing.assert_array_equal(got, a)
    got = run((1040, 520), lambda t, m, n: t[0][m, n * 2] + t[0][m, n * 2 + 1], a)
    np.testing.assert_array_equal(got, a[:, ::2] + a[:, 1::2])


# ---------------------------------------------------------------- neighbours


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_neighbours_are_woven(count: int, processor: Processor) -> None:
    for dtype, n in (
        ("float32", 131),
        ("int8", 320),
        ("float16", 64),
        ("float64", 7),
        ("bool", 50),
    ):
        A, B = buffer("A", (count, n), dtype), buffer("B", (n, count), dtype)
        i, j = axis("i", n), axis("j", count)
        inner = loop(j, count, put(B, (i, j), at(A, j, i)), "unroll")
        f = func([A, B], [B], loop(i, n, inner, "vector"))
        check_on(processor, f)
        if count <= 4 and dtype == "float32":
            assert "masked.scatter" not in emit_func(f).text


@pytest.mark.parametrize("processor", available())
def test_neighbours_with_guards_and_reads(processor: Processor) -> None:
    """Under a condition of the lanes, in place, and where neighbours read each other."""
    n, count = 77, 3
    A, B = buffer("A", (count, n)), buffer("B", (n, count))
    i, j = axis("i", n), axis("j", count)
    some = If(at(A, 0, i) > const(0.0, "float32"), loop(j, count, put(B, (i, j), at(A, j, i))))
    check_on(processor, func([A, B], [B], loop(i, n, some, "vector")))
    twice = loop(j, count, put(B, (i, j), at(B, i, j) * 2.0 + at(A, j, i)))
    check_on(processor, func([A, B], [B], loop(i, n, twice, "vector")))
    C = buffer("C", (n, count + 1))
    running = loop(j, count, put(C, (i, j + 1), at(C, i, j) + 1.0))
    check_on(processor, func([C], [C], loop(i, n, running, "vector")))


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_completed_channels(channels: int) -> None:
    """Few channels to the end and to the front, small and in pieces."""
    rng = np.random.default_rng(0)
    for n in (50, 70001):
        a = rng.standard_normal((channels, n)).astype(np.float32)
        np.testing.assert_array_equal(
            run((n, channels), lambda t, i, c: t[0][c, i] * 2.0, a), 2 * a.T
        )
        b = np.ascontiguousarray(a.T)
        np.testing.assert_array_equal(run((channels, n), lambda t, c, i: t[0][i, c], b), a)
    image = rng.standard_normal((2, channels, 40, 30)).astype(np.float32)
    got = run((2, 40, 30, channels), lambda t, n, y, x, c: t[0][n, c, y, x], image)
    np.testing.assert_array_equal(got, image.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
def test_tails_of_every_length(dtype: str, processor: Processor) -> None:
    for n in range(1, 36):
        i = axis("i", n)
        A, B = buffer("A", (n,), dtype), buffer("B", (n + 1,), dtype)  # one more, to stay as it is
        check_on(processor, func([A, B], [B], loop(i, n, put(B, (i,), at(A, i)), "vector")))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("n", [5, 24, 61, 72, 100])
@pytest.mark.parametrize("tile", [16, 24, 20, 64])
def test_pieces_of_rows(tile: int, n: int, processor: Processor) -> None:
    rows, pieces = 7, -(-n // tile)
    A, B = buffer("A", (rows, n)), buffer("B", (pieces, rows, tile))
    for more in (0, 1):  # pieces that have nothing to do
        p, r, i = axis("p", pieces + more), axis("r", rows), axis("i", tile)
        column = p * tile + i
        body = loop(i, minimum(tile, n - p * tile), put(B, (p, r, i), at(A, r, column)), "vector")
        nest = loop(r, rows, loop(p, pieces + more, body))
        check_on(processor, func([A, B], [B], nest))


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("columns", [8, 64, 70, 256])
def test_choices_down_columns(columns: int, processor: Processor) -> None:
    rows = 9
    X, V, N = (
        buffer("X", (rows, columns)),
        buffer("V", (columns,)),
        buffer("N", (columns,), "int32"),
    )
    j, r = axis("j", columns), axis("r", rows)
    keeps = logical(
        "||",
        binary(">", at(V, j), at(X, r, j)),
        logical("&&", binary("==", at(V, j), at(X, r, j)), binary("<", at(N, j), r)),
    )
    both = Store(
        (V, N),
        (j,),
        (Select(keeps, at(V, j), at(X, r, j), "float32"), Select(keeps, at(N, j), r, "int32")),
    )
    nest = loop(j, columns, loop(r, rows, both), "vector")
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (rows, columns)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    v, n = np.full(columns, -np.inf, np.float32), np.full(columns, 1 << 30, np.int32)
    check_on(processor, func([X, V, N], [V, N], nest), x, v, n)
