"""tensorize: the loops it takes must compute what the intrinsic declares; the listing names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akg_py import te
from akg_py.errors import ScheduleError
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Intrinsic, walk_stmts
from akg_py.lowering import lower_schedule


def declare_add(n: int = 16, swap: bool = False, factor: float = 1.0) -> te.TensorIntrin:
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    z = te.compute(
        (n,),
        lambda i: y[i] + x[i] if swap else x[i] + y[i] * factor if factor != 1 else x[i] + y[i],
    )
    return te.decl_tensor_intrin(z.op, name=f"add{n}")


def vector_add(n: int) -> tuple[te.Schedule, list[te.Tensor]]:
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    return te.create_schedule(C.op), [A, B, C]


def run(s: te.Schedule, args: list[te.Tensor]) -> Any:
    func = lower_schedule(s, args)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, t.shape).astype(t.dtype) for t in args]
    interpret(func, *arrays)
    expected = te.evaluate(args[-1], dict(zip(args[:-1], arrays[:-1], strict=True)))
    assert (arrays[-1] == expected).all()
    return func


def test_vector_add() -> None:  # B156
    s, args = vector_add(128)
    _, xi = s["C"].split("i", 16)
    s["C"].tensorize(xi, declare_add())
    found = [x for x in walk_stmts(run(s, args).body) if isinstance(x, Intrinsic)]
    assert [x.name for x in found] == ["add16"]
    assert "intrinsic add16:" in str(lower_schedule(s, args))


def matmul_intrin(m: int, n: int, k: int) -> te.TensorIntrin:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))
    return te.decl_tensor_intrin(c.op, name=f"mm{m}x{n}x{k}", instruction="MMAD")


def matmul(M: int, N: int, K: int) -> tuple[te.Schedule, list[te.Tensor]]:
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_schedule(C.op), [A, B, C]


def test_matrix_product_after_reorder() -> None:
    s, args = matmul(8, 12, 10)
    stage = s["C"]
    xo, yo, xi, yi = stage.tile("i", "j", 4, 4)
    ko, ki = stage.split("k", 5)
    stage.reorder(xo, yo, ko, xi, yi, ki)
    stage.tensorize(xi, matmul_intrin(4, 4, 5))
    run(s, args)


def test_extent_one_is_no_obstacle() -> None:
    s, args = matmul(8, 1, 10)
    stage = s["C"]
    _xo, xi = stage.split("i", 4)
    stage.tensorize(xi, matmul_intrin(4, 1, 10))
    run(s, args)


def fails(s: te.Schedule, args: list[te.Tensor], text: str) -> None:
    with pytest.raises(ScheduleError, match=text) as caught:
        lower_schedule(s, args)
    assert caught.value.hint
    assert getattr(caught.value.where, "file", "") == __file__


def test_other_body() -> None:  # B157
    s, args = vector_add(32)
    _, xi = s["C"].split("i", 16)
    s["C"].tensorize(xi, declare_add(factor=2.0))
    fails(s, args, "it computes")


def test_other_extent() -> None:  # B158
    s, args = vector_add(32)
    _, xi = s["C"].split("i", 8)
    s["C"].tensorize(xi, declare_add())
    fails(s, args, "the loops are")


def test_tail() -> None:  # B161
    s, args = vector_add(129)
    _, xi = s["C"].split("i", 16)
    s["C"].tensorize(xi, declare_add())
    fails(s, args, "has a tail")


def test_commuted_operands_fail_or_match_never_skip() -> None:  # B163
    s, args = vector_add(32)
    _, xi = s["C"].split("i", 16)
    intrin = declare_add(swap=True)
    s["C"].tensorize(xi, intrin)
    func = run(s, args)  # x and y of the declaration bind to either input
    assert [x.name for x in walk_stmts(func.body) if isinstance(x, Intrinsic)] == [intrin.name]


def test_transposed_operand() -> None:
    A, B = te.placeholder((8, 10), name="A"), te.placeholder((12, 10), name="B")
    k = te.reduce_axis((0, 10), name="k")
    C = te.compute((8, 12), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    _xo, _yo, xi, _yi = s[C].tile("i", "j", 4, 4)
    s[C].tensorize(xi, matmul_intrin(4, 4, 10))
    fails(s, [A, B, C], "it computes")


def test_strided_access_is_no_match() -> None:
    A = te.placeholder((64,), name="A")
    B = te.placeholder((32,), name="B")
    C = te.compute((32,), lambda i: A[i * 2] + B[i], name="C")
    s = te.create_schedule(C.op)
    _, xi = s[C].split("i", 16)
    s[C].tensorize(xi, declare_add())
    fails(s, [A, B, C], "it computes")


def test_two_stages_with_one_tensor_in_both_roles() -> None:
    A = te.placeholder((32,), name="A")
    C = te.compute((32,), lambda i: A[i] + A[31 - i], name="C")
    s = te.create_schedule(C.op)
    _, xi = s[C].split("i", 16)
    s[C].tensorize(xi, declare_add())
    fails(s, [A, C], "it computes")


def test_where_init_and_other_dtypes_do_not_match() -> None:
    for change in ("where", "init", "dtype"):
        dtype = "float16" if change == "dtype" else "float32"
        A, B = te.placeholder((8, 10), dtype, name="A"), te.placeholder((10, 12), dtype, name="B")
        k = te.reduce_axis((0, 10), name="k")
        options: dict[str, Any] = {"where": {"where": k > 2}, "init": {"init": 1.0}, "dtype": {}}[
            change
        ]
        C = te.compute((8, 12), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k, **options), name="C")  # noqa: B023
        D = te.compute((8, 12), lambda i, j: C[i, j] * 2, name="D")  # noqa: B023
        s = te.create_schedule(D.op)
        _xo, _yo, xi, _yi = s[C].tile("i", "j", 4, 4)
        s[C].tensorize(xi, matmul_intrin(4, 4, 10))
        fails(s, [A, B, D], "it computes")


def test_the_reduction_axis_must_be_inside() -> None:
    s, args = matmul(8, 12, 10)
    stage = s["C"]
    xo, yo, xi, yi = stage.tile("i", "j", 4, 4)
    stage.reorder("k", xo, yo, xi, yi)
    stage.tensorize(xi, matmul_intrin(4, 4, 10))
    fails(s, args, "the loops are")


def test_trace_refers_to_the_intrinsic_by_name() -> None:
    s, args = vector_add(32)
    _, xi = s["C"].split("i", 16)
    s["C"].tensorize(xi, declare_add())
    assert str(s.trace).endswith('s["C"].tensorize("i.inner", "add16")')
    again, args = vector_add(32)
    again.apply(te.Trace.parse(str(s.trace)))
    run(again, args)


def test_double_buffered_and_tensorized() -> None:  # B106
    s, args = vector_add(64)
    copy = s.cache_read(args[0], "UB", ["C"])
    io, _ii = s["C"].split("i", 16)
    s[copy].compute_at(s["C"], io)
    s[copy].double_buffer()
    x = te.placeholder((16,), name="x")
    s[copy].tensorize(
        "ax0", te.decl_tensor_intrin(te.compute((16,), lambda i: x[i]).op, name="copy16")
    )
    text = str(run(s, args))
    assert "in UB x 2" in text and "intrinsic copy16" in text
