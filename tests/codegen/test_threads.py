"""The thread pool: counts, callers at once, fork, exit, signals; limits of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akg_py.codegen import threads as module
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.threads import processors, thread_count, threads
from akg_py.errors import ExpressionError
from akg_py.ir.stmt import Alloc, Func, Seq
from tests.codegen.funcs import at, axis, buffer, func, loop, put

ROOT = Path(__file__).parents[2]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def rows(count: int, length: int = 64) -> Func:
    """B[o] = (A[o] + 1) * 2 through a workspace of each thread, rows over threads."""
    A, B, T = buffer("A", (count, length)), buffer("B", (count, length)), buffer("T", (40_000,))
    o, i, j = axis("o", count), axis("i", length), axis("j", length)
    first = loop(i, length, put(T, (i,), at(A, o, i) + 1.0))
    second = loop(j, length, put(B, (o, j), at(T, j) * 2.0))
    return func([A, B], [B], loop(o, count, Alloc(T, Seq((first, second))), "parallel"))


def data(count: int, length: int = 64) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).standard_normal((count, length)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 7, 64, 1001])
def test_any_count_of_iterations_and_threads(count: int) -> None:
    kernel, a = CpuKernel(rows(count)), data(count)
    for hands in (1, 2, 3, 8, 100, 1000):
        with threads(hands):
            for _ in range(5):
                np.testing.assert_array_equal(kernel(a), (a + 1) * 2)
    with pytest.raises(ExpressionError, match="0 threads"), threads(0):
        pass


def test_calls_from_several_threads_at_once() -> None:
    kernels = [CpuKernel(rows(n)) for n in (2, 9, 40)]
    failures: list[int] = []

    def work(n: int) -> None:
        a = data(kernels[n % 3].func.params[0].shape[0]) + np.float32(n)
        for step in range(100):
            with threads(1 + (n + step) % 4):
                if not np.array_equal(kernels[n % 3](a), (a + 1) * 2):
                    failures.append(n)

    crew = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    assert not failures


def child_of_fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads, which is the point
        return os.fork()


@needs_fork
def test_pool_survives_fork() -> None:
    kernel, a = CpuKernel(rows(20)), data(20)
    leave = threading.Event()

    def busy() -> None:
        while not leave.is_set():
            kernel(a)

    with threads(3):
        other = threading.Thread(target=busy)
        other.start()
        try:
            for _ in range(10):
                child = child_of_fork()
                if child == 0:
                    fine = all(np.array_equal(kernel(a), (a + 1) * 2) for _ in range(20))
                    os._exit(0 if fine else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            leave.set()
            other.join()


END = """
import sys, threading, time
import numpy as np
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.threads import threads
from tests.codegen.test_threads import data, rows
kernel, a = CpuKernel(rows(50)), data(50)
with threads(3):
    kernel(a)
def forever():
    with threads(3):
        while True:
            kernel(a)
if "busy" in sys.argv:
    threading.Thread(target=forever, daemon=True).start()
if "idle" in sys.argv:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("state", ["spinning", "idle", "busy"])
def test_interpreter_ends_with_workers(state: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", END, state],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_interruption_is_raised_after_the_kernel() -> None:
    kernel, a = CpuKernel(rows(2000)), data(2000)
    out = np.zeros_like(a)
    main = threading.main_thread().ident
    timer = threading.Timer(0.02, signal.pthread_kill, (main, signal.SIGINT))
    end = time.monotonic() + 20
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
    try:
        with threads(3):
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                while time.monotonic() < end:
                    kernel(a, out)
            np.testing.assert_array_equal(out, (a + 1) * 2)
            np.testing.assert_array_equal(kernel(a), (a + 1) * 2)
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------- counts


def test_count_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, wanted in (("3", 3), ("0", processors()), ("many", processors()), ("", processors())):
        monkeypatch.setenv("AKG_PY_THREADS", text)
        module._default_count.cache_clear()
        assert thread_count() == wanted
        with threads(7):
            assert thread_count() == 7
        assert thread_count() == wanted
    monkeypatch.undo()
    module._default_count.cache_clear()


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "groups"


@pytest.mark.parametrize(
    "quota, wanted", [("max", 8), ("50000", 1), ("150000", 2), ("800000", 8), ("9000000", 8)]
)
def test_limits_of_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, wanted: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    own, parent, host = tmp_path / "own", tmp_path / "parent", tmp_path / "host"
    groups = write(own, {"groups": "0::/a/b\n", "a/b/cpu.max": f"{quota} 100000\n"})
    assert processors(groups, own) == wanted
    groups = write(
        parent,
        {
            "groups": "0::/a/b\n",
            "a/b/cpu.max": "max 100000\n",
            "a/cpu.max": f"{quota} 100000\n",
        },
    )
    assert processors(groups, parent) == wanted
    groups = write(host, {"groups": "0::/../../elsewhere\n", "cpu.max": f"{quota} 100000\n"})
    assert processors(groups, host) == wanted
    number = "-1" if quota == "max" else quota
    for folder in ("cpu,cpuacct", "cpu"):
        root = tmp_path / folder
        groups = write(
            root,
            {
                "groups": "4:memory:/a\n5:cpu,cpuacct:/a\n",
                f"{folder}/a/cpu.cfs_quota_us": number,
                f"{folder}/a/cpu.cfs_period_us": "100000",
            },
        )
        assert processors(groups, root) == wanted
    assert processors(tmp_path / "missing", tmp_path) == 8
    groups = write(tmp_path / "odd", {"groups": "nonsense\n0::/\n", "cpu.max": "???\n"})
    assert processors(groups, tmp_path / "odd") == 8
