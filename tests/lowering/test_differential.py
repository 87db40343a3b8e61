"""Schedules that users write: lowered and interpreted, bit for bit what the language says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from akg_py import te
from akg_py.errors import ScheduleError
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import If, walk_stmts
from akg_py.lowering import lower_schedule
from tests.comparison import assert_exact
from tests.lowering.differential import Chain, Matmul, buffers, check, diamond, loops

# ---------------------------------------------------------------- loops


@pytest.mark.parametrize(("n", "size"), [(129, 16), (8, 32), (96, 48), (1, 4), (7, 7), (10, 1)])
@pytest.mark.parametrize("by", ["factor", "nparts"])
def test_split_with_a_tail(n: int, size: int, by: str) -> None:  # B062 to B065
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(B.op.axis[0], **{by: size})
    if by == "factor":
        assert (outer.extent, inner.extent) == (-(-n // min(size, n)), min(size, n))
    else:
        assert (outer.extent, inner.extent) == (min(size, n), -(-n // min(size, n)))
    check(s, [A], [B])


@pytest.mark.parametrize("shape", [(7, 8), (3, 5, 8), (5, 3)])
def test_the_tail_of_a_fused_axis_is_guarded_once(shape: tuple[int, ...]) -> None:
    """By the extent of the loop over it, with no condition inside."""
    A = te.placeholder(shape, name="A")
    B = te.compute(shape, lambda *i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(s[B].fuse(*B.op.axis), factor=16 if shape != (5, 3) else 4)
    assert outer.extent * inner.extent != np.prod(shape)
    func = check(s, [A], [B])
    assert not any(isinstance(x, If) for x in walk_stmts(func.body))


@pytest.mark.parametrize("factors", [(5, 3, 2), (8, 2), (3, 7), (2, 2, 2)])
def test_nested_splits(factors: Sequence[int]) -> None:
    for take_inner in (True, False):
        m = Matmul()
        for axis in (m.i, m.j, m.k):
            for f in factors:
                outer, inner = m.stage.split(axis, f)
                axis = inner if take_inner else outer
        m.check()


def test_tile_reorder_annotate() -> None:
    m = Matmul()
    xo, yo, xi, yi = m.stage.tile(m.i, m.j, 4, 3)
    ko, ki = m.stage.split(m.k, 3)
    m.stage.reorder(xo, yo, ko, xi, ki, yi)
    m.stage.vectorize(yi)
    m.stage.parallel(xo)
    m.stage.unroll(ki)
    assert [st.primitive for st in m.s.trace] == [
        "split",
        "split",
        "reorder",
        "split",
        "reorder",
        "vectorize",
        "parallel",
        "unroll",
    ]
    kinds = {f.var.name: f.kind for f in loops(m.check())}
    assert (
        kinds["j.inner"] == "vector"
        and kinds["i.outer"] == "parallel"
        and kinds["k.inner"] == "unroll"
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_order_of_loops(order: Sequence[int]) -> None:  # B087
    m = Matmul()
    axes = (m.i, m.j, m.k)
    m.stage.reorder(*(axes[n] for n in order))
    m.check()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::3])
def test_orders_of_split_loops(order: Sequence[int]) -> None:
    m = Matmul()
    parts = [*m.stage.split(m.i, 4), *m.stage.split(m.k, 3)]
    m.stage.reorder(*(parts[n] for n in order))
    m.check()


def test_fuse_uneven_and_split() -> None:  # B081, B082
    for factor in (1, 4, 7, 11, 90, 200):
        m = Matmul()
        f = m.stage.fuse(m.i, m.j)
        assert f.extent == 90 and f.name == "i.j.fused"
        m.stage.split(f, factor)
        m.check()


def test_fuse_of_tails() -> None:
    m = Matmul()
    xo, yo, xi, yi = m.stage.tile(m.i, m.j, 4, 4)
    f = m.stage.fuse(xo, yo)
    g = m.stage.fuse(xi, yi)
    assert m.stage.leaf_iter_vars == (f, g, m.k)
    assert f.name == "i.outer.j.outer.fused"  # B074
    m.stage.vectorize(g)
    m.check()


def test_fuse_data_with_reduce() -> None:  # B079
    m = Matmul()
    f = m.stage.fuse(m.j, m.k)
    assert f.is_reduce
    m.check()
    m.stage.split(f, 9)
    m.check()
    t = Matmul()
    jo, ji = t.stage.split(t.j, 4)
    ko, ki = t.stage.split(t.k, 3)
    t.stage.reorder(jo, ko, ki, ji)
    mixed = t.stage.fuse(ki, ji)
    t.stage.fuse(ko, mixed)
    t.check()


def test_fuse_nothing() -> None:  # B078
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A() + 1.0, name="B")
    s = te.create_schedule(B.op)
    single = s[B].fuse()
    assert single.extent == 1 and s[B].leaf_iter_vars == (single,)
    check(s, [A], [B])


def test_fuse_after_reorder() -> None:  # B075, B076
    m = Matmul()
    xo, xi = m.stage.split(m.i, 4)
    with pytest.raises(ScheduleError, match="neighbouring"):
        m.stage.fuse(xo, m.j)
    m.stage.reorder(m.j, xo, xi)
    m.stage.fuse(m.j, xo)
    m.check()


def test_reorder_of_some() -> None:  # B085
    m = Matmul()
    m.stage.reorder(m.k, m.i)
    assert m.stage.leaf_iter_vars == (m.k, m.j, m.i)
    m.check()


def test_one_element_and_zero_extents() -> None:
    Matmul(1, 1, 1).check()
    for shape in ((0, 4, 3), (4, 0, 3), (4, 3, 0)):
        m = Matmul(*shape)
        m.check()
        m.stage.tile(m.i, m.j, 2, 2)
        _ko, _ki = m.stage.split(m.k, 2)
        cache = m.s.cache_write(m.C, "local")
        m.s[cache].compute_at(m.stage, m.stage.leaf_iter_vars[1])
        m.s.cache_read(m.A, "UB", [cache])
        m.check()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "int32", "float64"])
def test_dtypes(dtype: str) -> None:
    m = Matmul(5, 6, 7, dtype)
    m.stage.tile(m.i, m.j, 2, 4)
    m.stage.split(m.k, 3)
    m.check()


# ---------------------------------------------------------------- caches


@pytest.mark.parametrize("order", list(itertools.permutations(("A", "B", "C", "L1"))))
def test_caches_in_any_order(order: Sequence[str]) -> None:  # B134, B140
    m = Matmul(9, 10, 7)
    m.stage.tile(m.i, m.j, 4, 3)
    made: dict[str, Any] = {}
    for what in order:
        reader = made.get("C", m.C)
        if what == "C":
            made["C"] = m.s.cache_write(m.C, "L0C")
        elif what == "L1":
            made["L1"] = m.s.cache_read(m.A, "L1", [made.get("A", reader)])
        else:
            tensor = m.A if what == "A" else m.B
            source = made["L1"] if what == "A" and "L1" in made else tensor
            made[what] = m.s.cache_read(source, "UB", [reader])
    m.check()
    cache = m.s[made["C"]]
    cache.compute_at(m.stage, m.stage.leaf_iter_vars[1])
    ko, ki = cache.split(cache.op.reduce_axis[0], 3)
    cache.reorder(ko, *cache.op.axis, ki)
    m.s[made["B"]].compute_at(cache, ko)
    m.s[made["B"]].double_buffer()
    m.check()


def test_cache_write_after_scheduling() -> None:  # B135 to B137
    m = Matmul()
    xo, yo, xi, yi = m.stage.tile(m.i, m.j, 4, 3)
    ko, ki = m.stage.split(m.k, 3)
    m.stage.reorder(xo, yo, ko, xi, yi, ki)
    cache = m.s.cache_write(m.C, "local")
    assert m.stage.leaf_iter_vars == (xo, yo, xi, yi) and not m.stage.op.reduce_axis
    assert [a.name for a in m.s[cache].leaf_iter_vars] == ["k.outer", "i.c", "j.c", "k.inner"]
    m.check()
    m.s[cache].compute_at(m.stage, yo)
    assert buffers(m.check())["C.local"].shape == (4, 3)


def test_cache_write_of_a_tuple() -> None:  # B124
    A = te.placeholder((6, 5), name="A")
    B = te.compute((6, 5), lambda i, j: A[i, j] + 1.0, name="B")
    S, T = te.compute((6, 5), lambda i, j: (B[i, j] * 2.0, B[i, j] * 3.0), name="T")
    s = te.create_schedule(T.op)
    caches = s.cache_write([S, T], "local")
    s[B].compute_inline()
    s[caches[0]].compute_at(s[T], T.op.axis[0])
    check(s, [A], [S, T])


def test_cache_read_for_one_of_two_readers() -> None:  # B133
    A, B, _L, R, D = diamond()
    s = te.create_schedule(D.op)
    copy = s.cache_read(B, "UB", [R])
    s[copy].compute_at(s[R], R.op.axis[0])
    assert buffers(check(s, [A], [D]))["B.UB"].shape == (1, 7)
    with pytest.raises(ScheduleError, match="doesn't read it"):
        s.cache_read(A, "UB", [D])


# ---------------------------------------------------------------- rfactor


@pytest.mark.parametrize("n", [129, 128, 7, 1])
def test_nested_rfactor(n: int) -> None:  # B142, B143, B148
    A = te.placeholder((3, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    B = te.compute((3,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(k, factor=8)
    first = s.rfactor(B, ki, factor_axis=1)
    assert first.shape == (3, ki.extent)
    check(s, [A], [B])
    inner = s[first].op.reduce_axis[0]
    ko2, _ki2 = s[first].split(inner, factor=2)
    second = s.rfactor(first, ko2)
    assert second.shape[0] == ko2.extent
    check(s, [A], [B])
    s[second].compute_at(s[first], s[first].op.axis[0])
    s[first].compute_at(s[B], s[B].op.axis[0])
    check(s, [A], [B])


@pytest.mark.parametrize("factor_axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("reduce", [te.sum, te.max, te.min, te.prod])
def test_rfactor_positions(factor_axis: int, reduce: Any) -> None:  # B144
    A = te.placeholder((3, 4, 10), "int32", name="A")
    k = te.reduce_axis((0, 10), name="k")
    B = te.compute((3, 4), lambda i, j: reduce(A[i, j, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, _ = s[B].split(k, nparts=3)
    rf = s.rfactor(B, ko, factor_axis)
    assert rf.shape[factor_axis] == 3
    check(s, [A], [B])


def test_rfactor_with_init_where_and_a_beginning() -> None:  # B146, where= of a factored axis
    A, Q = te.placeholder((3, 12), name="A"), te.placeholder((3,), name="I")
    k = te.reduce_axis((2, 12), name="k")
    B = te.compute((3,), lambda i: te.sum(A[i, k], axis=k, init=Q[i], where=k % 3 != i), name="B")
    for factor in (1, 3, 4, 20):
        s = te.create_schedule(B.op)
        ko, ki = s[B].split(k, factor=factor)
        s.rfactor(B, ki if factor == 4 else ko)
        check(s, [A, Q], [B])
    s = te.create_schedule(B.op)
    s.rfactor(B, k)
    check(s, [A, Q], [B])


def argmax(n: int = 13) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor, Any]:
    A = te.placeholder((4, n), name="A")
    V = te.compute((4, n), lambda i, j: A[i, j] * A[i, j], name="V")
    k = te.reduce_axis((0, n), name="k")

    def combine(x: Any, y: Any) -> Any:
        first = te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0]))
        return te.Select(first, x[0], y[0]), te.Select(first, x[1], y[1])

    best = te.comm_reducer(combine, lambda i, v: (te.const(99, i), te.min_value(v)), name="argmax")
    index, top = te.compute((4,), lambda i: best((k, V[i, k]), axis=k), name="best")
    return A, V, index, top, k


def test_argmax() -> None:  # B050
    for place in ("root", "inline", "at", "rfactor", "cache"):
        A, V, index, top, k = argmax()
        s = te.create_schedule(index.op)
        if place == "inline":
            s[V].compute_inline()
        elif place == "at":
            s[V].compute_at(s[index], k)
        elif place == "rfactor":
            ko, _ = s[index].split(k, factor=5)
            s.rfactor(index, ko)
        elif place == "cache":
            caches = s.cache_write([index, top], "local")
            s[caches[0]].compute_at(s[index], index.op.axis[0])
        check(s, [A], [index, top])


# ---------------------------------------------------------------- others


def test_init_and_where() -> None:
    A, Q = te.placeholder((5, 8), name="A"), te.placeholder((5,), name="I")
    k = te.reduce_axis((0, 10), name="k")
    B = te.compute(
        (5,),
        lambda i: te.sum(A[i, k - 1], axis=k, where=te.all(k >= 1, k < 9), init=Q[i] * 2.0),
        name="B",
    )
    s = te.create_schedule(B.op)
    i, ii = s[B].split(B.op.axis[0], 2)
    ko, ki = s[B].split(k, 4)
    s[B].reorder(ko, i, ki, ii)
    check(s, [A, Q], [B])


def test_double_buffer_and_pipeline_keep_values() -> None:  # B104
    m = Matmul(8, 8, 25)
    cache = m.s.cache_write(m.C, "L0C")
    ko, _ki = m.s[cache].split(m.s[cache].op.reduce_axis[0], 1)
    m.s[cache].reorder(ko, *m.s[cache].op.axis)
    a = m.s.cache_read(m.A, "L1", [cache])
    b = m.s.cache_read(m.B, "L1", [cache])
    m.s[a].compute_at(m.s[cache], ko)
    m.s[b].compute_at(m.s[cache], ko)
    m.s[a].double_buffer()
    found = buffers(m.check())
    assert (found["A.L1"].copies, found["B.L1"].copies) == (2, 1)
    m.s[cache].pipeline(ko, 3)
    found = buffers(m.check())
    assert (found["A.L1"].copies, found["B.L1"].copies) == (3, 3)


def test_storage_align_is_carried() -> None:  # B107
    chain = Chain((9, 130), (9, 130), lambda B, i, j: B[i, j])
    s = chain.schedule()
    s[chain.B].storage_align(chain.B.op.axis[0], 32, 8)
    assert buffers(chain.check(s))["B"].align == (0, 32, 8)


def test_several_outputs_that_read_each_other() -> None:
    A = te.placeholder((6,), name="A")
    B = te.compute((6,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((6,), lambda i: B[5 - i] * 2.0, name="C")
    s = te.create_schedule([B.op, C.op])
    s[C].split(C.op.axis[0], 4)
    check(s, [A], [B, C])
    with pytest.raises(ScheduleError, match="output stays at the root"):
        s[B].compute_at(s[C], "i.outer")


def test_index_from_data() -> None:
    A, Q = te.placeholder((7, 3), name="A"), te.placeholder((4,), "int32", name="I")
    B = te.compute((7, 3), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((4, 3), lambda i, j: B[te.maximum(Q[i], 0), j], name="C")
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[1])
    assert buffers(check(s, [A, Q], [C]))["B"].shape == (7, 1)


def test_indices_as_values_are_int32() -> None:
    A = te.placeholder((5,), "int32", name="A")
    B = te.compute((5,), lambda i: (A[i] + i * 3) // 2 + te.maximum(i, 2) % 2, name="B")
    func = lower_schedule(te.create_schedule(B.op), [A, B])
    a, got = np.full(5, 2**31 - 2, "int32"), np.zeros(5, "int32")
    interpret(func, a, got)
    assert_exact(got, te.evaluate(B, [a]))
    assert got[0] > 0 > got[1]


def test_signed_zeros_and_nan_agree() -> None:
    A = te.placeholder((3, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    a = np.array([[-0.0] * 4, [np.nan, 1, 2, 3], [np.inf, -np.inf, 0, 1]], "float32")
    for reduce in (te.sum, te.prod, te.max, te.min):
        B = te.compute((3,), lambda i: reduce(A[i, k], axis=k), name="B")  # noqa: B023
        got = np.zeros(3, "float32")
        interpret(lower_schedule(te.create_schedule(B.op), [A, B]), a, got)
        assert_exact(got, te.evaluate(B, [a]), signed_zeros=True)


def test_softmax_within_its_bound() -> None:
    A = te.placeholder((5, 9), "float16", name="A")
    k, r = te.reduce_axis((0, 9), "k"), te.reduce_axis((0, 9), "r")
    top = te.compute((5,), lambda i: te.max(A[i, k], axis=k), name="top")
    e = te.compute((5, 9), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((5,), lambda i: te.sum(e[i, r], axis=r), name="total")
    C = te.compute((5, 9), lambda i, j: e[i, j] / total[i], name="C")
    s = te.create_schedule(C.op)
    for tensor in (top, total, e):
        s[tensor].compute_at(s[C], C.op.axis[0])
    check(s, [A], [C], exact=False)


def test_schedules_are_independent() -> None:
    m = Matmul()
    other = m.s.copy()
    m.stage.split(m.i, 4)
    assert len(other.trace) == 0 and len(m.s.trace) == 1
    other[m.C].reorder(m.k, m.i, m.j)
    check(other, [m.A, m.B], [m.C])
    m.check()
