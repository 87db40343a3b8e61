"""Rounding: float64 values of a graph with a bound on what any correct kernel may deviate by.

Every value carries its error. An operation adds half a unit in the last place of its dtype, sums
add what any order of summation (with or without fused multiply-add) may lose, functions
FUNCTION_ULP. Choices and predicates within the error enlarge it instead of being guessed; what has
no bound is marked undecided. Integers are exact below 2**53.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.ir.evaluate import apply_call, convert
from akg_py.ir.expr import Const, Expr, Load, Reduce, loads
from akg_py.records import dataclass
from akg_py.te.evaluate import STANDARD, GridEvaluator, combine
from akg_py.te.grid import Array, Grid, matrix_product
from akg_py.te.tensor import Tensor

FUNCTION_ULP = 4  # error a kernel's exp, log, sin ... may have, in units in the last place
_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_TINY = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150, "float64": 5e-324}
_LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
_EXACT_FUNCTIONS = ("floor", "ceil", "round", "trunc", "abs", "isnan", "isinf", "isfinite", "fmod")
_COMPARE = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_LIPSCHITZ = ("sin", "cos", "abs")


@dataclass(slots=True)
class Approx:
    """Arrays of values and absolute errors (inf: no bound); of bools, error 1 is undecided."""

    value: Array
    error: Array


@dataclass(frozen=True, slots=True)
class Bounded:
    """What a correct kernel may compute: `abs(result - value) <= error` where not `undecided`."""

    value: Array
    error: Array
    undecided: Array


def evaluate_with_bound(
    outputs: Tensor | Sequence[Tensor],
    feeds: Mapping[Tensor, Any] | Sequence[Any],
    *,
    region: Sequence[slice | range] | None = None,
) -> Any:
    """Values of `outputs` in float64, each with a bound on the error of any correct kernel.

    Returns:
        One `Bounded` for a tensor, a list for a list. `undecided` marks elements without a bound:
        an integer or bool behind a predicate within the error, an overflow that may or may not
        happen. Their share is for the caller to cap.
    """
    tensors = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    found = []
    for t, v in zip(tensors, BoundEvaluator(tensors, feeds, region).run(), strict=True):
        loose = ~np.isfinite(v.error)
        if not dtypes.is_float(t.dtype):
            loose |= v.error > 0
        found.append(Bounded(v.value, v.error, loose))
    return found[0] if isinstance(outputs, Tensor) else found


def _settle(value: Array, error: Array, dtype: str) -> Approx:
    """Apply overflow of `dtype`; where the value isn't finite the error is 0 or inf."""
    if not dtypes.is_float(dtype):
        return Approx(value, np.where(np.isnan(error), np.inf, error))
    top = _LARGEST[dtype] * (1 + _ROUNDOFF[dtype])
    magnitude = np.abs(value)
    over = np.isfinite(value) & (magnitude - error >= top)
    value = np.where(over, np.copysign(np.inf, value), value)
    doubtful = (magnitude + error >= _LARGEST[dtype]) & ~over & np.isfinite(value)
    error = np.where(over, 0.0, np.where(doubtful, np.inf, error))
    infinite = ~np.isfinite(value) & ~over
    error = np.where(infinite, np.where(error == 0, 0.0, np.inf), error)
    return Approx(value, np.where(np.isnan(error), np.inf, error))


def _rounded(value: Array, error: Array, dtype: str, ulps: float = 0.5) -> Approx:
    """One operation's rounding added."""
    if dtypes.is_float(dtype):
        exact_special = ~np.isfinite(value) & (error == 0)
        grown = (
            error
            + (np.abs(value) + error) * (2 * ulps * _ROUNDOFF[dtype] + 2.0**-53)
            + _TINY[dtype]
        )
        error = np.where(exact_special, 0.0, grown)
    return _settle(value, error, dtype)


def _spread(value: Array, *others: Array) -> Array:
    """How far the other values lie from `value`; NaN counts as unbounded."""
    error = np.zeros_like(value, dtype=np.float64)
    for other in others:
        gap = np.where(other == value, 0.0, np.abs(other - value))
        error = np.maximum(error, np.where(np.isnan(value) & np.isnan(other), 0.0, gap))
    return np.where(np.isnan(error), np.inf, error)


def _widened(f: Callable[..., Array], value: Array, args: Sequence[Approx]) -> Array:
    """Error of `f`, monotone in each argument, from its values at the corners."""
    corners = [[]]  # type: list[list[Array]]
    for a in args:
        corners = [[*c, x] for c in corners for x in (a.value - a.error, a.value + a.error)]
    return _spread(value, *(np.asarray(f(*c)) for c in corners))


class BoundEvaluator(GridEvaluator[Approx]):
    """Values in float64 with errors."""

    def view(
        self, value: Approx, cut: tuple[Any, ...], order: list[int], expand: tuple[Any, ...]
    ) -> Approx:
        return Approx(
            *(np.asarray(a[cut]).transpose(order)[expand] for a in (value.value, value.error))
        )

    def lift(self, array: Array, dtype: str) -> Approx:
        wide = np.asarray(array).astype(np.float64)
        return Approx(wide, np.zeros_like(wide))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Approx:
        return Approx(np.zeros(shape), np.zeros(shape))

    def put(self, target: Approx, at: tuple[slice, ...], value: Approx) -> None:
        target.value[at] = value.value
        target.error[at] = value.error

    def take(self, value: Approx, index: tuple[Any, ...]) -> Approx:
        return Approx(np.asarray(value.value[index]), np.asarray(value.error[index]))

    def truth(self, value: Approx) -> Array:
        return np.not_equal(value.value, 0)

    def indices(self, value: Approx) -> Array:
        return np.nan_to_num(value.value).astype(np.int64)

    def inexact_where(self, value: Approx, e: Load, grid: Grid, active: Array | None) -> Approx:
        error = value.error
        for i in e.indices:
            if next(loads(i), None) is not None:
                error = np.where(self.expr(i, grid, active).error > 0, np.inf, error)
        return Approx(value.value, error)

    def binary(self, op: str, a: Approx, b: Approx, dtype: str) -> Approx:
        x, y, dx, dy = a.value, b.value, a.error, b.error
        if op in ("&&", "||"):
            absorbing = 1.0 if op == "||" else 0.0
            value = np.where((x == absorbing) | (y == absorbing), absorbing, 1.0 - absorbing)
            settled = ((dx == 0) & (x == absorbing)) | ((dy == 0) & (y == absorbing))
            return Approx(value, np.where(settled | ((dx == 0) & (dy == 0)), 0.0, 1.0))
        if op in ("==", "!=", "<", "<=", ">", ">="):
            f = _COMPARE[op]
            slack = dx + dy
            gap = np.where(x == y, 0.0, np.abs(x - y))
            return Approx(
                f(x, y).astype(np.float64), ((slack > 0) & ~(gap > slack)).astype(np.float64)
            )
        if op in ("min", "max"):
            g = np.minimum if op == "min" else np.maximum
            value = g(x, y)
            return _settle(value, _spread(value, g(x - dx, y - dy), g(x + dx, y + dy)), dtype)
        if op in ("+", "-"):
            return self._rounded_int(x + y if op == "+" else x - y, dx + dy, dtype)
        if op == "*":
            return self._rounded_int(x * y, np.abs(x) * dy + np.abs(y) * dx + dx * dy, dtype)
        if op == "pow":
            return self.call("pow", [a, b], dtype)
        quotient = x / y
        room = np.abs(y) - dy
        exact = (dx == 0) & (dy == 0)
        error = np.where(
            exact,
            0.0,
            np.where(room > 0, (dx + np.abs(quotient) * dy) / np.maximum(room, 1e-300), np.inf),
        )
        if op == "/":
            return _rounded(quotient, error, dtype)
        if not dtypes.is_float(dtype):
            whole = np.where(y == 0, 0.0, np.floor(quotient))
        else:
            whole = np.floor_divide(x, y)
        slack = np.where(
            exact & (not dtypes.is_float(dtype)), 0.0, error + np.abs(quotient) * 2.0**-50
        )
        doubt = _spread(whole, np.floor(quotient - slack), np.floor(quotient + slack))
        doubt = np.where(slack == 0, 0.0, doubt)
        if op == "//":
            return _rounded(whole, doubt, dtype) if dtypes.is_float(dtype) else Approx(whole, doubt)
        rest = np.where(y == 0, 0.0 if dtypes.is_int(dtype) else np.nan, x - whole * y)
        wrong = np.where(doubt > 0, np.abs(y) + dy, dx + np.abs(whole) * dy)
        return _rounded(rest, np.where(exact & (doubt == 0), 0.0, wrong), dtype)

    def _rounded_int(self, value: Array, error: Array, dtype: str) -> Approx:
        if dtypes.is_int(dtype):
            wrapped = convert(value.astype(np.int64), dtype).astype(np.float64)
            return Approx(
                np.where(error == 0, wrapped, value), np.where(np.isnan(error), np.inf, error)
            )
        return _rounded(value, error, dtype)

    def unary(self, op: str, a: Approx) -> Approx:
        return Approx(1.0 - a.value if op == "!" else -a.value, a.error)

    def cast(self, a: Approx, source: str, dtype: str) -> Approx:
        if dtypes.is_bool(dtype):
            zero = (a.error > 0) & (np.abs(a.value) <= a.error)
            return Approx((a.value != 0).astype(np.float64), zero.astype(np.float64))
        if dtypes.is_float(dtype):
            kept = convert(a.value, dtype).astype(np.float64)
            same = (a.error == 0) & ((kept == a.value) | (np.isnan(kept) & np.isnan(a.value)))
            grown = _rounded(a.value, a.error, dtype)
            return Approx(np.where(same, a.value, grown.value), np.where(same, 0.0, grown.error))
        whole = np.trunc(a.value)
        error = np.where(
            a.error == 0,
            0.0,
            _spread(whole, np.trunc(a.value - a.error), np.trunc(a.value + a.error)),
        )
        wrapped = convert(np.nan_to_num(whole).astype(np.int64), dtype).astype(np.float64)
        return Approx(
            np.where(error == 0, wrapped, whole), np.where(np.isfinite(a.value), error, np.inf)
        )

    def select(self, condition: Approx, a: Approx, b: Approx) -> Approx:
        taken = condition.value != 0
        value = np.where(taken, a.value, b.value)
        error = np.where(taken, a.error, b.error)
        gap = np.where(a.value == b.value, 0.0, np.abs(a.value - b.value))
        either = gap + np.where(taken, b.error, a.error)
        error = np.where(condition.error > 0, np.maximum(error, either), error)
        return Approx(value, np.where(np.isnan(error), np.inf, error))

    def call(self, name: str, args: list[Approx], dtype: str) -> Approx:
        wide = [a.value for a in args]
        if dtypes.is_bool(dtype):
            value = np.asarray(apply_call(name, wide, "bool")).astype(np.float64)
            return Approx(value, (~np.isfinite(args[0].error)).astype(np.float64))
        value = np.asarray(apply_call(name, wide, "float64"))
        exact = args[0].error == 0
        for a in args[1:]:
            exact = exact & (a.error == 0)

        def f(*xs: Array) -> Array:
            return np.asarray(apply_call(name, list(xs), "float64"))

        if name in _LIPSCHITZ:
            error = args[0].error if name == "abs" else np.minimum(args[0].error, 2.0)
        elif name == "cosh":
            error = _spread(
                value,
                f(np.abs(args[0].value) + args[0].error),
                f(np.maximum(np.abs(args[0].value) - args[0].error, 0)),
            )
        elif name == "tan":
            x, dx = args[0].value, args[0].error
            pole = np.abs(np.remainder(x, np.pi) - np.pi / 2)
            error = np.where(pole > dx, _widened(f, value, args), np.inf)
        elif name == "fmod":
            left, right = args
            quotient = left.value / right.value
            slack = (left.error + np.abs(quotient) * right.error) / np.abs(right.value)
            slack = slack + np.abs(quotient) * 2.0**-50
            jump = np.trunc(quotient - slack) != np.trunc(quotient + slack)
            smooth = left.error + np.abs(np.trunc(quotient)) * right.error
            error = np.where(jump, np.abs(right.value) + right.error, smooth)
        elif name == "atan2":
            up, along = args
            distance = np.hypot(along.value, up.value) - along.error - up.error
            cut = (np.abs(up.value) <= up.error) & (along.value - along.error < 0)
            turn = (along.error + up.error) / np.maximum(distance, 1e-300)
            error = np.where((distance > 0) & ~cut, turn, 2 * np.pi)
        elif name == "pow":
            base = args[0].value - args[0].error
            error = np.where(base > 0, _widened(f, value, args), np.inf)
        else:  # monotone
            error = _widened(f, value, args)
        error = np.where(exact, 0.0, error)
        if name in _EXACT_FUNCTIONS:
            return _settle(value, error, dtype)
        return _rounded(value, error, dtype, FUNCTION_ULP)

    # ------------------------------------------------------------ reductions

    def add_products(
        self,
        state: Any,
        x: Approx,
        y: Approx,
        r: Reduce,
        dtype: str,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> Any:
        if not dtypes.is_float(dtype) or not (
            np.isfinite(x.value).all() and np.isfinite(y.value).all()
        ):
            return None
        if not (np.isfinite(x.error).all() and np.isfinite(y.error).all()):
            return None

        def product(a: Array, b: Array) -> Array:
            return matrix_product(a, b, shape, dims)

        ax, ay = np.abs(x.value), np.abs(y.value)
        weight = product(ax, ay)
        error = np.zeros_like(weight)
        if x.error.any() or y.error.any():
            error = product(ax, y.error) + product(x.error, ay) + product(x.error, y.error)
        count = int(np.prod([shape[d] for d in dims], dtype=np.int64))
        error = (
            error + weight * _ROUNDOFF[dtype] + count * _TINY[dtype]
        )  # the products' own rounding
        return self._merge(state, (product(x.value, y.value), weight + error, error, count))

    @staticmethod
    def _merge(state: Any, new: tuple[Array, Array, Array, int]) -> tuple[Array, Array, Array, int]:
        if state is None:
            return new
        return state[0] + new[0], state[1] + new[1], state[2] + new[2], state[3] + new[3]

    def add_block(
        self,
        state: Any,
        r: Reduce,
        sources: list[Approx],
        mask: Approx | None,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> Any:
        if mask is not None:
            sources = [
                self.select(mask, s, self._identity(i))
                for s, i in zip(sources, r.combiner.identity, strict=True)
            ]
        name = r.combiner.name
        if name not in STANDARD or len(sources) > 1:
            values = [
                Approx(
                    *(
                        np.broadcast_to(a, shape).reshape(*shape[: dims[0]], -1)
                        for a in (s.value, s.error)
                    )
                )
                for s in sources
            ]
            acc = state if state is not None else [self._identity(i) for i in r.combiner.identity]
            for n in range(values[0].value.shape[-1]):
                acc = combine(self, r, acc, [self.take(v, (..., n)) for v in values])
            return acc
        value, error = (np.broadcast_to(a, shape) for a in (sources[0].value, sources[0].error))
        if name == "sum":
            weight = np.abs(value) + error
            count = int(np.prod([shape[d] for d in dims], dtype=np.int64))
            return self._merge(state, (value.sum(dims), weight.sum(dims), error.sum(dims), count))
        if name == "prod":
            count = int(np.prod([shape[d] for d in dims], dtype=np.int64))
            total, most = value.prod(dims), (np.abs(value) + error).prod(dims)
            peak = np.maximum(np.abs(value) + error, 1.0).prod(dims)
            if state is None:
                return total, most, peak, count
            return total * state[0], most * state[1], peak * state[2], count + state[3]
        f = np.maximum if name == "max" else np.minimum
        parts = tuple(f.reduce(v, axis=dims) for v in (value, value - error, value + error))
        return parts if state is None else tuple(f(s, p) for s, p in zip(state, parts, strict=True))

    def _identity(self, e: Expr) -> Approx:
        assert isinstance(e, Const)
        return self.lift(np.asarray(e.value, np.float64), e.dtype)

    def finish(
        self, state: Any, r: Reduce, init: list[Approx] | None, shape: tuple[int, ...]
    ) -> list[Approx]:
        name = r.combiner.name
        if name not in STANDARD or len(r.sources) > 1:
            parts = state if state is not None else [self._identity(i) for i in r.combiner.identity]
            return combine(self, r, init, parts) if init is not None else parts
        dtype = r.sources[0].dtype
        if state is None:
            result = self._identity(r.combiner.identity[0])
            if init is not None:
                result = init[0]
            return [result]
        wide = dtypes.accumulator(dtype)
        if name == "sum":
            value, weight, error, count = state
            if init is not None:
                value, weight, error = (
                    value + init[0].value,
                    weight + np.abs(init[0].value) + init[0].error,
                    error + init[0].error,
                )
            if dtypes.is_float(wide):
                growth = (count + 1) * (_ROUNDOFF[wide] + 2.0**-53)
                error = error + weight * (growth / max(1 - growth, 0.5))
                error = np.where(
                    weight >= _LARGEST[wide], np.where(np.isfinite(value), np.inf, error), error
                )
                error = np.where(~np.isfinite(value) & np.isnan(error), 0.0, error)
        elif name == "prod":
            value, most, peak, count = state
            if init is not None:
                value, most = value * init[0].value, most * (np.abs(init[0].value) + init[0].error)
            error = most - np.abs(value)
            if dtypes.is_float(wide):
                growth = (count + 1) * (_ROUNDOFF[wide] + 2.0**-53)
                error = error + most * (growth / max(1 - growth, 0.5)) + _TINY[wide]
                error = np.where(peak >= _LARGEST[wide], np.inf, error)
        else:
            value, low, high = state
            if init is not None:
                f = np.maximum if name == "max" else np.minimum
                low, high = (
                    f(low, init[0].value - init[0].error),
                    f(high, init[0].value + init[0].error),
                )
                value = f(value, init[0].value)
            error = _spread(value, low, high)
        settled = (
            self._rounded_int(value, error, dtype)
            if dtypes.is_int(dtype)
            else _settle(value, error, wide)
        )
        return [
            self.cast(settled, wide, dtype) if wide != dtype and dtypes.is_float(dtype) else settled
        ]


__all__ = ["Bounded", "evaluate_with_bound"]
