"""The optuna side of tuning: a study in a journal file, our proposals as its sampler, ask and tell.

The journal is the truth about what was measured: every trial carries its config, its seconds or its
failure. After a kill, trials that were asked but not told are measured again under their own
numbers, so that none is lost and none repeated.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from akg_py.cost.space import BoundSpace, Config
from akg_py.errors import DatabaseError, SpaceError
from akg_py.records import dataclass
from akg_py.tuning.proposals import Proposer

SAMPLERS = ("ranked", "tpe", "random")
_DONE = (TrialState.COMPLETE, TrialState.FAIL)
_MAX_MISSES = 200  # proposals of a foreign sampler in a row that were infeasible or known


@dataclass(frozen=True, slots=True)
class Trial:
    """One measured config: seconds, or the reason of its failure."""

    number: int
    config: Config
    seconds: float | None
    failure: str = ""


class RankedSampler(BaseSampler):
    """optuna sampler that proposes from the closed-form ranking and its learned correction."""

    def __init__(self, proposer: Proposer) -> None:
        self.proposer = proposer
        self._batches: dict[int, list[int]] = {}

    def batch(self, study: optuna.Study, number: int) -> list[int]:
        """Rows of batch `number`; a function of the seed and of the trials before it."""
        if number not in self._batches:
            measured: dict[int, float | None] = {}
            for trial in study.get_trials(deepcopy=False):
                row = self.proposer.row_of(trial.user_attrs.get("config", trial.params))
                if trial.number < number * self.proposer.batch and row is not None:
                    measured[row] = trial.value if trial.state == TrialState.COMPLETE else None
            self._batches[number] = self.proposer.propose(measured, number)
        return self._batches[number]

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return distributions(self.proposer.space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        number, place = divmod(trial.number, self.proposer.batch)
        rows = self.batch(study, number)
        if place >= len(rows):
            raise SpaceError("the search space is used up")
        return dict(self.proposer.space.config_at(rows[place]))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        raise SpaceError(f"{param_name} is no knob of this space")


def distributions(space: BoundSpace) -> dict[str, BaseDistribution]:
    """The knobs as optuna distributions; integers keep their order."""
    result: dict[str, BaseDistribution] = {}
    for knob in space.space.knobs:
        values = space.knob_values(knob)
        if knob.is_text:
            result[knob.name] = CategoricalDistribution(list(values))
        else:
            numbers = sorted(int(v) for v in values)
            step = math.gcd(*(n - numbers[0] for n in numbers)) or 1
            result[knob.name] = IntDistribution(numbers[0], numbers[-1], step=step)
    return result


class _OwnLock(JournalFileOpenLock):
    """No lock: `open_search` holds one for the whole journal, which a kill releases."""

    def __init__(self) -> None:
        pass

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Search:
    """Ask and tell over one study.

    Args:
        space: bound space of the workload.
        study: an optuna study.
        proposer: the ranking behind it.
        sampler: `ranked`, `tpe` or `random`.
    """

    def __init__(
        self, space: BoundSpace, study: optuna.Study, proposer: Proposer, sampler: str
    ) -> None:
        self.space, self.study, self.proposer, self.sampler = space, study, proposer, sampler
        self._distributions = distributions(space)
        self._known = {t.config.digest: t for t in self.trials()}

    def trials(self) -> list[Trial]:
        """All finished trials, by number."""
        return [
            Trial(
                t.number,
                Config(t.user_attrs["config"]),
                t.value if t.state == TrialState.COMPLETE else None,
                t.user_attrs.get("failure", ""),
            )
            for t in self.study.get_trials(deepcopy=False)
            if t.state in _DONE and "config" in t.user_attrs
        ]

    def interrupted(self) -> list[tuple[int, Config]]:
        """Trials that an earlier run never told, to be measured under their old numbers."""
        found = []
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            config = trial.user_attrs.get("config", trial.params)
            if len(config) == len(self.space.space.knobs):  # else killed while asking
                found.append((trial.number, Config(config)))
        return found

    def ask(self, limit: int) -> list[tuple[int, Config]]:
        """Up to a batch of new configs: (trial number, config); empty when the space is used up."""
        if self.sampler != "tpe":
            return self._ask_ranked(limit)
        asked: list[tuple[int, Config]] = []
        misses = 0
        in_flight: set[str] = set()
        while len(asked) < min(limit, self.proposer.batch) and misses < _MAX_MISSES:
            if len(self._known) + len(in_flight) >= self.proposer.size:
                break
            trial = self.study.ask(self._distributions)
            config = Config(trial.params)
            known = self._known.get(config.digest)
            if (
                known is not None
                or config.digest in in_flight
                or self.proposer.row_of(config) is None
            ):
                reason = "measured before" if known or config.digest in in_flight else "infeasible"
                trial.set_user_attr("skipped", reason)
                self.study.tell(trial, state=TrialState.PRUNED)
                misses += 1
                continue
            misses = 0
            in_flight.add(config.digest)
            asked.append((trial.number, config))
        return asked

    def _ask_ranked(self, limit: int) -> list[tuple[int, Config]]:
        assert isinstance(self.study.sampler, RankedSampler)
        number, place = divmod(len(self.study.get_trials(deepcopy=False)), self.proposer.batch)
        rows = self.study.sampler.batch(self.study, number)
        return [self._start(row) for row in rows[place : place + limit]]

    def _start(self, row: int) -> tuple[int, Config]:
        """Make a running trial by one entry of the journal (`ask` writes one per knob)."""
        config = self.space.config_at(row)
        trial = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(config),
            distributions=self._distributions,
            user_attrs={"config": dict(config)},
        )
        storage = self.study._storage
        trial_id = storage.create_new_trial(self.study._study_id, template_trial=trial)
        return storage.get_trial_number_from_id(trial_id), config

    def tell(self, number: int, config: Config, seconds: float | None, failure: str = "") -> Trial:
        """Store the outcome of a trial in the journal."""
        storage, trial_id = self.study._storage, self._trial_id(number)
        if self.sampler == "tpe":
            storage.set_trial_user_attr(trial_id, "config", dict(config))
        good = seconds is not None and math.isfinite(seconds) and seconds > 0
        if not good:
            failure = failure or f"its time is {seconds}"
            storage.set_trial_user_attr(trial_id, "failure", failure)
        self.study.tell(
            number,
            seconds if good else None,
            state=TrialState.COMPLETE if good else TrialState.FAIL,
        )
        trial = Trial(number, config, seconds if good else None, failure)
        self._known[config.digest] = trial
        return trial

    def _trial_id(self, number: int) -> int:
        return self.study._storage.get_trial_id_from_study_id_trial_number(
            self.study._study_id, number
        )


@contextlib.contextmanager
def open_search(
    space: BoundSpace,
    name: str,
    journal: str | os.PathLike[str] | None,
    *,
    seed: int,
    sampler: str = "ranked",
    first: Sequence[Config] = (),
    batch: int = 8,
) -> Iterator[Search]:
    """The study `name` with proposals for `space`, in a journal file or in memory (None).

    Raises:
        SpaceError: unknown sampler, or no feasible config.
        DatabaseError: the journal can't be written, or another process is tuning with it.
    """
    if sampler not in SAMPLERS:
        raise SpaceError(f"unknown sampler {sampler!r}", hint=f"samplers: {', '.join(SAMPLERS)}")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    proposer = Proposer(space, seed, batch, tuple(first), sampler == "random")
    chosen: BaseSampler = RankedSampler(proposer)
    if sampler == "tpe":
        chosen = TPESampler(seed=seed, n_startup_trials=0)
    with _open_storage(journal) as storage:
        study = optuna.create_study(
            storage=storage, study_name=name, sampler=chosen, load_if_exists=True
        )
        search = Search(space, study, proposer, sampler)
        if sampler == "tpe" and not study.get_trials(deepcopy=False):
            for row in proposer.propose({}, 0):
                study.enqueue_trial(dict(space.config_at(row)))
        yield search


@contextlib.contextmanager
def _open_storage(journal: str | os.PathLike[str] | None) -> Iterator[Any]:
    if journal is None:
        yield optuna.storages.InMemoryStorage()
        return
    path = Path(journal)
    if not path.parent.is_dir():
        raise DatabaseError(f"no such directory: {path.parent}", where=str(path), hint="make it")
    lock = filelock.FileLock(f"{path}.lock", timeout=0.5)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise DatabaseError(
            "another process is tuning this",
            where=str(path),
            hint="wait, or give another --storage",
        ) from None
    except OSError as error:
        raise DatabaseError(
            f"can't write the journal: {error.strerror}",
            where=str(path),
            hint="choose a path that you may write: --storage",
        ) from None
    try:
        _mend(path)
        backend: BaseJournalBackend = JournalFileBackend(str(path), lock_obj=_OwnLock())
        try:
            storage = JournalStorage(backend)
        except (ValueError, KeyError) as error:
            raise DatabaseError(
                f"can't read the journal: {error}",
                where=str(path),
                hint="it is no optuna journal; give another --storage",
            ) from None
        yield storage
    except OSError as error:
        raise DatabaseError(
            f"can't write the journal: {error.strerror}",
            where=str(path),
            hint="choose a path that you may write: --storage",
        ) from None
    finally:
        lock.release()


def _mend(path: Path) -> None:
    """Cut off a last line that a kill left unfinished; optuna would trip over it."""
    if path.exists() and path.stat().st_size:
        data = path.read_bytes()
        keep = data.rfind(b"\n") + 1
        if keep != len(data):
            with open(path, "r+b") as file:
                file.truncate(keep)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation of two equally long sequences; NaN for fewer than three."""
    if len(a) < 3:
        return math.nan
    if np.ptp(np.asarray(a)) == 0 or np.ptp(np.asarray(b)) == 0:
        return math.nan
    ranks = [
        np.argsort(np.argsort(np.asarray(x), kind="stable"), kind="stable").astype(float)
        for x in (a, b)
    ]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
