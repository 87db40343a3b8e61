"""Stand-ins for building and timing: a rippled closed form, and jobs that misbehave."""

import hashlib
import os
import time

from akg_py import library


def _noise(job):
    text = repr(sorted(job["config"].items())).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") / 2**32


def ripple(job):
    task = library.task(job["workload"], job["target"])
    seconds = task.space.estimate_one(job["config"])["seconds"]
    return {
        "seconds": seconds * (1.0 + 0.3 * _noise(job)),
        "bound": "MTE2",
        "interval_us": [1.0, 2.0],
    }


def slow_ripple(job):
    time.sleep(0.08)
    return ripple(job)


def half_fail(job):
    if _noise(job) < 0.5:
        from akg_py.errors import CapacityError

        raise CapacityError("L1 is too small", where="x.py:1")
    return ripple(job)


def some_crash(job):
    if _noise(job) < 0.3:
        os._exit(3)
    return ripple(job)


def all_fail(job):
    from akg_py.errors import ScheduleError

    raise ScheduleError("no such axis", where="")


def right(job):
    return {"how": "full", "wrong": "", "trace": []}


def first_wrong(job):
    return {
        "how": "full",
        "wrong": "" if _noise(job) < 0.5 else "1 of 4 elements differ",
        "trace": [],
    }


def all_wrong(job):
    return {"how": "full", "wrong": "1 of 4 elements differ", "trace": []}
