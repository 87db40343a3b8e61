"""Our reference schedules for apache-tvm 0.27: five kernels, as fast as we know to write them.

Products pack B into panels of 32 columns and keep 8 x 32 accumulators; row kernels reduce in lanes
by rfactor; exp and tanh are TVM's polynomials. Numbers of lanes are the best of 16 to 256.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import s_tir, te, topi


def compile_for(processor: str, sch: Any) -> Any:
    """The function of a scheduled kernel; `processor` is LLVM's name."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": processor})
    return tvm.compile(sch.mod, target=target)["main"]


def schedule_of(*args: Any) -> Any:
    return s_tir.Schedule(te.create_prim_func(list(args)))


def matmul(M: int, K: int, N: int, rows: int, columns: int, rows_outside: bool) -> Any:
    """C = A @ B with B packed to [N / columns][K][columns]."""
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = schedule_of(A, B, C)
    block = sch.get_sblock("C")
    pack = sch.cache_read(block, 1, "global")
    sch.transform_layout(block, ("read", 1), lambda k, j: (j // columns, k, j % columns))
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, [None, rows])
    jo, ji = sch.split(j, [None, columns])
    ko, ki = sch.split(k, [None, 4])
    outer = (io, jo) if rows_outside else (jo, io)
    sch.reorder(*outer, ko, ki, ii, ji)
    store = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(store, outer[1])
    sch.parallel(outer[0])
    sch.vectorize(ji)
    sch.unroll(ii)
    sch.unroll(ki)
    sch.vectorize(sch.get_loops(store)[-1])
    init = sch.decompose_reduction(block, ko)
    *_, init_row, init_column = sch.get_loops(init)
    sch.vectorize(init_column)
    sch.unroll(init_row)
    pk, pj = sch.get_loops(pack)
    po, pi = sch.split(pj, [None, columns])
    sch.reorder(po, pk, pi)
    sch.parallel(po)
    sch.vectorize(pi)
    return sch


def _reduce_in_lanes(sch: Any, name: str, row: Any, lanes: int) -> tuple[Any, Any]:
    """The reduction of a row in `lanes` partial results, at `row` of the consumer.

    Returns the partial block and its outer loop, for `_start_in_lanes` when all else is done.
    """
    block = sch.get_sblock(name)
    _, k = sch.get_loops(block)
    _, lane = sch.split(k, [None, lanes])
    part = sch.rfactor(lane, factor_axis=1)
    sch.compute_at(block, row)
    sch.compute_at(part, row)
    _, lane, outer = sch.get_loops(part)
    sch.reorder(outer, lane)
    sch.vectorize(lane)
    return part, outer


def _start_in_lanes(sch: Any, reductions: list[tuple[Any, Any]]) -> None:
    for part, outer in reductions:
        init = sch.decompose_reduction(part, outer)
        sch.vectorize(sch.get_loops(init)[-1])


def _in_lanes(sch: Any, block: Any, lanes: int) -> None:
    loop = sch.get_loops(block)[-1]
    _, lane = sch.split(loop, [None, lanes])
    sch.vectorize(lane)


def softmax(M: int, N: int) -> Any:
    X = te.placeholder((M, N), name="X")
    k, q = te.reduce_axis((0, N), name="k"), te.reduce_axis((0, N), name="q")
    top = te.compute((M,), lambda i: te.max(X[i, k], axis=k), name="top")
    centred = te.compute((M, N), lambda i, j: X[i, j] - top[i], name="centred")
    e = topi.fast_exp(centred)
    total = te.compute((M,), lambda i: te.sum(e[i, q], axis=q), name="total")
    Y = te.compute((M, N), lambda i, j: e[i, j] / total[i], name="Y")
    sch = schedule_of(X, Y)
    row, _ = sch.get_loops(sch.get_sblock("Y"))
    sch.compute_inline(sch.get_sblock("centred"))
    parts = [_reduce_in_lanes(sch, "total", row, 64)]
    exponent = sch.get_sblock(e.op.name)
    sch.compute_at(exponent, row)
    _in_lanes(sch, exponent, 64)
    parts.append(_reduce_in_lanes(sch, "top", row, 64))
    _in_lanes(sch, sch.get_sblock("Y"), 64)
    sch.parallel(row)
    _start_in_lanes(sch, parts)
    return sch


def layer_norm(M: int, N: int, epsilon: float) -> Any:
    """In one pass: sums of x and of x^2 together."""
    X = te.placeholder((M, N), name="X")
    gamma, beta = te.placeholder((N,), name="gamma"), te.placeholder((N,), name="beta")
    k, q = te.reduce_axis((0, N), name="k"), te.reduce_axis((0, N), name="q")
    total = te.compute((M,), lambda i: te.sum(X[i, k], axis=k), name="total")
    squares = te.compute((M,), lambda i: te.sum(X[i, q] * X[i, q], axis=q), name="squares")
    mean = te.compute((M,), lambda i: total[i] / N, name="mean")
    inverse = te.compute(
        (M,),
        lambda i: 1.0 / te.sqrt(squares[i] / N - mean[i] * mean[i] + epsilon),
        name="inverse",
    )
    Y = te.compute(
        (M, N),
        lambda i, j: (X[i, j] - mean[i]) * inverse[i] * gamma[j] + beta[j],
        name="Y",
    )
    sch = schedule_of(X, gamma, beta, Y)
    row, _ = sch.get_loops(sch.get_sblock("Y"))
    for name in ("inverse", "mean"):
        sch.compute_at(sch.get_sblock(name), row)
    parts = [_reduce_in_lanes(sch, name, row, 32) for name in ("squares", "total")]
    _in_lanes(sch, sch.get_sblock("Y"), 32)
    sch.parallel(row)
    _start_in_lanes(sch, parts)
    return sch


def bias_gelu(M: int, N: int, form: str) -> Any:
    """x + bias, then GELU in the tanh form, by `tanh` or by `exp`: x / (1 + exp(-2 y))."""
    X, bias = te.placeholder((M, N), name="X"), te.placeholder((N,), name="bias")
    scale = math.sqrt(2 / math.pi) * (1 if form == "tanh" else -2)
    x = te.compute((M, N), lambda i, j: X[i, j] + bias[j], name="x")
    inner = te.compute(
        (M, N),
        lambda i, j: scale * (x[i, j] + 0.044715 * x[i, j] * x[i, j] * x[i, j]),
        name="inner",
    )
    t = topi.fast_tanh(inner) if form == "tanh" else topi.fast_exp(inner)

    def element(i: Any, j: Any) -> Any:
        if form == "tanh":
            return 0.5 * x[i, j] * (1.0 + t[i, j])
        return x[i, j] / (1.0 + t[i, j])

    Y = te.compute((M, N), element, name="Y")
    sch = schedule_of(X, bias, Y)
    for name in ("x", "inner", t.op.name):
        sch.compute_inline(sch.get_sblock(name))
    row, _ = sch.get_loops(sch.get_sblock("Y"))
    _in_lanes(sch, sch.get_sblock("Y"), 64)
    sch.parallel(row)
    return sch
