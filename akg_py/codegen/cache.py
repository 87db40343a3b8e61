"""Compiled code on disk: entries by digest, safe for many processes, bounded in size.

In: a digest and bytes; out: the same bytes later, or None. An entry is written under a temporary
name and moved into place; it carries a checksum over digest and bytes, so that a torn, damaged or
misplaced one is only compiled again. A folder that is full or can't be written is no error. The
engines of the simulated devices keep what numba compiled in `readers/`.

The time of a file says when it was last used (within an hour). From time to time a writer looks at
all of them and removes the oldest beyond the limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from akg_py.records import dataclass

_MAGIC = b"akg2"
_HEAD_BYTES = len(_MAGIC) + 32
_DEFAULT_BYTES = 1 << 30
_SECONDS = 3600.0  # between looks at the whole folder, and the grain of times of use
_written_bytes = 0  # by this process since its last look


def cache_dir() -> Path:
    """Where compiled code is kept: $AKG_PY_CACHE, or this user's folder for caches."""
    given = os.environ.get("AKG_PY_CACHE")
    if given:
        return Path(given)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "akg_py"


def limit_bytes() -> int:
    """What the folder may hold: $AKG_PY_CACHE_BYTES, or 1 GiB."""
    given = os.environ.get("AKG_PY_CACHE_BYTES", "")
    return int(given) if given.isdigit() else _DEFAULT_BYTES


def read_entry(digest: str) -> bytes | None:
    """The bytes under a digest, or None when there are none or they are damaged."""
    path = _path_of(digest)
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    data = raw[_HEAD_BYTES:]
    if raw[:_HEAD_BYTES] != _head(digest, data):
        return None
    mark_used(path)
    return data


def write_entry(digest: str, data: bytes) -> None:
    """Keep bytes under a digest, if the folder can be written."""
    path = _path_of(digest)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.parent / f".new-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
        try:
            with new.open("xb") as file:
                file.write(_head(digest, data) + data)
            os.replace(new, path)
        except OSError:
            new.unlink(missing_ok=True)
            return
        _look_after(len(data))


def mark_used(path: Path) -> None:
    """Note that a file or folder was used now."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _SECONDS:
            os.utime(path)


def _path_of(digest: str) -> Path:
    return cache_dir() / digest[:2] / f"{digest}.o"


def _head(digest: str, data: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(digest.encode() + data).digest()


# ---------------------------------------------------------------- the whole folder


@dataclass(frozen=True)
class CacheInfo:
    """What the cache holds: kernels, and code of the engines of simulated devices."""

    folder: Path
    kernels: int
    kernel_bytes: int
    engines: int
    engine_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class _Unit:
    """What is removed together: one entry, or the files of one version of the engines."""

    files: tuple[Path, ...]
    size_bytes: int
    used: float
    is_engine: bool


def cache_info() -> CacheInfo:
    """Count what the cache holds."""
    units = list(_units(cache_dir()))
    engines = [u for u in units if u.is_engine]
    return CacheInfo(
        folder=cache_dir(),
        kernels=len(units) - len(engines),
        kernel_bytes=sum(u.size_bytes for u in units if not u.is_engine),
        engines=len(engines),
        engine_bytes=sum(u.size_bytes for u in engines),
        limit_bytes=limit_bytes(),
    )


def clear_cache() -> int:
    """Remove everything this package put into the folder; returns the bytes."""
    folder = cache_dir()
    units = list(_units(folder))
    for unit in units:
        _remove(unit)
    for path in (*_matching(folder, "??", ".new-*"), folder / _STAMP):
        with contextlib.suppress(OSError):
            path.unlink()
    for inner in (
        *_matching(folder, "??"),
        *_matching(folder, "readers", "*"),
        folder / "readers",
    ):
        with contextlib.suppress(OSError):
            inner.rmdir()
    return sum(u.size_bytes for u in units)


def evict(limit: int | None = None) -> None:
    """Remove what was not used for longest until the cache is well within its limit.

    The entry used last stays, however large it is.
    """
    limit = limit_bytes() if limit is None else limit
    folder = cache_dir()
    units = sorted(_units(folder), key=lambda u: u.used)
    total = sum(u.size_bytes for u in units)
    if total > limit:
        for unit in units[:-1]:
            if total <= limit - limit // 8:
                break
            _remove(unit)
            total -= unit.size_bytes
    for path in _matching(folder, "??", ".new-*"):  # of writers that were killed
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _SECONDS:
                path.unlink()


_STAMP = ".looked"


def _look_after(size: int) -> None:
    """After a write: `evict` when nobody did for an hour, or when this process wrote much."""
    global _written_bytes
    _written_bytes += size
    stamp = cache_dir() / _STAMP
    try:
        age = time.time() - stamp.stat().st_mtime
    except OSError:
        age = _SECONDS * 2
    if age > _SECONDS or _written_bytes > limit_bytes() // 16:
        _written_bytes = 0
        stamp.touch()
        evict()


def _matching(folder: Path, pattern: str, *inner: str) -> list[Path]:
    """Paths by a pattern for each level; other processes may remove folders meanwhile."""
    try:
        found = list(folder.glob(pattern))
    except OSError:
        return []
    for below in inner:
        found = [path for parent in found for path in _matching(parent, below)]
    return found


def _units(folder: Path) -> Iterator[_Unit]:
    for entry in _matching(folder, "??", "*.o"):
        with contextlib.suppress(OSError):  # another process may have removed it
            found = entry.stat()
            yield _Unit((entry,), found.st_size, found.st_mtime, False)
    for version in _matching(folder, "readers", "*"):
        with contextlib.suppress(OSError):
            files = tuple(f for f in version.rglob("*") if f.is_file())
            size = sum(f.stat().st_size for f in files)
            if files:
                yield _Unit(files, size, version.stat().st_mtime, True)


def _remove(unit: _Unit) -> None:
    for file in unit.files:
        with contextlib.suppress(OSError):
            file.unlink()
