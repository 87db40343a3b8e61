"""The tuner: from a workload to the best schedule found, as a record in a database.

The feasible space is ranked in closed form; an optuna study, kept in a journal file, asks for
batches of configs; workers build and time them; the winner's values are checked; a record is
appended. Killed at any moment, the same call goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akg_py import library
from akg_py.codegen.threads import processors
from akg_py.cost.space import Config
from akg_py.errors import AkgError, DatabaseError, SpaceError
from akg_py.records import dataclass
from akg_py.target import Target, find_target
from akg_py.tuning import measure
from akg_py.tuning.database import Database, check_writable
from akg_py.tuning.executor import WorkerPool
from akg_py.tuning.record import RECORD_SCHEMA, Record

if TYPE_CHECKING:
    from akg_py.tuning.study import Search, Trial

BATCH = 8
WINNERS_CHECKED = 5


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a running search, given to `on_progress` after every trial.

    Attributes:
        best_us, baseline_us: so far; None before there is one.
        last_failure: reason of the latest failed trial, or "".
    """

    workload: str
    done: int
    failed: int
    trials: int
    best_us: float | None
    baseline_us: float | None
    last_failure: str


@dataclass(frozen=True, slots=True)
class Options:
    """How to search; see `tune`."""

    trials: int = 200
    seed: int = 0
    sampler: str = "ranked"
    patience: int = 6
    seconds: float = math.inf
    on_progress: Callable[[Progress], None] | None = None
    objective: Callable[..., Any] = field(default=measure.measure)
    check: Callable[..., Any] = field(default=measure.verify)


def tune(
    what: Any,
    target: str | Target = "ascend910b3",
    *,
    trials: int = 200,
    database: str | os.PathLike[str] | None = "tuning.jsonl",
    storage: str | os.PathLike[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    timeout: float = 60.0,
    minutes: float | None = None,
    sampler: str = "ranked",
    patience: int = 6,
    executor: Executor | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Record:
    """Search for the fastest schedule of a workload and keep it.

    Args:
        what: output tensor(s), workload text, or a Workload; an operator must declare it.
        trials: configs to measure, those of earlier, interrupted runs included.
        database: file that the record is appended to; None keeps nothing.
        storage: optuna journal of the trials; by default a file in `<database>.trials/` (in
            memory without a database).
        seed: of the search; equal seeds propose equal configs, whatever the number of workers.
        workers: processes; by default one per core. Where times are measured they share the
            compilation only.
        timeout: seconds for one trial, from the start of its work.
        minutes: limit of the whole search.
        sampler: `ranked` (closed form, then learned), `tpe` or `random` (seeded by the ranking).
        patience: batches of 8 without a gain after which the search ends.
        executor: where trials run, instead of own worker processes.

    Returns:
        The record of the best config whose values were found right.

    Raises:
        SpaceError: empty space, or no config works (the message gives the first reason).
        DatabaseError: a path can't be written, or is being used by another tuning run.
        UnsupportedError: unknown target, or no schedule for the workload.
    """
    _refuse_in_worker()
    task = library.task(what, find_target(target))
    options = Options(
        trials, seed, sampler, patience, 60 * minutes if minutes else math.inf, on_progress
    )
    if trials < 1:
        raise SpaceError(f"trials is {trials}", hint="give 1 or more")
    with open_pool(workers, timeout, executor) as pool:
        return tune_task(task, pool, options, database=database, storage=storage)


@contextlib.contextmanager
def open_pool(
    workers: int | None, timeout: float | None, executor: Executor | None = None
) -> Iterator[Executor]:
    """Worker processes that end with the block, at once when it is left by an error or Ctrl-C."""
    if executor is not None:
        yield executor
        return
    pool = WorkerPool(workers or processors(), timeout)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)


def tune_task(
    task: library.Task,
    pool: Executor,
    options: Options,
    *,
    database: str | os.PathLike[str] | None,
    storage: str | os.PathLike[str] | None = None,
) -> Record:
    """As `tune`, for a task and a pool that the caller owns."""
    from akg_py.tuning.study import open_search

    if database is not None:
        check_writable(database)
    kept = Database(database) if database is not None else None
    journal = None if storage is None else Path(storage)
    if journal is None and database is not None:
        journal = journal_path(database, task, options)
        try:
            journal.parent.mkdir(exist_ok=True)
        except OSError as error:
            message = f"can't make the directory of the trials: {error.strerror}"
            hint = "move away what is there, or choose another --database"
            raise DatabaseError(message, where=str(journal.parent), hint=hint) from None
    default = task.default
    with open_search(
        task.space,
        _study_name(task, options),
        journal,
        seed=options.seed,
        sampler=options.sampler,
        first=(default,),
        batch=BATCH,
    ) as search:
        details: dict[str, dict[str, Any]] = {}
        try:
            _run_trials(task, search, pool, options, default, details)
            record = _verified_record(task, search, pool, options, default, details)
        except KeyboardInterrupt:
            record_so_far = _interrupted_record(task, search, options, default, details)
            if kept is not None and record_so_far is not None:
                kept.append(record_so_far)
            raise
    if kept is not None and not any(r.digest == record.digest for r in kept):
        kept.append(record)
    return record


def _study_name(task: library.Task, options: Options) -> str:
    """A study answers one question in one way; another device model or space starts afresh."""
    parts = [
        task.workload.text,
        task.workload.digest,
        task.target.name,
        f"space={task.space.space.digest}",
        f"device={library.device_digest(task.target)}",
        f"sampler={options.sampler}",
        f"seed={options.seed}",
    ]
    return " ".join(parts)


def _run_trials(
    task: library.Task,
    search: Search,
    pool: Executor,
    options: Options,
    default: Config,
    details: dict[str, dict[str, Any]],
) -> None:
    deadline = time.monotonic() + options.seconds
    batch = search.interrupted()
    best, stale = math.inf, 0
    while True:
        finished = search.trials()
        if not batch:
            now_best = min((t.seconds for t in finished if t.seconds is not None), default=math.inf)
            stale = 0 if now_best < best else stale + 1
            best = now_best
            if (
                len(finished) >= options.trials
                or time.monotonic() > deadline
                or stale > options.patience
            ):
                return
            batch = search.ask(options.trials - len(finished))
            if not batch:
                return
        for group in _groups(task, pool, options, batch):
            jobs = {pool.submit(options.objective, job): trial for trial, job in group}
            _collect(task, search, jobs, options, default, details)
        batch = []


def _groups(
    task: library.Task, pool: Executor, options: Options, batch: list[tuple[int, Config]]
) -> list[list[tuple[tuple[int, Config], measure.Job]]]:
    """The batch in parts whose jobs may run at the same time.

    Times that are measured must not disturb each other: these trials run one by one, once all
    workers together have compiled them.
    """
    jobs = [(trial, measure.make_job(task, trial[1], options.seed)) for trial in batch]
    if measure.is_simulated(task.target.name):
        return [jobs]
    prepare = getattr(options.objective, "prepare", None)
    if prepare is not None:
        wait([pool.submit(prepare, job) for _, job in jobs])  # a failure comes again in its trial
    return [[one] for one in jobs]


def _collect(
    task: library.Task,
    search: Search,
    jobs: dict[Future[Any], tuple[int, Config]],
    options: Options,
    default: Config,
    details: dict[str, dict[str, Any]],
) -> None:
    """Tell the outcome of each job as soon as it is there."""
    waiting = set(jobs)
    while waiting:
        done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda f: jobs[f][0]):
            number, config = jobs[future]
            error = future.exception()
            if error is None:
                result = future.result()
                details[config.digest] = result
                search.tell(number, config, float(result["seconds"]))
            elif isinstance(error, Exception):
                search.tell(number, config, None, _reason(error))
            else:
                raise error
        if done and options.on_progress is not None:
            options.on_progress(_progress(task, search.trials(), options, default))


def _reason(error: Exception) -> str:
    if isinstance(error, AkgError):
        return f"{type(error).__name__}: {error.message}"
    return f"{type(error).__name__}: {error}"


def _progress(
    task: library.Task, trials: list[Trial], options: Options, default: Config
) -> Progress:
    times = [t.seconds for t in trials if t.seconds is not None]
    base = next((t.seconds for t in trials if t.config == default), None)
    failures = [t.failure for t in trials if t.failure]
    return Progress(
        task.workload.text,
        len(trials),
        len(failures),
        options.trials,
        min(times) * 1e6 if times else None,
        None if base is None else base * 1e6,
        failures[-1] if failures else "",
    )


def _ranked(trials: list[Trial]) -> list[Trial]:
    good = [t for t in trials if t.seconds is not None]
    return sorted(good, key=lambda t: (t.seconds or 0.0, t.number))


def _verified_record(
    task: library.Task,
    search: Search,
    pool: Executor,
    options: Options,
    default: Config,
    details: dict[str, dict[str, Any]],
) -> Record:
    trials = search.trials()
    ranked = _ranked(trials)
    if not ranked:
        raise _nothing_works(task, trials)
    wrong: list[str] = []
    for trial in ranked[:WINNERS_CHECKED]:
        job = measure.make_job(task, trial.config, options.seed)
        try:
            if trial.config.digest not in details:
                details[trial.config.digest] = pool.submit(options.objective, job).result()
            check = pool.submit(options.check, job).result()
        except AkgError as error:
            wrong.append(f"{trial.config}: {error.message}")
            continue
        if check["wrong"]:
            wrong.append(f"{trial.config}: {check['wrong']}")
            continue
        return _record(task, trials, trial, options, default, details, check["trace"], check["how"])
    raise SpaceError(
        f"{task.workload}: none of the {len(wrong)} fastest configs could be verified; "
        f"the fastest: {wrong[0]}",
        hint="this is a fault of the schedule or of akg_py: please report it",
    )


def _nothing_works(task: library.Task, trials: list[Trial]) -> SpaceError:
    if not trials:
        return SpaceError(
            f"{task.workload}: no config was measured", hint="give more time or trials"
        )
    first = trials[0]
    reasons: dict[str, int] = {}
    for t in trials:
        reasons[t.failure.split(":")[0]] = reasons.get(t.failure.split(":")[0], 0) + 1
    kinds = ", ".join(
        f"{n} x {kind}" for kind, n in sorted(reasons.items(), key=lambda item: -item[1])
    )
    return SpaceError(
        f"{task.workload}: all {len(trials)} configs failed ({kinds}); "
        f"the first, {first.config}: {first.failure}",
        hint="loosen the space or mend the schedule; the journal has the reason of every trial",
    )


def _interrupted_record(
    task: library.Task,
    search: Search,
    options: Options,
    default: Config,
    details: dict[str, dict[str, Any]],
) -> Record | None:
    trials = search.trials()
    ranked = _ranked(trials)
    if not ranked:
        return None
    trace = task.apply(ranked[0].config).trace.to_json()
    return _record(task, trials, ranked[0], options, default, details, trace, "no: interrupted")


def _record(
    task: library.Task,
    trials: list[Trial],
    winner: Trial,
    options: Options,
    default: Config,
    details: dict[str, dict[str, Any]],
    trace: list[Any],
    verified: str,
) -> Record:
    assert winner.seconds is not None
    found = details.get(winner.config.digest, {})
    estimate = task.space.estimate_one(winner.config) if task.space.space.estimate else {}
    base = next((t for t in trials if t.config == default), None)
    costs = {
        "predicted_us": round(estimate["seconds"] * 1e6, 4) if "seconds" in estimate else None,
        "simulated_us": round(winner.seconds * 1e6, 4),
        "interval_us": found.get("interval_us"),
        "bound": found.get("bound", ""),
        "peak_share": round(peak_share(task, winner.seconds), 4),
    }
    baseline: dict[str, Any] = {"config": dict(default)}
    if base is not None and base.seconds is not None:
        baseline["simulated_us"] = round(base.seconds * 1e6, 4)
    elif base is not None:
        baseline["failure"] = base.failure
    return Record(
        workload=task.workload.text,
        key=task.workload.digest,
        target=task.target.name,
        config=dict(winner.config),
        trace=trace,
        costs=costs,
        baseline=baseline,
        trials={
            "completed": sum(t.seconds is not None for t in trials),
            "failed": sum(t.seconds is None for t in trials),
            "space": len(task.space),
        },
        seed=options.seed,
        verified=verified,
        device=library.device_digest(task.target),
        space=task.space.space.digest,
        versions=_versions(task),
    )


def peak_share(task: library.Task, seconds: float) -> float:
    """Share of the device's peak: of the cube for products, of GM copies for vector kernels."""
    peak = library.peak_rates(task.target)
    sizes = library.workload_sizes(task.workload)
    operator = task.workload.operator
    if not peak or seconds <= 0 or operator is None:
        return 0.0
    if operator.unit == "cube":
        kind = "flops_f16" if sizes.get("dtype_bytes", 2) == 2 else "flops_f32"
        return float(sizes["flops"]) / seconds / peak[kind]
    return float(sizes["input_bytes"] + sizes["output_bytes"]) / seconds / peak["copy_bytes"]


def _versions(task: library.Task) -> dict[str, Any]:
    versions: dict[str, Any] = {"record_schema": RECORD_SCHEMA}
    if task.target.family == "ascend":
        from akg_py.ascend.device import DEVICE_MODEL_VERSION

        versions["device_model"] = DEVICE_MODEL_VERSION
    return versions


def _refuse_in_worker() -> None:
    if os.environ.get("AKG_PY_WORKER"):
        raise SpaceError(
            "tune() ran while a worker process loaded this file",
            hint='put the call under if __name__ == "__main__":',
        )


def journal_path(database: str | os.PathLike[str], task: library.Task, options: Options) -> Path:
    """The journal of one study behind a database: a file of its own in `<database>.trials/`.

    So runs on different workloads don't wait for each other, and each reads its own trials only.
    """
    folder = Path(f"{os.fspath(database)}.trials")
    digest = hashlib.sha256(_study_name(task, options).encode()).hexdigest()[:12]
    return folder / f"{task.workload.op}-{digest}.journal"
