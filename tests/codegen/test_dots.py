"""Products of int8 and bfloat16 packed in groups: exact integers, on every kind of processor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import akg_py as akg
from akg_py import dtypes, te
from akg_py.codegen.dot_form import full_groups, mix_signs
from akg_py.codegen.emitter import emit_func
from akg_py.codegen.host import Compiled, CpuKernel
from akg_py.codegen.target import Processor, host
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Func
from akg_py.ir.verify import verify
from tests.comparison import assert_within_bound

Array = np.ndarray[Any, Any]
SUMS = {"int8": "int32", "uint8": "int32", "bfloat16": "float32"}
SHAPES = [(1, 1, 1), (3, 5, 17), (5, 64, 3), (17, 63, 64), (6, 65, 127), (13, 129, 63)]
PROCESSORS = {
    "host": host(),
    "avx512": replace(host(), vector_bytes=64, has_vnni=False, has_bf16=False),
    "avx2": replace(
        host(), vector_bytes=32, registers=16, has_vnni=False, has_bf16=False, pair_lanes=(4, 8)
    ),
    "sse": replace(
        host(), vector_bytes=16, registers=16, has_fma=False, has_vnni=False, has_bf16=False,
        pair_lanes=(4,),
    ),
    "plain": replace(host(), has_vnni=False, has_bf16=False, pair_lanes=()),
}  # fmt: skip
PROCESSORS = {  # those whose code runs here
    name: cpu for name, cpu in PROCESSORS.items() if set(cpu.pair_lanes) <= set(host().pair_lanes)
}


def product(
    m: int,
    n: int,
    k: int,
    dtype: str,
    *,
    tile: tuple[int, int] = (6, 64),
    depth: int = 0,
    packs_rows: bool = False,
    other: str = "",
) -> tuple[te.Schedule, list[te.Tensor]]:
    """A product with B packed in groups, tile by tile of columns, in blocks of `depth` along k."""
    size, total = (2 if dtype == "bfloat16" else 4), SUMS[dtype]
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), other or dtype, name="B")
    along = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(A[i, along].astype(total) * B[along, j].astype(total), axis=along),
        name="C",
    )
    s = te.create_schedule(C.op)
    packed = s.cache_read(B, "local", [C])
    rows = s.cache_read(A, "local", [C]) if packs_rows else None
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, *tile)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=depth or k)
    kg, kk = s[C].split(ki, factor=size)
    s[C].reorder(ko, io, jo, kg, ii, ji, kk)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[packed].compute_at(s[C], ko)
    s[packed].transform_layout(f"k, j -> j // {tile[1]}, k // {size}, j % {tile[1]}, k % {size}")
    if rows is not None:
        s[rows].compute_at(s[C], io)
        s[rows].storage_align(rows.op.axis[0], 64, 16)
    return s, [A, B, C]


def extremes(shape: tuple[int, int], dtype: str, rng: np.random.Generator) -> Array:
    """Many lowest and highest values among random ones; small integers as floats."""
    if dtype == "bfloat16":
        return rng.integers(-8, 9, shape).astype(dtypes.numpy_dtype(dtype))
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max + 1, shape)
    picked = rng.integers(0, 4, shape)
    return np.where(picked == 0, info.min, np.where(picked == 1, info.max, values)).astype(dtype)


def exact(a: Array, b: Array) -> Array:
    total = SUMS[a.dtype.name]
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(total)


def run(func: Func, processor: Processor, *arrays: Array) -> None:
    """Run the code that is generated for `processor`."""
    Compiled(func, processor=processor).run([a.ctypes.data for a in arrays])


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("n", [2, 3, 5, 6, 9, 10, 17, 18, 34])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_ends_of_rows(n: int, dtype: str, processor: str) -> None:
    """Fewer columns than the narrowest instruction has lanes, alone and after full vectors."""
    rng = np.random.default_rng(n)
    a, b = extremes((5, 40), dtype, rng), extremes((40, n), dtype, rng)
    s, args = product(5, n, 40, dtype, tile=(5, n))
    c = np.empty((5, n), SUMS[dtype])
    run(akg.lower(s, args), PROCESSORS[processor], a, b, c)
    np.testing.assert_array_equal(c, exact(a, b))


@pytest.mark.skipif(not host().has_vnni, reason="the host has no such instruction")
@pytest.mark.parametrize("n", [2, 10, 18])
def test_ends_of_rows_use_the_instruction(n: int) -> None:
    s, args = product(6, n, 40, "int8", tile=(6, n))
    text = emit_func(akg.lower(s, args), processor=host()).text
    assert "vpdpbusd.128" in text and "mul <2 x i32>" not in text


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize(
    "shape,processor",
    [*((shape, "host") for shape in SHAPES), *(((7, 70, 513), name) for name in PROCESSORS)],
)
def test_exact_on_every_processor(shape: tuple[int, int, int], dtype: str, processor: str) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = extremes((m, k), dtype, rng), extremes((k, n), dtype, rng)
    s, args = product(m, n, k, dtype, packs_rows=n % 2 == 1)
    c = np.empty((m, n), SUMS[dtype])
    run(akg.lower(s, args), PROCESSORS[processor], a, b, c)
    np.testing.assert_array_equal(c, exact(a, b))


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("k,depth", [(64, 16), (61, 16), (96, 30), (97, 64)])
def test_blocks_along_the_sum(k: int, depth: int, dtype: str) -> None:
    rng = np.random.default_rng(k + depth)
    a, b = extremes((9, k), dtype, rng), extremes((k, 70), dtype, rng)
    s, args = product(9, 70, k, dtype, depth=depth, packs_rows=k % 2 == 0)
    np.testing.assert_array_equal(akg.build(s, args, auto=False)(a, b), exact(a, b))


@pytest.mark.parametrize("value", [-128, 127])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_lowest_times_lowest(processor: str, value: int) -> None:
    """Pairs of -128 * -128 overflow instructions that saturate to int16."""
    a, b = np.full((2, 9), -128, np.int8), np.full((9, 33), value, np.int8)
    s, args = product(2, 33, 9, "int8")
    c = np.empty((2, 33), np.int32)
    run(akg.lower(s, args), PROCESSORS[processor], a, b, c)
    np.testing.assert_array_equal(c, exact(a, b))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("pair", [("int8", "uint8"), ("uint8", "int8")])
def test_mixed_signs(pair: tuple[str, str], processor: str) -> None:
    rng = np.random.default_rng(1)
    a, b = extremes((7, 39), pair[0], rng), extremes((39, 65), pair[1], rng)
    s, args = product(7, 65, 39, pair[0], other=pair[1])
    c = np.empty((7, 65), np.int32)
    run(akg.lower(s, args), PROCESSORS[processor], a, b, c)
    np.testing.assert_array_equal(c, exact(a, b))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_wrap(dtype: str) -> None:
    """What is added and taken off for the signs may overflow on the way."""
    k = 140_000 if dtype == "int8" else 34_000
    a, b = np.full((1, k), np.iinfo(dtype).max, dtype), np.full((k, 4), 127, dtype)
    s, args = product(1, 4, k, dtype)
    expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(akg.build(s, args, auto=False)(a, b), expected)


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("depth", [0, 8, 10])
@pytest.mark.parametrize("packs_rows", [False, True])
def test_passes_keep_the_meaning(depth: int, packs_rows: bool, dtype: str) -> None:
    s, args = product(3, 6, 21, dtype, tile=(2, 4), depth=depth, packs_rows=packs_rows)
    func = akg.lower(s, args)
    mixed = mix_signs(func)
    assert ("sums" in str(mixed)) == (dtype != "bfloat16")
    rng = np.random.default_rng(depth)
    a, b = extremes((3, 21), dtype, rng), extremes((21, 6), dtype, rng)
    for f in (mixed, full_groups(func), full_groups(mixed)):
        verify(f, "dots")
        c = np.empty((3, 6), SUMS[dtype])
        interpret(f, a, b, c)
        np.testing.assert_array_equal(c, exact(a, b))


def test_row_sums_leave_the_loops_that_repeat_them() -> None:
    s, args = product(12, 128, 64, "int8", packs_rows=True)
    text = str(mix_signs(akg.lower(s, args)))
    sums = text.index("A.local.sums[i.inner] = A.local.sums")
    assert text.index("for i.outer in") < sums < text.index("for j.outer in")


def test_an_operand_that_is_read_elsewhere_stays() -> None:
    A, B = te.placeholder((4, 8), "int8", name="A"), te.placeholder((8, 64), "int8", name="B")
    P = te.compute((2, 64, 4), lambda k, j, e: B[k * 4 + e, j], name="P")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute(
        (4, 64),
        lambda i, j: te.sum(A[i, k].astype("int32") * P[k // 4, j, k % 4].astype("int32"), axis=k),
        name="C",
    )
    D = te.compute((4, 64), lambda i, j: C[i, j] + P[0, j, i].astype("int32"), name="D")
    s = te.create_schedule(D.op)
    i, j = C.op.axis
    kg, kk = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(kg, i, j, kk)
    s[C].vectorize(j)
    func = akg.lower(s, [A, B, D])
    assert mix_signs(func) is func
    rng = np.random.default_rng(0)
    a, b = extremes((4, 8), "int8", rng), extremes((8, 64), "int8", rng)
    np.testing.assert_array_equal(CpuKernel(func)(a, b), exact(a, b) + b[:4])


@pytest.mark.parametrize("processor", ["host", "avx2"])
@pytest.mark.parametrize("k", [64, 65])
def test_bfloat16_within_the_bound(k: int, processor: str) -> None:
    rng = np.random.default_rng(k)
    bfloat16 = dtypes.numpy_dtype("bfloat16")
    a = rng.standard_normal((7, k)).astype(bfloat16)
    b = rng.standard_normal((k, 70)).astype(bfloat16)
    s, args = product(7, 70, k, "bfloat16")
    c = np.empty((7, 70), np.float32)
    run(akg.lower(s, args), PROCESSORS[processor], a, b, c)
    assert_within_bound(c, args[2], [a, b])


@pytest.mark.parametrize("processor", PROCESSORS)
def test_bfloat16_infinities_and_nans(processor: str) -> None:
    bfloat16 = dtypes.numpy_dtype("bfloat16")
    a, b = np.ones((4, 5), bfloat16), np.ones((5, 16), bfloat16)
    a[0, 4], a[1, 1], a[2, 0] = np.inf, np.nan, -np.inf
    b[4, 3], b[0, 2] = 0.0, -np.inf
    s, args = product(4, 16, 5, "bfloat16")
    c = np.empty((4, 16), np.float32)
    run(akg.lower(s, args), PROCESSORS[processor], a, b, c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_strict_denormals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instruction takes denormals as zero, unless it is told not to be used."""
    monkeypatch.setenv("AKG_PY_STRICT_DENORMALS", "1")
    host.cache_clear()
    try:
        assert not host().has_bf16
        bfloat16 = dtypes.numpy_dtype("bfloat16")
        a, b = np.full((1, 2), 2.0**-130, bfloat16), np.full((2, 16), 2.0**100, bfloat16)
        s, args = product(1, 16, 2, "bfloat16")
        c = akg.build(s, args, auto=False)(a, b)
        np.testing.assert_array_equal(c, np.full((1, 16), 2.0**-29, np.float32))
    finally:
        host.cache_clear()


@pytest.mark.parametrize(
    "dtype,instruction,has",
    [
        ("int8", "vpdpbusd", host().has_vnni),
        ("uint8", "vpdpbusd", host().has_vnni),
        ("bfloat16", "vdpbf16ps", host().has_bf16),
    ],
)
def test_the_instruction_is_used(dtype: str, instruction: str, has: bool) -> None:
    s, args = product(12, 128, 64, dtype)
    text = akg.build(s, args, auto=False).assembly
    assert text.count(instruction) >= (24 if has else 0)


@pytest.mark.skipif(8 not in host().pair_lanes, reason="the host has no such instruction")
def test_tiles_without_the_instruction_multiply_pairs() -> None:
    s, args = product(12, 32, 64, "int8", tile=(6, 16))
    func = akg.lower(s, args)
    assert "llvm.x86.avx2.pmadd.wd" in emit_func(func, processor=PROCESSORS["avx2"]).text
    assert "pmadd" not in emit_func(func, processor=PROCESSORS["plain"]).text


def test_inside_numba_code() -> None:
    s, args = product(7, 70, 33, "int8")
    kernel = akg.build(s, args, auto=False)
    rng = np.random.default_rng(2)
    a, b = extremes((7, 33), "int8", rng), extremes((33, 70), "int8", rng)
    c = np.empty((7, 70), np.int32)
    kernel.jit(a, b, c)
    np.testing.assert_array_equal(c, exact(a, b))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_sums_inside_of_several_vectors(dtype: str, processor: str) -> None:
    m, n, k, size = 3, 150, 21, 2 if dtype == "bfloat16" else 4
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    along, total = te.reduce_axis((0, k), name="k"), SUMS[dtype]
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(A[i, along].astype(total) * B[along, j].astype(total), axis=along),
        name="C",
    )
    s = te.create_schedule(C.op)
    packed = s.cache_read(B, "local", [C])
    s[packed].transform_layout(f"k, j -> k // {size}, j, k % {size}")
    s[C].vectorize(C.op.axis[1])
    s[C].split(along, factor=size)
    rng = np.random.default_rng(4)
    a, b = extremes((m, k), dtype, rng), extremes((k, n), dtype, rng)
    c = np.empty((m, n), total)
    run(akg.lower(s, [A, B, C]), PROCESSORS[processor], a, b, c)
    np.testing.assert_array_equal(c, exact(a, b))
