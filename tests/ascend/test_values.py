"""Values of hand-written Programs: bit-exact on small integers; tilings, threads, poison."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from programs import elementwise, layer_norm, matmul

import akg_py as akg
from akg_py import te
from akg_py.ascend import instructions as ins
from akg_py.ascend import values
from akg_py.ascend.device import load_device
from akg_py.ascend.program import Phase, Program, address
from akg_py.errors import InternalError
from akg_py.ir.expr import Var


def integers(program, seed=0):
    rng = np.random.default_rng(seed)
    dtype = {"bfloat16": ml_dtypes.bfloat16}
    return [
        rng.integers(-4, 5, t.shape).astype(dtype.get(t.dtype, t.dtype))
        if t.role == "input"
        else np.zeros(t.shape, dtype.get(t.dtype, t.dtype))
        for t in program.tensors
    ]


def run_matmul(M, N, K, dtype, out, **options):
    program = matmul(M, N, K, dtype, out, **options)
    arrays = integers(program)
    values.execute(program, arrays, poison=True)
    a, b = (x.astype(np.float32) for x in arrays[:2])
    a = a.T if options.get("trans_a") else a
    b = b.T if options.get("trans_b") else b
    want = a @ b
    if options.get("relu"):
        want = np.maximum(want, 0)
    np.testing.assert_array_equal(
        arrays[2].astype(np.float32), want.astype(arrays[2].dtype).astype(np.float32)
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((200, 136, 100), (64, 64, 64, 32)),
        ((37, 41, 19), (32, 32, 16, 16)),
        ((1, 1, 1), (16, 16, 16, 16)),
    ],
)
def test_matmul_is_exact(dtype, trans_a, trans_b, shape, tile):
    run_matmul(*shape, dtype, "float32", tile=tile, trans_a=trans_a, trans_b=trans_b)


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("shape", [(100, 72, 200), (37, 41, 19), (5, 100, 33)])
def test_int8_matmul_is_exact(shape, trans_a, trans_b):
    M, N, K = shape
    program = matmul(
        M, N, K, "int8", "int32", tile=(32, 64, 64, 32), trans_a=trans_a, trans_b=trans_b
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, t.shape).astype(np.int8) for t in program.tensors[:2])
    c = np.zeros((M, N), np.int32)
    values.execute(program, [a, b, c], poison=True)
    wide_a, wide_b = (x.astype(np.int32) for x in (a, b))
    want = (wide_a.T if trans_a else wide_a) @ (wide_b.T if trans_b else wide_b)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("out", ["float16", "bfloat16", "float32"])
def test_matmul_output_dtypes(out):
    run_matmul(130, 70, 40, "float16", out, tile=(64, 48, 32, 16), relu=True, l0c_copies=2)


def test_every_tiling_along_k_gives_the_same_bits():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((48, 200)).astype("f2"), rng.standard_normal((200, 40)).astype("f2")
    results = []
    for tile in ((16, 16, 16, 16), (48, 48, 64, 32), (32, 16, 208, 208), (48, 32, 96, 48)):
        c = np.zeros((48, 40), np.float32)
        values.execute(matmul(48, 40, 200, "float16", "float32", tile=tile), [a, b, c], poison=True)
        results.append(c)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    np.testing.assert_allclose(results[0], a.astype("f8") @ b.astype("f8"), atol=2e-4)


def test_threads_and_poison_do_not_change_bits():
    program = matmul(300, 200, 100, tile=(64, 64, 64, 32))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype) for t in program.tensors]
    results = []
    for threads, poison in ((1, False), (2, False), (4, True)):
        got = [x.copy() for x in arrays]
        values.execute(program, got, threads=threads, poison=poison)
        results.append(got[2])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize(("rows", "D"), [(64, 1024), (37, 1000), (37, 77), (5, 64), (3, 1)])
def test_layer_norm(rows, D):
    program = layer_norm(rows, D)
    rng = np.random.default_rng(0)
    x, gamma, beta = (rng.standard_normal(t.shape).astype("f4") for t in program.tensors[:3])
    y = np.zeros((rows, D), np.float32)
    values.execute(program, [x, gamma, beta, y], poison=True)
    wide = x.astype("f8")
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(
        wide.var(1, keepdims=True) + 1e-5
    ) * gamma + beta
    np.testing.assert_allclose(y, want, atol=5e-6)


@pytest.mark.parametrize("count", [1, 63, 64, 4096, 100_003])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_elementwise(count, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(count).astype(dtype), rng.standard_normal(count).astype(dtype)
    c = np.zeros_like(a)
    values.execute(elementwise(count, "VMUL", dtype), [a, b, c], poison=True)
    np.testing.assert_array_equal(c, a * b)


def test_atomic_add():
    program = matmul(32, 32, 32, "float16", "float32", tile=(16, 16, 32, 16))
    store = program.phases[0]
    from mutants import rewrite, with_body

    from akg_py.ascend.program import Instruction
    from akg_py.ir.expr import const

    def adding(node):
        if isinstance(node, Instruction) and node.op == "FIX_f32":
            return (Instruction(node.op, (*node.operands[:6], const(2)), node.pipe),)
        return (node,)

    arrays = integers(program)
    arrays[2][:] = 7
    values.execute(with_body(program, rewrite(store.body, adding)), arrays)
    np.testing.assert_array_equal(arrays[2], arrays[0].astype("f4") @ arrays[1].astype("f4") + 7)


def test_out_of_bounds_is_reported_not_executed():
    program = elementwise(64)
    core = Var("core", lo=0, hi=0)
    body = (
        ins.copy(
            address("UB", 196608 - 128),
            address(program.tensors[0]),
            1,
            256,
            0,
            0,
            "MTE2",
            "user.py:7",
        ),
    )
    bad = Program(
        "bad", load_device("ascend910b3"), program.tensors, (Phase("p", "aiv", core, 1, body),)
    )
    with pytest.raises(InternalError, match=r"leaves its memory.*COPY.*user.py:7"):
        values.execute(bad, [np.zeros(64, np.float32) for _ in range(3)])


def test_arrays_must_fit():
    with pytest.raises(InternalError, match="needs 256 contiguous bytes"):
        values.execute(elementwise(64), [np.zeros(63, np.float32) for _ in range(3)])


def test_out_and_views_as_on_the_cpu():
    X = te.placeholder((64, 256), "float16", name="X")
    Y = te.compute((64, 256), lambda i, j: X[i, j] + X[i, j], name="Y")
    kernel = akg.build(te.create_schedule(Y.op), [X, Y], target="ascend910b3")
    x, wide = np.ones((64, 256), np.float16), np.zeros((64, 512), np.float16)
    view = wide[:, ::2]
    assert kernel(x, out=view) is view and kernel.bind(x, out=view)() is view
    assert (view == 2).all() and not wide[:, 1::2].any()
    with pytest.raises(akg.ExpressionError, match="overlaps the argument X"):
        kernel(x, out=x)
