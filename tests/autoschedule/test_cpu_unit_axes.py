"""Axes of one element change no loop, wherever they stand: element-wise kernels, reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import te
from tests.comparison import assert_exact, small_integers

Kernel = tuple[list[te.Tensor], list[te.Tensor]]


def loops(source: str) -> list[tuple[int, bool]]:
    """Extent of each loop that has several steps, and whether it runs over lanes."""
    found = re.findall(r"for \w+ in (?:prange|range)\((\d+)\):(  # vector)?", source)
    return [(int(extent), bool(mark)) for extent, mark in found if int(extent) > 1]


def run(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> list[tuple[int, bool]]:
    schedule = te.create_schedule([t.op for t in outputs])
    kernel = akg.build(schedule, [*inputs, *outputs], target="cpu")
    rng = np.random.default_rng(0)
    feeds = [small_integers(t.shape, t.dtype, rng) for t in inputs]
    assert_exact(kernel(*feeds), te.evaluate(list(outputs), feeds)[0])
    return loops(kernel.source)


def spread(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*shape[:at], 1, *shape[at:])


def dropped(indices: Sequence[Any], at: int) -> tuple[Any, ...]:
    return tuple(i for n, i in enumerate(indices) if n != at)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("steps", [False, True], ids=["constant", "axis"])
@pytest.mark.parametrize("dtype", ["int8", "float32", "bool"])
def test_operands_of_one_shape(at: int, steps: bool, dtype: str) -> None:
    """An operand is read along the axis, or at its only place."""
    shape = (150, 96, 3)
    X, B = te.placeholder(shape, dtype, name="X"), te.placeholder(shape, dtype, name="B")
    expected = run([X, B], [te.compute(shape, lambda *i: te.any(X[i] > B[i]), name="Y")])
    wide = spread(shape, at)
    X, B = te.placeholder(wide, dtype, name="X"), te.placeholder(wide, dtype, name="B")

    def element(*i: Any) -> Any:
        j = i if steps else (*i[:at], 0, *i[at + 1 :])
        return te.any(X[i] > B[j])

    assert run([X, B], [te.compute(wide, element, name="Y")]) == expected
    assert len(expected) <= 2


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_transposes(at: int, order: tuple[int, ...], dtype: str) -> None:
    shape = (12, 45, 67)

    def turned(axes: Sequence[int], source: tuple[int, ...]) -> Kernel:
        X = te.placeholder(source, dtype, name="X")

        def element(*i: Any) -> Any:
            places = dict(zip(axes, i, strict=True))
            return X[tuple(places[d] for d in range(len(source)))]

        return [X], [te.compute(tuple(source[d] for d in axes), element, name="Y")]

    expected = run(*turned(order, shape))
    axes = [d + (d >= at) for d in order]
    for place in range(4):
        moved = [*axes[:place], at, *axes[place:]]
        assert run(*turned(moved, spread(shape, at))) == expected


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("over", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("kind", ["sum", "min"])
def test_reductions(at: int, over: tuple[int, ...], kind: str) -> None:
    shape = (60, 40, 30)

    def reduced(source: tuple[int, ...], dims: Sequence[int]) -> Kernel:
        X = te.placeholder(source, name="X")
        r = {d: te.reduce_axis((0, source[d]), name=f"r{d}") for d in dims}
        lead = tuple(n for d, n in enumerate(source) if d not in dims) or (1,)

        def element(*i: Any) -> Any:
            data = iter(i)
            places = tuple(r[d] if d in dims else next(data) for d in range(len(source)))
            return getattr(te, kind)(X[places], axis=list(r.values()))

        return [X], [te.compute(lead, element, name="Y")]

    expected = run(*reduced(shape, over))
    dims = [d + (d >= at) for d in over]
    for also in (dims, sorted([*dims, at])):
        assert run(*reduced(spread(shape, at), also)) == expected
