"""Passes branch on values only through `decide` and state constraints by `require`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from akg_py.errors import CapacityError, ExpressionError, InternalError
from akg_py.ir.expr import Const, Var, const, decide, minimum, require

PASSES = Path(__file__).parents[2] / "akg_py"
N = Var("n", "int32", 0, 99)


def test_constants_are_decided() -> None:
    assert decide(True) and not decide(False)
    assert decide(const(3) < const(4)) and not decide(const(4) <= const(3))
    assert decide(N < 100), "bounds of a Var decide"


def test_an_open_condition_is_a_fault_of_the_pass() -> None:
    with pytest.raises(InternalError, match="open condition"):
        decide(N < 50)


def test_require_carries_its_reason() -> None:
    require(const(2) <= const(2), lambda: CapacityError("not raised"))
    with pytest.raises(CapacityError, match="too small"):
        require(const(3) <= const(2), lambda: CapacityError("too small", hint="less"))


@pytest.mark.parametrize(
    "use", [bool, int, range, lambda e: [0] * e], ids=["bool", "int", "range", "repeat"]
)
def test_symbols_are_no_python_values(use: object) -> None:
    with pytest.raises((ExpressionError, InternalError)):
        use(minimum(N, 50))  # type: ignore[operator]


def test_a_constant_is() -> None:
    assert int(const(7)) == 7 and list(range(const(2))) == [0, 1]  # type: ignore[call-overload]
    assert isinstance(N * 0 + 7, Const)


@pytest.mark.parametrize(
    "path",
    sorted(PASSES.glob("lowering/*.py")) + sorted(PASSES.glob("ascend/[a-z]*.py")),
    ids=lambda p: p.name,
)
def test_passes_iterate_in_a_fixed_order(path: Path) -> None:
    """A loop over a set would make programs depend on hashes of objects."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.For, ast.comprehension)):
            is_set = isinstance(node.iter, (ast.Set, ast.SetComp)) or (
                isinstance(node.iter, ast.Call)
                and isinstance(node.iter.func, ast.Name)
                and node.iter.func.id in ("set", "frozenset")
            )
            assert not is_set, f"{path}:{getattr(node, 'lineno', '?')}: iterates over a set"
