"""Tuning a list of workloads with one pool of workers, one database and one time budget.

Each workload gets an equal share of the time that is left, so that an early finish helps the
others. A workload that fails keeps its reason and the others go on.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from akg_py import library
from akg_py.codegen.threads import processors
from akg_py.errors import AkgError
from akg_py.records import dataclass
from akg_py.tuning import measure
from akg_py.tuning.database import check_writable
from akg_py.tuning.entries import Entry
from akg_py.tuning.record import Record
from akg_py.tuning.tuner import Options, open_pool, tune_task


@dataclass(frozen=True)
class Result:
    """What became of one entry of a list: a record, or the error."""

    entry: Entry
    record: Record | None = None
    error: AkgError | None = None


@dataclass(frozen=True)
class Totals:
    """Times of all launches of a list (workloads that have both times), in microseconds."""

    default_us: float
    tuned_us: float

    @property
    def speedup(self) -> float:
        return self.default_us / self.tuned_us if self.tuned_us else 1.0


def tune_list(
    entries: Sequence[Entry],
    target: str,
    options: Options,
    *,
    database: str | os.PathLike[str],
    storage: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    timeout: float = 60.0,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Tune every entry.

    Args:
        options: as of one search; `seconds` is the budget of the whole list.
        on_result: called after each entry.

    Raises:
        UnsupportedError, DatabaseError: target or database can't be used at all.
        KeyboardInterrupt: the records so far are in the database.
    """
    workers = workers or default_workers()
    check_writable(database)
    deadline = time.monotonic() + options.seconds
    results: list[Result] = []
    with open_pool(workers, timeout) as pool:
        with contextlib.suppress(AkgError):  # one worker fills the cache of compiled code for all
            pool.submit(measure.warm_up, {"target": target}).result()
        for number, entry in enumerate(entries):
            share = (deadline - time.monotonic()) / (len(entries) - number)
            try:
                task = library.task(entry.workload, target)
                record = tune_task(
                    task,
                    pool,
                    replace(options, seconds=max(share, 0.0)),
                    database=database,
                    storage=storage,
                )
                results.append(Result(entry, record))
            except AkgError as error:
                results.append(Result(entry, error=error))
            if on_result is not None:
                on_result(results[-1])
    return results


def default_workers() -> int:
    """One worker per processor that this process may use."""
    return processors()


def totals(results: Sequence[Result]) -> Totals:
    """Sum over all launches (time x count)."""
    default = tuned = 0.0
    for r in results:
        if r.record is not None and "simulated_us" in r.record.baseline:
            default += r.record.baseline["simulated_us"] * r.entry.count
            tuned += r.record.simulated_us * r.entry.count
    return Totals(default, tuned)


def gain_is_real(record: Record) -> bool:
    """Whether the gain over the default exceeds what the model's uncertainty could explain.

    Errors of the model are largely common to two schedules of one workload, so a gain counts when
    the default lies above the upper end of the tuned schedule's interval.
    """
    interval = record.costs.get("interval_us") or [0.0, math.inf]
    base = record.baseline.get("simulated_us")
    return isinstance(base, (int, float)) and bool(base > interval[1])
