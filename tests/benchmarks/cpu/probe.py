"""What two threads can do together at the moment.

Two processors of a virtual machine may be threads of one core for a second or so, if its host puts
them there. Then no work that keeps a core busy gains from the second one.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable

import numpy as np

from akg_py.codegen import objects
from akg_py.codegen.target import host

LANES, CHAINS, STEPS = host().vector_bytes // 4, 12, 1 << 20
MULTIPLY_ADDS = LANES * CHAINS * STEPS
ROUNDS, PROBES = 15, 2
TWO_CORES = 1.6  # speed-up of multiply-adds from which on the threads have cores of their own
WAIT_SECONDS = 10.0


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


def by_two(make: Callable[[], Callable[[], object]], rounds: int = ROUNDS) -> float:
    """How many times as fast two threads do twice the work."""
    runs = [make(), make()]
    alone, both = [], []
    for _ in range(rounds):
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


@functools.cache
def _kernel() -> Callable[[], object]:
    return multiply_adds()


def has_two_cores() -> bool:
    """Whether two threads of multiply-adds run beside each other at full speed just now."""
    return by_two(_kernel, PROBES) >= TWO_CORES


def wait_for_two_cores() -> None:
    """Until two threads have cores of their own; some machines never give them."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while not has_two_cores() and time.perf_counter() < deadline:
        time.sleep(0.05)
