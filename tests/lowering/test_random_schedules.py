"""No schedule changes a value: random legal schedules against the root oracle, on every target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from akg_py import te
from akg_py.errors import AkgError, CapacityError, ScheduleError, UnsupportedError
from akg_py.lowering import lower_schedule
from tests.comparison import assert_exact, assert_within_bound
from tests.random_graphs import random_graph
from tests.random_schedules import GRAPHS, Graph, attempt, random_schedule, run

MAKERS = pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)


def check(make: Callable[[], Graph], seed: int, target: str) -> None:
    graph = make()
    s = random_schedule(graph, seed)
    try:
        compare(graph, s, seed, target)
    except (CapacityError, ScheduleError, UnsupportedError):
        raise
    except Exception as e:
        small = smallest_trace(graph, s.trace, type(e), seed, target)
        e.add_note(f"{graph.name}, seed {seed}, target {target}; still fails with:\n{small}")
        raise


def compare(graph: Graph, s: te.Schedule, seed: int, target: str) -> None:
    """Run `s` and compare with the oracle, exactly or within the error bound."""
    feeds = graph.feeds(seed)
    actual = run(target, s, graph, feeds)
    outputs = list(graph.outputs)
    if graph.exact:
        for a, e in zip(actual, te.evaluate(outputs, feeds), strict=True):
            assert_exact(a, e)
    else:
        assert_within_bound(actual, outputs, feeds)


def smallest_trace(
    graph: Graph, trace: te.Trace, kind: type[Exception], seed: int, target: str
) -> te.Trace:
    """`trace` without the steps that the failure doesn't need (each left out in turn)."""
    steps = list(trace)
    n = 0
    while n < len(steps):
        fewer = te.Trace(tuple(steps[:n] + steps[n + 1 :]))
        s = te.create_schedule(list(graph.outputs))
        try:
            s.apply(fewer)
        except AkgError:  # a later step needs this one
            n += 1
            continue
        try:
            compare(graph, s, seed, target)
        except Exception as e:
            if type(e) is kind:
                steps = list(fewer)
                continue
        n += 1
    return te.Trace(tuple(steps))


def test_failures_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS[0]()
    s = te.create_schedule(list(graph.outputs))
    for axis in ("i", "j"):
        s["E"].split(axis, 3)
    s["E"].vectorize("j.inner")
    s["D"].compute_inline()

    def broken(target: str, s: te.Schedule, graph: Graph, feeds: object) -> list[object]:
        assert "compute_inline" not in str(s.trace) or "vectorize" not in str(s.trace)
        return run(target, s, graph, feeds)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(f"{__name__}.run", broken)
    small = smallest_trace(graph, s.trace, AssertionError, 0, "interpret")
    assert [step.primitive for step in small] == ["split", "vectorize", "compute_inline"]


@MAKERS
@pytest.mark.parametrize("seed", range(8))
def test_random_schedule_keeps_values(make: Callable[[], Graph], seed: int) -> None:
    check(make, seed, "interpret")


@pytest.mark.slow
@MAKERS
@pytest.mark.parametrize("block", range(10))
def test_many_random_schedules_keep_values(make: Callable[[], Graph], block: int) -> None:
    for seed in range(100 + 50 * block, 150 + 50 * block):
        check(make, seed, "interpret")


@pytest.mark.parametrize("seed", range(40))
def test_random_graph_and_schedule(seed: int) -> None:
    check(lambda: random_graph(seed), seed, "interpret")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_random_graphs_and_schedules(block: int) -> None:
    for seed in range(100 + 100 * block, 200 + 100 * block):
        check(lambda: random_graph(seed), seed, "interpret")  # noqa: B023
        check(lambda: random_graph(seed), seed + 1, "interpret")  # noqa: B023


COMPILED = pytest.mark.parametrize("target", ["cpu", "ascend910b3"])


def check_compiled(make: Callable[[], Graph], seed: int, target: str) -> bool:
    """False when the target refuses the schedule, which is its right (scopes, capacity)."""
    try:
        check(make, seed, target)
    except (CapacityError, ScheduleError, UnsupportedError):
        return False
    return True


@COMPILED
@MAKERS
def test_random_schedules_on_a_compiled_target(make: Callable[[], Graph], target: str) -> None:
    done = [check_compiled(make, seed, target) for seed in range(3)]
    assert target != "cpu" or all(done)


@pytest.mark.slow
@COMPILED
@MAKERS
def test_many_random_schedules_on_a_compiled_target(make: Callable[[], Graph], target: str) -> None:
    done = [check_compiled(make, seed, target) for seed in range(1000, 1080)]
    assert all(done) if target == "cpu" else sum(done) >= 60


@MAKERS
def test_trace_replays_to_the_same_program(make: Callable[[], Graph]) -> None:
    for seed in range(10):
        graph = make()
        s = random_schedule(graph, seed)
        replayed = te.create_schedule(list(graph.outputs))
        replayed.apply(te.Trace.parse(str(s.trace)))
        assert str(replayed) == str(s)
        again = te.create_schedule(list(graph.outputs))
        again.apply(te.Trace.from_json(s.trace.to_json()))
        try:
            text = str(lower_schedule(s, graph.args))
        except ScheduleError:
            continue
        assert str(lower_schedule(replayed, graph.args)) == text
        assert str(lower_schedule(again, graph.args)) == text


@MAKERS
def test_refused_primitives_change_nothing(make: Callable[[], Graph]) -> None:
    graph = make()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        s = te.create_schedule(list(graph.outputs))
        for _ in range(40):
            state, text = s.state, str(s)
            try:
                attempt(s, rng)
            except ScheduleError:
                assert s.state is state and str(s) == text
