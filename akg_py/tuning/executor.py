"""A pool of worker processes that survives its workers: a `concurrent.futures.Executor`.

A job is an importable function and JSON data, never code. Each worker is a fresh interpreter that
speaks JSON lines; it ends by itself when its parent is gone. A worker that crashes, exits or
takes too long loses its own job only: the job's future gets a `WorkerError` with the reason, and
a new worker starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import IO, Any, TypeGuard

from akg_py import errors
from akg_py.errors import AkgError, InternalError


class WorkerError(AkgError):
    """A worker process didn't finish its job: it crashed, exited, or took too long."""


class WorkerPool(Executor):
    """Runs jobs in `workers` processes.

    Args:
        timeout_seconds: limit for one job, from the moment the worker begins to work on it
            (imports and waiting in the queue don't count); None for no limit.
        start_seconds: limit for the start of a worker and the import of a job's function.

    A job's error arrives as the AkgError that it was, as InternalError for anything else, or as
    WorkerError when the process was lost.
    """

    def __init__(
        self, workers: int = 2, timeout_seconds: float | None = 60.0, start_seconds: float = 300.0
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.start_seconds = start_seconds
        self._jobs: queue.SimpleQueue[tuple[Future[Any], dict[str, Any]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = threading.Event()
        self._cancelled = threading.Event()
        self._workers = [_Worker(self) for _ in range(max(1, workers))]

    @property
    def workers(self) -> int:
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return [
            w.process.pid
            for w in self._workers
            if w.process is not None and w.process.poll() is None
        ]

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn(*args, **kwargs)` in a worker; arguments and result are JSON data."""
        name = getattr(fn, "__qualname__", "")
        if fn.__module__ == "__main__" or "<" in name:
            raise InternalError(f"{name} can't be imported by a worker")
        if self._closed.is_set():
            raise RuntimeError("the pool is shut down")
        job = {"call": f"{fn.__module__}:{name}", "args": list(args), "kwargs": kwargs}
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; with `cancel_futures` at once, else after the submitted jobs."""
        if cancel_futures:
            self._closed.set()
            self._cancelled.set()
            with contextlib.suppress(queue.Empty):
                while True:
                    item = self._jobs.get_nowait()
                    if item is not None:
                        item[0].cancel()
            for worker in self._workers:
                worker.kill()
        for _ in self._workers:
            self._jobs.put(None)
        self._closed.set()
        if wait:
            for worker in self._workers:
                worker.thread.join(10.0)


class _Worker:
    """One process and the thread of the parent that feeds it."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._log: IO[bytes] | None = None
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (item := self.pool._jobs.get()) is not None:
            future, job = item
            if self.pool._cancelled.is_set():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._run(job))
            except BaseException as error:
                future.set_exception(error)
        self.stop()

    def _run(self, job: dict[str, Any]) -> Any:
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._lost() from None
        self._receive(self.pool.start_seconds, "start")
        answer = self._receive(self.pool.timeout_seconds, "finish")
        if "error" in answer:
            raise _rebuild_error(answer["error"])
        return answer["result"]

    def _start(self) -> None:
        self.stop()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
        self._answers = queue.SimpleQueue()
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "AKG_PY_WORKER": "1",
        }
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
            env.setdefault(name, "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "akg_py.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=env,
        )
        threading.Thread(
            target=_read_lines, args=(self.process.stdout, self._answers), daemon=True
        ).start()

    def _receive(self, seconds: float | None, what: str) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.kill()
            raise WorkerError(f"didn't {what} within {seconds:g} s", where="worker") from None
        if line is None:
            raise self._lost()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self) -> WorkerError:
        if self.pool._cancelled.is_set():
            return WorkerError("cancelled", where="worker")
        code = None
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(5.0)
        tail = self._tail()
        self.kill()
        return WorkerError(f"its process {_describe_exit(code)}{tail}", where="worker")

    def _tail(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 2000))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f"; last output: {lines[-1].strip()}" if lines else ""

    def kill(self) -> None:
        """End the process now."""
        process = self.process
        if process is not None and process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)

    def stop(self) -> None:
        """Let the process end, and free what belongs to it."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5.0)
        if self._log is not None:
            self._log.close()
            self._log = None


def _read_lines(stream: IO[bytes] | None, answers: queue.SimpleQueue[bytes | None]) -> None:
    assert stream is not None
    with stream:
        for line in stream:
            answers.put(line)
    answers.put(None)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "closed its output"
    if code < 0:
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"
    return f"exited with code {code}"


def describe_error(error: BaseException) -> dict[str, str]:
    """An error as JSON data."""
    if isinstance(error, AkgError):
        where = "" if error.where is None else str(error.where)
        return {
            "kind": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "where": where,
        }
    return {
        "kind": "InternalError",
        "message": f"{type(error).__name__}: {error}",
        "hint": "",
        "where": "",
    }


def _rebuild_error(data: dict[str, str]) -> AkgError:
    kinds = {k.__name__: k for k in (WorkerError, *vars(errors).values()) if _is_kind(k)}
    kind = kinds.get(data["kind"], AkgError)
    return kind(data["message"], where=data["where"] or "worker", hint=data["hint"])


def _is_kind(value: object) -> TypeGuard[type[AkgError]]:
    return isinstance(value, type) and issubclass(value, AkgError)
