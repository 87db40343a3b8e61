"""The root oracle: regions, chunks, feeds, contractions; and error bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akg_py import dtypes, te
from akg_py.errors import ExpressionError
from akg_py.te import grid
from tests.comparison import assert_exact, assert_within_bound, random_floats, small_integers
from tests.random_schedules import GRAPHS, matmul

RNG = np.random.default_rng(7)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "CHUNK_ELEMENTS", 8)


def graph_values(make: Any, seed: int = 0) -> tuple[Any, list[Any]]:
    graph = make()
    return graph, graph.feeds(seed)


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_chunks_change_nothing(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, feeds = graph_values(make)
    whole = te.evaluate(list(graph.outputs), feeds)
    monkeypatch.setattr(grid, "CHUNK_ELEMENTS", 8)
    for a, b in zip(te.evaluate(list(graph.outputs), feeds), whole, strict=True):
        if graph.exact:
            assert_exact(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_region_is_a_part_of_the_whole(make: Any) -> None:
    graph, feeds = graph_values(make)
    rank = graph.outputs[0].ndim
    region = (slice(1, 3), slice(2, 4))[:rank]
    whole = te.evaluate(list(graph.outputs), feeds)
    for a, b in zip(te.evaluate(list(graph.outputs), feeds, region=region), whole, strict=True):
        assert a.shape == tuple(2 for _ in range(rank))
        if graph.exact:
            assert_exact(a, b[region])
        else:
            np.testing.assert_allclose(a, b[region], rtol=1e-6)


def test_region_of_a_big_result_is_cheap() -> None:
    n = 1 << 14
    A, B = te.placeholder((n, 4), name="A"), te.placeholder((4, n), name="B")
    k = te.reduce_axis((0, 4), "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")  # 1 GiB whole
    D = te.compute((n, n), lambda i, j: C[i, j] * 2.0 + C[n - 1 - i, j], name="D")
    a, b = small_integers((n, 4), "float32", RNG), small_integers((4, n), "float32", RNG)
    got = te.evaluate(D, [a, b], region=(range(5, 9), slice(n - 3, n)))
    exact = a[5:9] @ b[:, -3:] * 2 + a[::-1][5:9] @ b[:, -3:]
    assert_exact(got, exact)


def test_regions_that_do_not_fit() -> None:
    A = te.placeholder((4, 4), name="A")
    B = te.compute((4, 4), lambda i, j: A[i, j])
    a = np.zeros((4, 4), "float32")
    assert te.evaluate(B, [a], region=(slice(2, 2), slice(None))).shape == (0, 4)
    for region in ((slice(0, 2),), (range(0, 9), range(0, 4)), (slice(0, 4, 2), slice(0, 4))):
        with pytest.raises(ExpressionError):
            te.evaluate(B, [a], region=region)


def test_feeds() -> None:
    A, B = te.placeholder((4,), name="A"), te.placeholder((4,), "int32", name="B")
    C = te.compute((4,), lambda i: A[i] + B[i].astype("float32"))
    a, b = np.ones(4, "float32"), np.ones(4, "int32")
    assert te.graph_inputs(C) == [A, B]
    assert_exact(te.evaluate(C, {B: b, A: a}), te.evaluate(C, [a, b]))
    for feeds in ([a], {A: a}, [a, b.astype("int64")], [a[:3], b], [a, b, b]):
        with pytest.raises(ExpressionError):
            te.evaluate(C, feeds)


def test_indices_from_data_are_checked() -> None:
    A, Q = te.placeholder((4,), name="A"), te.placeholder((3,), "int32", name="I")
    a = np.arange(4, dtype="float32")
    free = te.compute((3,), lambda i: A[Q[i]])
    with pytest.raises(ExpressionError, match="reads index 9"):
        te.evaluate(free, {A: a, Q: np.array([0, 9, 1], "int32")})
    safe = te.compute((3,), lambda i: te.if_then_else(te.all(Q[i] >= 0, Q[i] < 4), A[Q[i]], -1.0))
    got = te.evaluate(safe, {A: a, Q: np.array([3, 9, -2], "int32")})
    assert got.tolist() == [3, -1, -1]


DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_products(dtype: str) -> None:
    graph = matmul(dtype, 5, 6, 7)
    a, b = (small_integers(t.shape, dtype, RNG) for t in graph.inputs)
    expected = (a.astype("float64") @ b.astype("float64")).astype("int64")
    assert_exact(te.evaluate(graph.outputs[0], [a, b]), expected.astype(dtypes.numpy_dtype(dtype)))


@pytest.mark.parametrize("dtype", ("int8", "int32", "int64"))
def test_products_that_wrap_are_no_contraction(dtype: str, small_chunks: None) -> None:
    graph = matmul(dtype, 3, 4, 5)
    limits = np.iinfo(dtype)
    a, b = (RNG.integers(limits.min, limits.max, t.shape, dtype) for t in graph.inputs)
    with np.errstate(over="ignore"):
        expected = (a[:, :, None] * b[None]).sum(1, dtype=dtype)
    assert_exact(te.evaluate(graph.outputs[0], [a, b]), expected)


def test_contractions_of_every_kind() -> None:
    """Batch axes, strides, an axis in one operand only, in none, windows."""
    n, c, f, x = 2, 3, 4, 9
    A, W = te.placeholder((n, c, x), name="A"), te.placeholder((f, c, 3), name="W")
    kc, kx, extra = (
        te.reduce_axis((0, c), "kc"),
        te.reduce_axis((0, 3), "kx"),
        te.reduce_axis((0, 2), "e"),
    )
    a, w = small_integers(A.shape, "float32", RNG), small_integers(W.shape, "float32", RNG)
    conv = te.compute(
        (n, f, 4), lambda b, o, p: te.sum(A[b, kc, p * 2 + kx] * W[o, kc, kx], axis=[kc, kx])
    )
    windows = np.lib.stride_tricks.sliding_window_view(a, 3, 2)[:, :, ::2]
    assert_exact(te.evaluate(conv, [a, w]), np.einsum("bcpk,ock->bop", windows, w))
    batched = te.compute((c, n, f), lambda q, b, o: te.sum(A[b, q, kx] * W[o, q, kx], axis=kx))
    assert_exact(te.evaluate(batched, [a, w]), np.einsum("bqk,oqk->qbo", a[:, :, :3], w))
    partly = te.compute((n,), lambda b: te.sum(A[b, kc, 0] * W[0, 0, kx], axis=[kc, kx, extra]))
    assert_exact(te.evaluate(partly, [a, w]), a[:, :, 0].sum(1) * w[0, 0].sum() * 2)
    squares = te.compute((n,), lambda b: te.sum(A[b, kc, kx] * A[b, kc, kx], axis=[kc, kx]))
    assert_exact(te.evaluate(squares, [a]), (a[:, :, :3] ** 2).sum((1, 2)))


def test_products_round_where_a_cast_says_so() -> None:
    A = te.placeholder((1, 2), name="A")
    k = te.reduce_axis((0, 2), "k")
    a = np.array([[1 + 2.0**-11, 1 + 2.0**-11]], "float32")
    narrow = te.compute((1,), lambda i: te.sum((A[i, k] * A[i, k]).astype("float16"), axis=k))
    expected = ((a * a).astype("float16").astype("float32").sum(1)).astype("float16")
    assert_exact(te.evaluate(narrow, [a]), expected)
    wide = te.compute((1,), lambda i: te.sum((A[i, k] * A[i, k]).astype("float64"), axis=k))
    assert te.evaluate(wide, [a]).dtype == np.float64


def test_products_that_overflow_or_are_undefined() -> None:
    A, B = te.placeholder((1, 3), name="A"), te.placeholder((2,), name="B")
    k, e = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 2), "e")
    C = te.compute((1,), lambda i: te.sum(A[i, k] * B[e], axis=[k, e]))
    huge = te.evaluate(C, [np.array([[1e30, -1e30, 1]], "float32"), np.array([1e30, 1], "float32")])
    assert np.isnan(huge)  # inf - inf
    undefined = te.evaluate(
        C, [np.array([[1, -1, 2]], "float32"), np.array([np.inf, 1], "float32")]
    )
    assert np.isnan(undefined)


def test_big_product_is_quick() -> None:
    graph = matmul("float32", 512, 512, 512)
    a, b = (random_floats(t.shape, "float32", RNG) for t in graph.inputs)
    got = te.evaluate(graph.outputs[0], [a, b])
    np.testing.assert_allclose(got, a.astype("float64") @ b, rtol=1e-5, atol=1e-4)


# ---------------------------------------------------------------- error bounds


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_sequential_sums_lie_within_the_bound(dtype: str) -> None:
    A = te.placeholder((8, 300), dtype, name="A")
    k = te.reduce_axis((0, 300), "k")
    B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
    a = random_floats(A.shape, dtype, RNG, 10)
    for order in (a, a[:, ::-1]):
        acc = np.zeros(8, "float32")
        for n in range(300):
            acc = (acc + order[:, n].astype("float32")).astype("float32")
        assert_within_bound(acc.astype(dtypes.numpy_dtype(dtype)), B, [a])
    bounded = te.evaluate_with_bound(B, [a])
    assert (bounded.error < 0.05 * np.abs(a.astype("float64")).sum(1)).all()


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_evaluate_lies_within_its_bound(make: Any) -> None:
    graph = make()
    feeds = [random_floats(t.shape, t.dtype, RNG) for t in graph.inputs]
    assert_within_bound(
        te.evaluate(list(graph.outputs), feeds), list(graph.outputs), feeds, undecided_share=0.0
    )


def test_a_wrong_value_is_outside_of_the_bound() -> None:
    graph = matmul()
    feeds = [random_floats(t.shape, t.dtype, RNG) for t in graph.inputs]
    value = te.evaluate(graph.outputs[0], feeds)
    value[2, 3] += 1e-4
    with pytest.raises(AssertionError, match=r"first at \[2, 3\]"):
        assert_within_bound(value, graph.outputs[0], feeds)


UNARY = (
    "exp",
    "exp2",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "erf",
    "sigmoid",
    "floor",
    "ceil",
    "round",
    "trunc",
    "abs",
)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_rounded_arguments(name: str) -> None:
    """A float16 argument deviates by its rounding, and the bound covers what follows."""
    A = te.placeholder((2000,), "float32", name="A")
    H = te.compute((2000,), lambda i: (A[i] * 0.25).astype("float16") * te.const(0.999, "float16"))
    F = te.compute((2000,), lambda i: getattr(te, name)(H[i]), name="F")
    a = RNG.uniform(0.01, 4, 2000).astype("float32")
    assert_within_bound(te.evaluate(F, [a]), F, [a], undecided_share=0.01)


@pytest.mark.parametrize("op", ["/", "//", "%", "pow", "fmod", "atan2", "min", "max", "<"])
def test_operators_of_rounded_arguments(op: str) -> None:
    A, B = te.placeholder((2000,), name="A"), te.placeholder((2000,), name="B")
    functions: dict[str, Any] = {
        "/": lambda x, y: x / y,
        "//": lambda x, y: x // y,
        "%": lambda x, y: x % y,
        "pow": te.power,
        "fmod": te.fmod,
        "atan2": te.atan2,
        "min": te.minimum,
        "max": te.maximum,
        "<": lambda x, y: x < y,
    }
    X = te.compute((2000,), lambda i: A[i].astype("float16") * te.const(1.7, "float16"), name="X")
    F = te.compute((2000,), lambda i: functions[op](X[i], B[i].astype("float16")), name="F")
    a, b = RNG.uniform(0.1, 3, (2, 2000)).astype("float32")
    assert_within_bound(te.evaluate(F, [a, b]), F, [a, b], undecided_share=0.05)


def test_predicates_within_the_error_are_undecided() -> None:
    A = te.placeholder((3,), name="A")
    S = te.compute((3,), lambda i: A[i] / 3.0 * 3.0, name="S")
    B = te.compute((3,), lambda i: S[i] < 1.0, name="B")
    Q = te.compute((3,), lambda i: te.floor(S[i]).astype("int32"), name="I")
    R = te.compute((3,), lambda i: te.Select(S[i] > 1.0, S[i], 0.0), name="R")
    J = te.compute((3,), lambda i: te.Select(S[i] > 1.0, S[i] - 1.0, 0.0), name="J")
    a = np.array([0.5, 1.0, 1.5], "float32")
    b, i, r, j = te.evaluate_with_bound([B, Q, R, J], [a])
    assert b.undecided.tolist() == i.undecided.tolist() == [False, True, False]
    assert r.error[1] >= 1 > r.error[0]  # a jump, as wide as it is
    assert j.error[1] < 1e-5  # continuous: small


def test_overflow() -> None:
    A = te.placeholder((3,), "float16", name="A")
    B = te.compute((3,), lambda i: A[i] * A[i], name="B")
    a = np.array([10, 256, 1000], "float16")
    bounded = te.evaluate_with_bound(B, [a])
    assert bounded.value[2] == np.inf and bounded.undecided.tolist() == [False, True, False]
    assert_within_bound(te.evaluate(B, [a]), B, [a], undecided_share=0.5)


def test_bounds_of_reducers_and_masks() -> None:
    X = te.placeholder((4, 6), name="X")
    k = te.reduce_axis((0, 6), "k")
    x = random_floats(X.shape, "float32", RNG)
    parts = [
        te.compute((4,), lambda i: te.prod(X[i, k], axis=k, where=k > 1)),
        te.compute((4,), lambda i: te.max(te.exp(X[i, k]), axis=k, init=0.5)),
        te.compute((4,), lambda i: te.sum(X[i, k] * X[i, k], axis=k, where=k < 4, init=1.0)),
    ]
    assert_within_bound(te.evaluate(parts, [x]), parts, [x], undecided_share=0.0)


def test_undecided_argmax_is_masked() -> None:
    X = te.placeholder((2, 3), name="X")
    Y = te.compute((2, 3), lambda i, j: te.exp(X[i, j]), name="Y")
    k = te.reduce_axis((0, 3), "k")
    best = te.comm_reducer(
        lambda x, y: (te.Select(x[1] >= y[1], x[0], y[0]), te.Select(x[1] >= y[1], x[1], y[1])),
        lambda i, v: (te.const(0, i), te.min_value(v)),
    )
    index, top = te.compute((2,), lambda i: best((k, Y[i, k]), axis=k))
    x = np.array([[1, 1, 0], [0, 1, 2]], "float32")
    bounded = te.evaluate_with_bound([index, top], [x])
    assert bounded[0].undecided.tolist() == [True, False]
    assert not bounded[1].undecided.any() and bounded[1].error.max() < 1e-5
