"""Products with few rows, as a language model makes for each token, beside OpenBLAS and torch.

They read every element of B once: a copy that moves as many bytes is given for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.benchmarks.cpu.harness import ONE_THREAD, Bar, Candidate, Case
from tests.benchmarks.cpu.low_precision import TOLERANCE, operands, our_product
from tests.benchmarks.cpu.matmul import label_of
from tests.benchmarks.cpu.peers import copies, from_torch, tensor, torch

TITLE = "products with few rows beside OpenBLAS and torch"
BARS = (
    Bar("numpy", 1.0, "geomean"),
    Bar("torch", 1.0, "geomean"),
    Bar(ONE_THREAD, 1.3, "geomean", threads=2, least_ms=1.0),
)
SHAPES = [(M, *b) for b in ((4096, 4096), (768, 3072)) for M in (1, 2, 4, 8, 16, 32)]
DTYPES = ("float32", "float16", "bfloat16")


def product(shape: tuple[int, int, int], dtype: str) -> Case:
    a, b = operands(shape, dtype)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    c, d = np.empty_like(expected), np.empty_like(expected)
    x, y, z = tensor(a), tensor(b), tensor(d)
    candidates = [our_product(dtype, a, b, "ours"), *copies(b.nbytes // 2, both=False)]
    if dtype == "float32":
        candidates.append(Candidate("numpy", lambda: np.matmul(a, b, out=c), [c]))
    candidates += from_torch("torch", lambda: torch.mm(x, y, out=z), d)
    return Case(
        f"{dtype} {label_of(shape)}",
        candidates,
        [expected],
        rtol=TOLERANCE.get(dtype, 0.0),
        atol=2e-6 * shape[1],
        work=1e-9 * b.nbytes,
        unit="GB/s",
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for dtype in DTYPES:
        for shape in SHAPES:
            label = f"{dtype} {label_of(shape)}"
            yield label, lambda shape=shape, dtype=dtype: product(shape, dtype)
