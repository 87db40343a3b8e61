"""How tests compare values: exactly on data with exact arithmetic, within a bound otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from akg_py import dtypes, te

Array = np.ndarray[Any, Any]


def small_integers(
    shape: Sequence[int], dtype: str, rng: np.random.Generator, limit: int = 3
) -> Array:
    """Random integers `-limit .. limit` (0 .. limit if unsigned, 0 and 1 if bool) as `dtype`."""
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    low = 0 if dtype.startswith("u") else -limit
    return rng.integers(low, limit + 1, tuple(shape)).astype(dtypes.numpy_dtype(dtype))


def random_floats(
    shape: Sequence[int], dtype: str, rng: np.random.Generator, scale: float = 1.0
) -> Array:
    """Normally distributed values as `dtype`."""
    return (rng.standard_normal(tuple(shape)) * scale).astype(dtypes.numpy_dtype(dtype))


def assert_exact(
    actual: Array, expected: Array, *, signed_zeros: bool = False, context: str = ""
) -> None:
    """Same dtype, shape and elements; NaN equals NaN, -0.0 equals 0.0 unless `signed_zeros`."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"{actual.dtype}, expected {expected.dtype} {context}"
    assert actual.shape == expected.shape, (
        f"shape {actual.shape}, expected {expected.shape} {context}"
    )
    wide_a, wide_e = _wide(actual), _wide(expected)
    wrong = wide_a != wide_e
    if wide_a.dtype.kind == "f":
        wrong &= ~(np.isnan(wide_a) & np.isnan(wide_e))
        if signed_zeros:
            wrong |= np.signbit(wide_a) != np.signbit(wide_e)
    _report(wrong, actual, expected, context)


def assert_within_bound(
    actual: Array | Sequence[Array],
    outputs: te.Tensor | Sequence[te.Tensor],
    feeds: Mapping[te.Tensor, Any] | Sequence[Any],
    *,
    undecided_share: float = 0.02,
    region: Sequence[slice | range] | None = None,
) -> None:
    """`actual` deviates from the float64 value of `outputs` by at most the propagated error bound.

    Args:
        undecided_share: how many elements may be skipped because a predicate lies within the error.
    """
    one = isinstance(outputs, te.Tensor)
    bounded = te.evaluate_with_bound(outputs, feeds, region=region)
    for array, b in zip([actual] if one else actual, [bounded] if one else bounded, strict=True):
        values = _wide(np.asarray(array)).astype(np.float64)
        assert values.shape == b.value.shape, f"shape {values.shape}, expected {b.value.shape}"
        share = float(np.mean(b.undecided)) if b.undecided.size else 0.0
        assert share <= undecided_share, f"{share:.1%} of the elements are undecided"
        with np.errstate(invalid="ignore"):
            close = np.abs(values - b.value) <= b.error
        same = (values == b.value) | (np.isnan(values) & np.isnan(b.value))
        wrong = ~(close | same | b.undecided)
        _report(wrong, values, b.value, f"(bound {np.max(b.error[wrong]) if wrong.any() else 0})")


def _wide(a: Array) -> Array:
    return a.astype(np.float32) if a.dtype.name in ("bfloat16", "float16") else a


def _report(wrong: Array, actual: Array, expected: Array, context: str) -> None:
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} elements differ, first at {list(at)}: "
            f"{actual[at]}, expected {expected[at]} {context}"
        )
