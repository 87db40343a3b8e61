"""Operators: values against numpy, canonical text, recognition of hand-written graphs."""

import math

import numpy as np
import pytest

from akg_py import ops, te
from akg_py.errors import ExpressionError
from akg_py.ops import Workload
from tests.ops import windows

TEXTS = [
    "matmul:m=8,n=16,k=5,dtype=float16",
    "matmul:m=3,n=2,k=4,dtype=float32",
    "batch_matmul:b=2,m=3,n=4,k=5,dtype=float16",
    "softmax:shape=4x9,dtype=float16",
    "softmax:shape=3x7,dtype=float32",
    "layer_norm:shape=4x8,dtype=float32",
    "layer_norm:shape=4x8,dtype=float16",
    "layer_norm_gelu:shape=4x8,dtype=float16",
    "rms_norm:shape=4x8,dtype=float16",
    "gelu:shape=8x8,dtype=float16",
    "gelu:shape=8x8,form=erf,dtype=float32",
    "relu:shape=3x3,dtype=float16",
    "sigmoid:shape=3x3,dtype=float16",
    "silu:shape=3x3,dtype=float32",
    "swiglu:shape=3x3,dtype=float16",
    "add:shape=5x7,dtype=float16",
    "mul:shape=5x7,dtype=int32",
    "bias_add:shape=5x7,dtype=float16",
    "scale_shift:shape=5x7,dtype=float16",
    "scale_shift:shape=5x7,scale=3,shift=-1,dtype=float32",
    "conv2d:c=4,h=9,w=8,oc=6,kh=3,kw=3,dtype=float32",
    "conv2d:n=2,c=4,h=9,w=8,oc=6,kh=3,kw=2,stride=2,padding=1,groups=2,dtype=float16",
    "conv2d:c=4,h=9,w=8,oc=6,kh=3,kw=3,dilation=2,layout=NHWC,dtype=int32",
    "depthwise_conv2d:c=4,h=9,w=8,kh=3,kw=3,padding=1,dtype=float32",
    "depthwise_conv2d:c=4,h=9,w=8,multiplier=2,kh=3,kw=3,stride=2,layout=NHWC,dtype=float16",
    "max_pool2d:c=3,h=8,w=7,kh=3,kw=2,stride=2,padding=1,dtype=float16",
    "avg_pool2d:c=3,h=8,w=7,kh=2,kw=2,stride=2,layout=NHWC,dtype=float32",
    "avg_pool2d:c=3,h=8,w=7,kh=3,kw=3,padding=1,dtype=float16,border=ignored",
]


def _erf(x):
    return np.vectorize(math.erf)(x)


def _gelu(x, form="tanh"):
    if form == "erf":
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _norm(x, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


NUMPY = {
    "matmul": lambda a, b: a @ b,
    "batch_matmul": lambda a, b: a @ b,
    "softmax": _softmax,
    "layer_norm": lambda x, g, b: _norm(x) * g + b,
    "layer_norm_gelu": lambda x, g, b: _gelu(_norm(x) * g + b),
    "rms_norm": lambda x, g: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * g,
    "gelu": _gelu,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "swiglu": lambda x, y: x / (1 + np.exp(-x)) * y,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "bias_add": lambda x, b: x + b,
    "scale_shift": lambda x, scale=2.0, shift=1.0: np.maximum(x * scale + shift, 0),
}
WINDOWS = {
    "conv2d": windows.conv2d,
    "depthwise_conv2d": windows.depthwise_conv2d,
    "max_pool2d": windows.max_pool2d,
    "avg_pool2d": windows.avg_pool2d,
}


def test_every_operator_is_tested():
    assert {o.name for o in ops.operators() if not o.name.startswith("test_")} == {
        *NUMPY,
        *WINDOWS,
    }


@pytest.mark.parametrize("text", TEXTS)
def test_values(text):
    w = Workload.parse(text)
    rng = np.random.default_rng(0)
    if w.attrs["dtype"] == "int32":
        values = [rng.integers(-9, 9, t.shape).astype(np.int32) for t in w.inputs]
    else:
        values = [rng.standard_normal(t.shape).astype(t.dtype) for t in w.inputs]
    got = te.evaluate(w.outputs[0], dict(zip(w.inputs, values, strict=True)))
    options = {k: w.attrs[k] for k in ("form", "scale", "shift") if k in w.attrs}
    wide = [v.astype(np.float64) for v in values]
    wanted = WINDOWS[w.op](*wide, w.attrs) if w.op in WINDOWS else NUMPY[w.op](*wide, **options)
    assert got.shape == wanted.shape and got.dtype == np.dtype(w.attrs["dtype"])
    rounding = {"float16": 1e-3, "float32": 1e-6, "int32": 0}[w.attrs["dtype"]]
    assert np.all(
        np.abs(got.astype(np.float64) - wanted) <= rounding * np.maximum(1, np.abs(wanted)) * 2
    )


@pytest.mark.parametrize("text", TEXTS)
def test_text_graph_and_recognition_agree(text):
    w = Workload.parse(text)
    assert w.text == text
    assert Workload.parse(w.text).digest == w.digest
    assert Workload.of(list(w.outputs)).text == text


def test_digests_differ_between_workloads():
    digests = {Workload.parse(t).digest for t in TEXTS}
    assert len(digests) == len(TEXTS)


def _matmul(names, m=8, n=16, k=4, swap=False):
    a, b, c = names
    A, B = te.placeholder((m, k), "float32", name=a), te.placeholder((k, n), "float32", name=b)
    r = te.reduce_axis((0, k), name=f"r{a}")
    product = (lambda x, y: B[r, y] * A[x, r]) if swap else (lambda x, y: A[x, r] * B[r, y])
    return te.compute((m, n), lambda x, y: te.sum(product(x, y), axis=r), name=c)


def test_names_do_not_matter_but_shapes_and_order_do():
    first, renamed = Workload.of(_matmul("ABC")), Workload.of(_matmul("XYZ"))
    assert first.digest == renamed.digest and first.text == "matmul:m=8,n=16,k=4,dtype=float32"
    assert Workload.of(_matmul("ABC", m=9)).digest != first.digest
    assert Workload.of(_matmul("ABC", swap=True)).digest != first.digest


def test_an_unknown_graph_has_a_key_too():
    X = te.placeholder((4, 4), "float32", name="X")
    w = Workload.of(te.compute((4, 4), lambda i, j: X[j, i] + 1.0, name="T"))
    assert w.op == "" and w.text == f"graph:{w.digest}"


def test_shapes_are_flattened_to_rows():
    w = Workload.parse("softmax:shape=2x3x5")
    assert w.outputs[0].shape == (6, 5) and w.text == "softmax:shape=2x3x5,dtype=float16"


@pytest.mark.parametrize(
    "text", ["matmul:m=0,n=4,k=4", "matmul:m=4,n=4,k=0", "softmax:shape=0x4", "add:shape=3x0"]
)
def test_zero_extents_are_legal(text):
    w = Workload.parse(text)
    values = [np.ones(t.shape, t.dtype) for t in w.inputs]
    assert te.evaluate(w.outputs[0], values).shape == w.outputs[0].shape


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda A, B, X: ops.matmul(A, A), "can't multiply"),
        (lambda A, B, X: ops.matmul(A, X), "can't multiply|float32"),
        (lambda A, B, X: ops.add(A, B), "differ"),
        (lambda A, B, X: ops.bias_add(A, B), "no bias"),
        (lambda A, B, X: ops.layer_norm(A, B, B), "doesn't scale the rows"),
        (lambda A, B, X: Workload.of([]), "no workload"),
    ],
)
def test_mistakes(call, message):
    A, B = te.placeholder((4, 8), "float16", name="A"), te.placeholder((8, 2), "float16", name="B")
    with pytest.raises(ExpressionError, match=message) as info:
        call(A, B, te.placeholder((8, 2), "float32", name="X"))
    assert "test_ops.py" in str(info.value.where)


def test_register_an_operator_of_ones_own():
    @ops.register(
        "test_scaled_add", [ops.shape(), ops.number("alpha", 2.0), ops.dtype()], about="x + alpha y"
    )
    def declare(shape, alpha, dtype):
        X, Y = te.placeholder(shape, dtype, name="X"), te.placeholder(shape, dtype, name="Y")
        return [X, Y], [te.compute(shape, lambda *i: X(*i) + Y(*i) * alpha, name="Z")]

    declared = ops.declare("test_scaled_add", shape="2x3", alpha=3)
    assert declared.text == "test_scaled_add:shape=2x3,alpha=3,dtype=float16"
    assert [t.shape for t in declared.args] == [(2, 3)] * 3
    with pytest.raises(ExpressionError, match="exists already"):
        ops.register("add", [])(declare)
