"""Index expressions: whatever the constructors fold, values stay those of plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akg_py.errors import ExpressionError
from akg_py.ir import expr as ir
from akg_py.ir.expr import (
    Const,
    Expr,
    Var,
    bounds,
    const,
    evaluate_index,
    free_vars,
    same,
    substitute,
)

VARS = (Var("x", lo=0, hi=5), Var("y", lo=-4, hi=3), Var("z", lo=2, hi=2), Var("w", lo=0, hi=17))
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}

# a tree: an int, a Var's name, or (operator, left, right)
Tree = Any


def trees() -> st.SearchStrategy[Tree]:
    leaf = st.one_of(st.integers(-9, 9), st.sampled_from(["x", "y", "z", "w"]))

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        divisor = st.one_of(st.integers(1, 8), st.integers(1, 8), st.just("z"), st.integers(-3, -1))
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "min", "max", "*"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%"]), inner, divisor),
            st.tuples(st.sampled_from(["*", "+"]), inner, st.integers(-6, 6)),
        )

    return st.recursive(leaf, grow, max_leaves=8)


def build(tree: Tree) -> Expr:
    if isinstance(tree, int):
        return const(tree)
    if isinstance(tree, str):
        return VARS["xyzw".index(tree)]
    op, a, b = tree
    return ir.binary(op, build(a), build(b))


def plain(tree: Tree, env: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    op, a, b = tree
    return OPERATORS[op](plain(a, env), plain(b, env))


def points() -> list[dict[str, int]]:
    ranges = [
        sorted({v.lo, v.lo + 1 if v.hi > v.lo else v.lo, (v.lo + v.hi) // 2, v.hi}) for v in VARS
    ]
    return [dict(zip("xyzw", p, strict=True)) for p in itertools.product(*ranges)]


POINTS = points()


def env_of(point: dict[str, int]) -> dict[Var, int]:
    return {v: point[v.name] for v in VARS}


@settings(max_examples=400, deadline=None)
@given(trees())
def test_constructors_keep_values_and_bounds_hold(tree: Tree) -> None:
    e = build(tree)
    lo, hi = bounds(e)
    for point in POINTS:
        expected = plain(tree, point)
        assert evaluate_index(e, env_of(point)) == expected, f"{tree} became {e} at {point}"
        assert lo <= expected <= hi, f"{e} is {expected} at {point}, outside of {lo}..{hi}"


@settings(max_examples=200, deadline=None)
@given(trees(), trees(), st.sampled_from(sorted(COMPARISONS)))
def test_comparisons_are_decided_rightly(a: Tree, b: Tree, op: str) -> None:
    e = ir.binary(op, build(a), build(b))
    for point in POINTS[::3]:
        expected = COMPARISONS[op](plain(a, point), plain(b, point))
        assert bool(evaluate_index(e, env_of(point))) == expected, (
            f"{a} {op} {b} became {e} at {point}"
        )


@settings(max_examples=200, deadline=None)
@given(trees(), st.tuples(trees(), trees()))
def test_substitution_keeps_values(tree: Tree, new: tuple[Tree, Tree]) -> None:
    x, y = VARS[:2]
    # the parts must respect the bounds of what they replace
    parts = [ir.minimum(ir.maximum(build(t), v.lo), v.hi) for t, v in zip(new, (x, y), strict=True)]
    e = substitute(build(tree), {x: parts[0], y: parts[1]})
    for point in POINTS[::5]:
        env = env_of(point)
        inner = {**point, "x": evaluate_index(parts[0], env), "y": evaluate_index(parts[1], env)}
        assert evaluate_index(e, env) == plain(tree, inner)


@settings(max_examples=200, deadline=None)
@given(trees())
def test_vectors_give_the_same_values(tree: Tree) -> None:
    import numpy as np

    e = build(tree)
    env = {v: np.array([p[v.name] for p in POINTS]) for v in VARS}
    got = np.broadcast_to(evaluate_index(e, env), len(POINTS))
    assert got.tolist() == [plain(tree, p) for p in POINTS]


@settings(max_examples=150, deadline=None)
@given(trees(), trees())
def test_same_means_equal(a: Tree, b: Tree) -> None:
    x, y = build(a), build(b)
    assert same(x, build(a))
    if same(x, y):
        assert all(plain(a, p) == plain(b, p) for p in POINTS)


@settings(max_examples=100, deadline=None)
@given(trees())
def test_text_is_python(tree: Tree) -> None:
    e = build(tree)
    text = str(e)
    for point in POINTS[::7]:
        assert eval(text, {"min": min, "max": max}, dict(point)) == plain(tree, point), text


def test_quotient_and_remainder_join() -> None:
    f = Var("f", lo=0, hi=129)
    assert same((f // 13) * 13 + f % 13, f)
    assert same(((f // 13) * 26 + f % 13 * 2), f * 2)
    io, ii = Var("io", lo=0, hi=8), Var("ii", lo=0, hi=15)
    assert same((io * 16 + ii) // 16, io) and same((io * 16 + ii) % 16, ii)


def test_nested_floor_divisions_join() -> None:
    f = Var("f", lo=0, hi=1000)
    assert str(f // 4 // 3) == "f // 12"


def test_negative_numerators() -> None:
    y = Var("y", lo=-7, hi=7)
    for v in range(-7, 8):
        assert evaluate_index((y * 2 + 1) // 2, {y: v}) == (v * 2 + 1) // 2
        assert evaluate_index((y - 3) % 4, {y: v}) == (v - 3) % 4


def test_minimum_against_a_tail() -> None:
    io = Var("io", lo=0, hi=8)
    tail = ir.minimum(16, 129 - io * 16)
    assert bounds(tail) == (1, 16)
    assert bounds(io * 16 + tail)[1] == 129
    assert isinstance(ir.minimum(16, 200 - io * 16), Const)


def test_division_by_zero_is_refused() -> None:
    x = VARS[0]
    for op in ("//", "%"):
        for a in (x, const(4)):
            with pytest.raises(ExpressionError, match="division by zero"):
                ir.binary(op, a, const(0))


def test_free_vars() -> None:
    x, y, *_ = VARS
    assert free_vars(x * 3 + y // 2 - x * 3) == {y}


def test_sympy_agrees() -> None:
    sympy = pytest.importorskip("sympy")
    i, o = sympy.symbols("i o", integer=True, nonnegative=True)
    io, ii = Var("o", lo=0, hi=8), Var("i", lo=0, hi=15)
    for ours, theirs in (
        ((io * 16 + ii) * 3 - ii * 2, (o * 16 + i) * 3 - i * 2),
        (io * 4 + (ii + 1) * (const(5) - 2), o * 4 + (i + 1) * 3),
    ):
        parsed = sympy.sympify(str(ours), locals={"i": i, "o": o})
        assert sympy.simplify(parsed - theirs) == 0


def test_text_of_negated_quotients() -> None:
    x = VARS[0]
    assert str(0 - x // 2) == "-(x // 2)"
    assert str(5 - x // 2) == "5 - x // 2"
    assert str(0 - (x + 1) % 4 * 3 - 1) == "-((x + 1) % 4) * 3 - 1"


def test_difference_of_quotients_is_bounded() -> None:
    x, w = VARS[0], VARS[3]
    e = (w * 16 + x + 5) // 6 - (w * 16) // 6
    assert bounds(e) == (0, 2)
    assert bounds(e * -2 + 1) == (-3, 1)


def test_what_is_less_than_a_whole_step_is_left_out() -> None:
    """A part of the divisor divides all but a rest that never reaches it."""
    p, a = Var("p", lo=0, hi=63), Var("a", lo=0, hi=31)
    assert str((p * 32 + a) // 1024) == str(p // 32)
    assert str((p * 32 + a) % 1024) == str((p % 32) * 32 + a)
    assert str((p * 96 + a + 64) % 1024) == str(((p * 3 + 2) % 32) * 32 + a)
    assert same((p * 32 + a) // 1024 * 1024 + (p * 32 + a) % 1024, p * 32 + a)
    for e, f in (
        ((p * 32 + a) // 1024, lambda x, y: (x * 32 + y) // 1024),
        ((p * 96 + a + 64) % 1024, lambda x, y: (x * 96 + y + 64) % 1024),
        ((p * 32 + a - 7) % 1024, lambda x, y: (x * 32 + y - 7) % 1024),
        ((p * 48 + a) // 100, lambda x, y: (x * 48 + y) // 100),
    ):
        for x, y in itertools.product((0, 1, 31, 32, 63), (0, 1, 15, 31)):
            assert evaluate_index(e, {p: x, a: y}) == f(x, y)


def test_rounded_up_quotients() -> None:
    for a, b in ((24, 10), (20, 10), (0, 7), (2**31 - 1, 2), (2**40, 3)):
        assert ir.ceildiv(const(a), b).value == -(-a // b)  # type: ignore[attr-defined]
    assert ir.align(const(130), 32).value == 160  # type: ignore[attr-defined]
