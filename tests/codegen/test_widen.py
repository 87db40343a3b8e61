"""16-bit copies that become float32 copies: which ones, and that no value changes."""

from __future__ import annotations

import numpy as np
import pytest

from akg_py.codegen.widen import widen_copies, widen_products
from akg_py.ir.expr import cast
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Alloc, Func, Seq
from akg_py.ir.verify import verify
from tests.codegen.funcs import at, axis, buffer, check, func, loop, put, random_array


def rows(reads: int, dtype: str = "float16", converts: bool = True) -> Func:
    """A row is copied and read `reads` times."""
    X, Y = buffer("X", (9,), dtype), buffer("Y", (reads, 9), "float32" if converts else dtype)
    row = buffer("row", (9,), dtype)
    i, j, k = axis("i", 9), axis("j", reads), axis("k", 9)
    value = cast("float32", at(row, k)) * 3.0 if converts else at(row, k) * at(row, k)
    copy, use = (
        loop(i, 9, put(row, (i,), at(X, i))),
        loop(j, reads, loop(k, 9, put(Y, (j, k), value))),
    )
    return func([X, Y], [Y], Alloc(row, Seq((copy, use))))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_copies_that_are_read_often(dtype: str) -> None:
    f = rows(4, dtype)
    wide = widen_copies(f)
    verify(wide, "widen")
    assert "alloc row: float32" in str(wide)
    rng = np.random.default_rng(0)
    given = [random_array(rng, p) for p in f.params]
    results = []
    for g in (f, wide):
        arrays = [a.copy() for a in given]
        interpret(g, *arrays)
        results.append(arrays[1])
    np.testing.assert_array_equal(*results)
    check(f)


def test_what_stays() -> None:
    assert (
        widen_copies(rows(1)) is not None
        and "float32" not in str(widen_copies(rows(1))).split("alloc row")[1].split("\n")[0]
    )
    f = rows(4, converts=False)
    assert widen_copies(f) is f
    check(f)


def test_products_in_sums_are_exact_in_float32() -> None:
    X, Y, Z = buffer("X", (9,), "float16"), buffer("Y", (1,)), buffer("Z", (9,))
    i = axis("i", 9)
    term = cast("float32", at(X, i) * at(X, i))
    total = func([X, Y], [Y], loop(i, 9, put(Y, (0,), at(Y, 0) + term)))
    assert "float32(X[i]) * float32(X[i])" in str(widen_products(total))
    check(total)
    single = func([X, Z], [Z], loop(i, 9, put(Z, (i,), term)))
    assert str(widen_products(single)) == str(single)
    rounded = np.full(9, 1 + 2.0**-10, np.float16)
    check(single, rounded, np.zeros(9, np.float32))
