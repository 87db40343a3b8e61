"""Products with few rows, as a language model makes for each token, beside OpenBLAS and torch.

They read every element of the large operand once: a copy that moves as many bytes is given for
comparison. B lies as it is multiplied, or turned round as the weights of torch's linear layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.harness import ONE_THREAD, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.low_precision import TOLERANCE, operands
from tests.benchmarks.cpu.matmul import label_of
from tests.benchmarks.cpu.peers import copies, from_torch, tensor, torch

TITLE = "products with few rows beside OpenBLAS and torch"
BARS = (
    Bar("numpy", 1.0, "geomean"),
    Bar("torch", 1.0, "geomean"),
    Bar(ONE_THREAD, 1.3, "geomean", threads=2, least_ms=1.0),
)
SHAPES = [(M, *b) for b in ((4096, 4096), (768, 3072)) for M in (1, 2, 4, 8, 16, 32)]


def product(shape: tuple[int, int, int], dtype: str, is_turned: bool) -> Case:
    M, K, N = shape
    a, b = operands(shape, dtype)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    A, B = te.placeholder((M, K), dtype, name="A"), te.placeholder((K, N), dtype, name="B")
    if is_turned:
        b = np.ascontiguousarray(b.T)
        B = te.placeholder((N, K), dtype, name="B")
    C = turned(A, B) if is_turned else ops.matmul(A, B)
    large = max(a.nbytes, b.nbytes)
    c, d = np.empty_like(expected), np.empty_like(expected)
    x, y, z = tensor(a), tensor(b), tensor(d)
    candidates = [ours([A, B], [C], [a, b]), *copies(large // 2, both=False)]
    if dtype == "float32":
        view = b.T if is_turned else b
        candidates.append(Candidate("numpy", lambda: np.matmul(a, view, out=c), [c]))
    candidates += from_torch("torch", lambda: torch.mm(x, y.T if is_turned else y, out=z), d)
    return Case(
        name_of(shape, dtype, is_turned),
        candidates,
        [expected],
        rtol=TOLERANCE.get(dtype, 0.0),
        atol=2e-6 * K,
        work=1e-9 * large,
        unit="GB/s",
    )


def turned(A: te.Tensor, B: te.Tensor) -> te.Tensor:
    """C[m, n] = sum of A[m, k] * B[n, k], rounded once."""
    (M, K), (N, _) = A.shape, B.shape
    k = te.reduce_axis((0, K), name="k")
    total = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k].astype("float32") * B[n, k].astype("float32"), axis=k),
        name="total",
    )
    return te.compute((M, N), lambda m, n: total[m, n].astype(A.dtype), name="C")


def name_of(shape: tuple[int, int, int], dtype: str, is_turned: bool) -> str:
    return f"{dtype} {label_of(shape)}{' turned' if is_turned else ''}"


def cases(
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Products of shapes (M, K, N), of both dtypes, with B as it is multiplied and turned."""
    for dtype in ("float32", "bfloat16"):
        for is_turned in (False, True):
            for shape in shapes:
                yield (
                    name_of(shape, dtype, is_turned),
                    lambda given=(shape, dtype, is_turned): product(*given),
                )
