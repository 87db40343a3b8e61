"""The tuning database: an append-only file of JSON lines, and the state that is a fold over it.

The first line is a header with the schema version; each other line is a record with its digest. An
append is one write under a lock, flushed to the disk. A torn, foreign or damaged line never hides
the others: it is skipped and named in `problems`. Merging files is a union by digest, so it is
commutative and idempotent.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from akg_py.errors import DatabaseError
from akg_py.tuning.record import RECORD_SCHEMA, Record, digest_of

HEADER = "akg_py_database"
_HEADER_START = b'{"akg_py'


class DatabaseWarning(UserWarning):
    """Lines of a database were skipped."""


class Database:
    """The records of one file.

    Args:
        path: the file; it is made at the first append.

    Raises:
        DatabaseError: the file can't be read, is no database, or has a newer schema.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.problems: list[str] = []
        self._records: dict[str, Record] = {}
        self.reload()

    def reload(self) -> None:
        """Read the file anew; `problems` lists the lines skipped, and a warning names them."""
        self.problems = []
        self._records = {}
        for record in _read(self.path, self.problems):
            self._records.setdefault(record.digest, record)
        if self.problems:
            warnings.warn("\n".join(self.problems), DatabaseWarning, stacklevel=3)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def append(self, record: Record) -> None:
        """Add a record and wait until the disk has it.

        Raises:
            DatabaseError: the path isn't writable, the disk is full, or the file has a newer
                schema.
        """
        digest = record.digest
        line = json.dumps({"digest": digest, "record": record.to_json()}, separators=(",", ":"))
        with _locked(self.path):
            _append_line(self.path, line)
        self._records.setdefault(digest, record)

    def best(self, key: str, target: str) -> Record | None:
        """The fastest record of a workload key on a target; checked values come first."""
        found = [
            r for r in self if r.key == key and r.target == target and r.simulated_us < float("inf")
        ]
        return min(found, key=lambda r: (not r.is_checked, r.simulated_us, r.digest), default=None)

    def all_best(self) -> list[Record]:
        """The fastest record of each workload and target, by workload."""
        keys = sorted({(r.workload, r.key, r.target) for r in self})
        found = [self.best(key, target) for _, key, target in keys]
        return [r for r in found if r is not None]

    def find(self, what: str) -> list[Record]:
        """Records whose workload text, key or digest begins with `what`, fastest first."""
        found = [r for r in self if any(t.startswith(what) for t in (r.workload, r.key, r.digest))]
        return sorted(found, key=lambda r: (r.workload, r.target, r.simulated_us, r.digest))


def merge(sources: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> Database:
    """Write the union of databases, in any order, to `into`, which may be one of them."""
    target = Path(into)
    with _locked(target):
        records: dict[str, Record] = {}
        problems: list[str] = []
        for path in [*map(Path, sources), *([target] if target.exists() else [])]:
            if not path.exists():
                raise DatabaseError(
                    "no such database",
                    where=str(path),
                    hint="akg_py tune --database FILE writes one",
                )
            records.update((r.digest, r) for r in _read(path, problems))
        ordered = sorted(records.values(), key=lambda r: (r.workload, r.key, r.target, r.digest))
        lines = [json.dumps(_header(), separators=(",", ":"))]
        lines += [
            json.dumps({"digest": r.digest, "record": r.to_json()}, separators=(",", ":"))
            for r in ordered
        ]
        _replace(target, "\n".join(lines) + "\n")
    for problem in problems:
        warnings.warn(problem, DatabaseWarning, stacklevel=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DatabaseWarning)
        return Database(target)


def _header() -> dict[str, Any]:
    return {HEADER: RECORD_SCHEMA}


def _read(path: Path, problems: list[str]) -> Iterator[Record]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise DatabaseError(
            f"can't read the database: {error.strerror}",
            where=str(path),
            hint="choose a file that you may read",
        ) from None
    seen_header = False
    lines = data.split(b"\n")
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        where = f"{path}, line {number}"
        try:
            entry = json.loads(raw)
        except (ValueError, RecursionError):
            known = raw.startswith((_HEADER_START, b'{"digest"')) or _HEADER_START.startswith(raw)
            if number == 1 and not known:
                raise _foreign(path) from None
            if number == len(lines):
                problems.append(f"{where}: torn (a write was cut short); skipped")
            else:
                problems.append(f"{where}: no JSON; skipped")
            continue
        if isinstance(entry, dict) and HEADER in entry:
            seen_header = True
            _check_schema(entry[HEADER], path)
        elif not seen_header and not (
            isinstance(entry, dict) and {"digest", "record"} <= entry.keys()
        ):
            raise _foreign(path)
        else:
            record = _entry(entry, where, problems)
            if record is not None:
                yield record


def _entry(entry: Any, where: str, problems: list[str]) -> Record | None:
    if not isinstance(entry, dict) or not {"digest", "record"} <= entry.keys():
        problems.append(f"{where}: not a record of akg_py; skipped")
        return None
    if entry["digest"] != digest_of(entry["record"]):
        problems.append(f"{where}: damaged (the digest doesn't match); skipped")
        return None
    try:
        return Record.from_json(entry["record"])
    except DatabaseError as error:
        problems.append(f"{where}: {error.message}; skipped")
        return None


def _check_schema(schema: Any, path: Path) -> None:
    if isinstance(schema, int) and schema > RECORD_SCHEMA:
        raise DatabaseError(
            f"the database has schema {schema}, this akg_py reads up to {RECORD_SCHEMA}",
            where=str(path),
            hint="upgrade akg_py, or use another database file",
        )


def _foreign(path: Path) -> DatabaseError:
    return DatabaseError(
        "this file is no tuning database",
        where=str(path),
        hint=f'its first line should be {{"{HEADER}": 1}}',
    )


@contextlib.contextmanager
def _locked(path: Path, timeout_seconds: float = 60.0) -> Iterator[None]:
    import filelock

    if not path.parent.is_dir():
        raise DatabaseError(
            f"no such directory: {path.parent}", where=str(path), hint="make it first"
        )
    lock = filelock.FileLock(str(path) + ".lock", timeout=timeout_seconds)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise DatabaseError(
            f"another process holds the database for over {timeout_seconds:.0f} s",
            where=str(path),
            hint="wait for it, or use another file and merge later",
        ) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield
    finally:
        lock.release()


def _append_line(path: Path, line: str) -> None:
    try:
        with open(path, "a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            prefix = ""
            if size == 0:
                prefix = json.dumps(_header(), separators=(",", ":")) + "\n"
            else:
                file.seek(0)
                _check_head(file.readline(4096), path)
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    prefix = "\n"  # a torn line ends here; ours starts afresh
            data = (prefix + line + "\n").encode()
            try:
                written = file.write(data)
                if written != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise _unwritable(path, error) from None


def _check_head(first: bytes, path: Path) -> None:
    try:
        entry = json.loads(first)
    except ValueError:
        entry = None
    if isinstance(entry, dict) and HEADER in entry:
        _check_schema(entry[HEADER], path)
    elif not first.startswith((_HEADER_START, b'{"digest"')) and not _HEADER_START.startswith(
        first
    ):
        raise _foreign(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise DatabaseError now if an append to `path` would fail later for want of permission."""
    place = Path(path)
    if place.is_dir():
        raise DatabaseError(
            "the database path is a directory",
            where=str(place),
            hint="give a file, such as tuning.jsonl in it",
        )
    parent = place.parent
    if not parent.is_dir():
        raise DatabaseError(f"no such directory: {parent}", where=str(place), hint="make it first")
    try:
        if place.exists():
            with open(place, "ab"):
                return
        with tempfile.TemporaryFile(dir=parent):
            return
    except OSError as error:
        raise _unwritable(place, error) from None


def _unwritable(path: Path, error: OSError) -> DatabaseError:
    hint = (
        "free some space"
        if error.errno == errno.ENOSPC
        else "choose a file that you may write: --database FILE"
    )
    return DatabaseError(f"can't write the database: {error.strerror}", where=str(path), hint=hint)


def _replace(path: Path, text: str) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise _unwritable(path, error) from None
