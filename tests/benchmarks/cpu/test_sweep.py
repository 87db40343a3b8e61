"""Random problems: values agree with the peers', and seeds repeat them."""

from __future__ import annotations

import pytest

from tests.benchmarks.cpu import sweep
from tests.benchmarks.cpu.sweep import FAMILIES, Shapes, measured


@pytest.mark.parametrize("name", FAMILIES)
def test_values_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "ROUND_SECONDS", 1e-3)
    shapes = Shapes(1)
    for _ in range(3):
        problem = FAMILIES[name](shapes)
        if problem is not None:
            assert min(measured(problem)) > 0


def test_wrong_values_are_an_error() -> None:
    problem = FAMILIES["broadcasts"](Shapes(1))
    assert problem is not None
    right = problem.peer
    problem.peer = lambda: right() + 1
    with pytest.raises(AssertionError):
        measured(problem)


def test_seeds_repeat_problems() -> None:
    def labels() -> list[str]:
        shapes = Shapes(7)
        found = (FAMILIES["reductions"](shapes) for _ in range(5))
        return [problem.label for problem in found if problem is not None]

    assert labels() == labels()
