"""Five kernels beside apache-tvm 0.27 under our own best schedules for it (`tvm_kernels`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.elementwise import numpy_gelu
from tests.benchmarks.cpu.harness import ONE_THREAD, Array, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.matmul import label_of
from tests.benchmarks.cpu.rows import expected

os.environ["TVM_NUM_THREADS"] = str(os.cpu_count() or 1)  # the most that can be set later
try:
    import tvm

    from tests.benchmarks.cpu import tvm_kernels
except ImportError:
    tvm = tvm_kernels = None  # type: ignore[assignment]

TITLE = "five kernels beside apache-tvm 0.27"
BARS = (
    Bar("tvm", 1.0, groups=("matmul",)),
    Bar("tvm", 1.05, groups=("rows",)),
    Bar("tvm", 1.0, groups=("matmul",), threads=2),
    Bar("tvm", 1.05, groups=("rows",), threads=2),
    Bar(ONE_THREAD, 1.75, groups=("matmul",), threads=2, least_ms=1.0),
    Bar(ONE_THREAD, 1.3, groups=("rows",), threads=2, least_ms=1.0),
)
PROFILE = """
Both sides run products at 93 to 98 % of the multiply-add ceiling (`cpu_ceilings.md`), and the best
of tvm's four schedules counts: 512 x 512 x 512 is between 0 and 4 % faster here in different
runs on one thread, between 5 % slower and 2 % faster on two, which take 1.93 to 2.0 times less
time than one; 1024 x 512 x 2048 is between 2 % slower and 3 % faster.

layer_norm reads and writes 32 MB, which just fit the last cache of this machine: tvm's stores
leave them there for its next run, ours go around it so that others find room. On two threads that
is 0.94 to 2.2 of its speed in different runs, on one thread 1.2 and more. x + 1 on arrays of 34 MB
in all, with stores around the cache over plain ones, by medians, on one thread and two: 0.76 and
1.01 when run again and again, 0.60 and 0.71 after others used the cache, 1.02 and 1.38 when a
kernel that reads the output runs in between, 0.79 and 0.93 for that pair after others used the
cache. With 24 MB, from which on our stores go around: 0.86 and 1.42, 0.61 and 0.72, 1.18 and 2.11,
0.82 and 0.98; with 16 MB: 1.26 and 2.01, 0.62 and 0.72, 1.60 and 2.91, 0.85 and 0.99.

bias_gelu on one thread is bound by arithmetic, 0.29 ns an element: 1.18 and more of the speed of
tvm's, whose exponential is rougher, but 0.91 in runs where the memory is slow.
"""
SHAPES = [(512, 512, 512), (1024, 512, 2048)]
TILES = [(8, 32, True), (8, 32, False), (16, 16, False), (4, 64, True)]
EPSILON = 1e-5
Kinds = list[tuple[str, Callable[[], Any]]]


def from_tvm(kinds: Kinds, arrays: list[Array], result: Array) -> list[Candidate]:
    """A candidate per kind of schedule, on tvm's own copies of the arrays; none without tvm."""
    if tvm is None:
        return []
    found = []
    for kind, schedule in kinds:
        function = tvm_kernels.compile_for(llvm.get_host_cpu_name(), schedule())
        tensors = [tvm.runtime.tensor(a) for a in (*arrays, result)]
        run = lambda function=function, tensors=tensors: function(*tensors)  # noqa: E731
        found.append(Candidate(f"tvm: {kind}", run, [np.from_dlpack(tensors[-1])]))
    return found


def matmul(shape: tuple[int, int, int]) -> Case:
    M, K, N = shape
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(t.shape, np.float32) for t in (A, B))
    kinds: Kinds = [
        (
            f"{rows}x{columns} {'rows' if outside else 'columns'}",
            lambda rows=rows, columns=columns, outside=outside: tvm_kernels.matmul(
                M, K, N, rows, columns, outside
            ),
        )
        for rows, columns, outside in TILES
    ]
    d = np.empty((M, N), np.float32)
    return Case(
        f"matmul {label_of(shape)}",
        [
            ours([A, B], [ops.matmul(A, B)], [a, b]),
            *from_tvm(kinds, [a, b], np.empty_like(d)),
            Candidate("numpy", lambda: np.matmul(a, b, out=d), [d]),
        ],
        [np.matmul(a, b)],
        rtol=0.0,
        atol=2e-6 * K,
        group="matmul",
        work=2e-9 * M * K * N,
        unit="GF/s",
    )


def row_kernel(name: str, M: int, N: int) -> Case:
    X = te.placeholder((M, N), name="X")
    gamma, beta = te.placeholder((N,), name="gamma"), te.placeholder((N,), name="beta")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((M, N), np.float32)
    g, b = (rng.standard_normal(N, np.float32) for _ in range(2))
    if name == "softmax":
        inputs, Y, arrays = [X], ops.softmax(X), [x]
        kinds: Kinds = [("fast exp", lambda: tvm_kernels.softmax(M, N))]
        want = expected("softmax", x, g, b)
    elif name == "layer_norm":
        inputs, Y = [X, gamma, beta], ops.layer_norm(X, gamma, beta, EPSILON)
        arrays = [x, g, b]
        kinds = [("rfactor", lambda: tvm_kernels.layer_norm(M, N, EPSILON))]
        want = expected("layer_norm", x, g, b)
    else:
        inputs, Y, arrays = [X, beta], ops.gelu(ops.bias_add(X, beta)), [x, b]
        kinds = [
            (f"fast {form}", lambda form=form: tvm_kernels.bias_gelu(M, N, form))
            for form in ("exp", "tanh")
        ]
        want = np.empty_like(x)
        numpy_gelu("tanh", x + b, np.empty_like(x), want)
    return Case(
        f"{name} {M}x{N}",
        [ours(inputs, [Y], arrays), *from_tvm(kinds, arrays, np.empty_like(x))],
        [want],
        atol=1e-5,
        group="rows",
        work=2e-9 * x.nbytes,
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for shape in SHAPES:
        yield f"matmul {label_of(shape)}", lambda shape=shape: matmul(shape)
    yield "softmax 4096x1024", lambda: row_kernel("softmax", 4096, 1024)
    yield "layer_norm 4096x1024", lambda: row_kernel("layer_norm", 4096, 1024)
    yield "bias_gelu 4096x4096", lambda: row_kernel("bias_gelu", 4096, 4096)
