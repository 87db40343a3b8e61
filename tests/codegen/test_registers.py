"""Tiles in registers: the same code every time; where they start; sizes of tails."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

import akg_py as akg
from akg_py import ops, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.registers import remainder
from akg_py.codegen.target import Processor, host
from akg_py.ir.expr import (
    INDEX,
    Expr,
    Select,
    Var,
    binary,
    const,
    evaluate_index,
    free_vars,
    minimum,
)
from akg_py.ir.stmt import Alloc, Buffer, Func, If, Seq, Stmt, Store
from tests.codegen.funcs import at, axis, buffer, check, func, loop, put
from tests.codegen.processors import available, check_on

BLOCK, TILE, FUSED = Var("i", INDEX, 0, 120), Var("j", INDEX, 0, 11), Var("f", INDEX, 0, 60)
CASES: list[tuple[Expr, int, int | None]] = [
    (minimum(6, const(100) - BLOCK * 6), 6, 4),
    (minimum(6, const(96) - BLOCK * 6), 6, 0),
    (minimum(6, minimum(24, const(100) - BLOCK * 24) - TILE * 6), 6, 4),
    (
        minimum(6, minimum(25, const(100) - BLOCK * 25) - TILE * 6),
        6,
        None,
    ),  # ends of blocks and of all
    (
        minimum(6, minimum(25, const(101) - BLOCK * 25) - TILE * 6),
        6,
        None,
    ),  # 1, but 101 is 5 modulo 6 too
    (minimum(64, minimum(704, const(768) - FUSED % 2 * 704) - TILE * 64), 64, 0),
    (minimum(64, const(1111) - FUSED // 3 * 64), 64, 23),
    (minimum(6, const(100) - BLOCK * 4), 6, None),
    (minimum(6, const(100) - BLOCK), 6, None),
    (minimum(8, BLOCK), 8, None),
]


@pytest.mark.parametrize(("extent", "size", "expected"), CASES, ids=str)
def test_remainder(extent: Expr, size: int, expected: int | None) -> None:
    found = remainder(extent, size)
    assert found == expected
    if found is None:
        return
    variables = sorted(free_vars(extent), key=lambda v: v.name)
    for values in itertools.product(*(range(v.hi + 1) for v in variables)):
        value = int(evaluate_index(extent, dict(zip(variables, values, strict=True))))
        assert value <= 0 or value >= size or value == found


def test_equal_schedules_give_equal_code() -> None:
    A, B = te.placeholder((50, 100), name="A"), te.placeholder((100, 75), name="B")
    C = ops.matmul(A, B)
    s = te.create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 6, 64)
    s[C].reorder(io, jo, *C.op.reduce_axis, ii, ji)
    s[C].unroll(ii)
    # variables are new each time, and with them the order of sets of them
    assert len({emit_func(akg.lower(s, [A, B, C])).text for _ in range(8)}) == 1


K, BLOCKS, ROWS, COLUMNS = 6, 3, 4, 32


def blocked_sum(
    *,
    m: int = 10,
    n: int = 70,
    value: float = 0.0,
    when: str = "first",
    first_row: int = 0,
    rows: int = ROWS,
    read: bool = False,
) -> Func:
    """Tiles of a product summed in blocks of k, with a statement before the sum of each tile.

    Args:
        value: what that statement stores.
        when: at "first" only, "always", at "even" blocks, or in an If "else".
        first_row, rows: of a tile that it stores to.
        read: whether it stores what it reads.
    """
    A, B, C = buffer("A", (m, BLOCKS * K)), buffer("B", (BLOCKS * K, n)), buffer("C", (m, n))
    tiles = -(-m // ROWS), -(-n // COLUMNS)
    ko, io, jo, k = axis("ko", BLOCKS), axis("io", tiles[0]), axis("jo", tiles[1]), axis("k", K)
    i0, j0, i1, j1 = axis("i0", rows), axis("j0", COLUMNS), axis("i1", ROWS), axis("j1", COLUMNS)
    here, width = minimum(ROWS, m - io * ROWS), minimum(COLUMNS, n - jo * COLUMNS)
    start_rows = here if rows == ROWS and not first_row else minimum(rows, m - io * ROWS)
    row = io * ROWS + i0
    above = (minimum(row + first_row, m - 1) if first_row else row, jo * COLUMNS + j0)
    given = at(C, *above) * const(2.0, "float32") if read else const(value, "float32")
    start: Stmt = loop(i0, start_rows, loop(j0, width, put(C, above, given), "vector"), "unroll")
    if when == "else":
        start = If(binary("==", ko, const(0)), Seq(()), start)
    elif when != "always":
        start = If(binary("==", ko if when == "first" else ko % 2, const(0)), start)
    i, j, at_k = io * ROWS + i1, jo * COLUMNS + j1, ko * K + k
    add = put(C, (i, j), at(C, i, j) + at(A, i, at_k) * at(B, at_k, j))
    sums = loop(k, K, loop(i1, here, loop(j1, width, add, "vector"), "unroll"))
    nest = loop(jo, tiles[1], loop(io, tiles[0], Seq((start, sums))))
    return func([A, B, C], [C], loop(ko, BLOCKS, nest))


STARTS = [
    ({}, True),
    ({"m": 8, "n": 64}, True),
    ({"m": 3, "n": 5}, True),
    ({"value": -1.5}, True),
    ({"when": "always"}, True),
    ({"when": "even", "value": 2.0}, True),
    ({"when": "else"}, False),
    ({"rows": 2}, False),
    ({"first_row": 1}, False),
    ({"read": True}, False),
]


@pytest.mark.parametrize(("options", "joins"), STARTS, ids=str)
def test_sums_start_in_registers(options: dict[str, Any], joins: bool) -> None:
    f = blocked_sum(**options)
    check(f)
    assert (stores(f) < stores(blocked_sum(**options | {"read": True}))) == joins


def stores(f: Func) -> int:
    """Instructions that write memory; slots for registers are written without an alignment."""
    lines = emit_func(f).text.splitlines()
    return sum(("store <" in x and ", align" in x) or "masked.store" in x for x in lines)


def test_a_sum_over_nothing_leaves_the_start_in_memory() -> None:
    C, A = buffer("C", (4, 32)), buffer("A", (4, 8))
    n, i0, j0, i, j, k = (axis(name, 4) for name in ("n", "i0", "j0", "i", "j", "k"))
    clear = loop(i0, 4, loop(j0, 32, put(C, (i0, j0), const(3.0, "float32")), "vector"), "unroll")
    add = put(C, (i, j), at(C, i, j) + at(A, i, k))
    sums = loop(k, n * 2, loop(i, 4, loop(j, 32, add, "vector"), "unroll"))
    check(func([A, C], [C], loop(n, 1, Seq((clear, sums)))))


def two_sums(first_condition: bool, second_condition: bool) -> Func:
    """A loop over two sums, each with a start of its own that may depend on the block."""
    A, B = buffer("A", (4, BLOCKS * K)), buffer("B", (BLOCKS * K, 32))
    C, D = buffer("C", (4, 32)), buffer("D", (4, 32))
    ko, k, i, j = axis("ko", BLOCKS), axis("k", K), axis("i", 4), axis("j", 32)
    stmts: list[Stmt] = []
    for target, value, conditional in ((C, 1.0, first_condition), (D, 2.0, second_condition)):
        i0, j0 = axis("i0", 4), axis("j0", 32)
        clear = put(target, (i0, j0), const(value, "float32"))
        start = loop(i0, 4, loop(j0, 32, clear, "vector"), "unroll")
        stmts.append(If(binary("==", ko, const(0)), start) if conditional else start)
    term = at(A, i, ko * K + k) * at(B, ko * K + k, j)
    adds = Seq((put(C, (i, j), at(C, i, j) + term), put(D, (i, j), at(D, i, j) - term)))
    stmts.append(loop(k, K, loop(i, 4, loop(j, 32, adds, "vector"), "unroll")))
    return func([A, B, C, D], [C, D], loop(ko, BLOCKS, Seq(tuple(stmts))))


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_one_of_two_sums_starts_in_registers(first: bool, second: bool) -> None:
    check(two_sums(first, second))


def test_a_buffer_of_the_loop_is_reached_by_a_counter_of_an_outer_one() -> None:
    A, B = buffer("A", (9, 7)), buffer("B", (9, 7))
    T = Buffer("T", (9, 4096), "float32", "local")  # too large for the stack
    i, j = axis("i", 9), axis("j", 7)
    keep, move = put(T, (i, 0), at(A, i, j)), put(B, (i, j), at(T, i, 0))
    check(func([A, B], [B], loop(i, 9, loop(j, 7, Alloc(T, Seq((keep, move)))))))


def chosen(n: int, apart: bool = False) -> Func:
    """The largest of each column and its row: what was there is read where it is kept."""
    X, Y, Z = buffer("X", (50, n)), buffer("Y", (n,)), buffer("Z", (n,), "int32")
    r, i = axis("r", 50), axis("i", n)
    keeps = binary("<", at(X, r, i), at(Y, i))
    best = Select(keeps, at(Y, i), at(X, r, i), "float32")
    row = Select(keeps, at(Z, i), r, "int32")
    body: Stmt = Store((Y, Z), (i,), (best, row))
    if apart:
        body = Seq((put(Z, (i,), row), put(Y, (i,), best)))
    return func([X, Y, Z], [Y, Z], loop(r, 50, loop(i, n, body, "vector")))


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 16, 19, 35])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("processor", available())
def test_elements_that_are_kept_or_replaced(n: int, apart: bool, processor: Processor) -> None:
    check_on(processor, chosen(n, apart))


def test_they_stay_in_registers_under_a_mask() -> None:
    wide = replace(host(), vector_bytes=64, has_masks=True)
    text = emit_func(chosen(6), processor=wide).text
    blocks = re.split(r"^[\w.]+:$", text, flags=re.MULTILINE)
    (body,) = (block for block in blocks if "fcmp" in block)
    assert "masked.load" in body and "masked.store" not in body
