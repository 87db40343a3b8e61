"""Lists of workloads: from text, TOML or JSON files, profiles, and the lists that ship with akg_py.

A list entry is a workload with a weight (how often one run of the model launches it). A bad entry
never hides the good ones: it becomes a problem with its place, and the caller decides what to do.
"""

from __future__ import annotations

import json
import tomllib
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from akg_py.errors import SpaceError
from akg_py.ops.workload import Workload
from akg_py.tuning.entries import Entry, Worklist
from akg_py.tuning.msprof import read_profile


def shipped_lists() -> list[str]:
    """Names of the lists that come with akg_py."""
    return sorted(
        p.name[:-5]
        for p in resources.files("akg_py.workloads").iterdir()
        if p.name.endswith(".toml")
    )


def read(what: str) -> Worklist:
    """Read workload text, a file or a shipped list.

    Files are `.toml`, `.json`, `.csv` of msprof, or hold one workload a line.

    Raises:
        SpaceError: nothing of the kind, an unreadable file, or not a single good workload in it.
    """
    path = Path(what)
    if path.suffix.lower() in (".toml", ".json", ".csv", ".txt") or path.is_file():
        result = read_file(path)
    elif ":" in what:
        return Worklist(what, [Entry(Workload.parse(what))])
    elif what in shipped_lists():
        text = (resources.files("akg_py.workloads") / f"{what}.toml").read_text(encoding="utf-8")
        result = read_toml(text, f"{what}.toml")
    else:
        known = shipped_lists()
        near = get_close_matches(what, known, 2, 0.4)
        raise SpaceError(
            f"{what!r} is no workload, file or shipped list",
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else f"lists: {', '.join(known)}; or text such as matmul:m=1024,n=2048,k=512",
        )
    if not result.entries:
        detail = "\n".join(f"  {p}" for p in result.problems[:5])
        detail += "".join(f"\n  skipped {n} x {kind}: {why}" for kind, n, why in result.skipped[:5])
        raise SpaceError(
            f"no workload to tune\n{detail}" if detail else "no workload in it",
            where=str(what),
            hint="one workload a line, such as add:shape=8x8",
        )
    return result


def read_file(path: Path) -> Worklist:
    """Read one file; see `read`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SpaceError("no such file", where=str(path), hint="check the path") from None
    except OSError as error:
        raise SpaceError(
            f"can't read it: {error.strerror}",
            where=str(path),
            hint="choose a file that you may read",
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpaceError(
            f"not UTF-8 text (byte {error.start})", where=str(path), hint="save it as UTF-8"
        ) from None
    match path.suffix.lower():
        case ".toml":
            return read_toml(text, str(path))
        case ".json":
            return read_json(text, str(path))
        case ".csv":
            return read_profile(text, str(path))
    return read_lines(text, str(path))


def read_lines(text: str, origin: str) -> Worklist:
    """One workload a line; empty lines and `#` comments are skipped."""
    result = Worklist(origin)
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if content:
            result.add_text(content, f"{origin}, line {number}")
    return result


def read_toml(text: str, origin: str) -> Worklist:
    """A TOML list: `[[workloads]]` tables with `workload`, and if wanted `count` and `note`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpaceError(
            f"not a TOML file: {error}",
            where=origin,
            hint="entries are [[workloads]] with workload = and count =",
        ) from None
    return _read_entries(table, origin)


def read_json(text: str, origin: str) -> Worklist:
    """A JSON list, alone or under "workloads": texts, or objects (`workload`, `count`, `note`)."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpaceError(
            f"not a JSON file: {error}",
            where=origin,
            hint="a list of texts, or of objects with workload and count",
        ) from None
    return _read_entries(table if isinstance(table, dict) else {"workloads": table}, origin)


def _read_entries(table: dict[str, Any], origin: str) -> Worklist:
    result = Worklist(str(table.get("name", origin)))
    items = table.get("workloads")
    if not isinstance(items, list):
        raise SpaceError(
            "no list `workloads` in it",
            where=origin,
            hint="entries are [[workloads]] with workload = and count =",
        )
    for number, item in enumerate(items, 1):
        where = f"{origin}, entry {number}"
        if isinstance(item, dict):
            unknown = item.keys() - {"workload", "count", "note"}
            if unknown:
                result.problems.append(f"{where}: unknown key {sorted(unknown)[0]}")
                continue
            result.add_text(
                item.get("workload"), where, item.get("count", 1), str(item.get("note", ""))
            )
        else:
            result.add_text(item, where)
    return result
