"""The cache on disk: found again, damaged, shared by processes, bounded; and its commands."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from akg_py.cli import main
from akg_py.codegen import cache, objects
from akg_py.codegen.cache import cache_info, clear_cache, evict, read_entry, write_entry
from akg_py.codegen.host import Compiled, CpuKernel
from tests.codegen.test_host import add

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AKG_PY_CACHE", str(tmp_path))
    objects.forget()
    return tmp_path


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.o"))


def test_cache_is_filled_and_used(folder: Path) -> None:
    f = add(name="cached")
    assert not Compiled(f).loaded.from_cache
    assert len(entries(folder)) == 1
    objects.forget()
    assert Compiled(f).loaded.from_cache
    first = Compiled(f)
    assert first.loaded is Compiled(f).loaded


@pytest.mark.parametrize("damage", [b"", b"akg2", b"garbage" * 100, None])
def test_damaged_entry_is_compiled_again(folder: Path, damage: bytes | None) -> None:
    f = add(name="damaged")
    Compiled(f)
    (path,) = entries(folder)
    good = path.read_bytes()
    path.write_bytes(good[:-20] + bytes(20) if damage is None else damage)
    objects.forget()
    kernel = CpuKernel(f)
    assert not kernel.compiled.loaded.from_cache
    a = np.ones((6, 10), np.float32)
    np.testing.assert_array_equal(kernel(a, a), a + a)
    assert path.read_bytes() == good


def test_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("AKG_PY_CACHE", str(blocked))
    objects.forget()
    a = np.ones((6, 10), np.float32)
    np.testing.assert_array_equal(CpuKernel(add(name="blocked"))(a, a), a + a)


PROGRAM = """
import sys
import numpy as np
from tests.codegen.test_host import add
from akg_py.codegen.host import CpuKernel
kernel = CpuKernel(add(name="shared"))
a = np.ones((6, 10), np.float32)
assert (kernel(a, a) == 2).all()
assert "numba" not in sys.modules
print(kernel.compiled.loaded.from_cache)
"""


def test_two_processes_share_the_cache(folder: Path) -> None:
    environment = {**os.environ, "AKG_PY_CACHE": str(folder), "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen(run, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        process.communicate()
        assert process.returncode == 0
    assert len(entries(folder)) == 2  # the kernel and the thread pool
    assert not list(folder.rglob(".new-*"))
    third = subprocess.run(
        run, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert third.stdout.strip() == "True"


def key(n: int) -> str:
    return f"{n:02x}" * 32


def aged(n: int, seconds: float, size: int = 1000) -> Path:
    """An entry that was used last so long ago."""
    write_entry(key(n), bytes(size - cache._HEAD_BYTES))
    path = cache._path_of(key(n))
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return path


def test_an_entry_is_valid_only_under_its_own_key(folder: Path) -> None:
    write_entry(key(1), b"code")
    assert read_entry(key(1)) == b"code" and read_entry(key(2)) is None
    cache._path_of(key(2)).parent.mkdir()
    cache._path_of(key(1)).rename(cache._path_of(key(2)))
    assert read_entry(key(1)) is None and read_entry(key(2)) is None


def test_every_part_of_the_key_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {objects.digest_of("a"), objects.digest_of("b")}
    processor = objects.host()
    for change in ({"name": "other"}, {"features": "+none"}):
        monkeypatch.setattr(objects, "host", lambda change=change: replace(processor, **change))
        keys.add(objects.digest_of("a"))
    monkeypatch.setattr(objects, "host", lambda: processor)
    monkeypatch.setattr(objects, "EMITTER_VERSION", -1)
    keys.add(objects.digest_of("a"))
    monkeypatch.undo()
    monkeypatch.setattr("llvmlite.__version__", "other")
    keys.add(objects.digest_of("a"))
    assert len(keys) == 6


def test_eviction_removes_what_was_not_used_for_longest(folder: Path) -> None:
    paths = [aged(n, 10_000 * (9 - n)) for n in range(9)]
    assert read_entry(key(0)) is not None  # used now, although written first
    evict(10_000)
    assert all(p.exists() for p in paths)
    evict(4000)
    assert [p.exists() for p in paths] == [True, *[False] * 6, True, True]
    evict(10)
    assert [n for n, p in enumerate(paths) if p.exists()] == [0]


def test_old_engines_are_removed_as_one(folder: Path) -> None:
    for name, age in (("old", 9e6), ("new", 100)):
        version = folder / "readers" / name
        version.mkdir(parents=True)
        for n in range(3):
            (version / f"{n}.nbc").write_bytes(bytes(500))
        then = version.stat().st_mtime - age
        os.utime(version, (then, then))
    aged(1, 200)
    info = cache_info()
    assert (info.engines, info.engine_bytes, info.kernels, info.kernel_bytes) == (2, 3000, 1, 1000)
    evict(3500)
    info = cache_info()
    assert (info.engines, info.engine_bytes, info.kernels) == (1, 1500, 1)
    assert (folder / "readers" / "old").is_dir()  # a process may be writing into it


def test_writers_keep_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKG_PY_CACHE_BYTES", "20000")
    abandoned = folder / "00" / ".new-1"
    abandoned.parent.mkdir()
    abandoned.write_text("half")
    os.utime(abandoned, (1, 1))
    for n in range(1, 120):
        write_entry(key(n), bytes(1000))
    assert cache_info().kernel_bytes <= 20000 + 20000 // 16 + 2000
    assert read_entry(key(119)) is not None
    assert not abandoned.exists()
    assert cache_info().limit_bytes == 20000
    monkeypatch.setenv("AKG_PY_CACHE_BYTES", "plenty")
    assert cache_info().limit_bytes == 1 << 30


def test_full_disk_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    write_entry(key(1), b"code")
    assert read_entry(key(1)) is None
    assert not [p for p in folder.rglob("*") if p.is_file()]
    a = np.ones((6, 10), np.float32)
    np.testing.assert_array_equal(CpuKernel(add(name="full"))(a, a), a + a)


def test_concurrent_writers_readers_and_eviction(folder: Path) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for step in range(60):
            n = (seed * 7 + step) % 10
            write_entry(key(n), bytes([n]) * 3000)
            found = read_entry(key((n + 3) % 10))
            if found not in (None, bytes([(n + 3) % 10]) * 3000):
                wrong.append(found)
            if step % 20 == 0:
                evict(10_000)
            if step == 30 and seed == 0:
                clear_cache()

    crew = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    assert not wrong
    assert not list(folder.rglob(".new-*"))


def test_folders_vanish_while_they_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another process clears the cache in the middle of `evict`."""
    for n in range(3):
        write_entry(key(n), bytes([n]) * 3000)
    listed = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).parent == folder:
            for file in listed(path):
                os.unlink(file)
            os.rmdir(path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    evict(1000)
    assert cache_info().kernels == 0 and clear_cache() == 0


def test_commands(folder: Path) -> None:
    run = CliRunner().invoke
    write_entry(key(1), bytes(2000))
    other = folder / "notes.txt"
    other.write_text("not ours")
    shown = run(main, ["cache", "info"])
    assert shown.exit_code == 0
    assert shown.output.splitlines() == [
        f"folder   {folder}",
        "kernels  2,036 bytes in 1 entry",
        "engines  0 bytes in 0 versions",
        "limit    1,073,741,824 bytes ($AKG_PY_CACHE_BYTES)",
    ]
    assert run(main, ["cache", "clear"]).output == f"removed 2,036 bytes from {folder}\n"
    assert list(folder.iterdir()) == [other]
    assert run(main, ["cache", "clear"]).output == f"removed 0 bytes from {folder}\n"
