"""Where elements lie: row-major element numbers as index expressions, and steps between accesses.

In: buffers and indices of loop IR; out: numbers and expressions. Nothing here makes code.
"""

from __future__ import annotations

import functools

from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Var,
    free_vars,
    is_index,
    linear_combination,
    same,
)
from akg_py.ir.stmt import Buffer


@functools.lru_cache(maxsize=1024)  # emitting asks about the same access many times
def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr | None:
    """The element number in row-major order as one index expression, or None if it depends on data.

    `c * m * (x // m) + c * (x % m)` becomes `c * x`, so that fused axes stay contiguous.
    """
    if not all(map(is_index, indices)):
        return None
    total: Expr = Const(0, "int32")
    for e, stride in zip(indices, strides(buffer), strict=True):
        total = total + e * stride
    return join_digits(total)


def join_digits(e: Expr) -> Expr:
    """Rewrite pairs of quotient and remainder as the number they come from."""
    changed = True
    while changed:
        changed = False
        terms, _ = linear_combination(e)
        for rest, c in terms.items():
            if not (isinstance(rest, Binary) and rest.op == "%" and isinstance(rest.b, Const)):
                continue
            m = int(rest.b.value)
            quotient = rest.a // m
            parts, offset = linear_combination(quotient)
            if offset == 0 and len(parts) == 1:
                (atom, k) = next(iter(parts.items()))
                held = next((v for a, v in terms.items() if same(a, atom)), None)
                if k == 1 and held == c * m:
                    e = e - rest * c - quotient * (c * m) + rest.a * c
                    changed = True
                    break
    return e


def strides(buffer: Buffer) -> tuple[int, ...]:
    """Elements between neighbours along each axis: row-major, with the padding of storage_align."""
    result: list[int] = []
    step = 1
    aligned, factor, offset = buffer.align or (-1, 1, 0)
    for axis, extent in reversed(list(enumerate(buffer.shape))):
        if axis == aligned:
            step += (offset - step) % factor
        result.append(step)
        step *= extent
    return tuple(reversed(result))


def size_of(buffer: Buffer) -> int:
    """Elements that a buffer takes, padding included."""
    return strides(buffer)[0] * buffer.shape[0] if buffer.shape else 1


def lane_stride(e: Expr, var: Var) -> int | None:
    """The coefficient of `var` in an index expression, or None if it is not linear in it."""
    terms, _ = linear_combination(e)
    stride = 0
    for atom, coef in terms.items():
        if atom is var:
            stride += coef
        elif var in free_vars(atom):
            return None
    return stride


def stride_along(buffer: Buffer, indices: tuple[Expr, ...], var: Var) -> int | None:
    """Elements by which an access moves with `var`, or None if it is not linear in it."""
    flat = flat_index(buffer, indices)
    return None if flat is None else lane_stride(flat, var)
