"""Random graphs of int32 operations: wrap-around makes every order of evaluation exact.

Operations read neighbours, strides, transposes, blocks and borders, reduce, and pick elements by
data, so that regions of every kind occur between stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from akg_py import te
from tests.random_schedules import Graph

Make = Callable[[te.Tensor, te.Tensor, np.random.Generator, str], te.Tensor]


def _clamped(t: te.Tensor, *indices: Any) -> Any:
    """An element of `t`, each index brought into range."""
    return t(*(te.minimum(te.maximum(i, 0), n - 1) for i, n in zip(indices, t.shape, strict=True)))


def _binary(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    op = int(rng.integers(4))

    def element(i: Any, j: Any) -> Any:
        x, y = a[i, j], _clamped(b, i, j)
        return (x + y, x - y * 3, te.maximum(x, y), te.Select(x > y, x, y + 1))[op]

    return te.compute(a.shape, element, name=name)


def _stencil(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    reach = int(rng.integers(1, 3))
    rows, columns = a.shape
    shape = (max(rows - reach, 1), columns)
    return te.compute(shape, lambda i, j: a[i, j] + _clamped(a, i + reach, j) * 2, name=name)


def _transpose(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    return te.compute(a.shape[::-1], lambda i, j: a[j, i] - 1, name=name)


def _stride(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    step = int(rng.integers(2, 4))
    shape = (-(-a.shape[0] // step), a.shape[1])
    return te.compute(shape, lambda i, j: a[i * step, a.shape[1] - 1 - j], name=name)


def _pad(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    rows, columns = a.shape

    def element(i: Any, j: Any) -> Any:
        inside = te.all(i >= 1, i < rows + 1, j >= 1)
        return te.if_then_else(inside, a[i - 1, j - 1], 7)

    return te.compute((rows + 2, columns + 1), element, name=name)


def _join(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    rows = a.shape[0]

    def element(i: Any, j: Any) -> Any:
        return te.if_then_else(i < rows, _clamped(a, i, j), _clamped(b, i - rows, j))

    return te.compute((rows + b.shape[0], max(a.shape[1], b.shape[1])), element, name=name)


def _reshape(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    rows, columns = a.shape
    width = int(rng.integers(1, columns + 2))
    shape = (-(-rows * columns // width), width)

    def element(i: Any, j: Any) -> Any:
        flat = te.minimum(i * width + j, rows * columns - 1)
        return a[flat // columns, flat % columns]

    return te.compute(shape, element, name=name)


def _reduce(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    f = (te.sum, te.max, te.min, te.prod)[int(rng.integers(4))]
    k = te.reduce_axis((0, a.shape[1]), name="k")
    where = {"where": k % 3 != 1} if rng.random() < 0.3 else {}
    width = int(rng.integers(1, 4))
    return te.compute(
        (a.shape[0], width), lambda i, j: f(_clamped(a, i, k + j), axis=k, **where), name=name
    )


def _product(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    k = te.reduce_axis((0, min(a.shape[1], b.shape[1])), name="k")
    return te.compute(
        (a.shape[0], b.shape[0]), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name=name
    )


def _gather(a: te.Tensor, b: te.Tensor, rng: np.random.Generator, name: str) -> te.Tensor:
    rows = a.shape[0]
    return te.compute(
        (b.shape[0], a.shape[1]), lambda i, j: a[te.floormod(b[i, 0], rows), j] + i, name=name
    )


MAKERS: tuple[Make, ...] = (
    _binary, _binary, _stencil, _transpose, _stride, _pad, _join, _reshape, _reduce, _product,
    _gather,
)  # fmt: skip


def random_graph(seed: int) -> Graph:
    """A graph of 2 to 6 operations over two inputs, with one or two outputs."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, 4)
    tensors = [
        te.placeholder((int(sizes[0]), int(sizes[1])), "int32", name="A"),
        te.placeholder((int(sizes[2]), int(sizes[3])), "int32", name="B"),
    ]
    for n in range(int(rng.integers(2, 7))):
        recent = tensors[-3:]
        a = recent[int(rng.integers(len(recent)))]
        b = tensors[int(rng.integers(len(tensors)))]
        new = MAKERS[int(rng.integers(len(MAKERS)))](a, b, rng, f"T{n}")
        if new.shape[0] * new.shape[1] <= 120:
            tensors.append(new)
    outputs = [tensors[-1]]
    if len(tensors) > 4 and rng.random() < 0.3:
        outputs.append(tensors[-2])
    if outputs[0].op.input_tensors == ():
        A = tensors[0]
        outputs = [te.compute(A.shape, lambda i, j: A[i, j] + 1, name="T")]
    used = te.graph_inputs(outputs)
    return Graph(f"random graph {seed}", tuple(used), tuple(outputs))
