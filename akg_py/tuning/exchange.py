"""Records for people and other tools: text with te calls, and self-contained JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from akg_py import te
from akg_py.errors import AkgError, DatabaseError
from akg_py.tuning.record import RECORD_SCHEMA, Record


def trace_text(record: Record) -> str:
    """The schedule as the te calls that make it; one line per primitive."""
    try:
        return str(te.Trace.from_json(record.trace))
    except AkgError as error:
        return f"# the trace can't be read: {error.message}"


def describe(record: Record) -> str:
    """One record as text: question, answer, evidence, schedule."""
    costs, base = record.costs, record.baseline
    lines = [f"{record.workload} on {record.target}  (record {record.digest})"]
    us = f"  {record.simulated_us:,.2f} us"
    if costs.get("interval_us"):
        low, high = costs["interval_us"]
        us += f" ({low:,.2f} to {high:,.2f})"
    lines.append(us + (f", bound by {costs['bound']}" if costs.get("bound") else ""))
    if "simulated_us" in base:
        lines.append(
            f"  default schedule {base['simulated_us']:,.2f} us, speed-up {record.speedup:.2f}x"
        )
    if costs.get("predicted_us"):
        lines.append(f"  closed form {costs['predicted_us']:,.2f} us")
    t = record.trials
    lines.append(
        f"  {t.get('completed', 0)} trials ({t.get('failed', 0)} failed) "
        f"of {t.get('space', 0):,} configs, "
        f"seed {record.seed}; values checked: {record.verified or 'no'}"
    )
    lines.append("  " + " ".join(f"{k}={v}" for k, v in record.config.items()))
    lines += [f"    {line}" for line in trace_text(record).splitlines()]
    return "\n".join(lines)


def export_json(records: Sequence[Record]) -> str:
    """Records as one JSON document; each has its schedule as te calls in `schedule`."""
    document: dict[str, Any] = {
        "format": "akg_py schedules",
        "record_schema": RECORD_SCHEMA,
        "records": [
            {**r.to_json(), "digest": r.digest, "schedule": trace_text(r).splitlines()}
            for r in records
        ],
    }
    return json.dumps(document, indent=2)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file; an unwritable path is a DatabaseError."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise DatabaseError(
            f"can't write it: {error.strerror}",
            where=os.fspath(path),
            hint="choose a file that you may write",
        ) from None
