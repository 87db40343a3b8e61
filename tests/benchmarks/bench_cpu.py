"""Speed of compiled kernels beside numpy, as ratios within one run.

    python tests/benchmarks/bench_cpu.py [--threads N]

Both sides of a row run in turn; the smallest time of each counts. numpy uses the threads its BLAS
was given (set OPENBLAS_NUM_THREADS=1 for one).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from akg_py import te
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.threads import threads
from akg_py.lowering import lower_schedule

Case = tuple[str, Callable[[], Any], Callable[[], Any], float]


def matmul(M: int, N: int, K: int, tile_m: int, tile_n: int, dtype: str = "float32") -> Case:
    A = te.placeholder((M, K), dtype, name="A")
    B = te.placeholder((K, N), dtype, name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    outer_i, outer_j, inner_i, inner_j = s[C].tile(*C.op.axis, tile_m, tile_n)
    s[C].reorder(outer_i, outer_j, k, inner_i, inner_j)
    s[C].vectorize(inner_j)
    s[C].parallel(outer_i)
    kernel = CpuKernel(lower_schedule(s, [A, B, C], "matmul"))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)
    c, d = np.empty((M, N), dtype), np.empty((M, N), dtype)
    run, plain = kernel.bind(a, b, c), lambda: np.matmul(a, b, out=d)
    run(), plain()
    np.testing.assert_allclose(c, d, rtol=1e-3, atol=1e-3)
    return f"matmul {M}x{N}x{K} {dtype}, tile {tile_m}x{tile_n}", run, plain, 2e-9 * M * N * K


def gelu(M: int, N: int, form: str) -> Case:
    A, bias = te.placeholder((M, N), name="A"), te.placeholder((N,), name="bias")
    x = te.compute((M, N), lambda i, j: A[i, j] + bias[j], name="x")
    if form == "tanh":
        inner = lambda v: te.tanh(0.7978845608 * (v + 0.044715 * v * v * v))  # noqa: E731
    else:
        inner = lambda v: te.erf(v * 0.70710678)  # noqa: E731
    C = te.compute((M, N), lambda i, j: x[i, j] * 0.5 * (1.0 + inner(x[i, j])), name="C")
    s = te.create_schedule(C.op)
    s[x].compute_inline()
    s[C].vectorize(C.op.axis[1])
    s[C].parallel(C.op.axis[0])
    kernel = CpuKernel(lower_schedule(s, [A, bias, C], "gelu"))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, N)).astype(np.float32), rng.standard_normal(N).astype(np.float32)
    c, d, t = np.empty_like(a), np.empty_like(a), np.empty_like(a)

    def plain() -> None:
        np.add(a, b, out=d)
        if form == "tanh":
            np.multiply(d, d, out=t)
            np.multiply(t, d, out=t)
            np.multiply(t, np.float32(0.044715), out=t)
            np.add(t, d, out=t)
            np.multiply(t, np.float32(0.7978845608), out=t)
            np.tanh(t, out=t)
        else:
            np.multiply(d, np.float32(0.70710678), out=t)
            np.copyto(t, d)  # numpy has no erf: a copy stands for it
        np.add(t, np.float32(1), out=t)
        np.multiply(d, np.float32(0.5), out=d)
        np.multiply(d, t, out=d)

    return f"bias + gelu ({form}) {M}x{N}", kernel.bind(a, b, c), plain, 8e-9 * M * N


def softmax(M: int, N: int) -> Case:
    A = te.placeholder((M, N), name="A")
    k, l = te.reduce_axis((0, N), name="k"), te.reduce_axis((0, N), name="l")  # noqa: E741
    top = te.compute((M,), lambda i: te.max(A[i, k], axis=k), name="top")
    e = te.compute((M, N), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((M,), lambda i: te.sum(e[i, l], axis=l), name="total")
    C = te.compute((M, N), lambda i, j: e[i, j] / total[i], name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    for stage in (top, e, total):
        s[stage].compute_at(s[C], i)
    s[C].vectorize(j)
    s[C].parallel(i)
    kernel = CpuKernel(lower_schedule(s, [A, C], "softmax"))
    a = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32)
    c, d = np.empty_like(a), np.empty_like(a)

    def plain() -> None:
        np.subtract(a, a.max(1, keepdims=True), out=d)
        np.exp(d, out=d)
        np.divide(d, d.sum(1, keepdims=True), out=d)

    run = kernel.bind(a, c)
    run(), plain()
    np.testing.assert_allclose(c, d, rtol=1e-5, atol=1e-7)
    return f"softmax {M}x{N}", run, plain, 8e-9 * M * N


def measure(case: Case, rounds: int) -> str:
    name, ours, theirs, work = case
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for n, run in enumerate((ours, theirs)):
            start = time.perf_counter()
            run()
            best[n] = min(best[n], time.perf_counter() - start)
    unit = "GF/s" if "matmul" in name else "GB/s"
    rate, ratio = work / best[0], best[1] / best[0]
    return f"{name:48} {best[0] * 1e3:9.3f} ms {rate:8.1f} {unit}   {ratio:6.2f} x numpy"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with threads(given.threads):
        for make in (
            lambda: matmul(512, 512, 512, 6, 64),
            lambda: matmul(1000, 500, 2049, 8, 48),
            lambda: matmul(256, 256, 256, 6, 64),
            lambda: gelu(4096, 4096, "tanh"),
            lambda: gelu(4096, 4096, "erf"),
            lambda: softmax(4096, 1024),
        ):
            print(measure(make(), given.rounds), flush=True)


if __name__ == "__main__":
    main()
