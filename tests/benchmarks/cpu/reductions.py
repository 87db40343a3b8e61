"""Sums, maxima and positions of maxima along rows, columns and everything, beside numpy.

A large array is to be read as fast as a copy moves as many bytes: half the array, read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from akg_py import te
from tests.benchmarks.cpu.harness import ONE_THREAD, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.peers import copies

TITLE = "column, row and full reductions, arg-reductions"
BARS = (
    Bar("numpy", 1.5),
    Bar("copy", 1.0, groups=("large",)),
    Bar(ONE_THREAD, 1.3, threads=2, least_ms=1.0),
)
PROFILE = """
numpy's own sums, maxima and arg-maxima along rows and over everything read large arrays at 25 to
32 GB/s; a core reads memory at 30 to 38 (`cpu_ceilings.md`), so nothing can be 1.5 times as fast
on one thread. Ours reads them at 33 to 36: what is too large for the last cache and read once is
fetched 256 bytes ahead into the first cache only, and isn't written to the last one when the second
drops it. That gains 8 to 20 % on one thread, nothing on two; other distances gain less (a sum of
64 MB, medians of one run: 2.58 ms without, 2.16 at 256 bytes, 2.14 at 512, 2.38 at 1024; a maximum
2.66, 2.16, 3.08 and 3.00). Where numpy isn't bound by memory (short rows, columns, arrays in the
cache) the bar is met. Down the columns of a large array eight rows
are read side by side, 16 KB apart, two vectors of each at once; they are fetched 2 KB ahead into
the second cache. How many loads wait for memory at once is a matter of instructions between them:
sums take one for each vector, maxima two (one comparison looks at two vectors for NaN), an argmax
six. That is 32, 29 and 27 GB/s where the same elements along rows are read at 33, 1.0 to 1.3 of a
copy that reads half as much and writes the other half. In C the best of 56 arrangements of the
argmax takes 0.85 to 1.05 of our time (`cpu_by_hand.md`). Half of them have three and a half
instructions for each vector; ours had the same speed with these as with six.

Two threads read large arrays at 36 to 56 GB/s together on this machine, where one alone reaches
36: the memory is the limit, not the threads. Arrays that fit the caches run 1.9 to 3.6 times as
fast.
"""
LARGE_BYTES = 32 << 20
CASES = [  # kind, shape, axis reduced (None: all), dtype
    ("sum", (4096, 4096), 0, "float32"),
    ("sum", (65536, 64), 0, "float32"),
    ("sum", (512, 512), 0, "float32"),
    ("max", (4096, 4096), 0, "float32"),
    ("sum", (4096, 4096), 1, "float32"),
    ("max", (65536, 64), 1, "float32"),
    ("sum", (4096, 4096), None, "float32"),
    ("max", (4096, 4096), None, "float32"),
    ("sum", (512, 512), None, "float32"),
    ("sum", (4096, 4096), None, "int32"),
    ("argmax", (4096, 4096), 1, "float32"),
    ("argmax", (65536, 64), 1, "float32"),
    ("argmax", (4096, 4096), 0, "float32"),
    ("argmin", (1, 1 << 24), 1, "float32"),
]


def arg_reducer(kind: str) -> Any:
    """The position of the largest or smallest element, the first one of several."""

    def better(a: Any, b: Any) -> Any:
        wins = a[1] > b[1] if kind == "argmax" else a[1] < b[1]
        return te.any(wins, te.all(a[1] == b[1], a[0] < b[0]))

    def combine(a: Any, b: Any) -> Any:
        first = better(a, b)
        return te.Select(first, a[0], b[0]), te.Select(first, a[1], b[1])

    def identity(index: str, value: str) -> Any:
        worst = te.min_value(value) if kind == "argmax" else te.max_value(value)
        return te.const((1 << 31) - 1, index), worst

    return te.comm_reducer(combine, identity, name=kind)


def declare(kind: str, X: te.Tensor, axis: int | None) -> list[te.Tensor]:
    M, N = X.shape
    r = [te.reduce_axis((0, n), name=f"r{n}") for n in (M, N)]
    if kind.startswith("arg"):
        reducer = arg_reducer(kind)
        if axis == 0:
            found = te.compute((N,), lambda j: reducer((r[0], X[r[0], j]), axis=r[0]), name="top")
        else:
            found = te.compute((M,), lambda i: reducer((r[1], X[i, r[1]]), axis=r[1]), name="top")
        return list(found)
    reduce = te.sum if kind == "sum" else te.max
    if axis is None:
        return [te.compute((1,), lambda _: reduce(X[r[0], r[1]], axis=r), name="total")]
    if axis == 0:
        return [te.compute((N,), lambda j: reduce(X[r[0], j], axis=r[0]), name="total")]
    return [te.compute((M,), lambda i: reduce(X[i, r[1]], axis=r[1]), name="total")]


def reduction(label: str, kind: str, shape: tuple[int, int], axis: int | None, dtype: str) -> Case:
    X = te.placeholder(shape, dtype, name="X")
    rng = np.random.default_rng(0)
    x = (
        rng.standard_normal(shape, np.float32)
        if dtype == "float32"
        else rng.integers(-(1 << 20), 1 << 20, shape, np.int32)
    )
    function = getattr(np, kind)
    if kind == "sum":
        wide = np.float64 if dtype == "float32" else np.int32
        expected = np.atleast_1d(x.sum(axis=axis, dtype=wide)).astype(dtype)
    else:
        expected = np.atleast_1d(function(x, axis=axis))
    if kind.startswith("arg"):
        expected = expected.astype(np.int32)
        d = np.empty(expected.shape, np.intp)
    else:
        d = np.empty(expected.shape, dtype)
    out = d if axis is not None else d.reshape(())
    options = {"dtype": np.int32} if dtype == "int32" and kind == "sum" else {}
    return Case(
        label,
        [
            ours([X], declare(kind, X, axis), [x]),
            Candidate("numpy", lambda: function(x, axis=axis, out=out, **options), [d]),
            *copies(x.nbytes // 2),
        ],
        [expected],
        atol=2e-6 * x.size**0.5 + 1e-5,
        group="large" if x.nbytes >= LARGE_BYTES else "",
        work=1e-9 * x.nbytes,
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for kind, shape, axis, dtype in CASES:
        along = {0: "columns", 1: "rows", None: "all"}[axis]
        label = f"{kind} {along} {shape[0]}x{shape[1]} {dtype}"
        yield label, lambda case=(label, kind, shape, axis, dtype): reduction(*case)
