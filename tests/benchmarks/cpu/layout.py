"""Transposes and layout changes beside numpy's strided copy and a plain copy of the same bytes.

NZ is the fractal layout of Ascend: A[m, n] lies at [n / 16, m / 16, m % 16, n % 16].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from akg_py import te
from tests.benchmarks.cpu.harness import ONE_THREAD, Array, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.peers import copies

TITLE = "transposes and layout changes"
BARS = (
    Bar("copy", 1 / 2),
    Bar("numpy", 8.0),
    Bar(ONE_THREAD, 1.3, threads=2, least_ms=1.0),
)
PROFILE = """
Eight times numpy's speed is above the speed of a plain copy wherever numpy copies at a third of
the copy's rate or more: rows of 1000 elements, channels of images. The bar of two copies is the one
that says something there, and it is met but for 1000x3000. Large transposes whose rows are whole
lines take about as long as a copy. Rows of 1000 elements start in the middle of lines, so that
every piece that is read or written lies in two: 0.44 to 0.6 of a copy, which finds most of its
24 MB in the last cache. Whether stores go around the cache makes no difference there (1.03 by
medians). The best of 160 arrangements by hand in C with AVX-512 intrinsics (along reads or writes,
in blocks, either side fetched ahead) is no faster than ours (`cpu_by_hand.md`).

Two threads move 44 to 52 GB/s together where one moves 35 to 38: 1.25 to 1.5 times as much, which
is the memory's limit (a second thread reads 1.1 times as much from it, `cpu_ceilings.md`).
"""
BLOCK = 16


@dataclass(frozen=True)
class Change:
    """A layout change.

    Attributes:
        shape: of the input.
        to: shape of the output.
        read: (input tensor, output indices) -> element.
        view: the same in numpy: a view of the input with the output's shape.
    """

    label: str
    shape: tuple[int, ...]
    to: tuple[int, ...]
    read: Callable[..., Any]
    view: Callable[[Array], Array]
    dtype: str = "float32"


def transposed(M: int, N: int, dtype: str) -> Change:
    return Change(
        f"transpose {M}x{N} {dtype}",
        (M, N),
        (N, M),
        lambda X, i, j: X[j, i],
        lambda x: x.T,
        dtype,
    )


def channels_last(n: int, c: int, h: int, w: int) -> Change:
    return Change(
        f"NCHW to NHWC {n}x{c}x{h}x{w}",
        (n, c, h, w),
        (n, h, w, c),
        lambda X, n, h, w, c: X[n, c, h, w],
        lambda x: x.transpose(0, 2, 3, 1),
    )


def channels_first(n: int, c: int, h: int, w: int) -> Change:
    return Change(
        f"NHWC to NCHW {n}x{h}x{w}x{c}",
        (n, h, w, c),
        (n, c, h, w),
        lambda X, n, c, h, w: X[n, h, w, c],
        lambda x: x.transpose(0, 3, 1, 2),
    )


def to_fractal(M: int, N: int, dtype: str) -> Change:
    rows, columns = M // BLOCK, N // BLOCK
    return Change(
        f"ND to NZ {M}x{N} {dtype}",
        (M, N),
        (columns, rows, BLOCK, BLOCK),
        lambda X, jo, io, i, j: X[io * BLOCK + i, jo * BLOCK + j],
        lambda x: x.reshape(rows, BLOCK, columns, BLOCK).transpose(2, 0, 1, 3),
        dtype,
    )


def from_fractal(M: int, N: int, dtype: str) -> Change:
    rows, columns = M // BLOCK, N // BLOCK
    return Change(
        f"NZ to ND {M}x{N} {dtype}",
        (columns, rows, BLOCK, BLOCK),
        (M, N),
        lambda X, i, j: X[j // BLOCK, i // BLOCK, i % BLOCK, j % BLOCK],
        lambda x: x.transpose(1, 2, 0, 3),
        dtype,
    )


CHANGES = (
    transposed(4096, 4096, "float32"),
    transposed(4096, 4096, "float16"),
    transposed(1000, 3000, "float32"),
    channels_last(32, 64, 56, 56),
    channels_first(32, 64, 56, 56),
    channels_last(16, 256, 28, 28),
    to_fractal(4096, 4096, "float16"),
    from_fractal(4096, 4096, "float16"),
    to_fractal(4096, 4096, "float32"),
    from_fractal(4096, 4096, "float32"),
)


def change(what: Change) -> Case:
    X = te.placeholder(what.shape, what.dtype, name="X")
    Y = te.compute(what.to, lambda *i: what.read(X, *i), name="Y")
    x = np.random.default_rng(0).standard_normal(what.shape, np.float32).astype(what.dtype)
    view = what.view(x)
    if view.shape != what.to:  # from_fractal: (rows, 16, columns, 16) of the same order
        target = np.empty(view.shape, what.dtype)
        result = target.reshape(what.to)
    else:
        target = result = np.empty(what.to, what.dtype)
    return Case(
        what.label,
        [
            ours([X], [Y], [x]),
            *copies(x.nbytes),
            Candidate("numpy", lambda: np.copyto(target, view), [result]),
        ],
        [np.ascontiguousarray(view).reshape(what.to)],
        rtol=0.0,
        atol=0.0,
        work=2e-9 * x.nbytes,
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for what in CHANGES:
        yield what.label, lambda what=what: change(what)
