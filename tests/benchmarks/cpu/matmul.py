"""fp32 products of 20 shapes beside numpy's OpenBLAS, both into arrays made beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.harness import ONE_THREAD, Bar, Candidate, Case, ours

TITLE = "fp32 matmul beside OpenBLAS"
BARS = (
    Bar("numpy", 1.02, "geomean"),
    Bar("numpy", 0.95),
    Bar("numpy", 1.15, "geomean", groups=("tall", "small")),
    Bar("numpy", 0.97, "geomean", threads=2),
    Bar(ONE_THREAD, 1.75, threads=2, least_ms=1.0),
)
SHAPES = {  # group -> (M, K, N), or (batch, M, K, N)
    "square": [(512,) * 3, (768,) * 3, (1024,) * 3, (1536,) * 3, (2048,) * 3, (1024, 512, 2048)],
    "odd": [(1000, 500, 2049), (777, 333, 555), (1023, 1025, 1021)],
    "tall": [(4096, 64, 64), (8192, 128, 32), (64, 4096, 64), (16, 1024, 4096)],
    "small": [(32,) * 3, (64,) * 3, (100,) * 3, (128,) * 3],
    "batched": [(64, 64, 64, 64), (16, 128, 128, 128), (12, 512, 64, 512)],
}


def product(shape: tuple[int, ...], group: str) -> Case:
    *batch, M, K, N = shape
    A = te.placeholder((*batch, M, K), "float32", name="A")
    B = te.placeholder((*batch, K, N), "float32", name="B")
    C = ops.batch_matmul(A, B) if batch else ops.matmul(A, B)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(t.shape, np.float32) for t in (A, B))
    d = np.empty(C.shape, np.float32)
    return Case(
        label_of(shape),
        [
            ours([A, B], [C], [a, b]),
            Candidate("numpy", lambda: np.matmul(a, b, out=d), [d]),
        ],
        [np.matmul(a, b)],
        rtol=0.0,
        atol=2e-6 * K + 1e-5,
        group=group,
        work=2e-9 * math.prod(shape),
        unit="GF/s",
    )


def label_of(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for group, shapes in SHAPES.items():
        for shape in shapes:
            yield label_of(shape), lambda shape=shape, group=group: product(shape, group)
