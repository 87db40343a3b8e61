"""Prints rows as they come, judges the bars, and writes the tables to results/cpu_<class>.md.

Tables of processors with shorter vectors than those of AVX-512 go to folders of their own, avx2
and sse; what holds the rest was studied on the first kind only.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from akg_py.codegen.target import host
from tests.benchmarks.cpu.harness import OURS, Bar, Row, blas_line

RESULTS = Path(__file__).resolve().parents[3] / "results"
PEERS = ("akg_py", "numpy", "llvmlite", "torch", "apache-tvm", "apache-tvm-ffi")
BUSY_SHARE = 0.05


@dataclass(frozen=True)
class Figure:
    """A measured number with the number it may reach at most; without one it is for reading."""

    what: str
    value: float
    unit: str
    at_most: float | None = None

    @property
    def line(self) -> str:
        """A row of the table."""
        bar = "" if self.at_most is None else f"{self.at_most:g} {self.unit}"
        met = self.at_most is None or self.value <= self.at_most
        verdict = "" if self.at_most is None else "met" if met else "**not met**"
        return f"| {self.what} | {self.value:.3g} {self.unit} | {bar} | {verdict} |"


class Report:
    """The tables of one class.

    Attributes:
        thread_counts: a table for each.
        profile: why bars are missed, as studied by hand; it ends the page.
    """

    def __init__(
        self, name: str, title: str, thread_counts: tuple[int, ...], profile: str = ""
    ) -> None:
        self.name, self.title, self.thread_counts = name, title, thread_counts
        self.profile = profile
        self.rows: list[Row] = []
        self.figures: list[Figure] = []
        self.verdicts: list[str] = []
        self._start = time.perf_counter(), _machine_seconds()
        print(f"== {title}\n{_processor()}; {blas_line()}", flush=True)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        text = row.failure or ", ".join(
            f"{peer} {_ratio(row, peer)}" for peer in _peers([row]) if peer != OURS
        )
        ours = row.time_of(OURS)
        took = f"{ours * 1e3:9.3f} ms {_rate(row):>12}" if ours else ""
        print(f"{row.label:34} {row.threads} {took}  {text}", flush=True)

    def add_figure(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure.line, flush=True)

    def judge(self, bars: Sequence[Bar]) -> None:
        self.verdicts = [_verdict(bar, self.rows) for bar in bars if _is_measured(bar, self)]

    def finish(self, write: bool) -> None:
        """Print the verdicts; write the file."""
        print("\n".join(self.verdicts), flush=True)
        print(self._load(), flush=True)
        if write:
            folder = _folder()
            folder.mkdir(exist_ok=True)
            (folder / f"cpu_{self.name}.md").write_text(self._page())

    def _load(self) -> str:
        wall = time.perf_counter() - self._start[0]
        busy = _machine_seconds() - self._start[1]
        share = max(0.0, busy) / wall / (os.cpu_count() or 1)
        verdict = "low load" if share < BUSY_SHARE else "the machine was busy with other work"
        first = ", this one ran at real-time priority" if _is_real_time() else ""
        return (
            f"Other processes used {share:.0%} of the processors ({verdict}){first}; {wall:.0f} s."
        )

    def _page(self) -> str:
        command = f"python -m tests.benchmarks.cpu {shlex.join(sys.argv[1:])}"
        versions = ", ".join(f"{p} {v}" for p in PEERS if (v := _version(p)))
        lines = [
            f"# {self.title}",
            "",
            f"Command: `{command}`, {time.strftime('%Y-%m-%d')}. {self._load()}",
            "",
            f"{_processor()}; {os.cpu_count()} processors; Python {platform.python_version()}, "
            f"{versions}; {blas_line()}.",
        ]
        if self.figures:
            lines += ["", "| what | measured | bar: at most | |", "|---|---|---|---|"]
            lines += [f.line for f in self.figures]
            return "\n".join([*lines, *self._ending(), ""])
        lines += [
            "",
            "A ratio is the peer's time over ours, of the smallest times (of the medians): above 1 "
            "ours is faster. Peers write into arrays made before, ours into arrays it made before. "
            "Every result was compared with numpy's first.",
        ]
        for count in self.thread_counts:
            rows = [r for r in self.rows if r.threads == count]
            clock = "CPU time" if count == 1 else "wall clock"
            plural = "one thread" if count == 1 else f"{count} threads"
            lines += ["", f"## {plural.capitalize()} ({clock})", "", *_table(rows)]
        lines += ["", "## Bars", "", "| bar | at least | reached | |", "|---|---|---|---|"]
        lines += self.verdicts
        return "\n".join([*lines, *self._ending(), ""])

    def _ending(self) -> list[str]:
        if not self.profile or _folder() != RESULTS:
            return []
        return ["", "## What holds the rest", "", self.profile.strip()]


def _folder() -> Path:
    """Where tables of this machine go."""
    return {64: RESULTS, 32: RESULTS / "avx2"}.get(host().vector_bytes, RESULTS / "sse")


def _peers(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.times))


def _ratio(row: Row, peer: str) -> str:
    if peer not in row.times:
        return ""
    ours, theirs = row.times[OURS], row.times[peer]
    return f"{theirs[0] / ours[0]:.2f} ({theirs[1] / ours[1]:.2f})"


def _rate(row: Row) -> str:
    return f"{row.work / row.times[OURS][0]:.1f} {row.unit}" if row.work else ""


def _table(rows: Sequence[Row]) -> list[str]:
    peers = [p for p in _peers(rows) if p != OURS]
    lines = [
        f"| case | ours ms | rate | {' | '.join(peers)} |",
        "|---|---|---|" + "---|" * len(peers),
    ]
    for row in rows:
        if row.failure:
            lines.append(f"| {row.label} | {row.failure} |")
            continue
        ratios = " | ".join(_ratio(row, p) for p in peers)
        lines.append(f"| {row.label} | {row.times[OURS][0] * 1e3:.4g} | {_rate(row)} | {ratios} |")
    return lines


def _is_measured(bar: Bar, report: Report) -> bool:
    return bar.threads in report.thread_counts


def _verdict(bar: Bar, rows: Sequence[Row]) -> str:
    where = f" ({', '.join(bar.groups)})" if bar.groups else ""
    count = "one thread" if bar.threads == 1 else f"{bar.threads} threads"
    kind = "geometric mean" if bar.statistic == "geomean" else "every case"
    head = f"| {bar.peer} / ours, {kind}{where}, {count} | {bar.at_least:g} |"
    counted = [r for r in rows if r.threads == bar.threads and _counts(bar, r, rows)]
    reached, usual = (
        {r.label: x for r in counted if (x := _at_best(r, bar.peer, rows, n)) is not None}
        for n in (0, 1)
    )
    failed = any(r.failure for r in rows)
    if not reached:
        return f"{head} not measured | |"
    worst = min(reached, key=lambda label: reached[label])
    collect = statistics.geometric_mean if bar.statistic == "geomean" else min
    value, median = collect(reached.values()), collect(usual.values())
    met = value >= bar.at_least and not failed
    below = sum(x < bar.at_least for x in reached.values())
    note = f", {below} of {len(reached)} below" if bar.statistic == "min" and below else ""
    return (
        f"{head} {value:.3g} (worst {reached[worst]:.3g}: {worst}{note}; by medians {median:.3g}) "
        f"| {'met' if met else '**not met**'} |"
    )


def _at_best(row: Row, peer: str, rows: Sequence[Row], n: int) -> float | None:
    """A peer's time over ours, n=1 for medians; none counts as slower than itself on one thread.

    OpenMP and OpenBLAS wait in spins that a busy machine stretches without a bound.
    """
    ratio = row.ratio(peer, n)
    single = (r for r in rows if r.label == row.label and r.threads == 1)
    alone = next((r.time_of(peer, n) for r in single), None)
    if ratio is None or alone is None:
        return ratio
    return min(ratio, alone / row.times[OURS][n])


def _counts(bar: Bar, row: Row, rows: Sequence[Row]) -> bool:
    if row.failure or (bar.groups and row.group not in bar.groups):
        return False
    alone = next((r for r in rows if r.label == row.label and r.threads == 1), row)
    return alone.times[OURS][0] * 1e3 >= bar.least_ms


def _is_real_time() -> bool:
    return hasattr(os, "SCHED_RR") and os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)


def _machine_seconds() -> float:
    """CPU seconds of all processes but this one, since the machine started."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    idle = int(fields[3]) + int(fields[4])
    busy = (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")
    mine = os.times()
    return busy - sum(mine[:4])


def _version(package: str) -> str:
    if package == "akg_py":
        import akg_py

        return akg_py.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
        names = [line.split(":")[1].strip() for line in text.split("\n") if "model name" in line]
        kinds = [k for k in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if f" {k}" in text]
        return f"{names[0]} ({', '.join(kinds)})"
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
