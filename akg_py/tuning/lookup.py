"""From a database back to a schedule: the exact record, else the default config; says which.

A record's trace is replayed where its names fit the user's graph; where the user named tensors or
axes differently, the schedule function is called again with the record's config.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from akg_py import library, pipeline, te
from akg_py.errors import AkgError, DatabaseError
from akg_py.records import dataclass
from akg_py.target import Target, find_target
from akg_py.tuning.database import Database
from akg_py.tuning.record import Record


class UntunedWarning(UserWarning):
    """No record answers the question; the default schedule is used."""


@dataclass(frozen=True)
class Answer:
    """A schedule and where it comes from.

    Attributes:
        step: `exact` (a record of this workload and target) or `default`.
        note: one line for people: which record, or why there is none; whether its device model is
            older.
        record: the record used, if any.
        time_us: its simulated time, by today's device constants.
    """

    schedule: te.Schedule
    step: str
    note: str
    record: Record | None = None
    time_us: float | None = None


def look_up(
    what: Any, target: str | Target = "ascend910b3", *, database: str | os.PathLike[str]
) -> Answer:
    """The best known schedule of a workload.

    Args:
        what: output tensor(s), a Workload, or workload text.
        database: file of `tune`.

    Raises:
        DatabaseError: there is no such file, or it is no database.
        UnsupportedError: unknown target, or no schedule for this workload.
    """
    found_target = find_target(target)
    if not os.path.exists(database):
        raise DatabaseError(
            "no such database", where=os.fspath(database), hint="akg_py tune writes one"
        )
    task = library.task(what, found_target)
    kept = Database(database)
    record = kept.best(task.workload.digest, found_target.name)
    if record is not None:
        try:
            schedule, how = _replay(task, record)
        except AkgError as error:
            return Answer(
                task.apply(),
                "default",
                f"record {record.digest} can't be replayed: {error.message}",
            )
        note = f"record {record.digest}, {how}"
        time_us = record.simulated_us
        if record.device != library.device_digest(found_target):
            cost = pipeline.build(schedule, task.workload.args, found_target).time()
            time_us = cost.seconds * 1e6
            note += f"; made with other device constants, simulated again: {time_us:,.2f} us"
        return Answer(schedule, "exact", note, record, time_us)
    others = sorted(
        {
            r.workload
            for r in kept
            if r.target == found_target.name and r.workload.split(":")[0] == task.workload.op
        }
    )
    elsewhere = sorted({r.target for r in kept if r.key == task.workload.digest})
    note = f"no record of {task.workload} on {found_target.name} in {os.fspath(database)}"
    if elsewhere:
        note += f"; tuned for {', '.join(elsewhere)}"
    elif others:
        note += f"; it has {', '.join(others[:3])}" + (" ..." if len(others) > 3 else "")
    return Answer(task.apply(), "default", note)


def tuned(
    what: Any, target: str | Target = "ascend910b3", *, database: str | os.PathLike[str]
) -> te.Schedule:
    """The best known schedule of a workload, to read, change and build; see `look_up`.

    Warns:
        UntunedWarning: there is no usable record; the schedule is the default one.
    """
    answer = look_up(what, target, database=database)
    if answer.step == "default":
        warnings.warn(f"default schedule: {answer.note}", UntunedWarning, stacklevel=2)
    return answer.schedule


def _replay(task: library.Task, record: Record) -> tuple[te.Schedule, str]:
    schedule = te.create_schedule([t.op for t in task.workload.outputs])
    try:
        te.Trace.from_json(record.trace).replay(schedule)
    except AkgError:
        return task.apply(record.config), "its config"
    return schedule, "its trace"
