"""Tiles in registers: the same code every time; sizes of tails against all that can happen."""

from __future__ import annotations

import itertools

import pytest

import akg_py as akg
from akg_py import ops, te
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.registers import remainder
from akg_py.ir.expr import INDEX, Expr, Var, const, evaluate_index, free_vars, minimum

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
