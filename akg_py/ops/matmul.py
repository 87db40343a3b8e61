"""Matrix products: float32 accumulation, one final conversion to the output's dtype."""

from __future__ import annotations

from typing import Any

from akg_py import dtypes, te
from akg_py.errors import ExpressionError
from akg_py.ops.registry import choice, dtype, extent, register
from akg_py.te.tensor import Tensor

Declaration = tuple[list[Tensor], list[Tensor]]


def _product(a: Any, b: Any, acc: str) -> Any:
    return a.astype(acc) * b.astype(acc)


def _check(A: Tensor, B: Tensor, ndim: int) -> None:
    if (
        A.ndim != ndim
        or B.ndim != ndim
        or A.shape[:-2] != B.shape[:-2]
        or A.shape[-1] != B.shape[-2]
    ):
        raise ExpressionError(
            f"can't multiply {A.name}{list(A.shape)} by {B.name}{list(B.shape)}",
            hint="the last extent of the first is the last but one of the second",
        )
    if A.dtype != B.dtype:
        raise ExpressionError(
            f"{A.name} is {A.dtype}, {B.name} is {B.dtype}", hint="convert one with .astype"
        )


def matmul(A: Tensor, B: Tensor, out_dtype: str | None = None, name: str = "C") -> Tensor:
    """`A @ B` for A[M, K] and B[K, N].

    Products and the sum are in the accumulator's dtype (float32 for float16 and bfloat16); a last
    element-wise stage converts to `out_dtype`, the inputs' dtype unless given.

    Raises:
        ExpressionError: shapes don't fit, or dtypes differ.
    """
    _check(A, B, 2)
    (M, K), N = A.shape, B.shape[1]
    acc, out = dtypes.accumulator(A.dtype), out_dtype or A.dtype
    k = te.reduce_axis((0, K), name="k")
    full: Tensor = te.compute(
        (M, N),
        lambda i, j: te.sum(_product(A[i, k], B[k, j], acc), axis=k),
        name=name if acc == out else f"{name}_{acc}",
    )
    if acc == out:
        return full
    result: Tensor = te.compute((M, N), lambda i, j: full[i, j].astype(out), name=name)
    return result


def batch_matmul(A: Tensor, B: Tensor, out_dtype: str | None = None, name: str = "C") -> Tensor:
    """`A[b] @ B[b]` for A[batch, M, K] and B[batch, K, N]; numbers as in `matmul`."""
    _check(A, B, 3)
    (batch, M, K), N = A.shape, B.shape[2]
    acc, out = dtypes.accumulator(A.dtype), out_dtype or A.dtype
    k = te.reduce_axis((0, K), name="k")
    full: Tensor = te.compute(
        (batch, M, N),
        lambda b, i, j: te.sum(_product(A[b, i, k], B[b, k, j], acc), axis=k),
        name=name if acc == out else f"{name}_{acc}",
    )
    if acc == out:
        return full
    result: Tensor = te.compute((batch, M, N), lambda b, i, j: full[b, i, j].astype(out), name=name)
    return result


@register(
    "matmul",
    [extent("m"), extent("n"), extent("k"), dtype(), choice("out_dtype", "same", "float32")],
    about="C[m,n] = A[m,k] @ B[k,n]",
    flops=lambda a: 2 * a["m"] * a["n"] * a["k"],
    unit="cube",
    exact=True,
)
def _declare_matmul(m: int, n: int, k: int, dtype: str, out_dtype: str) -> Declaration:
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    return [A, B], [matmul(A, B, None if out_dtype == "same" else out_dtype)]


@register(
    "batch_matmul",
    [extent("b"), extent("m"), extent("n"), extent("k"), dtype()],
    about="C[b,m,n] = A[b,m,k] @ B[b,k,n]",
    flops=lambda a: 2 * a["b"] * a["m"] * a["n"] * a["k"],
    unit="cube",
    exact=True,
)
def _declare_batch_matmul(b: int, m: int, n: int, k: int, dtype: str) -> Declaration:
    A, B = te.placeholder((b, m, k), dtype, name="A"), te.placeholder((b, k, n), dtype, name="B")
    return [A, B], [batch_matmul(A, B)]
