"""Row kernels that reduce along the last axis: softmax and norms, also fused with gelu.

16-bit inputs are converted to float32 first and the result is rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from akg_py import te
from akg_py.errors import ExpressionError
from akg_py.ops.elementwise import Declaration, flat, gelu_value, wide
from akg_py.ops.registry import dtype, number, register, shape
from akg_py.te.tensor import Tensor


def _row_axis(X: Tensor) -> Any:
    if X.ndim < 1:
        raise ExpressionError(
            f"{X!r} has no axis to reduce", hint="give a tensor of one dimension or more"
        )
    return te.reduce_axis((0, X.shape[-1]), name="r")


def softmax(X: Tensor) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along the last axis."""
    acc, lead = wide(X.dtype), X.shape[:-1]
    r, q = _row_axis(X), _row_axis(X)
    top = te.compute(lead, lambda *i: te.max(X(*i, r).astype(acc), axis=r), name="top")
    e = te.compute(X.shape, lambda *i: te.exp(X(*i).astype(acc) - top(*i[:-1])), name="e")
    total = te.compute(lead, lambda *i: te.sum(e(*i, q), axis=q), name="total")
    result: Tensor = te.compute(
        X.shape, lambda *i: (e(*i) / total(*i[:-1])).astype(X.dtype), name="softmax"
    )
    return result


def _normalised(X: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """(x - mean) and 1 / sqrt(variance + epsilon), in the wide dtype."""
    acc, lead = wide(X.dtype), X.shape[:-1]
    scale = 1.0 / max(X.shape[-1], 1)
    r, q = _row_axis(X), _row_axis(X)
    total = te.compute(lead, lambda *i: te.sum(X(*i, r).astype(acc), axis=r), name="total")
    centred = te.compute(
        X.shape, lambda *i: X(*i).astype(acc) - total(*i[:-1]) * scale, name="centred"
    )
    squares = te.compute(
        lead, lambda *i: te.sum(centred(*i, q) * centred(*i, q), axis=q), name="squares"
    )
    inverse = te.compute(
        lead, lambda *i: 1.0 / te.sqrt(squares(*i) * scale + epsilon), name="inverse"
    )
    return centred, inverse


def _check_affine(X: Tensor, *parameters: Tensor) -> None:
    for p in parameters:
        if p.shape != X.shape[-1:] or p.dtype != X.dtype:
            raise ExpressionError(
                f"{p!r} doesn't scale the rows of {X!r}",
                hint=f"shape {list(X.shape[-1:])}, {X.dtype}",
            )


def layer_norm(
    X: Tensor, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5, activation: str = ""
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis.

    Args:
        activation: `gelu` applies it before the result is rounded: two kernels in one.
    """
    _check_affine(X, gamma, beta)
    acc = wide(X.dtype)
    centred, inverse = _normalised(X, epsilon)

    def element(*i: Any) -> Any:
        y = centred(*i) * inverse(*i[:-1]) * gamma[i[-1]].astype(acc) + beta[i[-1]].astype(acc)
        return (gelu_value(y) if activation == "gelu" else y).astype(X.dtype)

    name = f"layer_norm{'_' + activation if activation else ''}"
    result: Tensor = te.compute(X.shape, element, name=name, attrs={"epsilon": epsilon})
    return result


def rms_norm(X: Tensor, gamma: Tensor, epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * gamma along the last axis."""
    _check_affine(X, gamma)
    acc, lead = wide(X.dtype), X.shape[:-1]
    scale = 1.0 / max(X.shape[-1], 1)
    r = _row_axis(X)
    squares = te.compute(
        lead, lambda *i: te.sum(X(*i, r).astype(acc) * X(*i, r).astype(acc), axis=r), name="squares"
    )
    inverse = te.compute(
        lead, lambda *i: 1.0 / te.sqrt(squares(*i) * scale + epsilon), name="inverse"
    )
    result: Tensor = te.compute(
        X.shape,
        lambda *i: (X(*i).astype(acc) * inverse(*i[:-1]) * gamma[i[-1]].astype(acc)).astype(
            X.dtype
        ),
        name="rms_norm",
        attrs={"epsilon": epsilon},
    )
    return result


@register(
    "softmax",
    [shape(), dtype()],
    about="along the last axis",
    scratch=2,
    flops=lambda a: 5 * math.prod(a["shape"]),
)
def _declare_softmax(shape: tuple[int, ...], dtype: str) -> Declaration:
    X = te.placeholder(flat(shape), dtype, name="X")
    return [X], [softmax(X)]


def _declare_layer_norm(
    activation: str, shape: tuple[int, ...], epsilon: float, dtype: str
) -> Declaration:
    X = te.placeholder(flat(shape), dtype, name="X")
    gamma, beta = (te.placeholder(shape[-1:], dtype, name=n) for n in ("gamma", "beta"))
    return [X, gamma, beta], [layer_norm(X, gamma, beta, epsilon, activation)]


@register(
    "layer_norm",
    [shape(), number("epsilon", 1e-5), dtype()],
    about="along the last axis, with gamma and beta",
    scratch=3,
    flops=lambda a: 8 * math.prod(a["shape"]),
)
def _declare_plain_layer_norm(shape: tuple[int, ...], epsilon: float, dtype: str) -> Declaration:
    return _declare_layer_norm("", shape, epsilon, dtype)


@register(
    "layer_norm_gelu",
    [shape(), number("epsilon", 1e-5), dtype()],
    about="layer_norm and gelu in one kernel",
    scratch=3,
    flops=lambda a: 17 * math.prod(a["shape"]),
)
def _declare_layer_norm_gelu(shape: tuple[int, ...], epsilon: float, dtype: str) -> Declaration:
    return _declare_layer_norm("gelu", shape, epsilon, dtype)


@register(
    "rms_norm",
    [shape(), number("epsilon", 1e-5), dtype()],
    about="along the last axis, with gamma",
    scratch=2,
    flops=lambda a: 5 * math.prod(a["shape"]),
)
def _declare_rms_norm(shape: tuple[int, ...], epsilon: float, dtype: str) -> Declaration:
    X, gamma = (
        te.placeholder(flat(shape), dtype, name="X"),
        te.placeholder(shape[-1:], dtype, name="gamma"),
    )
    return [X, gamma], [rms_norm(X, gamma, epsilon)]
