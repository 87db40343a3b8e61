"""What one core of this machine can do: multiply-adds, copies, reads and first touches of memory.

The other classes' profiles compare with these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from akg_py import te
from akg_py.codegen.threads import threads
from tests.benchmarks.cpu.harness import OURS, ours
from tests.benchmarks.cpu.peers import copies
from tests.benchmarks.cpu.probe import MULTIPLY_ADDS, by_two, multiply_adds
from tests.benchmarks.cpu.report import Figure

TITLE = "ceilings of one core"
SIZES = {"L2": 384 << 10, "L3": 6 << 20, "memory": 96 << 20}  # bytes of an array
LEAST_SECONDS, ROUNDS = 2e-3, 15


def smallest(run: Callable[[], object]) -> float:
    """CPU seconds of one run, the best of some rounds of several runs."""
    run()
    start = time.thread_time()
    run()
    batch = max(1, int(LEAST_SECONDS / max(time.thread_time() - start, 1e-7)))
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(batch):
            run()
        best = min(best, (time.thread_time() - start) / batch)
    return best


def first_touch(count: int) -> float:
    """CPU seconds to write `count` fresh bytes, without the time to write them again."""
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        fresh = np.empty(count, np.uint8)
        fresh.fill(1)
        middle = time.thread_time()
        fresh.fill(2)
        best = min(best, 2 * middle - start - time.thread_time())
        del fresh
    return best


def total(count: int) -> Callable[[], object]:
    """The sum of `count` bytes of floats, ours."""
    X = te.placeholder((1, count // 4), name="X")
    r = te.reduce_axis((0, count // 4), name="r")
    Y = te.compute((1,), lambda i: te.sum(X[i, r], axis=r), name="Y")
    return ours([X], [Y], [np.ones((1, count // 4), np.float32)], name=OURS).run


def figures() -> Iterator[Figure]:
    with threads(1):
        work = 2e-9 * MULTIPLY_ADDS
        yield Figure("fp32 multiply-adds", work / smallest(multiply_adds()), "GF/s")
        yield Figure("  speed-up by a second thread", by_two(multiply_adds), "")
        for level, count in SIZES.items():
            for candidate in copies(count):
                rate = 2e-9 * count / smallest(candidate.run)
                yield Figure(f"{candidate.name}, {level}, read + write", rate, "GB/s")
            yield Figure(f"read (our sum), {level}", 1e-9 * count / smallest(total(count)), "GB/s")
        size = SIZES["memory"]
        yield Figure("  speed-up by a second thread", by_two(lambda: total(size)), "")
        yield Figure("first touch of memory", first_touch(size) * 1e3 / (size >> 20), "ms / MB")
