"""`akg_py tune`: search, with a progress bar, then a table."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from akg_py.tuning.entries import Entry
    from akg_py.tuning.session import Result
    from akg_py.tuning.tuner import Progress

DEFAULT_MINUTES = 1.5


@click.command()
@click.argument("what", nargs=-1, required=True)
@click.option(
    "--target",
    default="ascend910b3",
    show_default=True,
    help="Part to tune for; see `akg_py targets`.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    help="Configs to measure per workload.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=DEFAULT_MINUTES,
    show_default=True,
    help="Time for everything, in equal shares; what one search doesn't need goes to the others.",
)
@click.option(
    "--database",
    default="tuning.jsonl",
    show_default=True,
    help="File that the records are appended to.",
)
@click.option(
    "--storage", default=None, help="optuna journal of the trials.  [default: in DATABASE.trials/]"
)
@click.option(
    "--workers", type=click.IntRange(1), default=None, help="Processes.  [default: one per core]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Seconds for one trial."
)
@click.option(
    "--sampler", type=click.Choice(["ranked", "tpe", "random"]), default="ranked", show_default=True
)
def tune(
    what: tuple[str, ...],
    target: str,
    trials: int,
    minutes: float,
    database: str,
    storage: str | None,
    workers: int | None,
    seed: int,
    timeout: float,
    sampler: str,
) -> None:
    """Find fast schedules of WHAT and keep them in a database.

    WHAT is a workload such as matmul:m=1024,n=2048,k=512,dtype=float16; a file of workloads (.toml,
    .json, or one a line); a profile (msprof's op_summary_*.csv, or kernel_details.csv); or the
    name of a shipped list, such as bert-base. A run that was stopped goes on where it was: call
    it again.
    """
    from akg_py.cli.main import format_error
    from akg_py.target import find_target
    from akg_py.tuning.session import default_workers, tune_list
    from akg_py.tuning.tuner import Options

    find_target(target)
    entries, complete = _read_all(what)
    count = f"{len(entries)} workload{'s' if len(entries) != 1 else ''}"
    jobs = workers or default_workers()
    click.echo(
        f"tuning {count} for {target}: up to {trials} trials each, "
        f"{minutes:g} minutes in all, {jobs} workers",
        err=True,
    )
    started = time.monotonic()
    with _Bar(len(entries), trials) as bar:
        options = Options(trials, seed, sampler, seconds=60 * minutes, on_progress=bar.on_progress)
        results = tune_list(
            entries,
            target,
            options,
            database=database,
            storage=storage,
            workers=workers,
            timeout=timeout,
            on_result=bar.on_result,
        )
    _print_table(results)
    measured = sum(
        r.record.trials["completed"] + r.record.trials["failed"]
        for r in results
        if r.record is not None
    )
    click.echo(
        f"{measured} trials in {time.monotonic() - started:.0f} s; records are in {database}",
        err=True,
    )
    failed = [r for r in results if r.error is not None]
    for r in failed:
        if r.error is not None:
            click.echo(f"{r.entry.workload} failed: {format_error(r.error)}", err=True)
    if failed or not complete:
        raise SystemExit(1)


def _read_all(what: tuple[str, ...]) -> tuple[list[Entry], bool]:
    """All entries, and whether all of WHAT could be read; problems are printed."""
    from akg_py.tuning.entries import Worklist
    from akg_py.tuning.worklist import read

    complete = True
    everything = Worklist("all")
    for item in what:
        one = read(item)
        for problem in one.problems:
            click.echo(f"left out: {problem}", err=True)
        complete = complete and not one.problems
        for kind, launches, why in one.skipped:
            click.echo(
                f"skipped {launches} launch{'es' if launches != 1 else ''} of {kind}: {why}",
                err=True,
            )
        for entry in one.entries:
            everything.add(entry)
    return everything.entries, complete


class _Bar:
    """A progress bar on standard error: trials of all workloads, best time of the current one."""

    def __init__(self, workloads: int, trials: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self.trials, self.finished = trials, 0
        self.bar = RichProgress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} trials"),
            BarColumn(24),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.row = self.bar.add_task("starting workers", total=workloads * trials)

    def __enter__(self) -> _Bar:
        self.bar.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self.bar.__exit__(*details)

    def on_progress(self, p: Progress) -> None:
        text = p.workload
        if p.best_us is not None:
            text += f"  best {p.best_us:.2f} us"
        if p.failed:
            text += f"  {p.failed} failed"
        self.bar.update(self.row, completed=self.finished * self.trials + p.done, description=text)

    def on_result(self, result: Result) -> None:
        self.finished += 1
        self.bar.update(self.row, completed=self.finished * self.trials)


def _print_table(results: list[Result]) -> None:
    from akg_py.tuning.session import gain_is_real, totals

    rows = []
    for r in results:
        if r.record is None:
            continue
        base = r.record.baseline.get("simulated_us")
        rows.append(
            [
                r.entry.workload.text,
                str(r.entry.count),
                _us(base),
                _us(r.record.simulated_us),
                (f"{r.record.speedup:.2f}x" if base else "-")
                + (" " if gain_is_real(r.record) else "~"),
                _share(r.record.costs.get("peak_share")),
                str(r.record.costs.get("bound", "")),
                r.record.verified.split(",")[0],
            ]
        )
    if not rows:
        return
    total = totals(results)
    if sum(r.entry.count for r in results) > 1:
        launches = str(sum(r.entry.count for r in results if r.record is not None))
        rows.append(
            [
                "all launches",
                launches,
                _us(total.default_us),
                _us(total.tuned_us),
                f"{total.speedup:.2f}x ",
                "",
                "",
                "",
            ]
        )
    print_table(
        ["workload", "count", "default us", "tuned us", "speed-up", "of peak", "bound", "values"],
        rows,
    )
    click.echo(
        "of peak: cube flops for products, copies between GM and UB for vector kernels."
        "  ~: the gain is inside the model's uncertainty."
    )


def _us(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, (int, float)) and math.isfinite(value) else "-"


def _share(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, float) and value > 0 else "-"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Plain columns: texts to the left, numbers to the right."""
    widths = [max(len(str(row[n])) for row in [header, *rows]) for n in range(len(header))]
    right = [all(_is_number(row[n]) for row in rows) for n in range(len(header))]
    for row in [header, *rows]:
        cells = [
            f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _is_number(text: str) -> bool:
    return not text or text == "-" or text[0].isdigit()
