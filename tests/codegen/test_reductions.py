"""Reductions over a contiguous or strided loop against numpy: every dtype, ties, special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import dtypes, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.target import Processor
from akg_py.ir.expr import binary
from akg_py.ir.interpret import interpret
from tests.codegen.funcs import assert_same, at, axis, buffer, func, loop, put, random_array
from tests.codegen.processors import available, run_emitted
from tests.comparison import assert_exact, small_integers

SIZES = [1, 2, 4, 5, 7, 8, 9, 12, 15, 17, 24, 31, 33, 63, 64, 65, 130, 1000]
ALL = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
ALL += ["float16", "bfloat16", "float32", "float64"]


def better(larger: bool) -> Any:
    """argmax or argmin as numpy defines them: the first one wins, NaN before all."""

    def pick(x: Any, y: Any) -> Any:
        before = x[1] >= y[1] if larger else x[1] <= y[1]
        keep = te.any(before, te.isnan(x[1])) if dtypes.is_float(x[1].dtype) else before
        return te.Select(keep, x[0], y[0]), te.Select(keep, x[1], y[1])

    def identity(i: str, v: str) -> Any:
        return te.const(0, i), te.min_value(v) if larger else te.max_value(v)

    return te.comm_reducer(pick, identity, name="argmax" if larger else "argmin")


def arg_kernel(
    shape: tuple[int, int], dtype: str, larger: bool, axis: int = 1, index: str = "int32"
) -> Any:
    X = te.placeholder(shape, dtype, name="X")
    k = te.reduce_axis((0, shape[axis]), name="k")
    reducer = better(larger)
    place, top = te.compute(
        (shape[1 - axis],),
        lambda i: reducer((k.astype(index), X[i, k] if axis else X[k, i]), axis=k),
        name="arg",
    )
    s = te.create_schedule(place.op)
    if not axis:
        s[place].reorder(place.op.axis[0], place.op.reduce_axis[0])
    return akg.build(s, [X, place, top], target="cpu", auto=False)


def reduced(n: int, dtype: str, name: str) -> Any:
    X = te.placeholder((3, n), dtype, name="X")
    k = te.reduce_axis((0, n), name="k")
    Y = te.compute((3,), lambda i: getattr(te, name)(X[i, k], axis=k), name="Y")
    return akg.build(te.create_schedule(Y.op), [X, Y], target="cpu", auto=False), X, Y


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_every_dtype(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for n in (5, 8, 17, 30, 200):
        kernel, _, Y = reduced(n, dtype, name)
        x = small_integers((3, n), dtype, rng)
        if name == "prod":  # few factors other than one keep the product exact
            x[:, 5:] = 1
        assert_exact(kernel(x), te.evaluate(Y, [x]))


@pytest.mark.parametrize("n", SIZES)
def test_every_size(n: int) -> None:
    rng = np.random.default_rng(n)
    for dtype in ("float32", "int64", "int8"):
        kernel, _, Y = reduced(n, dtype, "sum")
        x = small_integers((3, n), dtype, rng)
        assert_exact(kernel(x), te.evaluate(Y, [x]))


@pytest.mark.parametrize("n", [5, 40, 131])
@pytest.mark.parametrize("name", ["all", "any"])
def test_logical_reductions(name: str, n: int) -> None:
    join = te.all if name == "all" else te.any
    reducer = te.comm_reducer(lambda x, y: join(x, y), lambda t: te.const(name == "all", t))
    X = te.placeholder((4, n), "bool", name="X")
    k = te.reduce_axis((0, n), name="k")
    Y = te.compute((4,), lambda i: reducer(X[i, k], axis=k), name="Y")
    kernel = akg.build(te.create_schedule(Y.op), [X, Y], target="cpu", auto=False)
    x = np.full((4, n), name == "all")
    x[1, 0] = x[2, n - 1] = x[3, n // 2] = not x[0, 0]
    np.testing.assert_array_equal(kernel(x), getattr(x, name)(1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_at_every_place(name: str, dtype: str) -> None:
    for n in (4, 7, 13, 40, 150):
        kernel, _, _ = reduced(n, dtype, name)
        for place in range(n):
            x = np.zeros((3, n), dtypes.numpy_dtype(dtype))
            x[0, place] = np.nan
            x[1, place] = -np.inf if name == "max" else np.inf
            x[2, place] = np.inf if name == "max" else -np.inf
            got = kernel(x).astype("float64")
            assert np.isnan(got[0]) and got[1] == 0 and got[2] == float(x[2, place])


@pytest.mark.parametrize("processor", available())
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_in_every_row_of_columns(processor: Processor, op: str, dtype: str) -> None:
    """Lanes beside each other take a few rows in turn, after what they hold; n has a tail."""
    n = 45
    for rows in (1, 2, 3, 8, 16, 17):
        X, Y = buffer("X", (rows, n), dtype), buffer("Y", (n,), dtype)
        k, j = axis("k", rows), axis("j", n)
        step = put(Y, (j,), binary(op, at(Y, j), at(X, k, j)))
        f = func([X, Y], [Y], loop(j, n, loop(k, rows, step), "vector"))
        x, y = (random_array(np.random.default_rng(rows), b) for b in (X, Y))
        for row in range(rows):
            x[row, row] = x[row, n - 1 - row] = np.nan
            x[row, 20] = np.inf if row % 2 else -np.inf
        y[30] = np.nan
        y[31] = -np.inf if op == "max" else np.inf
        expected, got = y.copy(), y.copy()
        interpret(f, x.copy(), expected)
        run_emitted(emit_func(f, processor=processor), [x, got])
        assert_same(got, expected)


def test_masked_max_ignores_what_it_does_not_read() -> None:
    n = 100
    X = te.placeholder((n,), name="X")
    k = te.reduce_axis((0, n), name="k")
    Y = te.compute((1,), lambda i: te.max(X[k], axis=k, where=k % 3 == 0), name="Y")
    kernel = akg.build(te.create_schedule(Y.op), [X, Y], target="cpu", auto=False)
    x = np.full(n, np.nan, "float32")
    x[::3] = -2.0
    assert kernel(x)[0] == -2.0


@pytest.mark.parametrize("larger", [True, False])
@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
)
def test_first_of_equals_wins(dtype: str, larger: bool) -> None:
    rng = np.random.default_rng(5)
    for n in (1, 5, 9, 24, 40, 67, 300):
        kernel = arg_kernel((6, n), dtype, larger)
        x = small_integers((6, n), dtype, rng)
        x[0] = 1
        place, top = kernel(x)
        wide = x.astype("float64")
        np.testing.assert_array_equal(place, wide.argmax(1) if larger else wide.argmin(1))
        np.testing.assert_array_equal(top.astype("float64"), wide.max(1) if larger else wide.min(1))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("n", [5, 13, 90])
def test_arg_reductions_of_special_values(index: str, axis: int, n: int) -> None:
    shape = (8, n) if axis else (n, 8)
    kernel = arg_kernel(shape, "float32", True, axis, index)
    x = np.random.default_rng(1).standard_normal((8, n)).astype("float32")
    x[1, [40 % n, 70 % n]] = np.nan
    x[2, [n - 1]] = np.nan
    x[3] = -np.inf
    x[4] = -np.inf
    x[4, 55 % n] = np.nan
    x[5, [3, 64 % n, 65 % n]] = np.inf
    x[6, ::2], x[6, 1::2] = 0.0, -0.0
    x[7, 1:] = -np.inf
    place, top = kernel(x if axis else np.ascontiguousarray(x.T))
    np.testing.assert_array_equal(place, x.argmax(1))
    np.testing.assert_array_equal(top, x.max(1))
    assert place.dtype == index


def test_the_last_of_equals_if_the_reducer_says_so() -> None:
    last = te.comm_reducer(
        lambda x, y: (te.Select(x[1] > y[1], x[0], y[0]), te.Select(x[1] > y[1], x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
    )
    X = te.placeholder((5, 70), "int32", name="X")
    k = te.reduce_axis((0, 70), name="k")
    place, top = te.compute((5,), lambda i: last((k, X[i, k]), axis=k))
    kernel = akg.build(te.create_schedule(place.op), [X, place, top], target="cpu", auto=False)
    x = np.random.default_rng(0).integers(0, 3, (5, 70)).astype("int32")
    got = kernel(x)[0]
    np.testing.assert_array_equal(got, 69 - x[:, ::-1].argmax(1))


def test_a_choice_with_a_payload_and_a_tie_break() -> None:
    def pick(x: Any, y: Any) -> Any:
        keep = te.any(x[0] < y[0], te.all(x[0] == y[0], x[2] <= y[2]))
        return tuple(te.Select(keep, a, b) for a, b in zip(x, y, strict=True))

    nearest = te.comm_reducer(
        pick, lambda d, w, i: (te.max_value(d), te.const(0, w), te.const(1 << 30, i))
    )
    D, W = te.placeholder((4, 83), "int32", name="D"), te.placeholder((4, 83), name="W")
    k = te.reduce_axis((0, 83), name="k")
    out = te.compute((4,), lambda i: nearest((D[i, k], W[i, k] * 2.0, k), axis=k))
    kernel = akg.build(te.create_schedule(out[0].op), [D, W, *out], target="cpu", auto=False)
    rng = np.random.default_rng(0)
    d, w = rng.integers(0, 5, (4, 83)).astype("int32"), rng.integers(0, 9, (4, 83)).astype("f")
    best, weight, place = kernel(d, w)
    np.testing.assert_array_equal(best, d.min(1))
    np.testing.assert_array_equal(place, d.argmin(1))
    np.testing.assert_array_equal(weight, 2 * w[np.arange(4), d.argmin(1)])


def test_several_sums_in_one_pass() -> None:
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1], te.maximum(x[2], y[2])),
        lambda a, b, c: (te.const(0, a), te.const(0, b), te.min_value(c)),
    )
    for n in (3, 50, 257):
        X = te.placeholder((2, n), name="X")
        k = te.reduce_axis((0, n), name="k")
        out = te.compute(
            (2,),
            lambda i: both((X[i, k], X[i, k] * X[i, k], X[i, k]), axis=k),  # noqa: B023
        )
        kernel = akg.build(te.create_schedule(out[0].op), [X, *out], target="cpu", auto=False)
        x = small_integers((2, n), "float32", np.random.default_rng(n))
        total, squares, top = kernel(x)
        np.testing.assert_array_equal(total, x.sum(1))
        np.testing.assert_array_equal(squares, (x * x).sum(1))
        np.testing.assert_array_equal(top, x.max(1))


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("n", [1, 3, 4, 9, 50])
def test_strided_loads(name: str, n: int) -> None:
    X = te.placeholder((n, 5), name="X")
    k = te.reduce_axis((0, n), name="k")
    Y = te.compute((5,), lambda i: getattr(te, name)(X[k, i], axis=k), name="Y")
    s = te.create_schedule(Y.op)
    s[Y].reorder(Y.op.axis[0], Y.op.reduce_axis[0])
    kernel = akg.build(s, [X, Y], target="cpu", auto=False)
    x = small_integers((n, 5), "float32", np.random.default_rng(0), limit=2)
    if name == "prod":
        x = np.where(x == 0, 1, x)
    assert_exact(kernel(x), getattr(x, name)(0))


def test_reversed_loads() -> None:
    n = 75
    X = te.placeholder((n,), name="X")
    k = te.reduce_axis((0, n), name="k")
    Y = te.compute((1,), lambda i: te.sum(X[n - 1 - k] * X[k], axis=k), name="Y")
    kernel = akg.build(te.create_schedule(Y.op), [X, Y], target="cpu", auto=False)
    x = small_integers((n,), "float32", np.random.default_rng(0))
    assert kernel(x)[0] == (x * x[::-1]).sum()


@pytest.mark.parametrize("kind", ["sum", "max", "argmax"])
def test_tails_of_split_reductions(kind: str) -> None:
    n = 157
    X = te.placeholder((3, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    if kind == "argmax":
        out = te.compute((3,), lambda i: better(True)((k, X[i, k]), axis=k))
    else:
        out = [te.compute((3,), lambda i: getattr(te, kind)(X[i, k], axis=k))]
    s = te.create_schedule(out[0].op)
    s[out[0]].split(out[0].op.reduce_axis[0], factor=60)
    kernel = akg.build(s, [X, *out], target="cpu", auto=False)
    x = small_integers((3, n), "float32", np.random.default_rng(0))
    got = kernel(x)
    if kind == "argmax":
        np.testing.assert_array_equal(got[0], x.argmax(1))
        np.testing.assert_array_equal(got[1], x.max(1))
    else:
        np.testing.assert_array_equal(got, getattr(x, kind)(1))


STYLES: dict[str, Any] = {  # ways to say that x, which comes first, stays
    "or equal": lambda x, y: x[1] >= y[1],
    "earlier of equals": lambda x, y: te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0])),
    "swapped": lambda x, y: y[1] <= x[1],
    "not better": lambda x, y: te.logical_not(y[1] > x[1]),
    "nan first": lambda x, y: te.any(te.isnan(x[1]), x[1] >= y[1]),
    "later of equals": lambda x, y: x[1] > y[1],
    "by place only": lambda x, y: x[0] > y[0],
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("n", [2, 16, 33, 100, 512])
def test_ways_to_say_argmax(style: str, n: int) -> None:
    def pick(x: Any, y: Any) -> Any:
        keep = STYLES[style](x, y)
        return tuple(te.Select(keep, a, b) for a, b in zip(x, y, strict=True))

    reducer = te.comm_reducer(
        pick, lambda i, v, w: (te.const(-1, i), te.min_value(v), te.const(0, w)), name="best"
    )
    X, W = te.placeholder((9, n), name="X"), te.placeholder((9, n), "int16", name="W")
    k = te.reduce_axis((0, n), name="k")
    out = te.compute((9,), lambda i: reducer((k * 3 + i, te.abs(X[i, k]), W[i, k]), axis=k))
    kernel = akg.build(te.create_schedule(out[0].op), [X, W, *out], target="cpu", auto=False)
    rng = np.random.default_rng(n)
    x = small_integers((9, n), "float32", rng)
    w = rng.integers(-99, 99, (9, n)).astype("int16")
    if style == "nan first":
        x[3, n // 2 :] = np.nan
    at = np.abs(x).argmax(1)
    if style == "later of equals":
        at = n - 1 - np.abs(x[:, ::-1]).argmax(1)
    elif style == "by place only":
        at = np.full(9, n - 1)
    place, top, weight = kernel(x, w)
    np.testing.assert_array_equal(place, at * 3 + np.arange(9))
    np.testing.assert_array_equal(top, np.abs(x)[np.arange(9), at])
    np.testing.assert_array_equal(weight, w[np.arange(9), at])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_strided_argmax(dtype: str) -> None:
    for n in (1, 5, 37):
        kernel = arg_kernel((n, 6), dtype, True, axis=0)
        x = small_integers((n, 6), dtype, np.random.default_rng(n))
        place, top = kernel(x)
        np.testing.assert_array_equal(place, x.argmax(0))
        np.testing.assert_array_equal(top, x.max(0))
