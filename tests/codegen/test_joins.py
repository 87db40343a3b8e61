"""Loops that become one, and those that must not."""

from __future__ import annotations

import pytest

from akg_py.codegen.joins import drop_unit_loops, join_loops
from akg_py.ir.expr import const
from akg_py.ir.stmt import Alloc, Buffer, For, Seq, Stmt
from tests.codegen.funcs import at, axis, buffer, check, func, loop, put

N = 83
X, Y = buffer("X", (N,)), buffer("Y", (N,))
E, T = Buffer("E", (N,), "float32", "local"), Buffer("T", (1,), "float32", "local")


def made(shift: int = 0) -> Stmt:
    i = axis("i", N - shift)
    return loop(i, N - shift, put(E, (i + shift,), at(X, i + shift) * 2.0))


def summed() -> Stmt:
    r = axis("r", N)
    return loop(r, N, put(T, (const(0),), at(T, 0) + at(E, r)))


def zero() -> Stmt:
    return put(T, (const(0),), const(0, "float32"))


def joins(*stmts: Stmt) -> int:
    """How many loops are left."""
    left = join_loops(stmts, {}, lambda _: True)
    return sum(isinstance(s, For) for s in left)


def test_a_sum_joins_the_loop_that_makes_its_terms() -> None:
    left = join_loops((made(), zero(), summed()), {}, lambda _: True)
    assert [type(s).__name__ for s in left] == ["Store", "For"]


def test_it_must_pay() -> None:
    assert len(join_loops((made(), summed()), {}, lambda _: False)) == 2


def test_what_stays_apart() -> None:
    i = axis("i", N)
    assert joins(made(1), summed()) == 2, "other extents"
    assert joins(made(), put(E, (const(3),), const(0, "float32")), summed()) == 2, "a store between"
    assert joins(made(), loop(i, N, put(Y, (i,), at(E, N - 1 - i)))) == 2, "a later element"
    total = loop(i, N, put(T, (const(0),), at(T, 0) + at(X, i)))
    assert joins(total, loop(i, N, put(Y, (i,), at(X, i) * at(T, 0)))) == 2, "the whole sum"
    assert joins(made(), loop(i, N, put(T, (const(0),), at(T, 0) + at(Y, i)))) == 2, "no reason"
    inner = axis("j", 4)
    nested = loop(i, N, loop(inner, 4, put(Y, (i,), at(E, i))))
    assert joins(made(), nested) == 2, "a loop inside"


def test_arrays_that_may_be_one() -> None:
    i = axis("i", N)
    reader = loop(i, N, put(T, (const(0),), at(T, 0) + at(X, N - 1 - i) * at(E, i)))
    writer = loop(i, N, Seq((put(E, (i,), at(X, i)), put(Y, (i,), at(X, i)))))
    assert len(join_loops((writer, reader), {}, lambda _: True)) == 1
    assert len(join_loops((writer, reader), {id(Y): id(X)}, lambda _: True)) == 2


@pytest.mark.parametrize("offset", [0, 1, -1])
def test_values(offset: int) -> None:
    wide = Buffer("E", (N + 2,), "float32", "local")
    i, r, j, f = axis("i", N), axis("r", N), axis("j", N), axis("f", N + 2)
    unit = axis("u", 1)
    fill = loop(f, N + 2, put(wide, (f,), const(1, "float32")))
    make = loop(i, N, put(wide, (i + 1,), at(X, i) * 3.0))
    total = put(T, (const(0),), at(T, 0) + at(wide, r + 1 + offset))
    last = loop(j, N, put(Y, (j,), at(wide, j + 1) * at(T, 0)))
    parts = (fill, loop(unit, 1, make), loop(unit, 1, Seq((zero(), loop(r, N, total)))), last)
    check(func([X, Y], [Y], Alloc(wide, Alloc(T, Seq(parts)))))


def test_unit_loops_vanish() -> None:
    unit, i = axis("u", 1), axis("i", N)
    body = loop(unit, 1, loop(i, N, put(Y, (unit * N + i,), at(X, i))))
    left = drop_unit_loops(body)
    assert isinstance(left, For) and left.var is i
