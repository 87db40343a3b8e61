"""Row kernels on the CPU: what completion makes of them, and their values for any thread count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import te
from akg_py.autoschedule import RowChoice, schedule_rows
from akg_py.codegen.target import data_cache_bytes, host
from akg_py.codegen.threads import threads
from akg_py.ops.norm import layer_norm, rms_norm, softmax
from tests.comparison import assert_within_bound, random_floats

Graph = tuple[list[te.Tensor], te.Tensor]


def row_kernel(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Graph:
    X = te.placeholder(shape, dtype, name="X")
    gamma, beta = (te.placeholder(shape[-1:], dtype, name=n) for n in ("gamma", "beta"))
    if name == "softmax":
        return [X], softmax(X)
    if name == "rms_norm":
        return [X, gamma], rms_norm(X, gamma)
    activation = "gelu" if name.endswith("gelu") else ""
    return [X, gamma, beta], layer_norm(X, gamma, beta, activation=activation)


def full(inputs: list[te.Tensor], out: te.Tensor) -> Any:
    return akg.build(te.create_schedule(out.op), [*inputs, out], target="cpu", auto="full")


def same_for_any_thread_count(kernel: Any, feeds: list[Any]) -> Any:
    """The result, after checking that 1, 2 and 3 threads give the same bits."""
    results = []
    for count in (1, 2, 3):
        with threads(count):
            got = kernel(*feeds)
            results.append(got if isinstance(got, tuple) else (got,))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()
    return results[0] if len(results[0]) > 1 else results[0][0]


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "layer_norm_gelu"])
def test_all_stages_sit_in_the_loop_over_rows(name: str) -> None:
    inputs, out = row_kernel(name, (8, 32, 512))
    kernel = full(inputs, out)
    stages = kernel.schedule.state.stages
    assert all(stage.is_inline or stage.attached_to for stage in stages[:-1])
    assert [a.extent for a in stages[-1].leaves] == [256, 512]
    assert stages[-1].mark(stages[-1].leaves[0]).kind == "parallel"


def test_few_rows_stay_on_one_thread() -> None:
    inputs, out = row_kernel("softmax", (8, 64))
    assert "parallel" not in str(full(inputs, out).schedule)


def test_a_stage_that_others_need_too_is_not_taken_in() -> None:
    X = te.placeholder((64, 64), name="X")
    k = te.reduce_axis((0, 64), name="k")
    top = te.compute((64,), lambda i: te.max(X[i, k], axis=k), name="top")
    Y = te.compute((64, 64), lambda i, j: X[i, j] - top[i], name="Y")
    Z = te.compute((64, 64), lambda i, j: X[i, j] - top[j], name="Z")
    kernel = akg.build(te.create_schedule([Y.op, Z.op]), [X, Y, Z], target="cpu", auto="full")
    assert kernel.schedule.state.stage("top").attach is None
    x = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    y, z = same_for_any_thread_count(kernel, [x])
    np.testing.assert_array_equal(y, x - x.max(1, keepdims=True))
    np.testing.assert_array_equal(z, x - x.max(1)[None, :])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "layer_norm_gelu"])
@pytest.mark.parametrize("shape", [(3, 1), (5, 17), (40, 65), (2, 3, 64), (70, 1000)])
def test_values(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    inputs, out = row_kernel(name, shape, dtype)
    rng = np.random.default_rng(1)
    feeds = [random_floats(t.shape, dtype, rng) for t in inputs]
    got = same_for_any_thread_count(full(inputs, out), feeds)
    assert_within_bound(got, out, feeds)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0)])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_empty(name: str, shape: tuple[int, ...]) -> None:
    inputs, out = row_kernel(name, shape)
    got = full(inputs, out)(*(np.zeros(t.shape, "float32") for t in inputs))
    assert got.shape == shape


SPECIAL: list[Callable[[Any], None]] = [
    lambda x: x.__setitem__((1, 3), np.nan),
    lambda x: x.__setitem__((1, 3), np.inf),
    lambda x: x.__setitem__((slice(None), slice(1, None)), -np.inf),
    lambda x: x.__setitem__(slice(None), -np.inf),
    lambda x: x.__setitem__((slice(None), slice(0, 40)), -0.0),
]


@pytest.mark.parametrize("change", SPECIAL)
@pytest.mark.parametrize("n", [5, 37, 160])
def test_softmax_of_special_values(change: Callable[[Any], None], n: int) -> None:
    inputs, out = row_kernel("softmax", (3, n))
    x = np.random.default_rng(2).standard_normal((3, n)).astype("float32")
    change(x)
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(full(inputs, out)(x), want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("tile_rows", [1, 4, 64])
@pytest.mark.parametrize("inlined", [0, 64])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_every_choice_has_the_same_values(name: str, inlined: int, tile_rows: int) -> None:
    inputs, out = row_kernel(name, (70, 1000))
    s = te.create_schedule(out.op)
    schedule_rows(s, RowChoice(tile_rows, inlined))
    kernel = akg.build(s, [*inputs, out], target="cpu", auto=False)
    rng = np.random.default_rng(1)
    feeds = [random_floats(t.shape, "float32", rng) for t in inputs]
    assert_within_bound(same_for_any_thread_count(kernel, feeds), out, feeds)


LONG = data_cache_bytes(1) // 4 + 37  # elements of a row that the first cache can't hold


def test_long_rows_pass_by_what_they_share() -> None:
    for columns, at_once in ((LONG, 4), (LONG // 2, 2)):
        root = full(*row_kernel("layer_norm", (64, columns))).schedule.state.stages[-1]
        assert [a.extent for a in root.leaves] == [
            64 // at_once, -(-columns // 512), at_once, 512
        ]  # fmt: skip
    root = full(*row_kernel("softmax", (64, LONG))).schedule.state.stages[-1]  # shares nothing
    assert [a.extent for a in root.leaves] == [64, LONG]


SHORT = 4 * host().vector_bytes  # elements of a row of 16 vectors


def test_short_rows_are_taken_four_at_a_time() -> None:
    root = full(*row_kernel("layer_norm", (64, SHORT))).schedule.state.stages[-1]
    assert [a.extent for a in root.leaves] == [16, 4, SHORT]
    for shape in ((64, SHORT - 1), (64, SHORT // 4), (64, SHORT * 2), (3, SHORT)):
        assert len(full(*row_kernel("layer_norm", shape)).schedule.state.stages[-1].leaves) == 2


@pytest.mark.parametrize("columns", [SHORT, LONG // 2, LONG])
@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "layer_norm_gelu"])
def test_values_of_several_rows_at_once(name: str, rows: int, columns: int) -> None:
    inputs, out = row_kernel(name, (rows, columns))
    rng = np.random.default_rng(3)
    feeds = [random_floats(t.shape, "float32", rng) for t in inputs]
    got = same_for_any_thread_count(full(inputs, out), feeds)
    assert_within_bound(got, out, feeds)


@pytest.mark.parametrize("columns", [SHORT, 1024, LONG // 2, LONG])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_the_shipped_schedule_is_what_completion_makes(name: str, columns: int) -> None:
    task = akg.task(f"{name}:shape=512x{columns}", "cpu")
    s = te.create_schedule([t.op for t in task.workload.outputs])
    steps = [str(step) for step in akg.complete(s, "cpu").trace]
    assert [str(step) for step in task.apply().trace] == steps
