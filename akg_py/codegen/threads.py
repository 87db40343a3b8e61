"""A small pool of threads that runs parallel loops of compiled kernels.

A kernel calls `runner(...)` with a function over a range; pieces are taken from a shared counter
by the calling thread and the workers, with the GIL released inside. Which thread runs a piece
never changes a value. A loop that is reached while the pool is busy with another kernel's simply
gets fewer hands.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from akg_py.errors import ExpressionError

#: void (body, context, n, workspace)
RUNNER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_PIECES = 4  # per thread, so that a thread that is held up leaves its share to the others
_limit: int | None = None
_interrupted = threading.local()


def thread_count() -> int:
    """Threads of a parallel loop: `threads()`, $AKG_PY_THREADS or this process's processors."""
    if _limit is not None:
        return _limit
    given = os.environ.get("AKG_PY_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the context, in all kernels."""
    global _limit
    if count < 1:
        raise ExpressionError(
            f"{count} threads can't run anything", hint="use 1 for no parallelism"
        )
    before, _limit = _limit, count
    try:
        yield
    finally:
        _limit = before


def raise_pending() -> None:
    """Raise what interrupted a parallel loop of the kernel that just returned in this thread."""
    error = getattr(_interrupted, "error", None)
    if error is not None:
        _interrupted.error = None
        raise error


class _Region:
    """One parallel loop while it runs."""

    def __init__(
        self, body: int, context: int, n: int, workspace: int, thread_bytes: int, hands: int
    ) -> None:
        self.body = _body(body)
        self.context = context
        self.n = n
        self.workspace = workspace
        self.thread_bytes = thread_bytes
        self.piece = max(1, -(-n // (hands * _PIECES)))
        self.starts = itertools.count(0, self.piece)
        self.seats = itertools.count(1)
        self.lock = threading.Lock()
        self.active = 0
        self.closed = False
        self.done = threading.Semaphore(0)

    def work(self, seat: int) -> None:
        workspace = (self.workspace or 0) + seat * self.thread_bytes
        for start in self.starts:
            if start >= self.n:
                return
            self.body(self.context, start, min(start + self.piece, self.n), workspace)

    def join(self) -> None:
        """A worker's part."""
        with self.lock:
            if self.closed:
                return
            self.active += 1
            seat = next(self.seats)
        self.work(seat)
        with self.lock:
            self.active -= 1
            if self._is_left():
                self.done.release()

    def abandon(self) -> None:
        """After an interruption: wait for the workers, and leave no element undefined."""
        while True:
            try:
                with self.lock:
                    self.closed = True
                    busy = self.active > 0
                if busy:
                    self.done.acquire()
                self.body(self.context, 0, self.n, self.workspace)
                return
            except BaseException:  # once more: the workers use memory of the running kernel
                continue

    def _is_left(self) -> bool:
        return self.closed and self.active == 0

    def lead(self) -> None:
        """The caller's part; returns when no worker is left inside."""
        self.work(0)
        with self.lock:
            self.closed = True
            if self.active == 0:
                return
        self.done.acquire()


class _Pool:
    def __init__(self) -> None:
        self.regions: queue.SimpleQueue[_Region] = queue.SimpleQueue()
        self.size = 0
        self.lock = threading.Lock()

    def invite(self, region: _Region, count: int) -> None:
        if self.size < count:
            with self.lock:
                while self.size < count:
                    threading.Thread(
                        target=self._serve, name=f"akg_py-{self.size}", daemon=True
                    ).start()
                    self.size += 1
        for _ in range(count):
            self.regions.put(region)

    def _serve(self) -> None:
        while True:
            self.regions.get().join()


_pool = _Pool()


def _after_fork() -> None:
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.lru_cache(maxsize=4096)
def _body(address: int) -> Callable[..., Any]:
    return _BODY(address)


@functools.cache
def runner(thread_bytes: int, hands: int) -> Any:
    """The C function that a kernel calls for a parallel loop; None for a single thread."""
    if hands == 1:
        return None

    def run(body: int, context: int, n: int, workspace: int | None) -> None:
        if n <= 0:
            return
        region = _Region(body, context, n, workspace or 0, thread_bytes, hands)
        try:
            _pool.invite(region, min(hands, n) - 1)
            region.lead()
        except BaseException as error:  # Ctrl-C; C code can't carry it, `raise_pending` does
            region.abandon()
            _interrupted.error = error

    return RUNNER(run)
