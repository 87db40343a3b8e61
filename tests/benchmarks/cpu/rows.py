"""softmax, layer_norm and rms_norm on rows of 64 to 16384 elements beside torch and a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.harness import ONE_THREAD, Array, Bar, Case, ours
from tests.benchmarks.cpu.peers import copies, from_torch, tensor, torch

TITLE = "softmax, layer_norm and rms_norm"
BARS = (
    Bar("torch", 1.5),
    Bar("copy", 1 / 1.2, groups=("layer_norm",)),
    Bar(ONE_THREAD, 1.3, threads=2, least_ms=1.0),
)
PROFILE = """
The copy's time swings with what the last cache happens to hold of its 32 MB: 36 to 62 GB/s in runs
minutes apart. `cpu_by_hand.md` has layer_norm in C with AVX-512 intrinsics in 12 to 48 arrangements
for each length of a row, measured in turn with ours: the best of them takes 0.8 to 1.7 of our time.
Where the copy is quick none of them is within 1.2 of it either: for 1024x4096, 0.54 ms for the
copy, 0.87 for the best in C and 0.89 for ours in one run, by medians 0.72, 0.97 and 0.97. Three
passes over a row with its gamma and beta read more from the first two caches than a copy moves
through memory.
A row of 16384 elements is twice the first cache, and so are gamma and beta: from the second cache
alone its three passes take 3.4 us, 1.2 copies of it 3.5 to 3.8.

Outputs that start within a cache line (numpy's large arrays start 16 bytes past one) and rows that
are no whole lines go around the cache too, but for the lines at both ends.

Two threads store and load 48 to 54 GB/s together, one alone up to 52 (rms_norm): that is the
memory's limit.
"""
ELEMENTS = 1 << 22
ROWS = (64, 256, 1000, 1024, 4096, 16384)
EPSILON = 1e-5


def expected(kind: str, x: Array, gamma: Array, beta: Array) -> Array:
    wide = x.astype(np.float64)
    if kind == "softmax":
        e = np.exp(wide - wide.max(1, keepdims=True))
        return (e / e.sum(1, keepdims=True)).astype(np.float32)
    if kind == "layer_norm":
        centred = wide - wide.mean(1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(1, keepdims=True) + EPSILON)
        return (scaled * gamma + beta).astype(np.float32)
    scaled = wide / np.sqrt(np.square(wide).mean(1, keepdims=True) + EPSILON)
    return (scaled * gamma).astype(np.float32)


def inputs(M: int, N: int) -> tuple[Array, Array, Array]:
    """x, gamma, beta."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((M, N), np.float32)
    return x, rng.standard_normal(N, np.float32), rng.standard_normal(N, np.float32)


def rows(kind: str, N: int) -> Case:
    M = ELEMENTS // N
    X = te.placeholder((M, N), name="X")
    gamma, beta = te.placeholder((N,), name="gamma"), te.placeholder((N,), name="beta")
    x, g, b = inputs(M, N)
    d, e = np.empty_like(x), np.empty_like(x)
    mean, inverse = np.empty((M, 1), np.float32), np.empty((M, 1), np.float32)
    tx, tg, tb, td, te_, tm, ti = (tensor(a) for a in (x, g, b, d, e, mean, inverse))
    if kind == "softmax":
        candidate = ours([X], [ops.softmax(X)], [x])
        peers = from_torch("torch: out=", lambda: torch.softmax(tx, -1, out=td), d)
    elif kind == "layer_norm":
        graph = [X, gamma, beta], [ops.layer_norm(X, gamma, beta, EPSILON)], [x, g, b]
        candidate = ours(*graph)
        unaligned = ours(*graph, into=[np.empty_like(x)], name="ours, into np.empty")
        native = torch and torch.ops.aten.native_layer_norm.out
        peers = from_torch(
            "torch: out=",
            lambda: native(tx, [N], tg, tb, EPSILON, out0=td, out1=tm, out2=ti),
            d,
        )
        peers.append(unaligned)
    else:
        candidate = ours([X, gamma], [ops.rms_norm(X, gamma, EPSILON)], [x, g])

        def chain() -> None:
            torch.mul(tx, tx, out=te_)
            torch.mean(te_, -1, keepdim=True, out=tm)
            torch.add(tm, EPSILON, out=tm)
            torch.rsqrt(tm, out=ti)
            torch.mul(tx, ti, out=te_)
            torch.mul(te_, tg, out=td)

        peers = from_torch("torch: out=", chain, d)
        peers += from_torch(
            "torch: rms_norm", lambda: torch.nn.functional.rms_norm(tx, (N,), tg, EPSILON)
        )
    return Case(
        f"{kind} {M}x{N}",
        [candidate, *peers, *copies(x.nbytes)],
        [expected(kind, x, g, b)],
        atol=1e-5,
        group=kind,
        work=2e-9 * x.nbytes,
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for kind in ("softmax", "layer_norm", "rms_norm"):
        for N in ROWS:
            yield f"{kind} {ELEMENTS // N}x{N}", lambda kind=kind, N=N: rows(kind, N)
