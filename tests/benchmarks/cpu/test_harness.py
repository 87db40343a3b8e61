"""The harness of the CPU benchmarks: values before numbers, all ratios the same way round."""

import time
from types import SimpleNamespace

import numpy as np

from tests.benchmarks.cpu.harness import (
    ONE_THREAD,
    WARM_RUNS,
    Bar,
    Candidate,
    Case,
    Row,
    interleaved,
    run_class,
)
from tests.benchmarks.cpu.report import Report


def a_class(bars, *results):
    """A class with a case per value that ours computes; the peer computes 1."""

    def make(value):
        out, peer = np.zeros(3, np.float32), np.zeros(3, np.float32)
        return Case(
            f"case {value}",
            [
                Candidate("ours", lambda: out.fill(value), [out]),
                Candidate("peer: slow", lambda: time.sleep(0.001) or peer.fill(1), [peer]),
                Candidate("peer: fast", lambda: peer.fill(1), [peer]),
            ],
            [np.ones(3, np.float32)],
        )

    cases = [(f"case {v}", lambda v=v: make(v)) for v in results]
    return SimpleNamespace(TITLE="a class", BARS=bars, cases=lambda: iter(cases))


def test_no_number_for_wrong_values(capsys):
    report = Report("a", "a class", (1,))
    run_class(a_class((Bar("peer", 0.0),), 1.0, 2.0, np.nan), report, 0.001)
    good, wrong, nan = report.rows
    assert good.times and not good.failure
    for row in (wrong, nan):
        assert not row.times and "3 of 3 values of ours are wrong" in row.failure
    assert "not met" in report.verdicts[0]  # a case failed
    assert "wrong" in capsys.readouterr().out


def test_every_thread_count_has_its_row_and_ours_on_one_thread():
    report = Report("a", "a class", (1, 2))
    run_class(a_class((Bar("peer", 0.0), Bar(ONE_THREAD, 0.0, threads=2)), 1.0), report, 0.001)
    assert [r.threads for r in report.rows] == [1, 2]
    assert ONE_THREAD in report.rows[1].times and ONE_THREAD not in report.rows[0].times
    assert all("| met |" in v for v in report.verdicts)


def row(label, ours, peer, threads=1, group=""):
    times = {"ours": (ours, ours), "peer: a": (peer, peer), "peer: b": (2 * peer, peer / 2)}
    return Row(label, group, threads, times)


def test_the_fastest_kind_of_a_peer_counts():
    assert row("x", 2.0, 1.0).ratio("peer") == 0.5
    assert row("x", 2.0, 1.0).ratio("peer", 1) == 0.25
    assert row("x", 2.0, 1.0).ratio("nobody") is None


def test_bars_judge_means_minima_groups_and_short_cases():
    report = Report("a", "a class", (1, 2))
    for r in (row("x", 1.0, 4.0, group="g"), row("y", 1e-6, 1e-6)):
        report.add(r)
    report.judge(
        [
            Bar("peer", 2.0, "geomean"),
            Bar("peer", 1.1),
            Bar("peer", 1.1, groups=("g",)),
            Bar("peer", 1.1, least_ms=1.0),
            Bar("nobody", 1.0),
        ]
    )
    mean, every, group, long, nobody = report.verdicts
    assert "| met |" in mean and "| met |" in group and "| met |" in long
    assert "not met" in every and "worst 1: y, 1 of 2 below" in every
    assert "not measured" in nobody


def test_a_peer_is_never_slower_on_two_threads_than_on_one():
    report = Report("a", "a class", (1, 2))
    report.add(row("x", 1.0, 1.0))
    report.add(row("x", 1.0, 50.0, threads=2))
    report.judge([Bar("peer", 1.5, threads=2)])
    assert "not met" in report.verdicts[0]


def test_all_take_turns():
    order = []
    runs = {n: (lambda n=n: order.append(n) or time.sleep(0.001), 1) for n in "abc"}
    samples = interleaved(runs, 0.0, time.perf_counter)
    rounds = len(samples["a"])
    assert rounds >= 3 and all(len(s) == rounds for s in samples.values())
    turns = [n for n in "abc" for _ in range(WARM_RUNS + 1)]
    assert order[-len(turns) * rounds :] == turns * rounds
