"""The language: placeholders, computes, reductions, dtypes, and what they evaluate to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akg_py import dtypes, te
from tests.comparison import assert_exact, small_integers


def value(tensor: te.Tensor, *arrays: Any) -> Any:
    return te.evaluate(tensor, [np.asarray(a) for a in arrays])


def vector(n: int = 5, dtype: str = "float32", name: str = "A") -> te.Tensor:
    return te.placeholder((n,), dtype, name=name)


# ---------------------------------------------------------------- declarations


def test_tensors_of_a_compute_are_keys() -> None:  # B002
    A, B = te.placeholder((4, 6), name="A"), te.placeholder((5, 6), name="B")
    T = te.compute((4, 5, 6), lambda i, j, k: A[i, k] * B[j, k], name="T")
    assert T.shape == (4, 5, 6) and T.dtype == "float32" and T.ndim == 3
    assert T.op.output(0) is T and {T: 1}[T.op.output(0)] == 1
    assert T.op.input_tensors == (A, B)


def test_bare_extent_is_rank_one() -> None:  # B003
    A = te.placeholder(6, name="A")
    assert A.shape == (6,) and te.compute(6, lambda i: A[i]).shape == (6,)


def test_rank_zero() -> None:  # B004
    A, s = vector(6), te.placeholder((), name="s")
    k = te.reduce_axis((0, 6), name="k")
    T = te.compute((), lambda: te.sum(A[k] * s(), axis=k))
    assert T.shape == ()
    result = value(T, np.arange(6, dtype="float32"), np.float32(2))
    assert result.shape == () and result == 30


def test_variable_arguments() -> None:
    A = te.placeholder((2, 3, 4), name="A")
    T = te.compute((2, 3, 4), lambda i, *rest: A(i, *rest) + 1.0)
    assert [a.name for a in T.op.axis] == ["i", "i1", "i2"]


def test_tuple_of_outputs() -> None:  # B010
    A, B = vector(name="A"), vector(name="B")
    S, T = te.compute((5,), lambda i: (A[i] * 2.0, B[i] * 3.0), name="T")
    assert S.op is T.op and (S.value_index, T.value_index) == (0, 1) and S.shape == T.shape
    s, t = te.evaluate([S, T], [np.ones(5, "float32")] * 2)
    assert s[0] == 2 and t[0] == 3


def test_tag_and_attributes() -> None:  # B016
    A = vector()
    T = te.compute((5,), lambda i: A[i], tag="copy", attrs={"hello": 1, "arr": [10, 12]})
    assert T.op.tag == "copy" and T.op.attrs["hello"] == 1 and "absent" not in T.op.attrs


def test_equal_names_stay_apart() -> None:  # B020
    X, Y = vector(name="X"), vector(name="X")
    T = te.compute((5,), lambda i: X[i] - Y[i], name="X")
    result = value(T, np.full(5, 3, "float32"), np.ones(5, "float32"))
    assert (result == 2).all()


def test_partial_indexing() -> None:  # B038
    A = te.placeholder((2, 3, 4), name="A")
    assert A[0][0][0].astype("float16").dtype == "float16"
    assert A[0, 0][0].dtype == "float32"


def test_whole_tensors_broadcast() -> None:  # B035
    A, B = te.placeholder((4, 1), name="A"), te.placeholder((3,), name="B")
    T = 2.0 * A + B / 4.0 - 1.0
    assert T.shape == (4, 3)
    a, b = np.arange(4, dtype="float32").reshape(4, 1), np.arange(3, dtype="float32")
    assert_exact(value(T, a, b), 2 * a + b / 4 - 1)
    assert_exact(value(-A, a), -a)
    assert value(A.astype("int32"), a).dtype == np.int32


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("float32", "float64", "float64"),
        ("int32", "float16", "float16"),
        ("int8", "int32", "int32"),
        ("float16", "bfloat16", "float32"),
        ("int32", "uint32", "uint32"),
        ("uint8", "int16", "int16"),
    ],
)
def test_promotion(a: str, b: str, expected: str) -> None:  # B025
    assert (te.const(1, a) + te.const(1, b)).dtype == expected


def test_python_numbers_adopt_the_dtype() -> None:  # B027
    Q, H = vector(dtype="int32"), vector(dtype="float16")
    assert (Q[0] + 1.5).dtype == "float32"
    assert (H[0] + 1.5).dtype == "float16" and (H[0] + 1).dtype == "float16"
    assert (np.float64(2) * H[0]).dtype == "float16"  # a Python float by inheritance
    assert (np.float32(2) * H[0]).dtype == "float32"


def test_unsigned_wraps() -> None:  # B028
    A, B = vector(dtype="uint8"), vector(dtype="uint8", name="B")
    T = te.compute((5,), lambda i: A[i] - B[i])
    assert_exact(value(T, np.full(5, 2, "uint8"), np.full(5, 3, "uint8")), np.full(5, 255, "uint8"))


def test_integers_wrap() -> None:
    A = vector(dtype="int32")
    T = te.compute((5,), lambda i: (A[i] + i) // 2)
    top = np.full(5, 2**31 - 1, "int32")
    expected = (top + np.arange(5, dtype="int32")) // np.int32(2)
    assert_exact(value(T, top), expected)


def test_floor_division() -> None:  # B023
    A = vector(dtype="int32")
    a = np.array([-7, -1, 0, 1, 7], "int32")
    assert_exact(value(te.compute((5,), lambda i: A[i] // 2), a), a // 2)
    assert_exact(value(te.compute((5,), lambda i: A[i] % 2), a), a % 2)


def test_constants_round_once() -> None:
    A = vector(dtype="float64")
    T = te.compute((5,), lambda i: A[i] + te.const(0.1))  # a float32 constant
    assert value(T, np.zeros(5))[0] == np.float64(np.float32(0.1))


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "bool"]
)
def test_casts_are_those_of_numpy(dtype: str) -> None:
    source = np.array([0.0, 1.0, 2.5, 3.49, 100.0], "float32")
    T = te.compute((5,), lambda i: te.cast(dtype, vector_of(A, i)))
    assert_exact(value(T, source), source.astype(dtypes.numpy_dtype(dtype)))


A = vector()


def vector_of(tensor: te.Tensor, i: Any) -> Any:
    return tensor[i]


FUNCTIONS = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "abs": np.abs,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dtype: str) -> None:
    A = vector(7, dtype)
    x = np.array([0.5, -0.25, 0.0, 1.0, np.inf, -np.inf, np.nan], dtype)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x.astype("float64"))
        if expected.dtype != bool:
            expected = expected.astype(dtype)
    assert_exact(value(te.compute((7,), lambda i: getattr(te, name)(A[i])), x), expected)


def test_functions_of_two() -> None:
    A, B = vector(name="A"), vector(name="B")
    a, b = np.array([1, 2, -3, 4.5, 0], "float32"), np.array([2, -1, 2, 1.5, 3], "float32")
    for function, expected in ((te.power, np.power), (te.fmod, np.fmod), (te.atan2, np.arctan2)):
        wide = expected(a.astype("float64"), b.astype("float64")).astype("float32")
        assert_exact(value(te.compute((5,), lambda i: function(A[i], B[i])), a, b), wide)  # noqa: B023
    three = te.compute((5,), lambda i: te.maximum(A[i], B[i], 1.0))
    assert_exact(value(three, a, b), np.maximum(np.maximum(a, b), 1))


def test_nan_wins_in_minimum() -> None:
    a = np.array([np.nan, 1, 2, 3, 4], "float32")
    assert np.isnan(value(te.compute((5,), lambda i: te.minimum(A[i], 0.0)), a)[0])


# ---------------------------------------------------------------- choices


def test_if_then_else_guards_reads() -> None:  # B031
    P = te.compute((7,), lambda i: te.if_then_else(te.all(i >= 1, i < 6), A[i - 1], 0.0))
    assert_exact(
        value(P, np.arange(1, 6, dtype="float32")), np.array([0, 1, 2, 3, 4, 5, 0], "float32")
    )


def test_conditions_guard_their_right_side() -> None:
    P = te.compute((7,), lambda i: te.Select(te.all(i < 5, A[te.minimum(i, 4)] > 2.0), 1.0, 0.0))
    assert value(P, np.arange(5, dtype="float32")).tolist() == [0, 0, 0, 1, 1, 0, 0]
    Q = te.compute((7,), lambda i: te.Select(te.any(i >= 5, A[i] > 2.0), 1.0, 0.0))
    assert value(Q, np.arange(5, dtype="float32")).tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_nested_guards() -> None:
    P = te.compute(
        (9,),
        lambda i: te.if_then_else(
            i >= 2, te.if_then_else(te.logical_not(i >= 7), A[i - 2], -1.0), -2.0
        ),
    )
    assert value(P, np.arange(5, dtype="float32")).tolist() == [-2, -2, 0, 1, 2, 3, 4, -1, -1]


def test_select() -> None:  # B032
    T = te.compute((5,), lambda i: te.Select(A[i] > 0.0, A[i], -A[i] * 2.0))
    a = np.array([1, -1, 0, -3, np.nan], "float32")
    assert_exact(value(T, a), np.where(a > 0, a, -a * 2))


def test_index_from_data() -> None:
    Q = vector(4, "int32", name="I")
    T = te.compute((4,), lambda i: A[Q[i]])
    a = np.arange(10, 15, dtype="float32")
    assert value(T, a, np.array([4, 0, 2, 2], "int32")).tolist() == [14, 10, 12, 12]


# ---------------------------------------------------------------- reductions


def test_sum_over_two_axes() -> None:  # B043
    X = te.placeholder((3, 4, 5), name="X")
    j, k = te.reduce_axis((0, 4), "j"), te.reduce_axis((0, 5), "k")
    x = np.arange(60, dtype="float32").reshape(3, 4, 5)
    for axis in ([j, k], (k, j)):
        T = te.compute((3,), lambda i: te.sum(X[i, j, k], axis=axis))  # noqa: B023
        assert_exact(value(T, x), x.sum((1, 2)))


def test_reduce_axis_with_a_beginning() -> None:
    k = te.reduce_axis((2, 5), "k")
    assert (
        value(te.compute((1,), lambda i: te.sum(A[k], axis=k)), np.arange(5, dtype="float32")) == 9
    )


def test_init() -> None:  # B045, B046
    X, Q = te.placeholder((3, 4), name="X"), te.placeholder((3,), name="I")
    k = te.reduce_axis((0, 4), "k")
    x, start = np.ones((3, 4), "float32"), np.arange(3, dtype="float32")
    assert (
        value(te.compute((3,), lambda i: te.sum(X[i, k], axis=k, init=10.0)), x).tolist()
        == [14] * 3
    )
    T = te.compute((3,), lambda i: te.sum(X[i, k], axis=k, init=Q[i]))
    assert value(T, x, start).tolist() == [4, 5, 6]
    M = te.compute((3,), lambda i: te.max(X[i, k], axis=k, init=Q[i]))
    assert value(M, x, start).tolist() == [1, 1, 2]


def test_own_reducer() -> None:  # B047
    total = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(0, t), name="mysum")
    X = te.placeholder((3, 4), name="X")
    k = te.reduce_axis((0, 4), "k")
    x = np.arange(12, dtype="float32").reshape(3, 4)
    assert_exact(value(te.compute((3,), lambda i: total(X[i, k], axis=k)), x), x.sum(1))
    assert str(total(te.const(1.0), te.const(2.0))) == "1.0 + 2.0"


def test_reducer_with_where_and_identities() -> None:  # B049
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda a, b: (te.const(0, a), te.const(1, b))
    )
    X = te.placeholder((3, 5), name="X")
    k = te.reduce_axis((0, 5), "k")
    s, p = te.compute(
        (3,), lambda i: both((X[i, k], X[i, k]), axis=k, where=te.floormod(k, 2) == 0)
    )
    x = np.arange(15, dtype="float32").reshape(3, 5)
    got = te.evaluate([s, p], [x])
    assert_exact(got[0], x[:, ::2].sum(1))
    assert_exact(got[1], x[:, ::2].prod(1))


def test_where_guards_reads() -> None:
    X = te.placeholder((4, 4), name="X")
    k = te.reduce_axis((0, 6), "k")
    T = te.compute((4,), lambda i: te.sum(X[i, k - 1], axis=k, where=te.all(k >= 1, k < 5)))
    x = np.arange(16, dtype="float32").reshape(4, 4)
    assert_exact(value(T, x), x.sum(1))


def test_triangular_sum_by_where() -> None:  # B051: data-dependent extents are masks here
    k = te.reduce_axis((0, 5), "k")
    T = te.compute((6,), lambda n: te.sum(A[k], axis=k, where=k < n))
    a = np.arange(1, 6, dtype="float32")
    assert_exact(value(T, a), np.array([a[:n].sum() for n in range(6)], "float32"))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
)
def test_identities_do_not_leak(dtype: str) -> None:  # B054, B055
    X = te.placeholder((1, 3), dtype, name="X")
    k = te.reduce_axis((0, 3), "k")
    low = np.array([[-5, -3, -4]]) if not dtype.startswith("u") else np.array([[0, 0, 0]])
    x = low.astype(dtypes.numpy_dtype(dtype))
    high = np.array([[5, 3, 4]]).astype(dtypes.numpy_dtype(dtype))
    assert_exact(value(te.compute((1,), lambda i: te.max(X[i, k], axis=k)), x), x.max(1))
    assert_exact(value(te.compute((1,), lambda i: te.min(X[i, k], axis=k)), high), high.min(1))
    assert value(te.compute((1,), lambda i: te.prod(X[i, k], axis=k)), high) == 60  # B057


def test_extreme_integers() -> None:  # B055
    X = te.placeholder((1, 2), "int8", name="X")
    k = te.reduce_axis((0, 2), "k")
    x = np.array([[-128, -128]], "int8")
    assert value(te.compute((1,), lambda i: te.max(X[i, k], axis=k)), x) == -128
    assert value(te.compute((1,), lambda i: te.sum(X[i, k], axis=k)), x) == 0  # wraps


def test_empty_reductions_give_identities() -> None:
    X = te.placeholder((2, 0), name="X")
    k = te.reduce_axis((0, 0), "k")
    x = np.zeros((2, 0), "float32")
    for reduce, expected in ((te.sum, 0), (te.prod, 1), (te.max, -np.inf), (te.min, np.inf)):
        T = te.compute((2,), lambda i: reduce(X[i, k], axis=k))  # noqa: B023
        assert value(T, x).tolist() == [expected] * 2


def test_narrow_sums_accumulate_in_float32() -> None:
    X = te.placeholder((1, 4096), "float16", name="X")
    k = te.reduce_axis((0, 4096), "k")
    T = te.compute((1,), lambda i: te.sum(X[i, k], axis=k))
    assert value(T, np.ones((1, 4096), "float16")) == 4096  # float16 alone would stick at 2048


def test_nan_and_infinity_go_through_reductions() -> None:
    X = te.placeholder((3, 3), name="X")
    k = te.reduce_axis((0, 3), "k")
    x = np.array([[np.nan, 1, 2], [np.inf, 1, -np.inf], [-np.inf, 1, 2]], "float32")
    assert np.isnan(value(te.compute((3,), lambda i: te.sum(X[i, k], axis=k)), x)).tolist() == [
        1,
        1,
        0,
    ]
    assert np.isnan(value(te.compute((3,), lambda i: te.max(X[i, k], axis=k)), x)).tolist() == [
        1,
        0,
        0,
    ]


def test_zero_extents() -> None:
    X = te.placeholder((0, 3), name="X")
    T = te.compute((0, 3), lambda i, j: X[i, j] + 1.0)
    assert value(T, np.zeros((0, 3), "float32")).shape == (0, 3)


def test_small_integers_are_in_range() -> None:
    rng = np.random.default_rng(0)
    for dtype in dtypes.DTYPES:
        x = small_integers((50,), dtype, rng).astype("float64")
        assert abs(x).max() <= 3 and (x == np.rint(x)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_reducers_that_round_are_accepted(dtype: str) -> None:
    """Online softmax, Welford's variance, an argmax that prefers one side on ties."""
    X = te.placeholder((4,), dtype, name="X")
    k = te.reduce_axis((0, 4), "k")

    def softmax(x: Any, y: Any) -> Any:
        top = te.maximum(x[0], y[0])
        return top, x[1] * te.exp(x[0] - top) + y[1] * te.exp(y[0] - top)

    def variance(x: Any, y: Any) -> Any:
        count = x[2] + y[2]
        delta = y[0] - x[0]
        mean = x[0] + delta * y[2] / count
        return mean, x[1] + y[1] + delta * delta * x[2] * y[2] / count, count

    def first(x: Any, y: Any) -> Any:
        keep = x[1] >= y[1]
        return te.Select(keep, x[0], y[0]), te.Select(keep, x[1], y[1])

    def zeros(*kinds: str) -> Any:
        return tuple(te.const(0, d) for d in kinds)

    online = te.comm_reducer(softmax, lambda a, b: (te.min_value(a), te.const(0, b)))
    assert len(online((X[k], te.const(1.0, dtype)), axis=k)) == 2
    welford = te.comm_reducer(variance, zeros)
    one = te.const(1.0, dtype)
    assert len(welford((X[k], te.const(0.0, dtype), one), axis=k)) == 3
    argmax = te.comm_reducer(first, lambda i, v: (te.const(0, i), te.min_value(v)))
    assert len(argmax((k, X[k]), axis=k)) == 2


def test_numpy_integers_are_extents_and_factors() -> None:
    A = te.placeholder((np.int64(6),), name="A")
    B = te.compute((np.int32(6),), lambda i: A[i] + np.float64(1.5) + np.int64(2), name="B")
    s = te.create_schedule(B.op)
    outer, _ = s[B].split(B.op.axis[0], factor=np.int64(4))
    assert outer.extent == 2 and type(outer.extent) is int
    assert str(s.trace) == 's["B"].split("i", factor=4)'
