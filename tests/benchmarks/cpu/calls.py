"""From cold: import to the first result, compilation; and what a call costs beside the work.

Each cold figure is the smallest of several fresh processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

import akg_py
from akg_py import ops, te
from akg_py.codegen.threads import threads
from tests.benchmarks.cpu.report import Figure

TITLE = "cold start, compilation and call overhead"
PROFILE = """
A first result: numpy's import is 45 to 60 ms of it, llvmlite's 25, ours 35, the rest declares,
schedules, looks the kernel up and runs it.
"""
PROCESSES = 12
CALLS, BATCHES = 200, 300  # short ones: some find the processor free
RESTED = 200

GRAPHS = """
from akg_py import ops, te

def holder(*shape, dtype="float32"):
    return te.placeholder(shape, dtype, name="X" + "x".join(map(str, shape)))

def graph(name):
    X, W, v = holder(512, 1024), holder(1024, 768), holder(1024)
    image, filters = holder(1, 64, 56, 56), holder(64, 64, 3, 3)
    if name == "matmul":
        return [X, W], ops.matmul(X, W)
    if name == "matmul float16":
        H, K = holder(512, 1024, dtype="float16"), holder(1024, 768, dtype="float16")
        return [H, K], ops.matmul(H, K)
    if name == "matmul int8":
        H, K = holder(512, 1024, dtype="int8"), holder(1024, 768, dtype="int8")
        return [H, K], ops.matmul(H, K, "int32")
    if name == "matmul + bias + gelu":
        b = holder(768)
        return [X, W, b], ops.gelu(ops.bias_add(ops.matmul(X, W), b))
    if name == "bias + gelu":
        return [X, v], ops.gelu(ops.bias_add(X, v))
    if name == "softmax":
        return [X], ops.softmax(X)
    if name == "layer_norm":
        g, b = te.placeholder((1024,), name="g"), te.placeholder((1024,), name="b")
        return [X, g, b], ops.layer_norm(X, g, b)
    if name == "conv2d 3x3":
        return [image, filters], ops.conv2d(image, filters, 1, 1)
    if name == "conv2d 3x3, stride 2":
        return [image, filters], ops.conv2d(image, filters, 2, 1)
    if name == "transpose":
        return [X], te.compute((1024, 512), lambda i, j: X[j, i], name="T")
    raise ValueError(name)
"""
NAMES = (
    "matmul",
    "matmul float16",
    "matmul int8",
    "matmul + bias + gelu",
    "bias + gelu",
    "softmax",
    "layer_norm",
    "conv2d 3x3",
    "conv2d 3x3, stride 2",
    "transpose",
)
FIRST_RESULT = """
import sys, time
start, used = time.perf_counter(), time.thread_time()
import akg_py, numpy as np
exec(GRAPHS)
inputs, output = graph(NAME)
schedule = te.create_schedule(output.op)
kernel = akg_py.build(schedule, [*inputs, output], target="cpu", auto="full")
kernel(*(np.ones(t.shape, t.dtype) for t in inputs))
seconds, used = time.perf_counter() - start, time.thread_time() - used
assert "numba" not in sys.modules
import json
print(json.dumps([seconds, used]))
"""
COMPILE = """
import time, json, akg_py
exec(GRAPHS)

def build(inputs, output):
    schedule = te.create_schedule(output.op)
    start = time.process_time()
    akg_py.build(schedule, [*inputs, output], target="cpu", auto="full")
    return time.process_time() - start

X = holder(16, 16)
build([X], te.compute((16, 16), lambda i, j: X[i, j] + 1.0, name="first"))  # starts LLVM
print(json.dumps({name: build(*graph(name)) for name in NAMES}))
"""


def child(code: str, cache: str, **names: object) -> object:
    """What a fresh process prints that runs `code` with `names` defined."""
    head = "".join(f"{key} = {value!r}\n" for key, value in {"GRAPHS": GRAPHS, **names}.items())
    env = os.environ | {"AKG_PY_CACHE": cache, "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    done = subprocess.run(
        [sys.executable, "-c", head + code], env=env, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def smallest_time(run: Callable[[], object]) -> float:
    """Seconds of a short call: the best of many batches."""
    best = float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        best = min(best, time.perf_counter() - start)
    return best / CALLS


def rested_time(run: Callable[[], object]) -> float:
    """Seconds of a short call after two milliseconds without one: the median."""
    times = []
    for _ in range(RESTED):
        time.sleep(0.002)
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def parallel_loop() -> Callable[[], object]:
    """A bound kernel that hardly does more than to share eight rows out."""
    X = te.placeholder((8, 16), name="X")
    Y = te.compute((8, 16), lambda i, j: X[i, j] + 1.0, name="Y")
    schedule = te.create_schedule(Y.op)
    schedule[Y].parallel(Y.op.axis[0])
    schedule[Y].vectorize(Y.op.axis[1])
    kernel = akg_py.build(schedule, [X, Y], target="cpu", auto=False)
    return kernel.bind(*(np.ones((8, 16), np.float32) for _ in range(2)))


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as cache:
        for name in ("bias + gelu", "matmul", "layer_norm"):
            child(FIRST_RESULT, cache, NAME=name)
            runs = [child(FIRST_RESULT, cache, NAME=name) for _ in range(PROCESSES)]
            wall, used = (min(times) * 1e3 for times in zip(*runs, strict=True))
            yield Figure(f"import to first result, {name} cached", wall, "ms", 150)
            yield Figure("  CPU time of its thread", used, "ms")
    compiled: list[dict[str, float]] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            compiled.append(child(COMPILE, cache, NAMES=NAMES))  # type: ignore[arg-type]
    for name in NAMES:
        least = min(c[name] for c in compiled) * 1e3
        yield Figure(f"build {name}, CPU time", least, "ms", 100)
    A, B = te.placeholder((4, 8), name="A"), te.placeholder((4, 8), name="B")
    C = ops.add(A, B)
    kernel = akg_py.build(te.create_schedule(C.op), [A, B, C], target="cpu", auto="full")
    a, b, c = (np.ones((4, 8), np.float32) for _ in range(3))
    with threads(1):
        yield Figure("kernel(a, b, c)", smallest_time(lambda: kernel(a, b, c)) * 1e6, "us", 6)
        bound = kernel.bind(a, b, c)
        yield Figure("kernel.bind(a, b, c)()", smallest_time(bound) * 1e6, "us", 1)
        yield Figure("  an empty function", smallest_time(lambda: None) * 1e6, "us")
        new = smallest_time(lambda: kernel(a, b)) * 1e6
        yield Figure("c = kernel(a, b), which allocates", new, "us")
    loop = parallel_loop()
    for count, name in ((1, "one thread"), (2, "two threads")):
        with threads(count):
            yield Figure(f"a parallel loop on {name}", smallest_time(loop) * 1e6, "us")
            yield Figure("  after 2 ms of rest, median", rested_time(loop) * 1e6, "us")
