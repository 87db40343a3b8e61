"""Proposals: order, diversity, learning; the process behind them."""

import numpy as np
import pytest

from akg_py import library
from akg_py.tuning.proposals import Proposer
from akg_py.tuning.residual import Residual
from akg_py.tuning.study import spearman


def test_residual_interpolates_and_doubts_far_points():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, (60, 2))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1]
    model = Residual(x, y)
    mean, deviation = model.predict(x)
    assert np.abs(mean - y).max() < 0.1
    far = model.predict(np.asarray([[40.0, 40.0]]))[1]
    assert far[0] > 5 * deviation.max()


def test_residual_of_constant_outputs():
    mean, _ = Residual(np.zeros((3, 2)), np.full(3, 2.0), 2.0).predict(np.ones((1, 2)))
    assert mean[0] == pytest.approx(2.0)


@pytest.fixture(scope="module")
def task():
    return library.task("matmul:m=512,n=512,k=512", "ascend910b3")


def test_first_batch_is_the_default_and_distant_good_ones(task):
    p = Proposer(task.space, first=(task.default,))
    rows = p.propose({}, 0)
    assert len(rows) == len(set(rows)) == 8
    assert task.space.config_at(rows[0]) == task.default
    assert rows[1] == int(np.argmin(p.predicted))
    gaps = [np.abs(p.features[a] - p.features[b]).sum() for a in rows for b in rows if a != b]
    assert min(gaps) >= 1.0


def _search(task, wrong, batches, **options):
    """Best true time over the best possible, when the closed form is wrong by a factor of knobs."""
    p = Proposer(task.space, first=(task.default,), **options)
    truth = p.predicted * wrong(p.columns)
    measured = {}
    for number in range(batches):
        for row in p.propose(measured, number):
            assert row not in measured
            measured[row] = float(truth[row])
    return min(measured.values()) / truth.min()


def test_it_learns_what_the_closed_form_gets_wrong(task):
    def wrong(c):
        return 1.0 + 0.6 * (c["tile_n"] > 128) + 0.5 * (c["step_a"] > 2) + 0.3 * (c["tile_k"] < 96)

    assert _search(task, wrong, 8) < 1.03
    assert _search(task, wrong, 8) < _search(task, wrong, 8, random=True)


def test_failures_are_avoided(task):
    p = Proposer(task.space, first=(task.default,))
    measured = {}
    failed = 0
    for number in range(8):
        failed = 0
        for row in p.propose(measured, number):
            bad = p.columns["l1_copies"][row] == 2
            failed += bad
            measured[row] = None if bad else float(p.predicted[row])
    assert failed <= 4 and any(t is not None for t in measured.values())


def test_everything_failing_still_proposes_new_rows(task):
    p = Proposer(task.space, first=(task.default,))
    measured = {}
    for number in range(4):
        rows = p.propose(measured, number)
        assert len(rows) == 8 and not set(rows) & set(measured)
        measured |= dict.fromkeys(rows)


def test_spearman():
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert np.isnan(spearman([1, 2], [1, 2])) and np.isnan(spearman([1, 1, 1], [1, 2, 3]))
