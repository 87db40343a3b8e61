"""Runs shorter than a cache line that swap places, as in changes to and from fractal layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akg_py import build, dtypes, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.target import Processor
from akg_py.ir.expr import Expr, Select, cast, const
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Func
from tests.codegen.funcs import assert_same, at, axis, buffer, func, loop, put, random_array
from tests.codegen.processors import available, run_emitted


def swap_runs(rows: int, near: int, run: int, dtype: str, value: Any = None) -> Func:
    """Y[r, n, i] = X[n, r, i], or `value` of that element and the loop variables."""
    X, Y = buffer("X", (near, rows, run), dtype), buffer("Y", (rows, near, run), dtype)
    r, n, i = axis("r", rows), axis("n", near), axis("i", run)
    element: Expr = at(X, n, r, i)
    stored = cast(dtype, element if value is None else value(element, r))
    nest = loop(i, run, put(Y, (r, n, i), stored), "vector")
    return func([X, Y], [Y], loop(r, rows, loop(n, near, nest)))


def is_swapped(f: Func, processor: Processor) -> bool:
    """Whether whole lines are written around a cache that holds nothing."""
    return "!nontemporal" in emit_func(f, processor=replace(processor, cache_bytes=0)).text


def run_at(f: Func, processor: Processor, offset: int) -> None:
    """The kernel writes Y, `offset` elements after a line, and nothing beside it."""
    arrays = [random_array(np.random.default_rng(1), p) for p in f.params]
    expected = [a.copy() for a in arrays]
    interpret(f, *expected)
    size = arrays[1].size
    space = np.full(size + 128, 7, arrays[1].dtype)
    space = space[-space.ctypes.data % 64 // space.itemsize :]
    arrays[1] = space[offset : offset + size].reshape(arrays[1].shape)
    run_emitted(emit_func(f, processor=replace(processor, cache_bytes=0)), arrays)
    assert_same(arrays[1], expected[1])
    assert (space[:offset] == 7).all() and (space[offset + size :] == 7).all()


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("kind", ["float16 16", "float32 8", "int8 16", "float64 2", "bfloat16 4"])
@pytest.mark.parametrize("rows, near", [(8, 16), (9, 16), (16, 9), (33, 47)])
def test_values(processor: Processor, kind: str, rows: int, near: int) -> None:
    """Squares that fit, and ones that are moved inside at either edge, at any address."""
    dtype, run = kind.split()
    f = swap_runs(rows, near, int(run), dtype)
    assert is_swapped(f, processor) == (near * int(run) * dtypes.size_bytes(dtype) % 64 == 0)
    for offset in (0, 1, 16):
        run_at(f, processor, offset)


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("kind", ["bfloat16 2", "int8 4", "float32 2", "int8 16", "int8 2"])
@pytest.mark.parametrize("rows, near", [(32, 32), (37, 50)])
def test_loops_between(processor: Processor, kind: str, rows: int, near: int) -> None:
    """Panels of groups, as products pack them: Y[p, r, n, i] = X[p * near + n, r * run + i]."""
    dtype, size = kind.split()
    run, panels = int(size), 3
    X = buffer("X", (panels * near, rows * run), dtype)
    Y = buffer("Y", (panels, rows, near, run), dtype)
    p, r, n, i = axis("p", panels), axis("r", rows), axis("n", near), axis("i", run)
    nest = loop(i, run, put(Y, (p, r, n, i), at(X, p * near + n, r * run + i)))
    f = func([X, Y], [Y], loop(r, rows, loop(p, panels, loop(n, near, nest, "vector"))))
    assert is_swapped(f, processor) == (near * run * dtypes.size_bytes(dtype) % 64 == 0)
    for offset in (0, 1, 16):
        run_at(f, processor, offset)


@pytest.mark.parametrize("processor", available())
def test_what_is_computed_of_runs(processor: Processor) -> None:
    scaled = swap_runs(8, 16, 8, "float32", lambda x, r: x * 2.0 + 1.0)
    assert is_swapped(scaled, processor)
    run_at(scaled, processor, 0)
    zero = const(0.0, "float32")
    by_row = swap_runs(8, 16, 8, "float32", lambda x, r: Select(r < 3, x, zero, "float32"))
    assert not is_swapped(by_row, processor)
    run_at(by_row, processor, 0)


@pytest.mark.parametrize("rows, near, run", [(1, 16, 16), (16, 1, 16), (16, 16, 12)])
def test_nests_that_no_square_fits(rows: int, near: int, run: int) -> None:
    f = swap_runs(rows, near, run, "float16")
    for processor in available():
        assert not is_swapped(f, processor.values[0])
        run_at(f, processor.values[0], 0)


def test_a_nest_in_place_is_left_alone() -> None:
    X = buffer("X", (16, 16, 8))
    r, n, i = axis("r", 16), axis("n", 16), axis("i", 8)
    nest = loop(r, 16, loop(n, 16, loop(i, 8, put(X, (r, n, i), at(X, n, r, i)), "vector")))
    f = func([X], [X], nest)
    a = random_array(np.random.default_rng(1), X)
    expected = a.copy()
    interpret(f, expected)
    run_emitted(emit_func(f), [a])
    assert_same(a, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("is_swap", [True, False])
def test_machine_code_goes_around_the_cache(dtype: str, is_swap: bool) -> None:
    """What the code generator asks for is what LLVM makes of it, for every element type."""
    X = te.placeholder((2048, 2048, 16), dtype, name="X")
    order = (1, 0, 2) if is_swap else (0, 1, 2)
    Y = te.compute(X.shape, lambda *i: X[tuple(i[n] for n in order)] * te.const(2, dtype), name="Y")
    kernel = build(te.create_schedule(Y.op), [X, Y], target="cpu", auto="full")
    assert "movnt" in kernel.assembly
