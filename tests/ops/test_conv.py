"""Convolutions and pooling: values against numpy's windows, on the oracle and as cpu kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akg_py import build, dtypes, ops, te
from akg_py.errors import ExpressionError
from akg_py.library import task
from tests.comparison import assert_exact
from tests.ops import windows

CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    # data (n, c, h, w), weight (oc, c / groups, kh, kw), attributes
    ((1, 3, 9, 8), (4, 3, 3, 3), {}),
    ((2, 5, 7, 11), (17, 5, 3, 3), {"padding": 1}),
    ((1, 4, 9, 9), (33, 4, 3, 3), {"padding": 1, "stride": 2}),
    ((1, 6, 13, 6), (8, 6, 1, 1), {}),
    ((1, 6, 13, 7), (40, 6, 1, 1), {"stride": 2}),
    ((2, 20, 9, 11), (30, 20, 1, 1), {}),
    ((2, 3, 17, 15), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((1, 4, 12, 10), (5, 4, 3, 2), {"padding": (2, 1), "dilation": (2, 3), "stride": (1, 2)}),
    ((1, 2, 6, 5), (3, 2, 4, 4), {"padding": (3, 0, 1, 2)}),
    ((1, 8, 6, 6), (12, 2, 3, 3), {"padding": 1, "groups": 4}),
    ((1, 14, 5, 20), (64, 7, 3, 3), {"padding": 1, "groups": 2}),
    ((1, 6, 6, 6), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((1, 1, 1, 1), (2, 1, 3, 3), {"padding": 1}),
    ((0, 3, 5, 5), (4, 3, 3, 3), {"padding": 1}),
    ((2, 0, 5, 5), (4, 0, 3, 3), {"padding": 1}),
    ((1, 20, 14, 14), (64, 20, 3, 3), {"padding": 1}),
    ((1, 9, 6, 31), (48, 9, 3, 3), {"padding": 1}),
    ((3, 16, 7, 7), (32, 16, 3, 3), {"padding": 1}),
]
DEPTHWISE: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 5, 9, 8), (5, 1, 3, 3), {"padding": 1}),
    ((2, 16, 11, 35), (16, 1, 3, 3), {"padding": 1, "stride": 2}),
    ((1, 7, 6, 40), (7, 1, 5, 5), {"padding": 2}),
    ((1, 4, 9, 20), (4, 3, 3, 3), {"padding": (0, 1), "dilation": 2}),
    ((1, 33, 14, 14), (33, 1, 3, 3), {"padding": 1}),
    ((1, 6, 4, 4), (6, 2, 1, 1), {}),
]
DTYPES = ["float32", "float16", "bfloat16", "float64", "int8", "int32", "uint8"]


def integers(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    least, most = (0, 4) if dtype.startswith("u") else (-3, 4)
    return rng.integers(least, most, shape).astype(dtypes.numpy_dtype(dtype))


def check(op: str, case: Any, layout: str, dtype: str, out: str | None = None) -> None:
    """The oracle and the untouched kernel give exactly what numpy does on small integers."""
    shape, filters, given = case
    a = {**given, "layout": layout}
    if layout == "NHWC":
        shape = tuple(shape[i] for i in (0, 2, 3, 1))
        filters = tuple(filters[i] for i in ((2, 3, 1, 0) if op == "conv2d" else (2, 3, 0, 1)))
    data, weight = te.placeholder(shape, dtype, "data"), te.placeholder(filters, dtype, "weight")
    result = getattr(ops, op)(data, weight, **a, out_dtype=out)
    rng = np.random.default_rng(len(DTYPES))
    x, w = integers(shape, dtype, rng), integers(filters, dtype, rng)
    wanted = getattr(windows, op)(x.astype(np.float64), w.astype(np.float64), a)
    wanted = wanted.astype(np.int64) if not dtypes.is_float(result.dtype) else wanted
    wanted = wanted.astype(dtypes.numpy_dtype(result.dtype))
    assert result.shape == wanted.shape
    assert_exact(te.evaluate(result, {data: x, weight: w}), wanted)
    assert_exact(build(te.create_schedule(result.op), [data, weight, result])(x, w), wanted)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CONVS, ids=str)
def test_convolutions(case: Any, layout: str) -> None:
    check("conv2d", case, layout, "float32")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise_convolutions(case: Any, layout: str) -> None:
    check("depthwise_conv2d", case, layout, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [CONVS[1], CONVS[2], CONVS[4], CONVS[8], CONVS[16]], ids=str)
def test_dtypes_of_convolutions(case: Any, dtype: str) -> None:
    check("conv2d", case, "NCHW", dtype)
    check("conv2d", case, "NHWC", dtype, "float32" if "float" in dtype else "int32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", DEPTHWISE[:3], ids=str)
def test_dtypes_of_depthwise_convolutions(case: Any, dtype: str) -> None:
    check("depthwise_conv2d", case, "NCHW", dtype)
    check("depthwise_conv2d", case, "NHWC", dtype, "float32" if "float" in dtype else "int32")


def test_random_values_and_a_fused_tail() -> None:
    """Bias and relu join the kernel; sums differ from numpy's by rounding only."""
    data, weight = (
        te.placeholder((2, 20, 15, 15), name="data"),
        te.placeholder((40, 20, 3, 3), name="w"),
    )
    bias = te.placeholder((40,), name="bias")
    full = ops.conv2d(data, weight, padding=1)
    result = te.compute(
        full.shape, lambda n, k, h, w: te.maximum(full[n, k, h, w] + bias[k], 0.0), name="relu"
    )
    rng = np.random.default_rng(3)
    x, w, b = (rng.standard_normal(t.shape).astype("float32") for t in (data, weight, bias))
    kernel = build(te.create_schedule(result.op), [data, weight, bias, result])
    wanted = windows.conv2d(x.astype("float64"), w.astype("float64"), {"padding": 1})
    wanted = np.maximum(wanted + b.reshape(1, -1, 1, 1), 0)
    np.testing.assert_allclose(kernel(x, w, b), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions_that_meet(layout: str) -> None:
    """Two convolutions of one image added up, then a third of that sum, each with its own loops."""
    order = (0, 2, 3, 1) if layout == "NHWC" else (0, 1, 2, 3)
    turn = (2, 3, 1, 0) if layout == "NHWC" else (0, 1, 2, 3)
    shapes = [(1, 8, 9, 7), (16, 8, 3, 3), (16, 8, 1, 1), (9, 16, 3, 3)]
    tensors = [
        te.placeholder(tuple(s[i] for i in (turn if n else order)), name=f"t{n}")
        for n, s in enumerate(shapes)
    ]
    x, first, second, third = tensors
    a = ops.conv2d(x, first, padding=1, layout=layout)
    b = ops.conv2d(x, second, layout=layout)
    total = te.compute(a.shape, lambda *i: te.maximum(a(*i) + b(*i), 0.0), name="total")
    result = ops.conv2d(total, third, padding=1, layout=layout)
    rng = np.random.default_rng(8)
    values = [integers(t.shape, "float32", rng) for t in tensors]
    kernel = build(te.create_schedule(result.op), [*tensors, result])
    wide = [v.astype(np.float64) for v in values]
    attributes = {"layout": layout, "padding": 1}
    middle = windows.conv2d(wide[0], wide[1], attributes)
    middle = np.maximum(middle + windows.conv2d(wide[0], wide[2], {"layout": layout}), 0)
    wanted = windows.conv2d(middle, wide[3], attributes).astype(np.float32)
    assert_exact(kernel(*values), wanted)


@pytest.mark.parametrize(
    "text",
    [
        "conv2d:c=5,h=9,w=11,oc=50,kh=3,kw=3,padding=1,dtype=float32",
        "conv2d:n=2,c=6,h=7,w=8,oc=9,kh=1,kw=1,dtype=float32",
        "conv2d:c=8,h=9,w=8,oc=32,kh=3,kw=3,stride=2,groups=2,layout=NHWC,dtype=float16",
        "conv2d:c=0,h=4,w=4,oc=4,kh=3,kw=3,dtype=float32",
    ],
)
def test_configs_of_the_shipped_schedule(text: str) -> None:
    job = task(text, "cpu")
    inputs, (output,) = job.workload.inputs, job.workload.outputs
    rng = np.random.default_rng(9)
    values = {t: integers(t.shape, t.dtype, rng) for t in inputs}
    wanted = te.evaluate(output, values)
    rows = rng.integers(0, len(job.space), 6)
    for config in (job.default, *(job.space.config_at(int(row)) for row in rows)):
        kernel = build(job.apply(config), [*inputs, output])
        assert_exact(kernel(*values.values()), wanted)


def test_nan_infinity_and_zeros_of_the_border() -> None:
    """The border is 0, also times infinity: NaN, as numpy says."""
    data, weight = (
        te.placeholder((1, 2, 5, 20), name="data"),
        te.placeholder((33, 2, 3, 3), name="w"),
    )
    result = ops.conv2d(data, weight, padding=1)
    rng = np.random.default_rng(4)
    x, w = integers(data.shape, "float32", rng), integers(weight.shape, "float32", rng)
    x[0, 1, 2, 3], w[5, 0, 0, 0], w[7, 1, 2, 2] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = windows.conv2d(x, w, {"padding": 1})
    assert_exact(build(te.create_schedule(result.op), [data, weight, result])(x, w), wanted)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel": 2},
        {"kernel": (3, 2), "stride": 2, "padding": 1},
        {"kernel": 3, "stride": 1, "padding": (1, 0, 0, 1)},
        {"kernel": (1, 4), "stride": (3, 1)},
    ],
    ids=str,
)
def test_pooling(attributes: dict[str, Any], dtype: str, op: str, layout: str) -> None:
    data = te.placeholder((2, 9, 11, 5), dtype, "data")
    rng = np.random.default_rng(5)
    x = integers(data.shape, dtype, rng)
    borders = ["counts", "ignored"] if op == "avg_pool2d" else [""]
    kernel = attributes["kernel"]
    kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    for border in borders:
        extra = {"count_include_pad": border == "counts"} if border else {}
        result = getattr(ops, op)(data, **attributes, layout=layout, **extra)
        a = {"stride": (kh, kw), **attributes, "kh": kh, "kw": kw, "layout": layout}
        wanted = getattr(windows, op)(x.astype(np.float64), {**a, "border": border})
        for got in (
            te.evaluate(result, {data: x}),
            build(te.create_schedule(result.op), [data, result])(x),
        ):
            rounding = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-6)
            np.testing.assert_allclose(got.astype("float64"), wanted, rounding, rounding)


def test_max_pooling_keeps_nan_and_integers() -> None:
    data = te.placeholder((1, 2, 6, 6), name="data")
    x = np.arange(72, dtype="float32").reshape(data.shape)
    x[0, 1, 2, 2] = np.nan
    result = ops.max_pool2d(data, 3, 1, 1)
    wanted = windows.max_pool2d(x, {"kh": 3, "kw": 3, "padding": 1})
    assert_exact(build(te.create_schedule(result.op), [data, result])(x), wanted)
    small = te.placeholder((1, 2, 6, 6), "int8", name="data")
    low = np.full(small.shape, -128, "int8")
    pooled = ops.max_pool2d(small, 3, 1, 1)
    assert_exact(build(te.create_schedule(pooled.op), [small, pooled])(low), low)


def _image(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name="X")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: ops.conv2d(x, w, layout="CHWN"), "layout 'CHWN'"),
        (lambda x, w: ops.conv2d(_image(4, 4), w), "no batch of images"),
        (lambda x, w: ops.conv2d(x, _image(4, 4)), "no weight"),
        (lambda x, w: ops.conv2d(x, _image(4, 3, 3, 3, dtype="int8")), "is int8"),
        (lambda x, w: ops.conv2d(x, _image(4, 5, 3, 3)), "reads 5 channels"),
        (lambda x, w: ops.conv2d(x, w, groups=2), "groups is 2"),
        (lambda x, w: ops.conv2d(x, w, groups=0), "groups is 0"),
        (lambda x, w: ops.conv2d(x, w, stride=0), "stride is 0"),
        (lambda x, w: ops.conv2d(x, w, padding=-1), "padding is -1"),
        (lambda x, w: ops.conv2d(x, w, padding=(1, 2, 3)), "padding is"),
        (lambda x, w: ops.conv2d(x, w, dilation=1.5), "dilation is 1.5"),
        (lambda x, w: ops.conv2d(x, w, dilation=5), "doesn't fit"),
        (lambda x, w: ops.depthwise_conv2d(x, w), "filters for 4 channels"),
        (lambda x, w: ops.max_pool2d(x, 9), "doesn't fit"),
        (lambda x, w: ops.max_pool2d(x, 0), "kernel is 0"),
        (lambda x, w: ops.avg_pool2d(_image(1, 1, 4, 4, dtype="int32"), 2), "the mean of"),
        (lambda x, w: ops.declare("conv2d", c=3, h=4, w=4, oc=4, kh=5, kw=5), "doesn't fit"),
        (
            lambda x, w: ops.declare("conv2d", c=3, h=4, w=4, oc=4, kh=1, kw=1, groups=2),
            "groups is 2",
        ),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as info:
        call(_image(1, 3, 8, 8), _image(4, 3, 3, 3))
    assert info.value.hint
