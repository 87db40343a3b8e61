"""verify: each broken rule is an InternalError that names the pass and shows the statement."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from akg_py.errors import InternalError
from akg_py.ir.expr import (
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    binary,
    const,
    minimum,
)
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt, Store, seq
from akg_py.ir.verify import verify

A = Buffer("A", (8, 4), "float32")
C = Buffer("C", (8, 4), "float32")
T = Buffer("T", (4,), "float32", "UB")
i, j = Var("i", lo=0, hi=7), Var("j", lo=0, hi=3)
ONE = const(1.0, "float32")


def load(b: Buffer, *indices: Expr) -> Load:
    return Load(b, indices, b.dtype)


def store(b: Buffer, indices: tuple[Expr, ...], value: Expr = ONE) -> Store:
    return Store((b,), indices, (value,))


def loops(body: Stmt, kind: str = "serial", j_extent: Expr | None = None) -> Stmt:
    return For(
        i, const(8), kind, For(j, j_extent if j_extent is not None else const(4), "serial", body)
    )


def func(body: Stmt) -> Func:
    return Func("f", (A, C), (C,), body)


GOOD = loops(store(C, (i, j), load(A, i, j) + ONE))


def test_good_programs_pass() -> None:
    verify(func(GOOD))
    staged = Alloc(
        T,
        seq(
            For(j, const(4), "vector", store(T, (j,), load(A, i, j))),
            store(C, (i, const(0)), load(T, const(1))),
        ),
    )
    verify(func(For(i, const(8), "core", staged)))  # storage made inside is private
    tail = For(i, const(8), "serial", For(j, minimum(4, 9 - i), "serial", store(C, (i, j))))
    verify(func(tail))
    guarded = loops(If(binary("<", i, const(4)), store(C, (i + 4, j)), store(C, (i - 4, j))))
    verify(func(guarded))
    verify(
        func(
            seq(
                GOOD, For(Var("k", lo=0, hi=0), const(0), "serial", store(C, (const(99), const(0))))
            )
        )
    )
    choice = Select(binary("<", i, const(1)), ONE, load(A, i - 1, j), "float32", guards=True)
    verify(func(loops(store(C, (i, j), choice))))
    verify(func(Intrinsic("copy", GOOD)))


stranger = Buffer("S", (4,), "float32", "UB")
BAD: dict[str, tuple[str, Callable[[], Func]]] = {
    "variable outside of its loop": (
        "i is used outside",
        lambda: func(For(j, const(4), "serial", store(C, (i, j)))),
    ),
    "variable bound twice": ("bound twice", lambda: func(For(i, const(8), "serial", GOOD))),
    "unknown kind": ("kind of loop", lambda: func(loops(store(C, (i, j)), "warp"))),
    "extent from data": (
        "no index expression",
        lambda: func(loops(store(C, (i, j)), j_extent=Cast(load(A, const(0), const(0)), "int32"))),
    ),
    "variable narrower than its loop": (
        "is bounded by",
        lambda: func(For(i, const(20), "serial", store(C, (i, const(0))))),
    ),
    "extent uses an inner variable": (
        "outside of its loop",
        lambda: func(For(i, minimum(j, 8), "serial", GOOD.body)),
    ),  # type: ignore[attr-defined]
    "buffer not allocated": (
        "outside of its allocation",
        lambda: func(loops(store(stranger, (j,)))),
    ),
    "read after its allocation ends": (
        "outside of its allocation",
        lambda: func(
            seq(
                Alloc(T, For(j, const(4), "serial", store(T, (j,)))),
                loops(store(C, (i, j), load(T, j))),
            )
        ),
    ),
    "allocated twice": ("allocated twice", lambda: func(Alloc(T, Alloc(T, GOOD)))),
    "wrong rank of a store": ("has 2 dimensions, 1 indices", lambda: func(loops(store(C, (i,))))),
    "wrong rank of a load": (
        "has 2 dimensions, 1 indices",
        lambda: func(loops(store(C, (i, j), load(A, i)))),
    ),
    "dtype of a store": (
        "is stored to C",
        lambda: func(loops(store(C, (i, j), const(1, "int32")))),
    ),
    "dtype of a load": (
        "A has float32",
        lambda: func(loops(store(C, (i, j), Cast(Load(A, (i, j), "int32"), "float32")))),
    ),
    "float index": ("is float32", lambda: func(loops(store(C, (i, ONE))))),
    "store to an input": ("input A is stored", lambda: func(loops(store(A, (i, j))))),
    "always out of range": ("always outside", lambda: func(loops(store(C, (i + 8, j))))),
    "always before the beginning": (
        "always outside",
        lambda: func(loops(store(C, (i, j), load(A, i - 8, j)))),
    ),
    "mixed dtypes": (
        "in A[i, j] + ",
        lambda: func(loops(store(C, (i, j), Binary("+", load(A, i, j), const(1), "float32")))),
    ),
    "condition is no bool": ("condition of dtype", lambda: func(loops(If(ONE, store(C, (i, j)))))),
    "unknown operator": (
        "unknown operator",
        lambda: func(loops(store(C, (i, j), Binary("^", ONE, ONE, "float32")))),
    ),
    "unknown function": (
        "unknown function",
        lambda: func(loops(store(C, (i, j), Call("gamma", (ONE,), "float32")))),
    ),
    "function of too many": (
        "unknown function exp of 2",
        lambda: func(loops(store(C, (i, j), Call("exp", (ONE, ONE), "float32")))),
    ),
    "not of a float": ("! of float32", lambda: func(loops(store(C, (i, j), Unary("!", ONE))))),
    "comparison that is no bool": (
        "comparison",
        lambda: func(loops(store(C, (i, j), Binary("<", ONE, ONE, "float32")))),
    ),
    "and of floats": (
        "not bool",
        lambda: func(loops(If(Binary("&&", ONE, ONE, "bool"), store(C, (i, j))))),
    ),
    "sum that is not canonical": (
        "no canonical sum",
        lambda: func(loops(store(C, (i, Affine((), 1))))),
    ),
    "values without buffers": (
        "2 values for 1",
        lambda: func(loops(Store((C,), (i, j), (ONE, ONE)))),
    ),
    "race of a parallel loop": (
        "store the same element",
        lambda: func(For(i, const(8), "parallel", store(C, (const(0), const(0))))),
    ),
    "race of a vector loop": (
        "store the same element",
        lambda: func(For(i, const(8), "vector", store(C, (const(0), const(0))))),
    ),
    "race in a shared buffer": (
        "store the same element",
        lambda: func(
            Alloc(
                T,
                For(
                    i,
                    const(8),
                    "core",
                    seq(store(T, (const(0),)), store(C, (i, const(0)), load(T, const(0)))),
                ),
            )
        ),
    ),
    "output never stored": ("never stored", lambda: func(Seq(()))),
    "output that is no parameter": ("no parameter", lambda: replace(func(GOOD), outputs=(T,))),
    "two parameters of one name": (
        "one name",
        lambda: Func("f", (A, replace(C, name="A")), (), GOOD),
    ),
    "intrinsic without a name": ("without a name", lambda: func(Intrinsic("", GOOD))),
    "negative shape": ("has the shape", lambda: func(Alloc(replace(T, shape=(-1,)), GOOD))),
    "no copies": ("0 copies", lambda: func(Alloc(replace(T, copies=0), GOOD))),
    "unknown dtype": ("unknown dtype", lambda: func(Alloc(replace(T, dtype="float8"), GOOD))),
    "cast to an unknown dtype": (
        "unknown dtype",
        lambda: func(loops(store(C, (i, j), Cast(Cast(ONE, "x"), "float32")))),
    ),
    "unknown statement": ("unknown statement", lambda: func(Stmt())),
}


@pytest.mark.parametrize("name", BAD)
def test_broken_rule(name: str) -> None:
    text, make = BAD[name]
    with pytest.raises(InternalError, match=re.escape(text)) as caught:
        verify(make(), "a_pass")
    message = str(caught.value)
    assert "after a_pass: f: " in message and "has a bug" in message


def test_the_statement_is_shown() -> None:
    with pytest.raises(InternalError, match=r"for i in 8:\n.*for j in 4:|C\[i\] = 1.0"):
        verify(func(loops(store(C, (i,)))))


def test_constants_compare_by_value() -> None:
    assert isinstance(const(3) + 4, Const)
