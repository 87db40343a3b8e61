"""Which passes over a row fetch the next one."""

from __future__ import annotations

import akg_py as akg
from akg_py import te
from akg_py.codegen.ahead import next_rows
from akg_py.codegen.host import CpuKernel
from akg_py.ir.expr import Call, Expr, const
from akg_py.ir.stmt import Buffer, For, Stmt
from akg_py.ops import layer_norm, softmax
from tests.codegen.funcs import at, axis, buffer, loop, put

ROWS, N = 8, 2048
X, T = buffer("X", (ROWS, N)), Buffer("T", (N,), "float32", "local")
ROW = axis("i", ROWS)


def one_pass(function: bool, step: int = 1, row: Expr = ROW) -> Stmt:
    j = axis("j", N // step)
    value = at(X, row, j * step)
    return loop(j, N // step, put(T, (j,), Call("exp", (value,), "float32") if function else value))


def planned(*stmts: Stmt) -> list[dict[int, int]]:
    found = next_rows(stmts, ROW, frozenset({id(X)}))
    return [found.get(id(s), {}) for s in stmts]


def test_the_second_pass_fetches_the_next_row_if_it_computes() -> None:
    assert planned(one_pass(False), one_pass(True)) == [{}, {id(X): 4 * N}]
    assert planned(one_pass(True), one_pass(False)) == [{}, {}]
    assert planned(one_pass(True)) == [{}]
    assert planned(one_pass(False), one_pass(True, step=2)) == [{}, {}]
    assert planned(one_pass(False), one_pass(True, row=const(3))) == [{}, {}]


def test_small_arrays_are_left_alone() -> None:
    assert next_rows((one_pass(False), one_pass(True)), ROW, frozenset()) == {}


def kernel(out: te.Tensor, *inputs: te.Tensor) -> CpuKernel:
    built = akg.build(te.create_schedule(out.op), [*inputs, out], target="cpu", auto="full")
    assert isinstance(built, CpuKernel)
    return built


def test_softmax_of_a_large_array_fetches_into_the_second_cache() -> None:
    second = "i32 0, i32 2, i32 1)"
    A = te.placeholder((1 << 13, 1 << 11), name="A")
    assert second in kernel(softmax(A), A).llvm
    B = te.placeholder((1 << 6, 1 << 11), name="B")
    assert second not in kernel(softmax(B), B).llvm
    gamma = te.placeholder((1 << 11,), name="gamma")
    assert second not in kernel(layer_norm(A, gamma, gamma), A, gamma).llvm


def test_loops_are_told_apart() -> None:
    first, second = one_pass(False), one_pass(True)
    assert isinstance(first, For) and isinstance(second, For)
    assert list(next_rows((first, second), ROW, frozenset({id(X)}))) == [id(second)]
