"""Loop nests as users read them: golden listings of a few schedules."""

from __future__ import annotations

from collections.abc import Callable

from akg_py import te
from akg_py.lowering import lower_schedule
from tests.random_schedules import matmul, matmul_bias_relu, padded_conv

Golden = Callable[[str, str], None]


def test_matmul_untouched(golden: Golden) -> None:
    g = matmul("float32", 128, 256, 64)
    golden("matmul.txt", str(lower_schedule(te.create_schedule(g.outputs[0].op), g.args, "matmul")))


def test_matmul_tiled_and_staged(golden: Golden) -> None:
    g = matmul("float16", 100, 256, 64)
    C = g.outputs[0]
    s = te.create_schedule(C.op)
    xo, yo, _xi, yi = s[C].tile("i", "j", 32, 64)
    cache = s.cache_write(C, "L0C")
    s[cache].compute_at(s[C], yo)
    ko, ki = s[cache].split("k", 16)
    s[cache].reorder(ko, *s[cache].op.axis, ki)
    for tensor in g.inputs:
        copy = s.cache_read(tensor, "L1", [cache])
        s[copy].compute_at(s[cache], ko)
        s[copy].double_buffer()
    s[C].bind(xo, te.thread_axis("blockIdx.x"))
    s[C].vectorize(yi)
    text = f"{s}\n\n{lower_schedule(s, g.args, 'matmul')}"
    golden("matmul_staged.txt", text)


def test_fused_epilogue(golden: Golden) -> None:
    g = matmul_bias_relu()
    E = g.outputs[0]
    s = te.create_schedule(E.op)
    s["D"].compute_inline()
    xo, _xi = s[E].split("i", 4)
    s["C"].compute_at(s[E], xo)
    s["C"].reorder("k", "i", "j")
    golden("matmul_bias_relu.txt", str(lower_schedule(s, g.args)))


def test_padded_convolution(golden: Golden) -> None:
    g = padded_conv()
    D = g.outputs[0]
    s = te.create_schedule(D.op)
    oo, oi = s[D].split("o", 4)
    s[D].reorder(oo, "f", oi)
    s["C"].compute_at(s[D], oo)
    s["P"].compute_at(s[D], oo)
    golden("padded_conv.txt", str(lower_schedule(s, g.args)))


def test_rfactor_of_an_uneven_split(golden: Golden) -> None:
    A = te.placeholder((4, 129), name="A")
    k = te.reduce_axis((0, 129), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(k, 8)
    rf = s.rfactor(B, ki)
    s[rf].compute_at(s[B], s[B].op.axis[0])
    golden("rfactor.txt", str(lower_schedule(s, [A, B])))


def test_fused_loops(golden: Golden) -> None:
    A = te.placeholder((10, 7), name="A")
    B = te.compute((10, 7), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((10, 6), lambda i, j: B[i, j] + B[i, j + 1], name="C")
    s = te.create_schedule(C.op)
    fused = s[C].fuse(*C.op.axis)
    outer, _inner = s[C].split(fused, 16)
    s[B].compute_at(s[C], outer)
    golden("fused.txt", str(lower_schedule(s, [A, C])))
