"""Checks a reduction of the user's own: schedules reorder it, so the order must not matter.

The combiner runs on a few distinct small numbers per component; it must commute, associate and keep
its identity neutral, up to rounding. Ties are not probed, so an argmax may prefer either side.
"""

from __future__ import annotations

import numpy as np

from akg_py import dtypes
from akg_py.errors import ExpressionError
from akg_py.ir.expr import Combiner, Const, Reduce
from akg_py.te.evaluate import Evaluator, combine
from akg_py.te.grid import Array

PROBES = 8
_TOLERANCE = {"float16": 3e-2, "bfloat16": 2e-1, "float32": 1e-4, "float64": 1e-8}


def check_combiner(combiner: Combiner) -> None:
    """Raise ExpressionError if the result of `combiner` depends on the order of its operands."""
    kinds = [v.dtype for v in combiner.lhs]
    if "bool" in kinds or not all(isinstance(i, Const) for i in combiner.identity):
        return
    rng = np.random.default_rng(0)
    numbers = [np.stack([rng.permutation(9)[:3] + 1 for _ in range(PROBES)]) for _ in kinds]
    a, b, c = (
        [n[:, column].astype(dtypes.numpy_dtype(d)) for n, d in zip(numbers, kinds, strict=True)]
        for column in range(3)
    )
    evaluator = Evaluator.__new__(Evaluator)  # only its operations are used: no graph, no feeds
    node = Reduce(combiner, combiner.lhs, (), None, None, 0, kinds[0])

    def apply(x: list[Array], y: list[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.broadcast_to(v, PROBES) for v in combine(evaluator, node, x, y)]

    neutral = [
        np.full(PROBES, i.value, dtypes.numpy_dtype(d)) if isinstance(i, Const) else a[0]
        for i, d in zip(combiner.identity, kinds, strict=True)
    ]
    for law, left, right in (
        ("f(x, y) is not f(y, x)", apply(a, b), apply(b, a)),
        ("f(f(x, y), z) is not f(x, f(y, z))", apply(apply(a, b), c), apply(a, apply(b, c))),
        ("f(identity, x) is not x", apply(neutral, a), a),
    ):
        if not all(map(_close, left, right, kinds)):
            raise ExpressionError(
                f"{combiner.name}: {law}, so the result would depend on the schedule",
                hint="a reduction is commutative and associative, and its identity is neutral",
            )


def _close(x: Array, y: Array, dtype: str) -> bool:
    if not dtypes.is_float(dtype):
        return bool(np.array_equal(x, y))
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    unknown = ~np.isfinite(wide_x) | ~np.isfinite(wide_y)
    slack = _TOLERANCE[dtype] * (1 + np.abs(wide_y))
    with np.errstate(invalid="ignore"):
        return bool(np.all((np.abs(wide_x - wide_y) <= slack) | unknown))


__all__ = ["check_combiner"]
