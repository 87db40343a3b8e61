"""What a wheel holds; an installed wheel, an editable install and a plain checkout work alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: top-level folders that a wheel carries inside the package, with the files it takes from them
SHIPPED = {"schedules": (".py",), "search_spaces": (".toml",), "akg_py": (".py", ".toml", ".typed")}
pytestmark = pytest.mark.slow

#: run in a folder that holds nothing, with each kind of installation
USE = """
import importlib.util
import sys

import akg_py
from akg_py import library
from akg_py.tuning.worklist import read, shipped_lists

assert akg_py.__file__.startswith(sys.argv[1]), akg_py.__file__
for target in ("ascend910b3", "cpu"):
    task = library.task("matmul:m=64,n=64,k=64", target)
    assert task.found.function.__module__.startswith("akg_py.schedules."), task.found
    assert len(task.space) > 1
    print(akg_py.build(task.apply(), task.workload.args, target=target).source[:40])
assert "bert-base" in shipped_lists()
assert len(read("bert-base").entries) > 5
for absent in ("akg_py.setup", "akg_py.tests", *sys.argv[2:]):
    assert importlib.util.find_spec(absent) is None, absent
"""


def run(*command: object, cwd: Path, **env: str) -> str:
    """What a command prints; all of its output is in the message if it fails."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files under version control, so that no build writes into the checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout to know which files belong to the project")
    copy = tmp_path_factory.mktemp("tree")
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source") / "akg_py"  # building leaves files behind
    shutil.copytree(tree, source)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", out, source, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An empty environment that finds the dependencies of this one, but no akg_py of its own."""
    path = tmp_path / "environment"
    venv.create(path, symlinks=True)
    (site,) = path.glob("lib/python*/site-packages")
    # a folder named in a .pth file is searched; .pth files inside it (editable installs) aren't
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return path


def install(environment: Path, *what: object) -> None:
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps")
    run(*pip, "--force-reinstall", *what, cwd=environment)


def check_use(python: Path, origin: Path, absent: set[str], tmp_path: Path, **env: str) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    run(python, "-c", USE, origin, *absent, cwd=empty, **env)


def test_wheel_holds_the_package_and_nothing_else(tree: Path, wheel: Path) -> None:
    expected = set()
    for folder, endings in SHIPPED.items():
        inside = Path() if folder == "akg_py" else Path("akg_py")
        for path in (tree / folder).rglob("*"):
            if path.suffix in endings or path.name == "py.typed":
                expected.add(str(inside / path.relative_to(tree)))
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if not n.endswith("/")}
    described = {n for n in names if n.split("/")[0].endswith(".dist-info")}
    assert names - described == expected
    assert any(n.endswith("/entry_points.txt") for n in described)
    assert any(n.endswith("/LICENSE") for n in described)


def test_installed_wheel(wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(environment, wheel)
    not_installed = {"schedules", "search_spaces", "tests", "setup"}
    check_use(environment / "bin" / "python", environment, not_installed, tmp_path)
    script = environment / "bin" / "akg_py"
    assert "tune" in run(script, "--help", cwd=tmp_path)
    database = tmp_path / "tuning.jsonl"
    tune = ("tune", "add:shape=64x64", "--trials", "2", "--database", database)
    assert "add:shape=64x64" in run(script, *tune, cwd=tmp_path)  # in worker processes
    assert database.is_file()


def test_editable_install(tree: Path, environment: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(tree, source)
    install(environment, "-e", source)
    check_use(environment / "bin" / "python", source, set(), tmp_path)
    assert "tune" in run(environment / "bin" / "akg_py", "--help", cwd=tmp_path)


def test_plain_checkout(tree: Path, environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    check_use(python, tree, set(), tmp_path, PYTHONPATH=str(tree))
    assert "tune" in run(python, "-m", "akg_py", "--help", cwd=tmp_path, PYTHONPATH=str(tree))
