"""Products with few columns, as classifiers and routers make, beside OpenBLAS and torch.

B lies as it is multiplied, or turned round as the weights of torch's linear layers are. Some sums
end within a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.benchmarks.cpu.few_rows import name_of, product
from tests.benchmarks.cpu.harness import ONE_THREAD, Bar, Case

TITLE = "products with few columns beside OpenBLAS and torch"
BARS = (
    Bar("numpy", 1.0, "geomean"),
    Bar("torch", 1.0, "geomean"),
    Bar(ONE_THREAD, 1.3, "geomean", threads=2, least_ms=1.0),
)
SHAPES = [  # M, K, N
    *((1024, 1024, N) for N in (2, 3, 4, 8, 10, 16, 24)),
    *((1024, 1000, N) for N in (2, 3, 10, 16)),
    (4096, 784, 10),
    (4096, 4096, 8),
    (64, 4096, 8),
    (4096, 64, 6),
]


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for dtype in ("float32", "bfloat16"):
        for is_turned in (False, True):
            for shape in SHAPES:
                yield (
                    name_of(shape, dtype, is_turned),
                    lambda given=(shape, dtype, is_turned): product(*given),
                )
