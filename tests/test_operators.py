"""Every shipped operator kind on every target against the oracle.

Shapes are odd, prime, tail-only, tiny and empty. Small integers must agree bit for bit where the
operator computes exactly on them, random floats within the propagated error bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akg_py import build, ops, te
from akg_py.errors import CapacityError
from akg_py.library import task
from tests.comparison import assert_exact, assert_within_bound, random_floats, small_integers

TARGETS = ("cpu", "ascend910b3")
MATMULS = [
    (64, 64, 64),
    (17, 33, 65),
    (127, 131, 137),
    (1, 1, 1),
    (5, 300, 7),
    (0, 8, 8),
    (8, 8, 0),
    (260, 272, 160),
]
CONVS = [  # c, h, w, oc, window, stride, padding
    (2, 5, 6, 3, 3, 1, 1),
    (3, 9, 8, 5, 3, 2, 1),
    (16, 6, 6, 16, 1, 1, 0),
    (1, 1, 1, 1, 1, 1, 0),
    (0, 4, 4, 3, 3, 1, 1),
]
ROWS = [(8, 64), (7, 13), (37, 127), (1, 1), (3, 1000), (0, 5), (257, 16), (129, 640)]


def workloads() -> list[tuple[str, dict[str, Any], bool]]:
    """(operator, attributes, whether small integers stay exact)."""
    cases: list[tuple[str, dict[str, Any], bool]] = []
    for dtype in ("float16", "float32"):
        cases += [("matmul", {"m": m, "n": n, "k": k, "dtype": dtype}, True) for m, n, k in MATMULS]
        for c, h, w, oc, k, stride, padding in CONVS:
            image = {"c": c, "h": h, "w": w, "kh": k, "kw": k, "stride": stride}
            image |= {"padding": padding, "dtype": dtype}
            cases += [("conv2d", {"oc": oc, **image}, True)]
            cases += [("depthwise_conv2d", image, True), ("max_pool2d", image, True)]
            cases += [("avg_pool2d", image, False)]
        cases += [("scale_shift", {"shape": s, "dtype": dtype}, True) for s in ROWS]
        cases += [("softmax", {"shape": s, "dtype": dtype}, False) for s in ROWS]
        cases += [("layer_norm", {"shape": s, "dtype": dtype}, False) for s in ROWS]
    return cases


def show(value: Any) -> str:
    if isinstance(value, tuple):
        return value[0] if isinstance(value[0], str) else ""
    return str(value)


def check(kernel: Any, inputs: Any, outputs: Any, exact: bool, rng: np.random.Generator) -> None:
    if exact:
        feeds = {t: small_integers(t.shape, t.dtype, rng) for t in inputs}
        assert_exact(kernel(*feeds.values()), te.evaluate(outputs[0], feeds))
    feeds = {t: random_floats(t.shape, t.dtype, rng) for t in inputs}
    assert_within_bound(kernel(*feeds.values()), outputs[0], feeds)
    if hasattr(kernel, "check"):
        assert kernel.check() == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "case",
    workloads(),
    ids=lambda c: (
        f"{c[0]}-{'x'.join(map(str, c[1].get('shape') or list(c[1].values())[:3]))}-{c[1]['dtype']}"
    ),
)
def test_operator_agrees_with_the_oracle(case: Any, target: str) -> None:
    op, attrs, exact = case
    rng = np.random.default_rng(0)
    declared = ops.declare(op, **attrs)
    schedule = te.create_schedule([t.op for t in declared.outputs])
    kernel = build(schedule, [*declared.inputs, *declared.outputs], target=target)
    check(kernel, declared.inputs, declared.outputs, exact, rng)


def test_a_convolution_too_large_for_one_tile_says_what_does_not_fit() -> None:
    declared = ops.declare("conv2d", c=64, h=14, w=14, oc=64, kh=3, kw=3, padding=1)
    schedule = te.create_schedule(declared.outputs[0].op)
    with pytest.raises(CapacityError, match="UB needs") as info:
        build(schedule, declared.args, target="ascend910b3")
    assert info.value.hint


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=200,n=300,k=150,dtype=float16",
        "matmul:m=64,n=512,k=96,dtype=float32",
        "batch_matmul:b=3,m=40,n=50,k=33,dtype=float16",
        "softmax:shape=100x77,dtype=float16",
        "layer_norm:shape=90x256,dtype=float32",
        "rms_norm:shape=64x100,dtype=float16",
        "gelu:shape=70x130,dtype=float16",
        "layer_norm_gelu:shape=50x128,dtype=float16",
        "bias_add:shape=33x65,dtype=float32",
        "swiglu:shape=40x96,dtype=float16",
        "matmul:m=1,n=1,k=1,dtype=float16",
        "matmul:m=0,n=8,k=8,dtype=float16",
        "matmul:m=8,n=0,k=8,dtype=float32",
        "matmul:m=8,n=8,k=0,dtype=float16",
        "matmul:m=8,n=8,k=0,dtype=float32",
        "batch_matmul:b=0,m=8,n=8,k=8,dtype=float16",
        "batch_matmul:b=2,m=8,n=8,k=0,dtype=float16",
        "softmax:shape=1x1,dtype=float16",
        "softmax:shape=0x8,dtype=float16",
        "layer_norm:shape=0x5,dtype=float32",
        "add:shape=4x0,dtype=float16",
    ],
)
def test_shipped_schedule_agrees_with_the_oracle(text: str, target: str) -> None:
    job = task(text, target)
    inputs, outputs = job.workload.inputs, job.workload.outputs
    kernel = build(job.apply(), [*inputs, *outputs], target=target)
    check(kernel, inputs, outputs, "matmul" in text, np.random.default_rng(1))
