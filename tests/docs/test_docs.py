"""What README and docs say is run: every example, every python block, links, the two commands.

The python blocks of a page are one program, run in order in an empty folder. A ```text block right
after a python block is what that block prints, word for word; `--update-golden` rewrites these.
Other fences are samples: times change with the device model and are not compared.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import akg_py
from akg_py import te
from akg_py.ops.registry import operators

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "@@ block"
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


def run(program: Path, folder: Path) -> str:
    """Standard output of a program; its folder, cache aside, is `folder`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(program)],
        capture_output=True, text=True, cwd=folder, env=env, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    out = run(example, tmp_path)
    assert out.strip()
    if example.name == "scaled_add_relu.py":
        assert "largest error: 0.0" in out
        count = sum(
            len(p.read_text().splitlines()) for p in example.parent.glob("scaled_add_relu.*")
        )
        assert count < 40, f"operator, schedule and space take {count} lines"


@each_page
def test_python_blocks(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    blocks = [n for n, f in enumerate(fences) if f[1] == "python"]
    if not blocks:
        return
    program = tmp_path / f"{page.stem.lower()}.py"
    program.write_text("\n".join(f"{fences[n][2]}\nprint({f'{MARK} {n}'!r})" for n in blocks))
    parts = re.split(rf"^{MARK} (\d+)\n", run(program, tmp_path), flags=re.MULTILINE)
    printed = dict(zip(map(int, parts[1::2]), parts[0::2], strict=False))
    changes = []
    for n in blocks:
        follows = n + 1 < len(fences) and not text[fences[n].end() : fences[n + 1].start()].strip()
        if follows and fences[n + 1][1] == "text":
            got = printed[n].rstrip() + "\n"
            if got != fences[n + 1][2]:
                changes.append((fences[n + 1], got))
    if request.config.getoption("--update-golden"):
        for fence, got in reversed(changes):
            text = text[: fence.start(2)] + got + text[fence.end(2) :]
        page.write_text(text)
        return
    for fence, got in changes:
        assert got == fence[2], f"{page.name}: if the new output is right: --update-golden"


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_opens_with_two_commands() -> None:
    bash = [
        f[2].split("\n") for f in FENCE.finditer((ROOT / "README.md").read_text()) if f[1] == "bash"
    ]
    assert len(bash) >= 2
    assert bash[0][:2] == ["pip install .", "akg_py tune bert-base --database tuning.jsonl"]
    assert bash[1][0] == 'pip install -e ".[test]"' and "pytest" in bash[1][1]


def test_every_te_name_and_primitive_is_documented() -> None:
    language = (ROOT / "docs" / "language.md").read_text()
    schedules = (ROOT / "docs" / "schedules.md").read_text()
    known = set(re.findall(r"\w+", language + schedules))
    assert not set(te.__all__) - known - {"Bounded", "evaluate_with_bound", "graph_inputs"}
    stage = {name for name in vars(te.Stage) if not name.startswith("_")}
    headings = set(re.findall(r"^#+ .*", schedules, re.MULTILINE))
    words = set(re.findall(r"\w+", " ".join(headings)))
    assert not {"cache_read", "cache_write", "rfactor", *stage} - words - {
        "op", "leaf_iter_vars", "scope", "name",
    }  # fmt: skip


def test_shell_commands_exist() -> None:
    """Lines that begin with `akg_py` use commands and options there are."""
    from click.testing import CliRunner

    from akg_py.cli import main

    commands = {"targets", "ops", "tune", "db", "cache"}
    for page in PAGES:
        for fence in FENCE.finditer(page.read_text()):
            for line in fence[2].splitlines():
                words = line.split("#")[0].split()
                if words[:1] != ["akg_py"] or len(words) < 2:
                    continue
                assert words[1] in commands, f"{page.name}: {line}"
                path = words[1:3] if words[1] in ("db", "cache") else words[1:2]
                shown = CliRunner().invoke(main, [*path, "--help"])
                assert shown.exit_code == 0, f"{page.name}: {line}"
                for option in (w.split("=")[0] for w in words if w.startswith("-")):
                    assert option in shown.output, f"{page.name}: {line}: no {option}"


def test_examples_declare_nothing_that_ships() -> None:
    assert "scaled_add_relu" not in {op.name for op in operators()}


def test_public_names_of_the_package_are_mentioned() -> None:
    text = "".join(p.read_text() for p in PAGES)
    missing = [n for n in akg_py.__all__ if not re.search(rf"\b{n}\b", text)]
    assert not missing, f"not in README or docs: {missing}"


def test_examples_parse_as_small_programs() -> None:
    for example in EXAMPLES:
        assert ast.get_docstring(ast.parse(example.read_text())), f"{example.name} says nothing"
