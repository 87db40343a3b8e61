"""Products with few columns, as classifiers and routers make, beside OpenBLAS and torch.

B lies as it is multiplied, or turned round as the weights of torch's linear layers are. Some sums
end within a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.benchmarks.cpu import few_rows
from tests.benchmarks.cpu.harness import Case

TITLE = "products with few columns beside OpenBLAS and torch"
BARS = few_rows.BARS
SHAPES = [  # M, K, N
    *((1024, 1024, N) for N in (2, 3, 4, 8, 10, 16, 24)),
    *((1024, 1000, N) for N in (2, 3, 10, 16)),
    (4096, 784, 10),
    (4096, 4096, 8),
    (64, 4096, 8),
    (4096, 64, 6),
]


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    return few_rows.cases(SHAPES)
