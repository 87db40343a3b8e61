"""Element-wise operators; 16-bit floats compute in float32 and round once at the end.

Each is a function on tensors, and an operator on a shape (flattened to rows x columns, which is the
same memory).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from akg_py import te
from akg_py.errors import ExpressionError
from akg_py.ops.registry import Attrs, choice, dtype, number, register, shape
from akg_py.te.tensor import Tensor

Declaration = tuple[list[Tensor], list[Tensor]]


def wide(dtype: str) -> str:
    """The dtype row kernels compute `dtype` in: float32 for 16-bit floats, else itself."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def flat(extents: tuple[int, ...]) -> tuple[int, int]:
    """A shape as rows x columns of the same memory."""
    return math.prod(extents[:-1]), extents[-1]


def _map(f: Callable[..., Any], *tensors: Tensor, name: str, **attrs: object) -> Tensor:
    first = tensors[0]
    for t in tensors[1:]:
        if t.shape != first.shape or t.dtype != first.dtype:
            raise ExpressionError(
                f"{first!r} and {t!r} differ",
                hint="element-wise operators take equal shapes and dtypes",
            )
    acc = wide(first.dtype)
    result: Tensor = te.compute(
        first.shape,
        lambda *i: f(*(t(*i).astype(acc) for t in tensors)).astype(first.dtype),
        name=name,
        attrs=attrs,
    )
    return result


def add(X: Tensor, Y: Tensor) -> Tensor:
    """X + Y, equal shapes."""
    return _map(lambda x, y: x + y, X, Y, name="add")


def mul(X: Tensor, Y: Tensor) -> Tensor:
    """X * Y, equal shapes."""
    return _map(lambda x, y: x * y, X, Y, name="mul")


def relu(X: Tensor) -> Tensor:
    """max(X, 0)."""
    return _map(_relu, X, name="relu")


def _relu(x: Any) -> Any:
    return te.maximum(x, 0)


def gelu_value(x: Any, form: str = "tanh") -> Any:
    """GELU of one element, in the tanh approximation or exactly with erf.

    `0.5 x (1 + tanh(y))` is computed as `x / (1 + exp(-2 y))`: the same value, and fewer
    instructions.
    """
    if form == "tanh":
        scale = -2 * math.sqrt(2 / math.pi)
        return x / (te.exp(x * (x * x * (scale * 0.044715) + scale)) + 1.0)
    return x * 0.5 * (te.erf(x * math.sqrt(0.5)) + 1.0)


def gelu(X: Tensor, form: str = "tanh") -> Tensor:
    """GELU; `form` is tanh (the usual approximation) or erf (exact)."""
    return _map(lambda x: gelu_value(x, form), X, name="gelu", form=form)


def sigmoid(X: Tensor) -> Tensor:
    """1 / (1 + exp(-X))."""
    return _map(te.sigmoid, X, name="sigmoid")


def silu(X: Tensor) -> Tensor:
    """X * sigmoid(X)."""
    return _map(lambda x: x / (te.exp(-x) + 1.0), X, name="silu")


def swiglu(X: Tensor, Y: Tensor) -> Tensor:
    """silu(X) * Y, the gate of Llama's feed-forward block."""
    return _map(lambda x, y: x * y / (te.exp(-x) + 1.0), X, Y, name="swiglu")


def bias_add(X: Tensor, bias: Tensor) -> Tensor:
    """X[..., j] + bias[j]."""
    if bias.shape != X.shape[-1:] or bias.dtype != X.dtype:
        raise ExpressionError(
            f"{bias!r} is no bias of {X!r}", hint="one element per column, of the same dtype"
        )
    acc = wide(X.dtype)
    return te.compute(  # type: ignore[no-any-return]
        X.shape,
        lambda *i: (X(*i).astype(acc) + bias[i[-1]].astype(acc)).astype(X.dtype),
        name="bias_add",
    )


def scale_shift(X: Tensor, scale: float, shift: float) -> Tensor:
    """relu(X * scale + shift): a short chain in one pass."""
    return _map(lambda x: _relu(x * scale + shift), X, name="scale_shift", scale=scale, shift=shift)


def _unary(
    name: str,
    function: Callable[..., Tensor],
    about: str,
    cost: int,
    scratch: int,
    *attributes: Any,
    slow: dict[str, int] | None = None,
) -> None:
    """Register an operator of one input; `cost` in operations per element, `slow` by form."""

    def declare(shape: tuple[int, ...], dtype: str, **attrs: Any) -> Declaration:
        X = te.placeholder(flat(shape), dtype, name="X")
        return [X], [function(X, **attrs)]

    def flops(attrs: Attrs) -> int:
        return (slow or {}).get(attrs.get("form", ""), cost) * math.prod(attrs["shape"])

    register(
        name,
        [shape(), *attributes, dtype()],
        about=about,
        flops=flops,
        scratch=scratch,
        exact=cost <= 2,
    )(declare)


def _binary(
    name: str, function: Callable[..., Tensor], about: str, cost: int, scratch: int
) -> None:
    def declare(shape: tuple[int, ...], dtype: str) -> Declaration:
        X, Y = (te.placeholder(flat(shape), dtype, name=n) for n in "XY")
        return [X, Y], [function(X, Y)]

    register(
        name,
        [shape(), dtype()],
        about=about,
        scratch=scratch,
        exact=cost <= 2,
        flops=lambda a: cost * math.prod(a["shape"]),
    )(declare)


_FORM = choice("form", "tanh", "erf")
_unary("relu", relu, "max(x, 0)", 1, 3)
_unary("gelu", gelu, "Gaussian error linear unit", 9, 6, _FORM, slow={"erf": 25})
_unary("sigmoid", sigmoid, "1 / (1 + exp(-x))", 5, 3)
_unary("silu", silu, "x / (1 + exp(-x))", 5, 4)
_unary(
    "scale_shift",
    scale_shift,
    "relu(scale x + shift)",
    2,
    3,
    number("scale", 2.0),
    number("shift", 1.0),
)
_binary("add", add, "x + y", 1, 3)
_binary("mul", mul, "x y", 1, 3)
_binary("swiglu", swiglu, "silu(x) y", 6, 4)


@register(
    "bias_add",
    [shape(), dtype()],
    about="x[i,j] + bias[j]",
    scratch=3,
    flops=lambda a: math.prod(a["shape"]),
    exact=True,
)
def _declare_bias_add(shape: tuple[int, ...], dtype: str) -> Declaration:
    X, bias = (
        te.placeholder(flat(shape), dtype, name="X"),
        te.placeholder(shape[-1:], dtype, name="bias"),
    )
    return [X, bias], [bias_add(X, bias)]
