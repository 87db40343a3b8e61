"""What one core of this machine can do: multiply-adds, copies, reads and first touches of memory.

The other classes' profiles compare with these.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from akg_py import te
from akg_py.codegen import objects
from akg_py.codegen.target import host
from akg_py.codegen.threads import threads
from tests.benchmarks.cpu.harness import OURS, ours
from tests.benchmarks.cpu.peers import copies
from tests.benchmarks.cpu.report import Figure

TITLE = "ceilings of one core"
LANES, CHAINS, STEPS = host().vector_bytes // 4, 12, 1 << 20
SIZES = {"L2": 384 << 10, "L3": 6 << 20, "memory": 96 << 20}  # bytes of an array
LEAST_SECONDS, ROUNDS = 2e-3, 15


def multiply_adds() -> Callable[[], object]:
    """STEPS rounds of CHAINS independent fused multiply-adds of LANES floats."""
    vector = f"<{LANES} x float>"
    fma = f"llvm.fma.v{LANES}f32"
    chains = range(CHAINS)
    phis = [f"  %a{n} = phi {vector} [%x, %entry], [%b{n}, %loop]" for n in chains]
    steps = [
        f"  %b{n} = call {vector} @{fma}({vector} %a{n}, {vector} %x, {vector} %x)" for n in chains
    ]
    stores = [
        f"  %p{n} = getelementptr {vector}, ptr %data, i64 {n}\n"
        f"  store {vector} %b{n}, ptr %p{n}, align 4"
        for n in chains
    ]
    text = "\n".join(
        [
            f"declare {vector} @{fma}({vector}, {vector}, {vector})",
            "define void @chains(ptr %data, i64 %steps) {",
            "entry:",
            f"  %x = load {vector}, ptr %data, align 4",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %entry], [%next, %loop]",
            *phis,
            *steps,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %steps",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *stores,
            "  ret void",
            "}",
        ]
    )
    loaded = objects.load(text)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address("chains"))
    data = np.full(CHAINS * LANES, 0.5, np.float32)
    return lambda: (function(data.ctypes.data, STEPS), loaded)


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


def by_two(make: Callable[[], Callable[[], object]]) -> float:
    """How many times as fast two threads do twice the work."""
    runs = [make(), make()]
    alone, both = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        runs[0]()
        alone.append(time.perf_counter() - start)
        hands = [threading.Thread(target=run) for run in runs]
        start = time.perf_counter()
        for hand in hands:
            hand.start()
        for hand in hands:
            hand.join()
        both.append(time.perf_counter() - start)
    return 2 * min(alone) / min(both)


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
        work = 2e-9 * STEPS * CHAINS * LANES
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
