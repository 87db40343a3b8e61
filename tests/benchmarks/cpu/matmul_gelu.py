"""matmul + bias + gelu in one kernel beside a numpy chain, torch and two kernels of our own.

The product alone says what the rest costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.elementwise import numpy_gelu
from tests.benchmarks.cpu.harness import ONE_THREAD, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.matmul import label_of
from tests.benchmarks.cpu.peers import from_torch, tensor, torch

TITLE = "matmul + bias + gelu (tanh form)"
BARS = (
    Bar("numpy", 1.5, "geomean"),
    Bar("torch", 2.0, "geomean"),
    Bar("our separate kernels", 1.0),
    Bar(ONE_THREAD, 1.75, threads=2, least_ms=1.0),
)
PROFILE = """
From K = 256 on the fused kernel takes as long as the product alone (last column but one): bias and
gelu are nearly free. Both sides then spend their time in a product at 90 % and more of the
multiply-add ceiling (`cpu_ceilings.md`), and the passes that fusion saves are 15 to 30 % of numpy's
time. Where the product is short (K of 64 and 128) they are half of it, and the bar is met. With
bias and gelu for nothing and every product at the ceiling, the means would be 1.55 and 1.80.

Against our separate kernels, whose intermediate these caches hold, the smallest times are within
1 % where they aren't ahead by more: which cases are below 1 changes from run to run.
"""
SHAPES = [  # (M, K, N)
    (512, 512, 512),
    (1024, 1024, 1024),
    (1024, 512, 2048),
    (1024, 256, 1024),
    (2048, 128, 512),
    (4096, 64, 64),
    (777, 333, 555),
]


def product(shape: tuple[int, ...]) -> Case:
    M, K, N = shape
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    bias = te.placeholder((N,), name="bias")
    C = ops.gelu(ops.bias_add(ops.matmul(A, B), bias))
    rng = np.random.default_rng(0)
    a, b, v = (rng.standard_normal(t.shape, np.float32) for t in (A, B, bias))
    a *= K**-0.5
    c, d, t = (np.empty((M, N), np.float32) for _ in range(3))

    def chain() -> None:
        np.matmul(a, b, out=c)
        np.add(c, v, out=c)
        numpy_gelu("tanh", c, t, d)

    first = ours([A, B], [ops.matmul(A, B)], [a, b])
    X = te.placeholder((M, N), name="X")
    second = ours([X, bias], [ops.gelu(ops.bias_add(X, bias))], [*first.results, v])

    def separate() -> None:
        first.run()
        second.run()

    e, f = np.empty((M, N), np.float32), np.empty((M, N), np.float32)
    ta, tb, tv, te_, tf = (tensor(x) for x in (a, b, v, e, f))

    def eager() -> None:
        torch.addmm(tv, ta, tb, out=te_)
        torch.ops.aten.gelu.out(te_, approximate="tanh", out=tf)

    chain()
    return Case(
        label_of(shape),
        [
            ours([A, B, bias], [C], [a, b, v]),
            Candidate("numpy", chain, [d]),
            *from_torch("torch", eager, f),
            Candidate("our separate kernels", separate, second.results),
            Candidate("our matmul alone", first.run),
        ],
        [d.copy()],
        rtol=1e-5,
        atol=1e-5,
        work=2e-9 * M * N * K,
        unit="GF/s",
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for shape in SHAPES:
        yield label_of(shape), lambda shape=shape: product(shape)
