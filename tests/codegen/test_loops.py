"""Loops of every kind, tails, guards, registers and reductions against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from akg_py import dtypes
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.target import host
from akg_py.codegen.threads import threads
from akg_py.ir.expr import Call, Const, Expr, Select, binary, cast, const, logical, minimum
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt, Store
from tests.codegen.funcs import at, axis, buffer, check, func, loop, put

KINDS = ["serial", "vector", "unroll", "parallel"]


def matmul(
    m: int,
    n: int,
    k: int,
    tile_m: int,
    tile_n: int,
    dtype: str = "float32",
    acc: str = "",
    outer: str = "serial",
    row_kind: str = "serial",
) -> Func:
    acc = acc or dtype
    A, B, C = buffer("A", (m, k), dtype), buffer("B", (k, n), dtype), buffer("C", (m, n), acc)
    ceil_m, ceil_n = -(-m // tile_m), -(-n // tile_n)
    io, jo, kk = axis("io", ceil_m), axis("jo", ceil_n), axis("k", k)
    i0, j0, i1, j1 = axis("i0", tile_m), axis("j0", tile_n), axis("i1", tile_m), axis("j1", tile_n)
    rows, columns = minimum(tile_m, m - io * tile_m), minimum(tile_n, n - jo * tile_n)
    clear = put(C, (io * tile_m + i0, jo * tile_n + j0), const(0, acc))
    i, j = io * tile_m + i1, jo * tile_n + j1
    update = put(C, (i, j), at(C, i, j) + cast(acc, at(A, i, kk)) * cast(acc, at(B, kk, j)))
    body = Seq(
        (
            loop(i0, rows, loop(j0, columns, clear, "vector"), row_kind),
            loop(kk, k, loop(i1, rows, loop(j1, columns, update, "vector"), row_kind)),
        )
    )
    return func([A, B, C], [C], loop(io, ceil_m, loop(jo, ceil_n, body), outer))


@pytest.mark.parametrize("row_kind", ["serial", "unroll"])
@pytest.mark.parametrize("outer", ["serial", "parallel", "core"])
@pytest.mark.parametrize(
    "shape",
    [
        (8, 64, 16, 4, 64),
        (13, 37, 5, 6, 32),
        (7, 3, 9, 2, 16),
        (1, 1, 1, 4, 4),
        (9, 70, 4, 3, 48),
        (6, 44, 7, 6, 44),
    ],
)
def test_matmul(shape: tuple[int, int, int, int, int], outer: str, row_kind: str) -> None:
    check(matmul(*shape, outer=outer, row_kind=row_kind))


@pytest.mark.parametrize(
    "dtype,acc",
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
        ("float64", ""),
        ("float16", ""),
        ("int16", ""),
        ("uint8", "int32"),
    ],
)
def test_matmul_dtypes(dtype: str, acc: str) -> None:
    check(matmul(7, 37, 6, 4, 32, dtype, acc))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 12, 15, 16, 17, 26, 31, 33, 64, 100, 131, 200])
def test_tails(n: int, kind: str) -> None:
    A, B = buffer("A", (n,)), buffer("B", (n,))
    i = axis("i", n)
    check(func([A, B], [B], loop(i, n, put(B, (i,), at(A, i) * at(A, i) + 1.5), kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_negative_extent(kind: str) -> None:
    A = buffer("A", (10,))
    o, i = axis("o", 5), axis("i", 4)
    check(
        func(
            [A],
            [A],
            loop(
                o,
                5,
                loop(i, minimum(4, 10 - o * 4), put(A, (o * 4 + i,), cast("float32", o)), kind),
            ),
        )
    )
    check(func([A], [A], loop(i, -3, put(A, (i,), const(1, "float32")), kind)))


@pytest.mark.parametrize("stride", [2, 3, -1, -2, 0])
def test_strided_loads(stride: int) -> None:
    n = 37
    for dtype in ("float32", "float16", "int8", "float64", "bool"):
        A, B = buffer("A", (200,), dtype), buffer("B", (n,), dtype)
        i = axis("i", n)
        check(func([A, B], [B], loop(i, n, put(B, (i,), at(A, i * stride + 80)), "vector")))


@pytest.mark.parametrize("stride", [2, 3, -1, -2])
def test_strided_stores(stride: int) -> None:
    n = 37
    for dtype in ("float32", "bfloat16", "int8", "float64", "bool"):
        A, B = buffer("A", (n,), dtype), buffer("B", (200,), dtype)
        i = axis("i", n)
        check(func([A, B], [B], loop(i, n, put(B, (i * stride + 80,), at(A, i)), "vector")))


def test_two_dimensional_tail_uses_stride_of_row() -> None:
    A, B = buffer("A", (9, 21)), buffer("B", (21, 9))
    i, j = axis("i", 9), axis("j", 21)
    check(func([A, B], [B], loop(j, 21, loop(i, 9, put(B, (j, i), at(A, i, j)), "vector"))))
    check(func([A, B], [B], loop(i, 9, loop(j, 21, put(B, (j, i), at(A, i, j)), "vector"))))


def test_data_dependent_index() -> None:
    A, rows_of, B = buffer("A", (50, 4)), buffer("I", (37,), "int32"), buffer("B", (37, 4))
    i, j = axis("i", 37), axis("j", 4)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((50, 4)).astype(np.float32)
    rows = rng.integers(0, 50, 37).astype(np.int32)
    for outer, inner in (("vector", "serial"), ("serial", "vector"), ("parallel", "unroll")):
        f = func(
            [A, rows_of, B],
            [B],
            loop(i, 37, loop(j, 4, put(B, (i, j), at(A, at(rows_of, i), j)), inner), outer),
        )
        check(f, a, rows, np.zeros((37, 4), np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_guarded_load_stays_inside(kind: str) -> None:
    """A padded copy: the untaken side would be outside of the array."""
    A, B = buffer("A", (5, 11)), buffer("B", (9, 17))
    i, j = axis("i", 9), axis("j", 17)
    inside = logical("&&", logical("&&", i >= 2, i < 7), logical("&&", j >= 3, j < 14))
    value = Select(inside, at(A, i - 2, j - 3), const(-1, "float32"), "float32", True)
    check(func([A, B], [B], loop(i, 9, loop(j, 17, put(B, (i, j), value), kind))))
    check(func([A, B], [B], loop(j, 17, loop(i, 9, put(B, (i, j), value), kind))))


def test_guarded_load_far_outside() -> None:
    A, B = buffer("A", (8,)), buffer("B", (64,))
    i = axis("i", 64)
    far = i * 100_000_000
    for condition in (i < 0, i.astype("float32") < -1.0, at(B, i) < -1e9):
        value = (
            Select(condition, at(A, far), at(B, i), "float32", True)
            if isinstance(condition, Expr)
            else None
        )
        assert value is not None
        for kind in KINDS:
            check(func([A, B], [B], loop(i, 64, put(B, (i,), value), kind)))


def test_short_circuit_guards_loads() -> None:
    A, B = buffer("A", (64,)), buffer("B", (64,))
    i = axis("i", 64)
    for kind in ("serial", "vector"):
        both = logical("&&", i >= 1, at(A, i - 1) > 0.0)
        either = logical("||", i < 1, at(A, i - 1) > 0.0)
        for condition in (both, either):
            value = Select(condition, at(A, i), const(0, "float32"), "float32")
            check(func([A, B], [B], loop(i, 64, put(B, (i,), value), kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_if_else(kind: str) -> None:
    A, B = buffer("A", (67,)), buffer("B", (67,))
    i = axis("i", 67)
    body = If(
        at(A, i) > 0.0, put(B, (i,), at(A, i) * 2.0), If(i < 30, put(B, (i,), const(5, "float32")))
    )
    check(func([A, B], [B], loop(i, 67, body, kind)))
    uniform = If(at(A, 0) > 0.0, put(B, (i,), at(A, i)), put(B, (i,), at(A, i) - 1.0))
    check(func([A, B], [B], loop(i, 67, uniform, kind)))


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_loop_carried_dependence_stays_serial(kind: str) -> None:
    A = buffer("A", (64,))
    i = axis("i", 63)
    check(func([A], [A], loop(i, 63, put(A, (i + 1,), at(A, i) + 1.0), kind)))
    check(func([A], [A], loop(i, 63, put(A, (i,), at(A, i + 1) + 1.0), kind)))
    check(func([A], [A], loop(i, 63, put(A, (i // 2,), cast("float32", i)), kind)))
    check(func([A], [A], loop(i, 63, put(A, (3,), cast("float32", i)), kind)))
    check(func([A], [A], loop(i, 63, put(A, (63 - i,), at(A, i)), kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_inner_loops_under_lanes(kind: str) -> None:
    """A vector loop around serial ones: sums down the columns."""
    A, B = buffer("A", (12, 41)), buffer("B", (41,))
    i, k = axis("i", 41), axis("k", 12)
    body = Seq(
        (put(B, (i,), const(0, "float32")), loop(k, 12, put(B, (i,), at(B, i) + at(A, k, i))))
    )
    check(func([A, B], [B], loop(i, 41, body, kind)))
    ragged = Seq(
        (
            put(B, (i,), const(0, "float32")),
            loop(k, minimum(12, i), put(B, (i,), at(B, i) + at(A, k, i))),
        )
    )
    check(func([A, B], [B], loop(i, 41, ragged, kind)))
    guarded = Seq(
        (
            put(B, (i,), const(0, "float32")),
            loop(k, 12, If(at(A, k, i) > 0.0, put(B, (i,), at(B, i) + at(A, k, i)))),
        )
    )
    check(func([A, B], [B], loop(i, 41, guarded, kind)))


@pytest.mark.parametrize("op", ["+", "max", "min", "*"])
@pytest.mark.parametrize("n", [1, 5, 31, 64, 100, 259])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int8", "float64", "bfloat16"])
def test_reductions(op: str, n: int, dtype: str) -> None:
    A, B = buffer("A", (3, n), dtype), buffer("B", (3,), dtype)
    i, k = axis("i", 3), axis("k", n)
    value = binary(op, at(B, i), at(A, i, k))
    rng = np.random.default_rng(n)
    a = rng.integers(-1, 2, (3, n)).astype(dtypes.numpy_dtype(dtype))
    check(func([A, B], [B], loop(i, 3, loop(k, n, put(B, (i,), value)))), a, np.ones(3, a.dtype))


@pytest.mark.parametrize("op", ["max", "min", "+"])
def test_reductions_keep_nan(op: str) -> None:
    n = 203
    A, B = buffer("A", (n,)), buffer("B", (1,))
    k = axis("k", n)
    f = func([A, B], [B], loop(k, n, put(B, (0,), binary(op, at(B, 0), at(A, k)))))
    for where in (0, 17, 130, 202):
        a = np.ones(n, np.float32)
        a[where] = np.nan
        check(f, a, np.zeros(1, np.float32))
    check(f, np.full(n, -0.0, np.float32), np.full(1, -0.0, np.float32))
    check(f, np.full(n, -np.inf, np.float32), np.full(1, -np.inf, np.float32))


def test_reduction_with_open_extent() -> None:
    A, B = buffer("A", (5, 200)), buffer("B", (5,))
    i, k = axis("i", 5), axis("k", 200)
    extent = minimum(200, i * 70 - 20)
    check(
        func(
            [A, B],
            [B],
            loop(i, 5, loop(k, extent, put(B, (i,), at(B, i) + at(A, i, k) * at(A, i, k)))),
        )
    )


def test_reduction_order_is_fixed() -> None:
    n = 1000
    A, B = buffer("A", (16, n)), buffer("B", (16,))
    i, k = axis("i", 16), axis("k", n)
    f = func([A, B], [B], loop(i, 16, loop(k, n, put(B, (i,), at(B, i) + at(A, i, k))), "parallel"))
    kernel = CpuKernel(f)
    a = np.random.default_rng(0).standard_normal((16, n)).astype(np.float32)
    results = []
    for count in (1, 2, 3, 7):
        out = np.zeros(16, np.float32)
        with threads(count):
            kernel(a, out)
        results.append(out)
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])
    np.testing.assert_allclose(results[0], a.astype(np.float64).sum(1), rtol=1e-4, atol=1e-4)


def argmax_store(kind: str) -> Func:
    A, V, best = buffer("A", (6, 50)), buffer("V", (6,)), buffer("I", (6,), "int32")
    i, k = axis("i", 6), axis("k", 50)
    better = at(A, i, k) > at(V, i)
    store = Store(
        (V, best),
        (i,),
        (
            Select(better, at(A, i, k), at(V, i), "float32"),
            Select(better, k + 0, at(best, i), "int32"),
        ),
    )
    return func([A, V, best], [V, best], loop(i, 6, loop(k, 50, store), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_two_values_in_one_store(kind: str) -> None:
    check(argmax_store(kind))


def test_swap_reads_before_it_writes() -> None:
    A, B = buffer("A", (40,)), buffer("B", (40,))
    i = axis("i", 40)
    for kind in KINDS:
        check(func([A, B], [A, B], loop(i, 40, Store((A, B), (i,), (at(B, i), at(A, i))), kind)))


@pytest.mark.parametrize("outer", ["serial", "parallel"])
@pytest.mark.parametrize("size", [16, 5000])
def test_intermediates(outer: str, size: int) -> None:
    A, B, T = buffer("A", (6, size)), buffer("B", (6, size)), buffer("T", (size,))
    o, i, j = axis("o", 6), axis("i", size), axis("j", size)
    body = Alloc(
        T,
        Seq(
            (
                loop(i, size, put(T, (i,), at(A, o, i) + 1.0)),
                loop(j, size, put(B, (o, j), at(T, size - 1 - j) * 2.0)),
            )
        ),
    )
    check(func([A, B], [B], loop(o, 6, body, outer)))
    whole = Buffer("W", (6, size), "float32")
    body2 = Seq(
        (
            loop(o, 6, loop(i, size, put(whole, (o, i), at(A, o, i) + 1.0)), outer),
            loop(
                o,
                6,
                Alloc(
                    T,
                    Seq(
                        (
                            loop(i, size, put(T, (i,), at(whole, 5 - o, i))),
                            loop(j, size, put(B, (o, j), at(T, j))),
                        )
                    ),
                ),
                outer,
            ),
        )
    )
    check(func([A, B], [B], Alloc(whole, body2)))


def test_parallel_inside_serial_and_nested() -> None:
    A, B = buffer("A", (3, 4, 33)), buffer("B", (3, 4, 33))
    i, j, k = axis("i", 3), axis("j", 4), axis("k", 33)
    for kinds in (
        ("serial", "parallel", "vector"),
        ("parallel", "parallel", "parallel"),
        ("core", "serial", "parallel"),
    ):
        body = put(B, (i, j, k), at(A, i, j, k) + cast("float32", i * 100 + j * 10))
        check(
            func(
                [A, B], [B], loop(i, 3, loop(j, 4, loop(k, 33, body, kinds[2]), kinds[1]), kinds[0])
            )
        )


def test_parallel_over_a_reduction_stays_serial() -> None:
    A, B = buffer("A", (300,)), buffer("B", (1,))
    k = axis("k", 300)
    check(func([A, B], [B], loop(k, 300, put(B, (0,), at(B, 0) + at(A, k)), "parallel")))


def test_fused_axes() -> None:
    A, B = buffer("A", (12, 20)), buffer("B", (12, 20))
    f, o, t = axis("f", 240), axis("o", 15), axis("t", 16)
    for kind in KINDS:
        check(
            func(
                [A, B],
                [B],
                loop(f, 240, put(B, (f // 20, f % 20), at(A, f // 20, f % 20) * 3.0), kind),
            )
        )
        e = o * 16 + t
        check(
            func(
                [A, B],
                [B],
                loop(
                    o,
                    15,
                    loop(t, 16, put(B, (e // 20, e % 20), at(A, e // 20, e % 20)), kind),
                    kind,
                ),
            )
        )


def test_unroll_is_capped() -> None:
    A, B = buffer("A", (5000,)), buffer("B", (5000,))
    i = axis("i", 5000)
    f = func([A, B], [B], loop(i, 5000, put(B, (i,), at(A, i)), "unroll"))
    assert len(CpuKernel(f).llvm) < 20_000


def test_loops_around_a_full_register_tile_are_not_unrolled_again() -> None:
    columns = host().vector_bytes // 4
    assert "llvm.loop.unroll.disable" in CpuKernel(matmul(8, 2 * columns, 9, 8, 2 * columns)).llvm
    assert "llvm.loop.unroll.disable" not in CpuKernel(matmul(1, columns, 9, 1, columns)).llvm


@pytest.mark.parametrize("terms, unrolls", [(2, True), (30, False)])
def test_loops_with_long_bodies_are_not_unrolled(terms: int, unrolls: bool) -> None:
    """Copies of them would take long to compile and gain nothing."""
    A, B = buffer("A", (8, 16)), buffer("B", (8, 16))
    i, j = axis("i", 8), axis("j", 16)
    value = at(A, i, j)
    for n in range(terms):
        value = value * float(n) + 1.0
    f = func([A, B], [B], loop(i, 8, loop(j, 16, put(B, (i, j), value), "vector")))
    assert ("llvm.loop.unroll.disable" not in CpuKernel(f).llvm) == unrolls


def test_intrinsic_is_its_body() -> None:
    A, B = buffer("A", (33,)), buffer("B", (33,))
    i = axis("i", 33)
    check(func([A, B], [B], Intrinsic("copy", loop(i, 33, put(B, (i,), at(A, i))))))


def test_one_variable_in_two_loops() -> None:
    A, B = buffer("A", (8, 32)), buffer("B", (8, 32))
    i, j = axis("i", 8), axis("j", 32)
    body: list[For] = [
        loop(i, 8, loop(j, 32, put(B, (i, j), at(A, (i * 32 + j) // 32, j)), k))
        for k in ("vector", "serial")
    ]
    check(func([A, B], [B], Seq(tuple(body))))


def test_registers_with_fused_row() -> None:
    """The accumulator's index holds a quotient that is fixed over the loop."""
    A, C = buffer("A", (30, 40)), buffer("C", (5, 6, 16))
    f, k, j = axis("f", 30), axis("k", 40), axis("j", 16)
    body = loop(
        k,
        40,
        loop(j, 16, put(C, (f // 6, f % 6, j), at(C, f // 6, f % 6, j) + at(A, f, k)), "vector"),
    )
    check(func([A, C], [C], loop(f, 30, body)))
    g = axis("g", 15)
    odd = loop(
        k,
        40,
        loop(j, 16, put(C, (g // 3, g % 3, j), at(C, g // 3, g % 3, j) + at(A, g, k)), "vector"),
    )
    check(func([A, C], [C], loop(g, 15, odd, "parallel")))


def test_outer_reduction_loops_share_registers() -> None:
    A, B = buffer("A", (4, 5, 32)), buffer("B", (32,))
    p, q, j = axis("p", 4), axis("q", 5), axis("j", 32)
    check(
        func(
            [A, B],
            [B],
            loop(p, 4, loop(q, 5, loop(j, 32, put(B, (j,), at(B, j) + at(A, p, q, j)), "vector"))),
        )
    )


def test_two_statements_on_one_accumulator() -> None:
    A, B = buffer("A", (20, 32)), buffer("B", (32,))
    k, j, m = axis("k", 20), axis("j", 32), axis("l", 32)
    body = Seq(
        (
            loop(j, 32, put(B, (j,), at(B, j) + at(A, k, j)), "vector"),
            loop(m, 32, put(B, (m,), at(B, m) * 2.0), "vector"),
        )
    )
    check(func([A, B], [B], loop(k, 20, body)))
    shifted = Seq(
        (
            loop(j, 31, put(B, (j,), at(B, j + 1) + at(A, k, j)), "vector"),
            put(B, (5,), const(1, "float32")),
        )
    )
    check(func([A, B], [B], loop(k, 20, shifted)))


def test_softmax_rows() -> None:
    A, B, M, S = buffer("A", (7, 100)), buffer("B", (7, 100)), buffer("M", (1,)), buffer("S", (1,))
    i, j, k, m = axis("i", 7), axis("j", 100), axis("k", 100), axis("l", 100)
    row = Seq(
        (
            put(M, (0,), Const(float("-inf"), "float32")),
            loop(j, 100, put(M, (0,), binary("max", at(M, 0), at(A, i, j)))),
            put(S, (0,), const(0, "float32")),
            loop(
                k, 100, put(S, (0,), at(S, 0) + Call("exp", (at(A, i, k) - at(M, 0),), "float32"))
            ),
            loop(
                m,
                100,
                put(B, (i, m), Call("exp", (at(A, i, m) - at(M, 0),), "float32") / at(S, 0)),
                "vector",
            ),
        )
    )
    check(func([A, B], [B], loop(i, 7, Alloc(M, Alloc(S, row)), "parallel")), tolerance=1e-6)


@pytest.mark.parametrize("op", ["+", "max", "min"])
@pytest.mark.parametrize("n", [40, 200])
def test_reduction_under_a_condition(op: str, n: int) -> None:
    A, B = buffer("A", (3, n)), buffer("B", (3,))
    i, k = axis("i", 3), axis("k", n)
    update = put(B, (i,), binary(op, at(B, i), at(A, i, k)))
    for condition in (
        k >= 30,
        at(A, i, k) > 1.0,
        logical("&&", k >= 1, at(A, i, k - 1) > 0.0),
        k * 2 < i * 30,
    ):
        check(func([A, B], [B], loop(i, 3, loop(k, n, If(condition, update)))))


@pytest.mark.parametrize("seed", range(12))
def test_random_tiles(seed: int) -> None:
    """Tiles that don't divide, in every order of the loops inside a tile."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(x) for x in rng.integers(1, 40, 3))
    tile_m, tile_n = int(rng.integers(1, 9)), int(rng.choice([3, 8, 16, 20, 32, 48]))
    A, B, C = buffer("A", (m, k)), buffer("B", (k, n)), buffer("C", (m, n))
    ceil_m, ceil_n = -(-m // tile_m), -(-n // tile_n)
    io, jo, kk, i1, j1 = (
        axis(x, e)
        for x, e in (("io", ceil_m), ("jo", ceil_n), ("k", k), ("i", tile_m), ("j", tile_n))
    )
    i, j = io * tile_m + i1, jo * tile_n + j1
    loops = [
        (i1, minimum(tile_m, m - io * tile_m), str(rng.choice(["serial", "unroll"]))),
        (j1, minimum(tile_n, n - jo * tile_n), str(rng.choice(["vector", "serial"]))),
        (kk, k, "serial"),
    ]
    body: Stmt = put(C, (i, j), at(C, i, j) + at(A, i, kk) * at(B, kk, j))
    for place in rng.permutation(3):
        body = loop(loops[place][0], loops[place][1], body, loops[place][2])
    outer = [(io, ceil_m), (jo, ceil_n)]
    for place in rng.permutation(2):
        body = loop(*outer[place], body, str(rng.choice(["serial", "parallel"])))
    check(func([A, B, C], [C], body))


@pytest.mark.parametrize("kind", ["parallel", "core"])
@pytest.mark.parametrize("n", [1, 30, 1000])
def test_one_parallel_loop_over_elements(n: int, kind: str) -> None:
    A, B = buffer("A", (n,)), buffer("B", (n,))
    i = axis("i", n)
    f = func([A, B], [B], loop(i, n, put(B, (i,), at(A, i) * cast("float32", i % 7)), kind))
    for count in (1, 2, 3):
        with threads(count):
            check(f)


def test_scalars() -> None:
    A, B = buffer("A", (40,)), buffer("B", ())
    k = axis("k", 40)
    f = func(
        [A, B],
        [B],
        Seq((put(B, (), const(0, "float32")), loop(k, 40, put(B, (), at(B) + at(A, k))))),
    )
    check(f)
    assert CpuKernel(f)(np.ones(40, np.float32)).shape == ()


def test_unguarded_select_may_still_leave_the_array() -> None:
    A, B = buffer("A", (8,)), buffer("B", (64,))
    i = axis("i", 64)
    for kind in KINDS:
        value = Select(i < 8, at(A, i), const(0, "float32"), "float32")
        check(func([A, B], [B], loop(i, 64, put(B, (i,), value), kind)))


def test_storage_inside_the_innermost_loop() -> None:
    """Its address isn't known before that loop, whatever it is indexed by."""
    A, B = buffer("A", (4, 3, 16)), buffer("B", (4, 3, 16))
    T = Buffer("T", (4, 512), "float32", "local")
    o, i, j, k = axis("o", 4), axis("i", 3), axis("j", 16), axis("k", 16)
    fill = loop(j, 16, put(T, (o, j), at(A, o, i, j) + 1.0), "vector")
    use = loop(k, 16, put(B, (o, i, k), at(T, o, k) * 2.0), "vector")
    check(func([A, B], [B], loop(o, 4, loop(i, 3, Alloc(T, Seq((fill, use)))))))
