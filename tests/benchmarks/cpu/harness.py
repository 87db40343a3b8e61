"""Candidates of a case, run in turn, round by round, after their values were checked.

A class of kernels is a module with `TITLE`, `BARS` and `cases()`. A case holds our kernel and its
peers, all on arrays made beforehand. With one thread the clock is the thread's CPU time, which
other processes on the machine disturb least; with more it is the wall clock. What is timed follows
untimed runs of its own, not those of a peer, whose arrays would fill the caches. Ratios are formed
within one run of a case: a peer's smallest time over ours, and the same of the medians. A case of
several threads is measured again if they shared a core at its end (see `probe`).
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

import akg_py
from akg_py import te
from akg_py.codegen.threads import threads
from tests.benchmarks.cpu.probe import has_two_cores, wait_for_two_cores

try:
    import threadpoolctl
except ImportError:
    threadpoolctl = None

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
OURS = "ours"
ONE_THREAD = "ours, one thread"
MIN_BATCH_SECONDS = 3e-4
WARM_RUNS = 2
LONG_SECONDS = 2e-2  # of a run that works far longer than what the caches hold would take to read
LEAST_ROUNDS, MOST_ROUNDS = 5, 60
RETRIES = 3  # of a case whose threads turned out to share a core
IDLE_SHARE = 0.1
IDLE_WAIT_SECONDS = 0.5
IDLE_STEP_SECONDS = 0.012  # several ticks: the clock counts other threads by ticks


@dataclass
class Candidate:
    """One way to compute a case.

    Attributes:
        name: "ours", or the peer's name; `copy: memmove` and `copy: numpy` are kinds of one peer.
        run: computes the case once.
        results: arrays that hold the outputs after `run`; None for what computes something else
            (a copy, another precision).
        thread_counts: numbers of threads it is measured with; empty for all.
    """

    name: str
    run: Run
    results: Sequence[Any] | None = None
    thread_counts: tuple[int, ...] = ()


@dataclass
class Case:
    """What is measured together.

    Attributes:
        label: of the row in the table.
        candidates: ours first.
        expected: outputs by numpy.
        rtol, atol: how closely outputs agree with those.
        group: which bars it counts for.
        work: operations or bytes of one run, in 1e9.
        unit: of work over seconds.
    """

    label: str
    candidates: list[Candidate]
    expected: Sequence[Array]
    rtol: float = 1e-5
    atol: float = 1e-5
    group: str = ""
    work: float = 0.0
    unit: str = "GB/s"


@dataclass(frozen=True)
class Bar:
    """A bar of a class: peer's time over ours, at least a number.

    Attributes:
        peer: name of the candidates, without the kind after ":"; the fastest kind counts.
        at_least: the ratio to reach.
        statistic: "geomean" over the cases, or "min": of every case.
        groups: cases that count; empty for all.
        threads: of ours and of the peer.
        least_ms: cases whose time on one thread is shorter don't count.
    """

    peer: str
    at_least: float
    statistic: str = "min"
    groups: tuple[str, ...] = ()
    threads: int = 1
    least_ms: float = 0.0


@dataclass
class Row:
    """Times of a case with a number of threads, by candidate: (minimum, median) in seconds."""

    label: str
    group: str
    threads: int
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    work: float = 0.0
    unit: str = ""
    failure: str = ""

    def time_of(self, peer: str, n: int = 0) -> float | None:
        """The smallest time of a peer of any kind; n=1 for medians."""
        kinds = [t[n] for name, t in self.times.items() if name.split(":")[0] == peer]
        return min(kinds, default=None)

    def ratio(self, peer: str, n: int = 0) -> float | None:
        """The peer's time over ours."""
        theirs, ours = self.time_of(peer, n), self.time_of(OURS, n)
        return None if theirs is None or ours is None else theirs / ours


class KernelClass(Protocol):
    """A module of this package that measures one class of kernels."""

    TITLE: str
    BARS: Sequence[Bar]

    def cases(self) -> Iterator[tuple[str, Callable[[], Case]]]:
        """(label, function that makes the case) of each case."""


class Sink(Protocol):
    """Takes rows as they come."""

    thread_counts: tuple[int, ...]

    def add(self, row: Row) -> None: ...

    def judge(self, bars: Sequence[Bar]) -> None: ...


def ours(
    inputs: Sequence[te.Tensor],
    outputs: Sequence[te.Tensor],
    arrays: Sequence[Array],
    *,
    inplace: dict[te.Tensor, te.Tensor] | None = None,
    into: Sequence[Array] = (),
    name: str = OURS,
) -> Candidate:
    """Our kernel of a graph, scheduled and built automatically, bound to its inputs.

    It allocates its outputs, once, but for those that are in place or that `into` gives.
    """
    schedule = te.create_schedule([t.op for t in outputs])
    args = [*inputs, *outputs]
    kernel = akg_py.build(schedule, args, target="cpu", auto="full", inplace=inplace)
    if inplace:
        given = dict(zip(inputs, arrays, strict=True))
        written = [given[inplace[t]] for t in outputs]
        return Candidate(name, kernel.bind(*arrays, *written), written)
    run = kernel.bind(*arrays, *into)
    results = run()
    if into:
        return Candidate(name, run, into)
    return Candidate(name, run, results if isinstance(results, tuple) else [results])


def dtype_of(name: str) -> np.dtype[Any]:
    """The numpy dtype of one of ours."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def run_class(module: KernelClass, sink: Sink, seconds: float, match: str = "") -> None:
    """Measure the cases of a class whose label contains `match`."""
    for label, make in module.cases():
        if match not in label:
            continue
        try:
            case = make()
            case.candidates = [c for c in case.candidates if _is_wanted(c, sink.thread_counts)]
            _check(case)
        except Exception as error:  # a row that says so, and on to the next case
            sink.add(Row(label, "", 1, failure=f"{type(error).__name__}: {error}".split("\n")[0]))
            continue
        for count in sink.thread_counts:
            sink.add(_measure(case, count, seconds))
        del case
    sink.judge(module.BARS)


def _is_wanted(candidate: Candidate, counts: Sequence[int]) -> bool:
    return not candidate.thread_counts or any(n in candidate.thread_counts for n in counts)


def _check(case: Case) -> None:
    """Run every candidate once and compare what it computed with numpy's values."""
    for candidate in case.candidates:
        candidate.run()
        for got, want in zip(candidate.results or (), case.expected, strict=False):
            _compare(candidate.name, np.asarray(got), want, case)


def _compare(name: str, got: Array, want: Array, case: Case) -> None:
    if want.dtype.kind in "iub":
        wrong = int(np.count_nonzero(got != want))
    else:
        a, b = got.astype(np.float32), want.astype(np.float32)
        wrong = a.size - int(np.count_nonzero(np.abs(a - b) <= case.atol + case.rtol * np.abs(b)))
    if wrong or got.shape != want.shape:
        raise ValueError(f"{wrong} of {want.size} values of {name} are wrong")


def _measure(case: Case, count: int, seconds: float) -> Row:
    limit_peers(count)
    picked = [c for c in case.candidates if _is_wanted(c, [count])]
    runs = {c.name: (c.run, count) for c in picked}
    if count > 1:
        runs[ONE_THREAD] = (picked[0].run, 1)
    samples = interleaved(runs, seconds, time.thread_time if count == 1 else time.perf_counter)
    for _ in range(RETRIES if count > 1 else 0):
        if has_two_cores():
            break
        wait_for_two_cores()
        samples = interleaved(runs, seconds, time.perf_counter)
    times = {name: (min(s), statistics.median(s)) for name, s in samples.items()}
    return Row(case.label, case.group, count, times, case.work, case.unit)


def interleaved(
    runs: dict[str, tuple[Run, int]], seconds: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each run in every round; all take their turn in each round.

    Args:
        runs: name -> (what to run, threads of akg_py in it).
        seconds: of the whole, about.
    """
    taken = {}
    for name, (run, count) in runs.items():
        with threads(count):
            run()
            start = time.perf_counter()
            run()
            taken[name] = max(time.perf_counter() - start, 1e-7)
    waits = any(count > 1 for _, count in runs.values())
    if waits:
        _wait_for_idle_threads()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    deadline = time.perf_counter() + seconds
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() > deadline:
            break
        for name, (run, count) in runs.items():
            with threads(count):
                for _ in range(WARM_RUNS if taken[name] < LONG_SECONDS else int(waits)):
                    run()  # wakes threads, and leaves the caches as its like finds them
                batch = max(1, math.ceil(MIN_BATCH_SECONDS / taken[name]))
                start = clock()
                for _ in range(batch):
                    run()
                samples[name].append((clock() - start) / batch)
            if waits and name not in (OURS, ONE_THREAD):
                _wait_for_idle_threads()
    return samples


def _wait_for_idle_threads() -> None:
    """Until a peer's threads stop spinning: those of OpenBLAS do for 0.1 s."""
    deadline = time.perf_counter() + IDLE_WAIT_SECONDS
    while time.perf_counter() < deadline:
        wall, used = time.perf_counter(), time.process_time()
        time.sleep(IDLE_STEP_SECONDS)
        if time.process_time() - used < IDLE_SHARE * (time.perf_counter() - wall):
            return


def limit_peers(count: int) -> None:
    """Give numpy's BLAS, and torch and tvm when they are loaded, `count` threads."""
    torch, tvm = sys.modules.get("torch"), sys.modules.get("tvm")
    if torch is not None:
        torch.set_num_threads(count)
    if tvm is not None:
        tvm.get_global_func("runtime.config_threadpool")(1, count)
    for library in _blas():
        library.set_num_threads(count)


_libraries: list[Any] | None = None


def _blas() -> list[Any]:
    global _libraries
    if threadpoolctl is None:
        return []
    if _libraries is None:
        found = threadpoolctl.ThreadpoolController().lib_controllers
        _libraries = [lib for lib in found if lib.internal_api == "openblas"]
    return _libraries


def blas_line() -> str:
    """numpy's BLAS, its version and the kernel it runs."""
    if threadpoolctl is None:
        return "OpenBLAS kernel unknown (threadpoolctl is missing)"
    return ", ".join(f"OpenBLAS {b.version} kernel {b.architecture}" for b in _blas()) or "no BLAS"
