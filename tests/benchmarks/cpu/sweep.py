"""Kernels of random shapes beside numpy and torch: where ours is slower than what it replaces.

    python -m tests.benchmarks.cpu.sweep [--family NAME ...] [--seconds S] [--seed N] [--worst N]

The classes of this package have shapes that people have thought of; cliffs are at the others. Each
problem is built untouched, compared with its peer, and measured in turn with it on one thread. The
worst are printed, but for what takes less than a few microseconds, which calls take themselves.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import akg_py
from akg_py import ops, te
from akg_py.codegen.threads import threads
from tests.benchmarks.cpu.harness import Array, Run, blas_line, ours, threadpoolctl
from tests.benchmarks.cpu.peers import torch
from tests.benchmarks.cpu.reductions import arg_reducer

ROUND_SECONDS = 0.08
LEAST_SECONDS = 3e-6  # of our kernel, below which calls count more than code
SLOWER = 0.9
MOST_ELEMENTS, MOST_FLOPS = 3_000_000, 3e8


@dataclass
class Problem:
    """A kernel, and what computes the same by other means."""

    label: str
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    arrays: list[Array]
    peer: Callable[[], Any]
    tolerance: float = 0.0


class Shapes:
    """Random numbers and arrays."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, most: int, least: int = 1) -> int:
        """Logarithmically even."""
        return round(2 ** self.rng.uniform(math.log2(least), math.log2(most)))

    def shape(self, rank: int, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        while True:
            found = tuple(self.size(2000) for _ in range(rank))
            if 2000 <= math.prod(found) <= most:
                return found

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def array(self, shape: tuple[int, ...], dtype: str = "float32") -> Array:
        """Small integers, whose sums are exact."""
        return self.rng.integers(-8, 9, shape).astype(dtype)


def products(r: Shapes) -> Problem:
    """A product of matrices, either of which may be turned round."""
    while True:
        M, N, K = (r.size(4096) for _ in range(3))
        if 2e4 <= M * N * K <= MOST_FLOPS and N > 1 < M:
            break
    turns_a, turns_b = r.pick([False, True]), r.pick([False, True])
    A = te.placeholder((K, M) if turns_a else (M, K), name="A")
    B = te.placeholder((N, K) if turns_b else (K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(
        (M, N),
        lambda i, j: te.sum(
            (A[k, i] if turns_a else A[i, k]) * (B[j, k] if turns_b else B[k, j]), axis=k
        ),
        name="C",
    )
    a, b, c = r.array(A.shape), r.array(B.shape), np.empty((M, N), np.float32)
    x, y = a.T if turns_a else a, b.T if turns_b else b
    label = f"{M}x{K}x{N}{', A turned' * turns_a}{', B turned' * turns_b}"
    return Problem(label, [A, B], [C], [a, b], lambda: np.matmul(x, y, out=c))


def convolutions(r: Shapes) -> Problem | None:
    """A convolution of images, channels first."""
    if torch is None:
        return None
    while True:
        n, c, o, h, w = r.size(8), r.size(256), r.size(256), r.size(100, 4), r.size(100, 4)
        window, stride = r.pick([1, 1, 3, 3, 5]), r.pick([1, 1, 2])
        if 2e4 <= n * c * o * h * w * window**2 / stride**2 <= MOST_FLOPS and min(h, w) >= window:
            break
    padding = r.pick([0, window // 2])
    X = te.placeholder((n, c, h, w), name="X")
    W = te.placeholder((o, c, window, window), name="W")
    Y = ops.conv2d(X, W, stride=stride, padding=padding)
    x, y = r.array(X.shape), r.array(W.shape)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    run = torch.nn.functional.conv2d
    label = f"{n}x{c}x{h}x{w} to {o}, window {window}, stride {stride}, padding {padding}"
    return Problem(
        label, [X, W], [Y], [x, y], lambda: run(tx, ty, stride=stride, padding=padding).numpy()
    )


def reductions(r: Shapes) -> Problem:
    """A sum, maximum or minimum over some axes."""
    rank = int(r.rng.integers(1, 5))
    shape, dtype = r.shape(rank), r.pick(["float32", "float64", "int32"])
    kind = r.pick(["sum", "max", "min"])
    over = tuple(sorted(r.rng.permutation(rank)[: r.rng.integers(1, rank + 1)].tolist()))
    X = te.placeholder(shape, dtype, name="X")
    axes = {d: te.reduce_axis((0, shape[d]), name=f"r{d}") for d in over}
    kept = tuple(n for d, n in enumerate(shape) if d not in over) or (1,)

    def element(*i: Any) -> Any:
        rest = iter(i)
        at = tuple(axes[d] if d in over else next(rest) for d in range(rank))
        return getattr(te, kind)(X[at], axis=list(axes.values()))

    x, y = r.array(shape, dtype), np.empty(kept, dtype)
    target = y if kept == tuple(n for d, n in enumerate(shape) if d not in over) else y[0, ...]
    options = {"dtype": dtype} if kind == "sum" else {}

    def peer() -> Array:
        getattr(np, kind)(x, axis=over, out=target, **options)
        return y

    label = f"{kind} of {dtype} {shape} over {over}"
    return Problem(label, [X], [te.compute(kept, element, name="Y")], [x], peer)


def positions(r: Shapes) -> Problem:
    """The first place of the largest element along an axis."""
    rank = int(r.rng.integers(2, 4))
    shape, dtype = r.shape(rank), r.pick(["float32", "int32", "int8"])
    over = int(r.rng.integers(rank))
    X, k = te.placeholder(shape, dtype, name="X"), te.reduce_axis((0, shape[over]), name="k")
    kept = tuple(n for d, n in enumerate(shape) if d != over)
    best = te.compute(
        kept,
        lambda *i: arg_reducer("argmax")((k, X[(*i[:over], k, *i[over:])]), axis=k),
        name="Y",
    )
    x, y = r.array(shape, dtype), np.empty(kept, np.intp)
    label = f"argmax of {dtype} {shape} over {over}"
    return Problem(label, [X], list(best), [x], lambda: np.argmax(x, axis=over, out=y))


def layouts(r: Shapes) -> Problem:
    """Axes in another order."""
    rank = int(r.rng.integers(2, 5))
    shape, dtype = r.shape(rank), r.pick(["float32", "float64", "float16", "int8", "bool"])
    order = tuple(r.rng.permutation(rank).tolist())
    X = te.placeholder(shape, dtype, name="X")

    def element(*i: Any) -> Any:
        places = dict(zip(order, i, strict=True))
        return X[tuple(places[d] for d in range(rank))]

    turned = tuple(shape[d] for d in order)
    x, y = r.array(shape, dtype), np.empty(turned, dtype)
    view = x.transpose(order)

    def peer() -> Array:
        np.copyto(y, view)
        return y

    label = f"{dtype} {shape} in the order {order}"
    return Problem(label, [X], [te.compute(turned, element, name="Y")], [x], peer)


def broadcasts(r: Shapes) -> Problem:
    """A sum of two operands, one of which repeats along some axes."""
    rank = int(r.rng.integers(1, 5))
    shape, dtype = r.shape(rank), r.pick(["float32", "float64", "int32", "int8"])
    repeats = [r.pick([False, False, True]) for _ in shape]
    small = tuple(1 if once else n for once, n in zip(repeats, shape, strict=True))
    X, B = te.placeholder(shape, dtype, name="X"), te.placeholder(small, dtype, name="B")

    def element(*i: Any) -> Any:
        return X[i] + B[tuple(0 if once else at for once, at in zip(repeats, i, strict=True))]

    x, b, y = r.array(shape, dtype), r.array(small, dtype), np.empty(shape, dtype)
    label = f"{dtype} {shape} + {small}"
    Y = te.compute(shape, element, name="Y")
    return Problem(label, [X, B], [Y], [x, b], lambda: np.add(x, b, out=y))


def rows(r: Shapes) -> Problem | None:
    """softmax or layer_norm."""
    if torch is None:
        return None
    N = r.size(16384, 2)
    M = r.size(max(MOST_ELEMENTS // N, 2))
    X = te.placeholder((M, N), name="X")
    x = r.array((M, N))
    tx = torch.from_numpy(x)
    if r.pick([False, True]):
        out = torch.empty_like(tx)
        return Problem(
            f"softmax {M}x{N}", [X], [ops.softmax(X)], [x],
            lambda: torch.softmax(tx, -1, out=out).numpy(), 1e-5,
        )  # fmt: skip
    G, B = te.placeholder((N,), name="G"), te.placeholder((N,), name="B")
    g, b = r.array((N,)), r.array((N,))
    tg, tb = torch.from_numpy(g), torch.from_numpy(b)
    norm = torch.nn.functional.layer_norm
    outputs = [ops.layer_norm(X, G, B)]
    return Problem(
        f"layer_norm {M}x{N}", [X, G, B], outputs, [x, g, b],
        lambda: norm(tx, (N,), tg, tb, 1e-5).numpy(), 1e-3,
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Shapes], Problem | None]] = {
    f.__name__: f
    for f in (products, convolutions, reductions, positions, layouts, broadcasts, rows)
}


def measured(p: Problem) -> tuple[float, float]:
    """Smallest times of our kernel and of the peer, in seconds, after their values were compared.

    Raises:
        AssertionError: the values differ.
    """
    candidate = ours(p.inputs, p.outputs, p.arrays)
    expected = p.peer()
    candidate.run()
    assert candidate.results is not None
    np.testing.assert_allclose(
        candidate.results[0], expected, rtol=p.tolerance, atol=p.tolerance, err_msg=p.label
    )
    runs: list[Run] = [candidate.run, p.peer]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + ROUND_SECONDS
    while time.perf_counter() < end:
        for run, found in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def sweep(name: str, seconds: float, seed: int, worst: int) -> None:
    """Measure random problems of a family, and print the summary and the worst."""
    shapes = Shapes(seed)
    found: list[tuple[float, float, str]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        problem = FAMILIES[name](shapes)
        if problem is None:
            print(f"== {name}: torch is missing")
            return
        mine, theirs = measured(problem)
        if mine >= LEAST_SECONDS:
            found.append((theirs / mine, mine, problem.label))
    ratios = [ratio for ratio, _, _ in found]
    slower = sum(ratio < SLOWER for ratio in ratios)
    print(
        f"== {name}: {len(found)} problems, peer / ours {statistics.geometric_mean(ratios):.2f} "
        f"in the geometric mean, below {SLOWER} in {slower}"
    )
    for ratio, mine, label in sorted(found)[:worst]:
        print(f"  {ratio:5.2f}  {mine * 1e6:9.1f} us  {label}", flush=True)


def main() -> int:
    importlib.import_module("tests.benchmarks.cpu.__main__")  # restarts without pinned variables
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cpu.sweep")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seconds", type=float, default=30.0, help="per family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", type=int, default=8, help="problems to print of each family")
    given = parser.parse_args()
    if torch is not None:
        torch.set_num_threads(1)
    if threadpoolctl is not None:
        threadpoolctl.threadpool_limits(1)
    print(f"akg_py {akg_py.__version__}, one thread; {blas_line()}")
    with threads(1):
        for name in given.family:
            sweep(name, given.seconds, given.seed, given.worst)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
