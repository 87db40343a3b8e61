"""The operator library: functions on te tensors, and the same by name for text and tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from akg_py.ops.conv import conv2d, depthwise_conv2d
from akg_py.ops.elementwise import (
    add,
    bias_add,
    gelu,
    gelu_value,
    mul,
    relu,
    scale_shift,
    sigmoid,
    silu,
    swiglu,
)
from akg_py.ops.matmul import batch_matmul, matmul
from akg_py.ops.norm import layer_norm, rms_norm, softmax
from akg_py.ops.pool import avg_pool2d, max_pool2d
from akg_py.ops.registry import (
    Attribute,
    Declared,
    Operator,
    choice,
    declare,
    dtype,
    extent,
    get,
    number,
    operators,
    parse_text,
    register,
    shape,
)

if TYPE_CHECKING:
    from akg_py.ops.workload import Workload, canonical_text

__all__ = [
    "Attribute",
    "Declared",
    "Operator",
    "Workload",
    "add",
    "avg_pool2d",
    "batch_matmul",
    "bias_add",
    "canonical_text",
    "choice",
    "conv2d",
    "declare",
    "depthwise_conv2d",
    "dtype",
    "extent",
    "gelu",
    "gelu_value",
    "get",
    "layer_norm",
    "matmul",
    "max_pool2d",
    "mul",
    "number",
    "operators",
    "parse_text",
    "register",
    "relu",
    "rms_norm",
    "scale_shift",
    "shape",
    "sigmoid",
    "silu",
    "softmax",
    "swiglu",
]


def __getattr__(name: str) -> Any:
    if name in ("Workload", "canonical_text"):  # building a kernel needs neither
        from akg_py.ops import workload

        return getattr(workload, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
