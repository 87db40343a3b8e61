"""Reductions on the CPU: the loops that completion makes, and values for any thread count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import te
from akg_py.autoschedule.cpu import reductions
from tests.autoschedule.test_cpu_rows import full, same_for_any_thread_count
from tests.codegen.test_reductions import better
from tests.comparison import assert_exact, assert_within_bound, random_floats, small_integers

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((300, 40), (0,)),
    ((40, 300), (1,)),
    ((24, 20, 30), (1,)),
    ((24, 20, 30), (0, 2)),
    ((6, 5, 4, 40), (0, 2, 3)),
    ((6, 40, 4, 5), (1,)),
    ((32, 1, 50), (0, 1)),
    ((1, 4000), (0, 1)),
    ((64, 3000), (0,)),
    ((128, 2, 900), (0,)),
    ((64, 8, 4), (0, 1, 2)),
    ((7, 11), (0, 1)),
    ((50, 3), (0,)),
    ((9, 40, 6), (1,)),
    ((5, 70, 2), (1,)),
]


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What large arrays get, on small ones."""
    monkeypatch.setattr(reductions, "PARALLEL_POINTS", 1000)
    monkeypatch.setattr(reductions, "WIDE", 1 << 10)


def reduced(shape: tuple[int, ...], over: tuple[int, ...], dtype: str, kind: str) -> Any:
    X = te.placeholder(shape, dtype, name="X")
    r = {d: te.reduce_axis((0, shape[d]), name=f"r{d}") for d in over}
    lead = tuple(n for d, n in enumerate(shape) if d not in over) or (1,)

    def element(*i: Any) -> Any:
        data = iter(i)
        at = X(*(r[d] if d in over else next(data) for d in range(len(shape))))
        if kind == "argmax":
            place = te.const(0)
            for d in over:
                place = place * shape[d] + r[d]
            return better(True)((place, at), axis=list(r.values()))
        return getattr(te, kind)(at, axis=list(r.values()))

    out = te.compute(lead, element, name="out")
    return X, list(out) if isinstance(out, tuple) else [out]


@pytest.mark.parametrize("shape,over", SHAPES)
@pytest.mark.parametrize("dtype,kind", [("float32", "sum"), ("int8", "max"), ("float16", "sum")])
def test_exact_sums(shape: tuple[int, ...], over: tuple[int, ...], dtype: str, kind: str) -> None:
    X, (out,) = reduced(shape, over, dtype, kind)
    x = small_integers(shape, dtype, np.random.default_rng(0), limit=1)
    assert_exact(same_for_any_thread_count(full([X], out), [x]), te.evaluate(out, [x]))


@pytest.mark.parametrize("shape,over", SHAPES)
def test_rounding_does_not_depend_on_threads(shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    X, (out,) = reduced(shape, over, "float32", "sum")
    x = random_floats(shape, "float32", np.random.default_rng(0))
    assert_within_bound(same_for_any_thread_count(full([X], out), [x]), out, [x])


@pytest.mark.parametrize("shape,over", SHAPES)
def test_argmax(shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    X, outs = reduced(shape, over, "float32", "argmax")
    s = te.create_schedule(outs[0].op)
    kernel = akg.build(s, [X, *outs], target="cpu", auto="full")
    x = small_integers(shape, "float32", np.random.default_rng(0), limit=9)
    x.reshape(-1)[::97] = np.nan
    place, top = same_for_any_thread_count(kernel, [x])
    flat = np.moveaxis(x, over, range(-len(over), 0)).reshape(*place.shape, -1)
    np.testing.assert_array_equal(place, flat.argmax(-1))
    np.testing.assert_array_equal(top, flat.max(-1))


def test_chunks_of_a_full_reduction_are_a_parallel_stage() -> None:
    X, (out,) = reduced((64, 64), (0, 1), "float32", "sum")
    kernel = full([X], out)
    assert "rfactor" in str(kernel.schedule)
    assert ".parallel(" in str(kernel.schedule)


def test_sixteen_bit_partial_sums_are_not_rounded() -> None:
    X, (out,) = reduced((64, 64), (0, 1), "float16", "sum")
    assert "rfactor" not in str(full([X], out).schedule)
    x = np.full((64, 64), 0.25, "float16")
    assert full([X], out)(x)[0] == 1024


def test_element_wise_producers_are_inlined() -> None:
    X, Y = te.placeholder((50, 60), name="X"), te.placeholder((60,), name="Y")
    D = te.compute((50, 60), lambda i, j: X[i, j] - Y[j], name="D")
    k = te.reduce_axis((0, 50), name="k")
    out = te.compute((60,), lambda j: te.sum(D[k, j] * D[k, j], axis=k), name="out")
    kernel = full([X, Y], out)
    assert kernel.schedule.state.stage("D").is_inline
    rng = np.random.default_rng(0)
    x, y = (small_integers(t.shape, "float32", rng) for t in (X, Y))
    assert_exact(same_for_any_thread_count(kernel, [x, y]), ((x - y) ** 2).sum(0))


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_with_a_vector_goes_along_the_matrix(transposed: bool) -> None:
    m, n = (50, 60) if transposed else (60, 50)
    A, v = te.placeholder((60, 50), name="A"), te.placeholder((n,), name="v")
    k = te.reduce_axis((0, n), name="k")
    out = te.compute(
        (m,), lambda i: te.sum((A[k, i] if transposed else A[i, k]) * v[k], axis=k), name="out"
    )
    rng = np.random.default_rng(0)
    a, b = (small_integers(t.shape, "float32", rng) for t in (A, v))
    kernel = full([A, v], out)
    assert_exact(same_for_any_thread_count(kernel, [a, b]), (a.T if transposed else a) @ b)


@pytest.mark.parametrize(
    "shape,over", [((0, 5), (0,)), ((5, 0), (1,)), ((0, 5), (1,)), ((0,), (0,))]
)
def test_empty(shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    for kind in ("sum", "max"):
        X, (out,) = reduced(shape, over, "float32", kind)
        x = np.zeros(shape, "float32")
        assert_exact(full([X], out)(x), te.evaluate(out, [x]))


@pytest.mark.parametrize("over", [(0,), (0, 1)])
def test_a_reduction_of_what_a_row_kernel_makes(over: tuple[int, ...]) -> None:
    X = te.placeholder((33, 80), "int32", name="X")
    k, i, j = (te.reduce_axis((0, n), name=v) for n, v in ((80, "k"), (33, "i"), (80, "j")))
    top = te.compute((33,), lambda i: te.max(X[i, k], axis=k), name="top")
    D = te.compute((33, 80), lambda i, j: X[i, j] - top[i], name="D")
    if len(over) == 1:
        total = te.compute((80,), lambda j: te.sum(D[i, j], axis=i), name="total")
    else:
        total = te.compute((1,), lambda _: te.sum(D[i, j], axis=[i, j]), name="total")
    x = small_integers((33, 80), "int32", np.random.default_rng(0))
    want = np.atleast_1d((x - x.max(1, keepdims=True)).sum(over, dtype="int32"))
    assert_exact(same_for_any_thread_count(full([X], total), [x]), want)


def _minus_reduced(
    T: te.Tensor, rng: np.random.Generator, step: int
) -> tuple[te.Tensor, te.Tensor]:
    """A reduction of `T` over random axes, and `T` less its result."""
    rank = T.ndim
    over = sorted(rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False).tolist())
    keep = [d for d in range(rank) if d not in over]
    r = {d: te.reduce_axis((0, T.shape[d]), name=f"r{d}") for d in over}
    reduce = (te.sum, te.max, te.min)[int(rng.integers(3))]

    def element(*i: Any) -> Any:
        data = iter(i)
        return reduce(
            T(*(r[d] if d in over else next(data) for d in range(rank))), axis=list(r.values())
        )

    R = te.compute(tuple(T.shape[d] for d in keep) or (1,), element, name=f"R{step}")
    left = te.compute(
        T.shape, lambda *i: T(*i) * 3 - R(*([i[d] for d in keep] or [0])), name=f"C{step}"
    )
    return R, left


@pytest.mark.parametrize("seed", range(24))
def test_random_chains_of_reductions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.choice([1, 2, 3, 8, 17, 33])) for _ in range(int(rng.integers(2, 5))))
    X = te.placeholder(shape, "int32", name="X")
    last, outputs = X, []
    for step in range(int(rng.integers(1, 4))):
        reduced, last = _minus_reduced(last, rng, step)
        outputs += [reduced] if rng.random() < 0.3 else []
    outputs += [last] if rng.random() < 0.5 or not outputs else []
    s = te.create_schedule([t.op for t in outputs])
    kernel = akg.build(s, [X, *outputs], target="cpu", auto="full")
    x = rng.integers(-99, 99, shape).astype("int32")
    got = same_for_any_thread_count(kernel, [x])
    for a, b in zip(got if len(outputs) > 1 else [got], te.evaluate(outputs, [x]), strict=True):
        assert_exact(a, b)
