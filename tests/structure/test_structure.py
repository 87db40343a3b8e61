"""The package's shape: layers, sizes of files, what `import akg_py` loads, documented names."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "akg_py"
#: lower layers first; a module imports from its own layer or from those before it
LAYERS = (
    ("records", "errors", "dtypes", "target", "cost_types"),
    ("ir",),
    ("te",),
    ("ops", "lowering", "workloads"),
    ("codegen",),
    ("ascend",),
    ("autoschedule",),
    ("pipeline",),
    ("cost",),
    ("library",),
    ("tuning",),
    ("frontends",),
    ("cli",),
)
LEVEL = {name: n for n, names in enumerate(LAYERS) for name in names}
#: heavy packages, and the layers that may import them (inside the function that needs them)
HEAVY = {
    "numba": ("codegen", "ascend"),
    "llvmlite": ("codegen", "ascend"),
    "optuna": ("tuning",),
    "sympy": ("cost",),
    "sklearn": ("tuning",),
}
MAX_LINES = 600
MODULES = sorted(p for p in PACKAGE.rglob("*.py"))
IDS = [str(p.relative_to(ROOT)) for p in MODULES]
each_module = pytest.mark.parametrize("path", MODULES, ids=IDS)


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module, line, whether at the top level) of each import outside of TYPE_CHECKING blocks."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield node.module, node.lineno, id(node) in top
            if node.module.split(".")[0] == "akg_py":  # a name may be a module
                for alias in node.names:
                    yield f"{node.module}.{alias.name}", node.lineno, id(node) in top


@each_module
def test_imports_point_to_lower_layers(path: Path) -> None:
    own = layer_of(path)
    if own in ("__init__", "__main__"):
        return
    assert own in LEVEL, f"{own} is in no layer: add it to LAYERS"
    for module, line, _ in imported(path):
        parts = module.split(".")
        if parts[0] != "akg_py" or len(parts) == 1 or parts[1] not in LEVEL:
            continue
        assert LEVEL[parts[1]] <= LEVEL[own], (
            f"{path}:{line}: {own} imports {module}, a higher layer"
        )


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports inside functions count too; those for type checkers don't."""
    names = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in MODULES
    }
    graph = {
        name: {m for m, _, _ in imported(path) if m in names and not f"{name}.".startswith(f"{m}.")}
        for name, path in names.items()
        if name != "akg_py"
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"circle: {' -> '.join((*path[path.index(name) :], name))}"
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_engines_are_compiled_anew_when_what_makes_their_code_changes() -> None:
    from akg_py.codegen.memory import ENGINE_SOURCES

    covered = {
        f for place in ENGINE_SOURCES for f in (place.glob("*.py") if place.is_dir() else [place])
    }
    keeps_code = {
        PACKAGE / "errors.py",
        PACKAGE / "codegen/cache.py",
        PACKAGE / "codegen/objects.py",
    }
    files = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts): p
        for p in MODULES
        if p.name != "__init__.py"
    }
    for path in covered:
        needed = {files[module] for module, _, _ in imported(path) if module in files}
        assert needed <= covered | keeps_code, f"{path} is made with more than the stamp covers"


@each_module
def test_heavy_packages_stay_in_their_layers(path: Path) -> None:
    for module, line, _ in imported(path):
        package = module.split(".")[0]
        if package in HEAVY:
            assert layer_of(path) in HEAVY[package], (
                f"{path}:{line}: {package} outside of {HEAVY[package]}"
            )


@each_module
def test_files_are_short_and_introduced(path: Path) -> None:
    text = path.read_text()
    count = text.count("\n")
    assert count <= MAX_LINES, f"{count} lines: split it along a noun"
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "no module docstring"


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, akg_py, akg_py.te; print([m for m in sys.modules if m in sys.argv[1:]])"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *HEAVY, "scipy", "ml_dtypes", "click", "rich", "filelock"],
        capture_output=True,
        text=True,
        env=env,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["akg_py.te", "akg_py"])
def test_public_names_are_documented(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        item = getattr(module, public)
        if inspect.ismodule(item) or not callable(item):
            continue
        doc = inspect.getdoc(item) or ""
        generated = doc.startswith(f"{getattr(item, '__name__', '')}(")  # what dataclass writes
        assert doc and not generated, f"{name}.{public} has no docstring"
        if not inspect.isclass(item):
            continue
        for method, member in vars(item).items():
            if not method.startswith("_") and inspect.isfunction(member):
                small = method in ("output", "mark", "ndim")
                assert small or inspect.getdoc(member), f"{name}.{public}.{method} has no docstring"


def test_no_module_named_utils() -> None:
    names = {part.removesuffix(".py") for p in MODULES for part in p.relative_to(PACKAGE).parts}
    assert not names & {"utils", "util", "common", "helpers", "core", "misc"}
