"""Completion appends what is missing, never alters a user's step, and says where capacity ends."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import te
from tests.comparison import assert_exact, assert_within_bound, random_floats, small_integers

TARGET = "ascend910b3"


def product(M: int = 96, N: int = 80, K: int = 64) -> tuple[list[te.Tensor], te.Schedule]:
    A = te.placeholder((M, K), "float16", name="A")
    B = te.placeholder((K, N), "float16", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(
        (M, N),
        lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k),
        name="C",
    )
    return [A, B, C], te.create_schedule(C.op)


def run_exactly(args: list[te.Tensor], kernel: Any) -> None:
    rng = np.random.default_rng(0)
    feeds = {t: small_integers(t.shape, t.dtype, rng) for t in args[:-1]}
    assert_exact(kernel(*feeds.values()), te.evaluate(args[-1], feeds))
    assert kernel.check() == []


def test_an_untouched_schedule_gets_everything_and_marks_it() -> None:
    args, s = product()
    kernel = akg.build(s, args, target=TARGET)
    assert len(s.trace) == 0, "the user's schedule is not changed"
    assert all(step.auto for step in kernel.schedule.trace)
    assert {"bind", "cache_read", "cache_write", "compute_at", "double_buffer"} <= {
        step.primitive for step in kernel.schedule.trace
    }
    run_exactly(args, kernel)


def test_the_steps_of_the_user_come_first_and_stay() -> None:
    args, s = product()
    s[args[2]].tile(*args[2].op.axis, 32, 48)
    kernel = akg.build(s, args, target=TARGET)
    mine = list(s.trace)
    assert list(kernel.schedule.trace)[: len(mine)] == mine
    assert not any(step.auto for step in mine)
    run_exactly(args, kernel)


def test_completion_replays_from_its_trace() -> None:
    args, s = product()
    done = akg.complete(s, TARGET)
    again = te.create_schedule(args[2].op)
    again.apply(te.Trace.parse(str(done.trace)))
    assert str(again) == str(done)
    run_exactly(args, akg.build(again, args, target=TARGET, auto=False))


def test_a_block_that_does_not_fit_is_refused_not_shrunk() -> None:
    args, s = product(512, 512, 64)
    s[args[2]].tile(*args[2].op.axis, 256, 256)
    with pytest.raises(akg.CapacityError) as error:
        akg.build(s, args, target=TARGET)
    assert "L0C needs 262,144 bytes, ascend910b3 has 131,072" in error.value.message
    assert "256 x 256 float32" in error.value.message
    assert error.value.hint


def test_a_capacity_error_points_at_the_step_that_placed_the_buffer() -> None:
    args, s = product(512, 512, 64)
    cache = s.cache_write(args[2], "L0C")
    _, jo, _, _ = s[args[2]].tile(*args[2].op.axis, 128, 256)
    s[cache].compute_at(s[args[2]], jo)
    s[cache].double_buffer()
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.raises(akg.CapacityError) as error:
        akg.build(s, args, target=TARGET)
    assert "2 copies of 128 x 256 float32" in error.value.message
    assert str(error.value.where) == f"test_complete.py:{line}"


def test_tiles_that_no_fractal_fits_still_compute() -> None:
    args, s = product(40, 36, 24)
    s[args[2]].tile(*args[2].op.axis, 10, 12)
    kernel = akg.build(s, args, target=TARGET)
    assert not any(p.kind == "aic" for p in kernel.program.phases)
    run_exactly(args, kernel)


def test_an_on_chip_stage_without_a_place_gets_one() -> None:
    X = te.placeholder((20, 64), "float32", name="X")
    Y = te.compute(X.shape, lambda i, j: X[i, j] * 2 + 1, name="Y")
    s = te.create_schedule(Y.op)
    s.cache_read(X, "UB", [Y])
    kernel = akg.build(s, [X, Y], target=TARGET)
    attached = kernel.schedule.state.stage("X.UB").attached_to
    assert attached is not None and attached[0] == "Y"
    run_exactly([X, Y], kernel)


@pytest.mark.parametrize("shape", [(3, 40_000), (2, 2, 30_000), (50_000,)], ids=str)
def test_rows_longer_than_the_memory_go_in_chunks(shape: tuple[int, ...]) -> None:
    X = te.placeholder(shape, "float32", name="X")
    lead, width = shape[:-1], shape[-1]
    r, q = te.reduce_axis((0, width), name="r"), te.reduce_axis((0, width), name="q")
    top = te.compute(lead, lambda *i: te.max(X(*i, r), axis=r), name="top")
    total = te.compute(lead, lambda *i: te.sum(te.exp(X(*i, q) - top(*i)), axis=q), name="total")
    Y = te.compute(shape, lambda *i: te.exp(X(*i) - top(*i[:-1])) / total(*i[:-1]), name="Y")
    kernel = akg.build(te.create_schedule(Y.op), [X, Y], target=TARGET)
    feeds = {X: random_floats(shape, "float32", np.random.default_rng(0))}
    assert_within_bound(kernel(feeds[X]), Y, feeds)
    assert kernel.check() == [] and kernel.scalar_stages == ()


def test_code_on_the_scalar_pipe_is_named() -> None:
    X = te.placeholder((64, 32), "float32", name="X")
    T = te.compute((32, 64), lambda i, j: X[j, i], name="T")
    with pytest.warns(akg.errors.PerformanceWarning, match=r"T.*scalar pipe"):
        kernel = akg.build(te.create_schedule(T.op), [X, T], target=TARGET)
    assert kernel.scalar_stages
    run_exactly([X, T], kernel)


def test_a_pinned_intrinsic_must_become_its_instruction() -> None:
    args, _ = product(64, 64, 64)
    A, B = (te.placeholder((64, 64), "float32", name=n) for n in "AB")
    plus = te.compute((64, 64), lambda i, j: A[i, j] + B[i, j], name="plus")
    intrin = te.decl_tensor_intrin(plus.op, name="add_tile", instruction="MMAD")
    C = te.compute((64, 64), lambda i, j: A[i, j] + B[i, j], name="C")
    s = te.create_schedule(C.op)
    s[C].tensorize(C.op.axis[0], intrin)
    with pytest.raises(akg.UnsupportedError, match="no MMAD"):
        akg.build(s, [A, B, C], target=TARGET, auto=False)
    assert args
