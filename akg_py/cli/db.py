"""`akg_py db`: read, compare, export and merge tuning databases."""

from __future__ import annotations

from difflib import get_close_matches

import click


@click.group()
def db() -> None:
    """Read tuning databases."""


def _open(file: str):  # type: ignore[no-untyped-def]
    import os

    from akg_py.errors import DatabaseError
    from akg_py.tuning.database import Database

    if not os.path.exists(file):
        raise DatabaseError(
            "no such database", where=file, hint="akg_py tune --database FILE writes one"
        )
    return Database(file)


@db.command()
@click.argument("file", default="tuning.jsonl")
@click.argument("what", required=False, default="")
def show(file: str, what: str) -> None:
    """List the records of FILE, or those whose workload or digest begins with WHAT."""
    from akg_py.cli.tune import print_table

    records = _open(file).find(what)
    rows = [
        [
            r.digest,
            r.workload,
            r.target,
            f"{r.simulated_us:,.2f}",
            f"{r.speedup:.2f}x",
            str(sum(_tried(r.trials))),
            str(r.seed),
            r.verified,
        ]
        for r in records
    ]
    if rows:
        print_table(
            ["record", "workload", "target", "tuned us", "speed-up", "trials", "seed", "values"],
            rows,
        )
    click.echo(
        f"{len(rows)} record{'s' if len(rows) != 1 else ''}"
        + (f" for {what}" if what else "")
        + f" in {file}"
    )


def _tried(trials: dict[str, int]) -> tuple[int, int]:
    return trials.get("completed", 0), trials.get("failed", 0)


@db.command()
@click.argument("file", default="tuning.jsonl")
@click.argument("what", required=False, default="")
@click.option("--target", default="", help="Only records of this target.")
def best(file: str, what: str, target: str) -> None:
    """Print the best record of each workload: config, times, and the schedule as te calls."""
    from akg_py.tuning.exchange import describe

    found = _select(file, what, target)
    for number, record in enumerate(found):
        click.echo(("\n" if number else "") + describe(record))


@db.command()
@click.argument("file", default="tuning.jsonl")
@click.argument("what", required=False, default="")
@click.option("--target", default="", help="Only records of this target.")
@click.option("-o", "--output", default="-", help="File to write; standard output by default.")
def export(file: str, what: str, target: str, output: str) -> None:
    """Write the best record of each workload as JSON, with the schedule as te calls."""
    from akg_py.tuning.exchange import export_json, write_text

    text = export_json(_select(file, what, target))
    if output == "-":
        click.echo(text)
    else:
        write_text(output, text + "\n")
        click.echo(f"wrote {output}", err=True)


@db.command()
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--into", required=True, help="Database that gets all records; it may be one of FILES."
)
def merge(files: tuple[str, ...], into: str) -> None:
    """Join databases; the order doesn't matter and joining twice changes nothing."""
    from akg_py.tuning.database import merge as merge_files

    click.echo(f"{len(merge_files(files, into))} records in {into}")


def _select(file: str, what: str, target: str):  # type: ignore[no-untyped-def]
    from akg_py.errors import DatabaseError

    database = _open(file)
    wanted = {r.digest for r in database.find(what)}
    found = [r for r in database.all_best() if r.digest in wanted and target in ("", r.target)]
    if not found:
        known = sorted({r.workload for r in database})
        names = {w.split(":")[0] for w in known}
        near = [] if wanted else get_close_matches(what, [*names, *known], 2)
        has = f"it has {', '.join(known[:5])}" if known else "it is empty"
        raise DatabaseError(
            f"no record of {what or 'anything'}{f' on {target}' if target else ''}",
            where=file,
            hint=f"did you mean {' or '.join(near)}?" if near else has,
        )
    return found
