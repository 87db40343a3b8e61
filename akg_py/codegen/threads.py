"""Threads of parallel loops: how many, and what a kernel is given to use them.

In: the machine's limits and the user's; out: the address of a team for `threads_runtime`'s pool.
The pool is native: a region never enters Python, so it costs a microsecond or two and the GIL
doesn't matter. Which thread runs a piece never changes a value.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from akg_py.codegen import objects
from akg_py.codegen.threads_runtime import MAX_HANDS, runtime_text
from akg_py.errors import ExpressionError


class _Limit:
    def __init__(self, count: int) -> None:
        self.count = count


_limits: list[_Limit] = []  # of the contexts that are open, in any thread; the last one counts
_current: int | None = None  # what they come to


def thread_count() -> int:
    """Threads of a parallel loop: `threads()`, $AKG_PY_THREADS or this process's processors."""
    return _default_count() if _current is None else _current


@functools.cache
def _default_count() -> int:
    given = os.environ.get("AKG_PY_THREADS", "")
    count = int(given) if given.isdigit() and int(given) > 0 else processors()
    return min(count, MAX_HANDS)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the context, in all kernels, whichever thread calls them.

    Raises:
        ExpressionError: `count` is less than one.
    """
    if count < 1:
        raise ExpressionError(
            f"{count} threads can't run anything", hint="use 1 for no parallelism"
        )
    limit = _Limit(count)
    _limits.append(limit)
    _settle()
    try:
        yield
    finally:
        _limits.remove(limit)
        _settle()


def _settle() -> None:
    """Find the count anew, also for kernels that numba code calls."""
    global _current
    last = _limits[-1:]
    _current = min(last[0].count, MAX_HANDS) if last else None
    found = pool() if pool.cache_info().currsize else None
    if found is not None:
        found.hands.value = thread_count()


# ---------------------------------------------------------------- processors


def processors(
    groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> int:
    """Processors that this process may use: its affinity, and the quota of its control groups."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return max(1, min([count, *(math.ceil(quota) for quota in _quotas(groups, root))]))


def _quotas(groups: Path, root: Path) -> Iterator[float]:
    """Limits on processor time, in processors, of the groups in the file and those around them."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:  # version 2
            folder, read = root, _quota_v2
        elif "cpu" in controllers.split(","):
            folder, read = root / controllers, _quota_v1
            if not folder.is_dir():
                folder = root / "cpu"
        else:
            continue
        inside = Path(path.lstrip("/"))
        for part in (inside, *inside.parents):  # in a container the path may be the host's
            try:
                quota, period = read(folder / part)
                if quota > 0 and period > 0:
                    yield quota / period
            except (OSError, ValueError):
                continue


def _quota_v2(folder: Path) -> tuple[float, float]:
    quota, period = (folder / "cpu.max").read_text().split()
    return (0.0 if quota == "max" else float(quota)), float(period)


def _quota_v1(folder: Path) -> tuple[float, float]:
    quota = float((folder / "cpu.cfs_quota_us").read_text())
    return quota, float((folder / "cpu.cfs_period_us").read_text())


# ---------------------------------------------------------------- the pool


class Pool:
    """The native pool of this process.

    Attributes:
        run: address of the function that runs a region.
        hands: the count that numba code reads.
    """

    def __init__(self) -> None:
        loaded = objects.load(runtime_text())
        self.symbols = {name: loaded.address(name) for name in ("akg_py_run", "akg_py_hands")}
        self.run = self.symbols["akg_py_run"]
        self.hands = ctypes.c_int64.from_address(self.symbols["akg_py_hands"])
        self.hands.value = thread_count()
        self.reset = ctypes.PYFUNCTYPE(None)(loaded.address("akg_py_reset"))
        self.reset()
        loaded.keep_forever()  # workers are inside, also while the interpreter ends
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self.reset()  # the child has no workers; it starts its own when it needs them
        _default_count.cache_clear()
        self.hands.value = thread_count()


@functools.cache
def pool() -> Pool | None:
    """The pool, made when first needed; None where there are no POSIX threads."""
    return Pool() if os.name == "posix" else None


@functools.cache
def team(hands: int) -> Any:
    """What a kernel takes as `parallel`, to run on up to `hands` threads: `{run, hands}`."""
    found = pool() if hands > 1 else None
    return None if found is None else (ctypes.c_int64 * 2)(found.run, hands)
