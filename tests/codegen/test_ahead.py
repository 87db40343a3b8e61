"""Which passes over a row fetch the next one, and which loops rows further down."""

from __future__ import annotations

from dataclasses import replace

import pytest

import akg_py as akg
from akg_py import te
from akg_py.codegen.ahead import ALONG_BYTES, ROWS_AHEAD, next_rows, rows_below, rows_beside
from akg_py.codegen.dependence import accesses
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.streams import plan_streams
from akg_py.codegen.target import host
from akg_py.ir.expr import Expr, const
from akg_py.ir.stmt import Buffer, For, Seq, Stmt
from akg_py.ops import layer_norm, matmul, relu, softmax
from tests.codegen.funcs import at, axis, buffer, func, loop, put

ROWS, N = 8, 2048
X, T = buffer("X", (ROWS, N)), Buffer("T", (N,), "float32", "local")
Y = buffer("Y", (ROWS,))
ROW = axis("i", ROWS)


def one_pass(step: int = 1, row: Expr = ROW) -> Stmt:
    j = axis("j", N // step)
    return loop(j, N // step, put(T, (j,), at(X, row, j * step)))


def planned(*stmts: Stmt) -> list[dict[int, int]]:
    found = next_rows(stmts, ROW, frozenset({id(X)}))
    return [found.get(id(s), {}) for s in stmts]


def test_the_second_pass_fetches_the_next_row() -> None:
    assert planned(one_pass(), one_pass(), one_pass()) == [{}, {id(X): 4 * N}, {}]
    assert planned(one_pass()) == [{}]
    assert planned(one_pass(), one_pass(step=2)) == [{}, {}]
    assert planned(one_pass(), one_pass(row=const(3))) == [{}, {}]


def test_passes_over_two_rows_fetch_the_next_two() -> None:
    def pair() -> Stmt:
        k = axis("k", 2)
        return loop(k, 2, one_pass(row=ROW * 2 + k))

    assert planned(pair(), pair(), pair()) == [{}, {id(X): 8 * N}, {}]


@pytest.mark.parametrize("width, rows", [(128, 0), (256, 8), (1000, 3), (1024, 2), (5000, 1)])
def test_a_later_row_is_far_enough(width: int, rows: int) -> None:
    source, j = buffer("S", (ROWS, width)), axis("j", width)
    passes = tuple(loop(j, width, put(T, (j,), at(source, ROW, j))) for _ in range(2))
    found = next_rows(passes, ROW, frozenset({id(source)}))
    assert found.get(id(passes[1]), {}) == ({id(source): 4 * width * rows} if rows else {})


def test_rows_side_by_side_are_fetched_along() -> None:
    source, i, j = buffer("S", (ROWS, N)), axis("i", ROWS), axis("j", N)
    large = frozenset({id(source)})

    def lanes(*indices: Expr) -> For:
        found = loop(j, N, loop(i, ROWS, put(T, (j,), at(source, *indices))), "vector")
        assert isinstance(found, For)
        return found

    assert rows_beside(lanes(i, j), large) == {id(source): ALONG_BYTES}
    assert rows_beside(lanes(i, j), frozenset()) == {}
    assert rows_beside(lanes(const(0), j), large) == {}
    assert rows_beside(lanes(i, (j * 2) % N), large) == {}


def test_small_arrays_are_left_alone() -> None:
    assert next_rows((one_pass(), one_pass()), ROW, frozenset()) == {}


def kernel(out: te.Tensor, *inputs: te.Tensor) -> CpuKernel:
    built = akg.build(te.create_schedule(out.op), [*inputs, out], target="cpu", auto="full")
    assert isinstance(built, CpuKernel)
    return built


def test_rows_of_a_large_array_are_fetched_into_the_second_cache() -> None:
    second = "i32 0, i32 2, i32 1)"
    A = te.placeholder((1 << 13, 1 << 11), name="A")
    assert second in kernel(softmax(A), A).llvm
    B = te.placeholder((1 << 6, 1 << 11), name="B")
    assert second not in kernel(softmax(B), B).llvm
    gamma = te.placeholder((1 << 11,), name="gamma")
    assert second in kernel(layer_norm(A, gamma, gamma), A, gamma).llvm
    assert second not in kernel(relu(A), A).llvm


def test_loops_are_told_apart() -> None:
    first, second = one_pass(), one_pass()
    assert isinstance(first, For) and isinstance(second, For)
    assert list(next_rows((first, second), ROW, frozenset({id(X)}))) == [id(second)]


def down(piece: int, step: int = 1, width: int = N) -> For:
    """A loop over rows that takes a piece of each."""
    source = buffer("S", (ROWS, width))
    i, j = axis("i", ROWS), axis("j", piece)
    found = loop(i, ROWS, loop(j, piece, put(T, (j,), at(source, i, j * step)), "vector"))
    assert isinstance(found, For)
    return found


def fetched(found: For) -> list[int]:
    sources = {id(b) for (b, _), writes in accesses(found) if not writes}
    return list(rows_below(found, frozenset(sources)).values())


def test_short_pieces_of_rows_are_fetched_from_rows_further_down() -> None:
    assert fetched(down(64)) == [ROWS_AHEAD * 4 * N]
    assert fetched(down(N)) == []  # rows that follow each other
    assert fetched(down(64, width=128)) == []  # steps that the processor foresees
    assert fetched(down(64, step=2)) == []
    assert rows_below(down(64), frozenset()) == {}


def test_a_block_of_rows_is_no_piece_of_a_row() -> None:
    """What lies blocks ahead would push out what is needed next."""
    source, block = buffer("S", (ROWS, N)), axis("b", ROWS // 8)
    i, j = axis("i", 8), axis("j", 64)
    rows = loop(i, 8, loop(j, 64, put(T, (j,), at(source, block * 8 + i, j)), "vector"))
    around = loop(block, ROWS // 8, rows)
    assert isinstance(rows, For) and isinstance(around, For)
    assert fetched(rows) and not fetched(around)


def test_columns_of_large_arrays_are_fetched() -> None:
    def packed(n: int) -> str:
        A, B = te.placeholder((64, 512), name="A"), te.placeholder((512, n), name="B")
        return kernel(matmul(A, B), A, B).llvm

    assert "llvm.prefetch" in packed(2048)
    assert "llvm.prefetch" not in packed(256)


def once(*stmts: Stmt, alias: dict[int, int] | None = None) -> bool:
    f = func([X, Y], [Y], Seq(stmts) if len(stmts) > 1 else stmts[0])
    small = replace(host(), cache_bytes=1 << 12)
    return id(X) in plan_streams(f, alias or {}, small).once


def test_what_is_read_once() -> None:
    i, j, k = axis("i", ROWS), axis("j", N), axis("k", 3)
    square = loop(i, ROWS, loop(j, N, put(Y, (i,), at(Y, i) + at(X, i, j) * at(X, i, j))))
    assert once(square)
    assert not once(square, square)  # another pass
    assert not once(loop(k, 3, square))
    assert not once(square, alias={id(Y): id(X)})
    two = Seq((put(Y, (i,), at(Y, i) + at(X, i, j)), put(Y, (i,), at(Y, i) * at(X, i, j))))
    assert not once(loop(i, ROWS, loop(j, N, two)))
    assert not once(loop(i, ROWS, put(Y, (i,), at(Y, i) * 2.0)))


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_large_reductions_pass_the_outer_caches(kind: str) -> None:
    def hints(rows: int) -> int:
        A = te.placeholder((rows, 4096), name="A")
        j = te.reduce_axis((0, 4096), name="j")
        B = te.compute((rows,), lambda i: getattr(te, kind)(A[i, j], axis=j), name="B")
        kernel = akg.build(te.create_schedule(B.op), [A, B], target="cpu")
        return kernel.assembly.count("prefetchnta")

    assert hints(host().cache_bytes // 4096 // 4) > 0
    assert hints(host().cache_bytes // 4096 // 8) == 0
    large = te.placeholder((host().cache_bytes // 4096 // 2, 4096), name="L")
    rows = softmax(large)
    text = akg.build(te.create_schedule(rows.op), [large, rows], target="cpu").assembly
    assert "prefetchnta" not in text  # passes again over what it has just read
