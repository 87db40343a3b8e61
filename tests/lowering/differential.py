"""Lower a schedule, interpret it, and compare with the root oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from akg_py import dtypes, te
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Alloc, Buffer, For, Func, walk_stmts
from akg_py.ir.verify import verify
from akg_py.lowering import lower_schedule
from tests.comparison import assert_exact, assert_within_bound, random_floats, small_integers


def check(
    s: te.Schedule, inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor], *, exact: bool = True
) -> Func:
    """Lower `s`, verify, run on small integers and compare with the oracle; the Func."""
    func = lower_schedule(s, [*inputs, *outputs])
    verify(func, "lower_schedule")
    assert str(func) == str(lower_schedule(s, [*inputs, *outputs]))  # B175
    rng = np.random.default_rng(1)
    make = small_integers if exact else random_floats
    feeds = [make(t.shape, t.dtype, rng) for t in inputs]
    actual = [np.full(t.shape, 77, dtypes.numpy_dtype(t.dtype)) for t in outputs]
    interpret(func, *feeds, *actual)
    feeds_by_tensor = dict(zip(inputs, feeds, strict=True))
    if exact:
        for a, e in zip(actual, te.evaluate(list(outputs), feeds_by_tensor), strict=True):
            assert_exact(a, e, context=f"\n{s}\n{func}")
    else:
        assert_within_bound(actual, list(outputs), feeds_by_tensor)
    return func


def buffers(func: Func) -> dict[str, Buffer]:
    return {x.buffer.name: x.buffer for x in walk_stmts(func.body) if isinstance(x, Alloc)}


def loops(func: Func) -> list[For]:
    return [x for x in walk_stmts(func.body) if isinstance(x, For)]


class Matmul:
    """C = A B; `s[C]` with its axes."""

    def __init__(self, M: int = 9, N: int = 10, K: int = 7, dtype: str = "float32") -> None:
        self.A = te.placeholder((M, K), dtype, name="A")
        self.B = te.placeholder((K, N), dtype, name="B")
        self.k = te.reduce_axis((0, K), name="k")
        self.C = te.compute(
            (M, N),
            lambda i, j: te.sum(self.A[i, self.k] * self.B[self.k, j], axis=self.k),
            name="C",
        )
        self.s = te.create_schedule(self.C.op)
        self.i, self.j = self.C.op.axis
        self.stage = self.s[self.C]

    def check(self) -> Func:
        return check(self.s, [self.A, self.B], [self.C])


class Chain:
    """B(i, j) from A, C from B by `read`, at every loop of C."""

    def __init__(
        self, shape: tuple[int, int], out: tuple[int, int], read: Callable[..., Any]
    ) -> None:
        self.A = te.placeholder(shape, name="A")
        self.B = te.compute(shape, lambda i, j: self.A[i, j] * 2.0, name="B")
        self.C = te.compute(out, lambda i, j: read(self.B, i, j), name="C")

    def schedule(self) -> te.Schedule:
        return te.create_schedule(self.C.op)

    def check(self, s: te.Schedule) -> Func:
        return check(s, [self.A], [self.C])


def diamond() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] + 1.0, name="B")
    L = te.compute((6, 7), lambda i, j: B[i, j] * 2.0, name="L")
    R = te.compute((6, 7), lambda i, j: B[i, j + 1] - 1.0, name="R")
    D = te.compute((6, 7), lambda i, j: L[i, j] * R[i, j] + B[i, j], name="D")
    return A, B, L, R, D
