"""Calls of kernels: arguments, their errors, in-place outputs."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from akg_py.codegen.arguments import Signature
from akg_py.codegen.host import CpuKernel, iterations
from akg_py.errors import ExpressionError
from akg_py.ir.expr import const
from akg_py.ir.stmt import For, Func, If, Seq, Store
from tests.codegen.funcs import at, axis, buffer, func, loop, put


def add(shape: tuple[int, int] = (6, 10), dtype: str = "float32", name: str = "add") -> Func:
    A, B, C = (buffer(n, shape, dtype) for n in "ABC")
    i, j = axis("i", shape[0]), axis("j", shape[1])
    body = put(C, (i, j), at(A, i, j) + at(B, i, j))
    return func([A, B, C], [C], loop(i, shape[0], loop(j, shape[1], body), "parallel"), name)


@pytest.fixture
def data() -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((6, 10)).astype(np.float32) for _ in range(3))


def test_outputs_in_place_or_returned(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, c = data
    kernel = CpuKernel(add())
    assert kernel(a, b, c) is None
    np.testing.assert_array_equal(c, a + b)
    np.testing.assert_array_equal(kernel(a, b), a + b)
    bound = kernel.bind(a, b, c)
    a[:] = 1
    bound()
    np.testing.assert_array_equal(c, 1 + b)
    assert "add" in repr(kernel)


def test_several_outputs_are_a_tuple() -> None:
    A, B, C = (buffer(n, (5,)) for n in "ABC")
    i = axis("i", 5)
    f = func([A, B, C], [C, B], loop(i, 5, Store((B, C), (i,), (at(A, i) + 1.0, at(A, i) + 2.0))))
    a = np.arange(5, dtype=np.float32)
    c, b = CpuKernel(f)(a)
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, a + 2)


def test_out(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, c = data
    kernel = CpuKernel(add())
    assert kernel(a, b, out=c) is c
    np.testing.assert_array_equal(c, a + b)
    wide = np.zeros((6, 20), np.float32)
    view = wide[:, ::2]
    assert kernel(a, b, out=(view,)) == (view,)
    np.testing.assert_array_equal(view, a + b)
    bound = kernel.bind(a, b, out=c)
    a[:] = 2
    assert bound() is c
    np.testing.assert_array_equal(c, b + 2)
    for given, message, hint in (
        ((a, b, c), "beside out= the kernel takes its 2 inputs (A, B), not 3", "once"),
        ((a,), "not 1", "once"),
    ):
        with pytest.raises(ExpressionError) as caught:
            kernel(*given, out=c)
        assert message in str(caught.value) and hint in caught.value.hint
    for out, message in (
        ((c, c), "out= is 2 arrays, the kernel has 1 outputs (C)"),
        (3, "C needs an array float32[6, 10], not int"),
        (a, "overlaps the argument A"),
        (c.astype(np.float64), "C needs float32[6, 10], not float64[6, 10]"),
    ):
        with pytest.raises(ExpressionError) as caught:
            kernel(a, b, out=out)
        assert message in str(caught.value)


def test_out_of_several_outputs() -> None:
    A, B, C = (buffer(n, (5,)) for n in "ABC")
    i = axis("i", 5)
    f = func([A, B, C], [C, B], loop(i, 5, Store((B, C), (i,), (at(A, i) + 1.0, at(A, i) + 2.0))))
    kernel, a = CpuKernel(f), np.arange(5, dtype=np.float32)
    c, b = np.zeros(5, np.float32), np.zeros(5, np.float32)
    found = kernel(a, out=(c, b))
    assert found[0] is c and found[1] is b
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, a + 2)
    with pytest.raises(ExpressionError, match=r"out= is ndarray, the kernel has 2 outputs"):
        kernel(a, out=c)
    with pytest.raises(ExpressionError, match="the output B overlaps the argument C"):
        kernel(a, out=(c, c))


def test_read_only_and_unusual_inputs(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data
    kernel, expected = CpuKernel(add()), a + b
    frozen = a.copy()
    frozen.flags.writeable = False
    stretched = np.broadcast_to(a[:1], (6, 10))
    swapped = np.moveaxis(np.stack([a, a], axis=-1), -1, 0)[1]
    record = np.zeros((6, 10), [("x", np.int8), ("y", np.float32)])
    record["y"] = a
    for given in (frozen, swapped, record["y"], a[::-1][::-1], np.require(a, None, "F")):
        np.testing.assert_array_equal(kernel(given, b), expected)
        np.testing.assert_array_equal(kernel.bind(given, b)(), expected)
    np.testing.assert_array_equal(kernel(stretched, b), a[:1] + b)
    assert np.array_equal(frozen, a)


def test_short_kernels_keep_the_gil_and_long_ones_do_not() -> None:
    i, j = axis("i", 0), axis("j", 5)
    A = buffer("A", (9,))
    body = loop(j, 5, put(A, (j,), const(1.0)))
    assert iterations(loop(i, 7, body)) == 35
    assert iterations(Seq((body, If(i < 3, body, body)))) == 15
    assert iterations(loop(i, 0, body)) == 0
    assert iterations(For(i, j * 2, "serial", body)) == math.inf
    assert iterations(For(i, j * 2, "serial", loop(j, 0, body))) == 0


def test_views_are_copied_in_and_back(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data
    kernel = CpuKernel(add())
    wide = np.zeros((6, 20), np.float32)
    kernel(np.asfortranarray(a), b[::-1], wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], a + b[::-1])
    assert not wide[:, 1::2].any()
    raw = np.zeros(6 * 10 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(6, 10)
    raw[...] = a
    assert not raw.flags.aligned
    np.testing.assert_array_equal(kernel(raw, b), a + b)
    turned = a.T.copy().T
    for given in ((turned, b, wide[:, ::2]), (turned, b)):
        bound = kernel.bind(*given)
        for step in range(2):
            turned[...] = a + step
            result = bound()
            np.testing.assert_array_equal(wide[:, ::2] if result is None else result, turned + b)


def test_subclasses_and_foreign_arrays(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data

    class Mine(np.ndarray[Any, Any]):
        pass

    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return b

    np.testing.assert_array_equal(CpuKernel(add())(a.view(Mine), Foreign()), a + b)


def expect(message: str, hint: str, *arrays: Any, kernel: CpuKernel | None = None) -> None:
    with pytest.raises(ExpressionError) as caught:
        (kernel or CpuKernel(add()))(*arrays)
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert "test_host.py" in str(caught.value.where)


def test_argument_errors(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, c = data
    expect("takes 3 arrays (A, B, C) or its 2 inputs (A, B), not 1", "outputs", a)
    expect("not 4", "outputs", a, b, c, c)
    expect(
        "B needs float32[6, 10], not float64[6, 10]",
        "B.astype('float32')",
        a,
        b.astype(np.float64),
        c,
    )
    expect("A needs float32[6, 10], not float32[10, 6]", "one shape", a.T, b, c)
    expect(
        "C needs float32[6, 10], not float32[6, 11]",
        "one shape",
        a,
        b,
        np.zeros((6, 11), np.float32),
    )
    expect("A needs an array float32[6, 10], not list", "numpy array", a.tolist(), b, c)
    expect("C needs an array float32[6, 10], not list", "leave the outputs out", a, b, c.tolist())
    expect("A needs an array float32[6, 10], not NoneType", "numpy array", None, b)
    frozen = c.copy()
    frozen.flags.writeable = False
    expect("the output C is read-only", "copy", a, b, frozen)
    expect("the output C overlaps the argument A", "inplace", c, b, c)
    long = np.zeros((7, 10), np.float32)
    expect("the output C overlaps the argument B", "inplace", a, long[1:], long[:-1])
    expect("A needs float32[6, 10], not >f4", "astype", a.astype(">f4"), b, c)


def test_interleaved_views_do_not_overlap(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, _, _ = data
    both = np.zeros((6, 20), np.float32)
    both[:, ::2] = 3
    CpuKernel(add())(a, both[:, ::2], both[:, 1::2])
    np.testing.assert_array_equal(both[:, 1::2], a + 3)


def test_declared_in_place(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data
    f = add()
    kernel = CpuKernel(f, inplace={f.params[2]: f.params[0]})
    expected = a + b
    kernel(a, b, a)
    np.testing.assert_array_equal(a, expected)
    expect("the output C overlaps the argument A", "inplace", a, b, a[::-1], kernel=kernel)
    expect("the output C overlaps the argument B", "inplace", a, b, b, kernel=kernel)


def test_zero_sized_arrays() -> None:
    f = add((0, 10))
    empty = np.zeros((0, 10), np.float32)
    assert CpuKernel(f)(empty, empty).shape == (0, 10)
    CpuKernel(f)(empty, empty, empty)


def test_prepare_is_plain() -> None:
    f = add((2, 2), "bfloat16")
    a = np.ones((2, 2), ml_dtypes.bfloat16)
    ready = Signature(f.params, f.outputs).prepare([a, a])
    assert ready.arrays[0] is a and ready.arrays[2].dtype == a.dtype
    with pytest.raises(ExpressionError, match="A needs bfloat16"):
        Signature(f.params, f.outputs).prepare([np.ones((2, 2), np.float16), a])


def test_kernel_text() -> None:
    kernel = CpuKernel(add())
    assert "define void @add(" in kernel.llvm
    assert "ret" in kernel.assembly
    cost = kernel.time(*[np.ones((6, 10), np.float32)] * 2, seconds=0.01)
    assert cost.source == "measured" and 0 < cost.interval[0] <= cost.interval[1]
