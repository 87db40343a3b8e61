"""Shared fixture: golden listings, small readable text in `golden/` beside the tests, never times.

`--update-golden` rewrites them; read the difference before you commit it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("name.txt", text)`: `text` equals the file `golden/name.txt` beside the test."""

    def check(name: str, text: str) -> None:
        path = Path(request.node.path).parent / "golden" / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return
        assert path.is_file(), f"no {path}: run pytest with --update-golden and read what it writes"
        expected = path.read_text()
        if text != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), str(path), "now", lineterm=""
            )
            pytest.fail(
                "\n".join(lines) + "\nif the change is right: --update-golden", pytrace=False
            )

    return check
