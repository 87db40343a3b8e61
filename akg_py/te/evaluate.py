"""The root oracle: values of a graph by numpy, without schedule or lowering.

In go tensors and arrays for their inputs, out come arrays. Each operation is evaluated over a grid
of index vectors that broadcast lazily, in chunks, and only over the box that the region needs.
Every operation yields its dtype's value, rounded once. Sums and products of floats accumulate in
float64 in an unspecified order and round once (16-bit floats by way of float32); where a summed
product is exact or wide enough (float32, float64, integers) it is one matrix product in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from akg_py import dtypes
from akg_py.errors import ExpressionError, InternalError
from akg_py.ir.evaluate import apply_binary, apply_call, convert
from akg_py.ir.expr import (
    COMPARISONS,
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
    evaluate_index,
    is_index,
)
from akg_py.te.grid import (
    Array,
    Box,
    Grid,
    chunks,
    matrix_product,
    needed_boxes,
    output_box,
    summed_product,
    tiles,
)
from akg_py.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor, graph_order

V = TypeVar("V")

STANDARD = ("sum", "prod", "max", "min")


def graph_inputs(outputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The placeholders that `outputs` need, in the order that feeds given as a list have."""
    return [op.outputs[0] for op in graph_order(_as_list(outputs)) if isinstance(op, PlaceholderOp)]


def evaluate(
    outputs: Tensor | Sequence[Tensor],
    feeds: Mapping[Tensor, Any] | Sequence[Any],
    *,
    region: Sequence[slice | range] | None = None,
) -> Any:
    """Values of `outputs` as the language defines them, for any schedule.

    Args:
        outputs: a tensor (gives one array) or a list of tensors (gives a list).
        feeds: arrays of the inputs' exact shapes and dtypes, by tensor or in `graph_inputs` order.
        region: a slice or range with step 1 per dimension; only these elements are computed and
            returned. All outputs must then have one shape.

    Raises:
        ExpressionError: a feed is missing or doesn't fit, or an index that depends on data is out
            of range where nothing guards the read.
    """
    tensors = _as_list(outputs)
    found = Evaluator(tensors, feeds, region).run()
    return found[0] if isinstance(outputs, Tensor) else found


def _as_list(outputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def check_feeds(
    tensors: Sequence[Tensor], feeds: Mapping[Tensor, Any] | Sequence[Any]
) -> dict[Tensor, Array]:
    """Feeds by tensor, after checking that each input has an array of its shape and dtype."""
    inputs = graph_inputs(tensors)
    if not isinstance(feeds, Mapping):
        if len(feeds) != len(inputs):
            raise ExpressionError(
                f"{len(feeds)} arrays for {len(inputs)} inputs",
                hint=f"inputs: {', '.join(t.name for t in inputs)}",
            )
        feeds = dict(zip(inputs, feeds, strict=True))
    result = {}
    for t in inputs:
        if t not in feeds:
            raise ExpressionError(
                f"no array for input {t.name}", hint=f"feeds={{{t.name}: array, ...}}"
            )
        array = np.asarray(feeds[t])
        if array.shape != t.shape or array.dtype != dtypes.numpy_dtype(t.dtype):
            raise ExpressionError(
                f"input {t.name} is {t.dtype}{list(t.shape)}, not {array.dtype}{list(array.shape)}",
                hint=f"convert the array (.astype, .reshape), or declare {t.name} differently",
            )
        result[t] = array
    return result


# ---------------------------------------------------------------- the walk, for any kind of value


class GridEvaluator(ABC, Generic[V]):
    """Evaluates a graph; subclasses say what a value is (`V`) and what operations do to it."""

    def __init__(
        self,
        outputs: Sequence[Tensor],
        feeds: Mapping[Tensor, Any] | Sequence[Any],
        region: Sequence[slice | range] | None = None,
    ) -> None:
        self.outputs = outputs
        self.feeds = check_feeds(outputs, feeds)
        self.order = graph_order(outputs)
        wanted: dict[Tensor, Box] = {}
        for t in outputs:
            wanted[t] = output_box(t, region)
        self.wanted = wanted
        self.boxes = needed_boxes(self.order, dict(wanted))
        self.known: dict[Tensor, V] = {}

    def run(self) -> list[V]:
        """Values of the outputs over their boxes."""
        with np.errstate(all="ignore"):
            for op in self.order:
                if isinstance(op, PlaceholderOp):
                    self.known[op.outputs[0]] = self.lift(self.feeds[op.outputs[0]], op.dtype)
                else:
                    self._compute(op)
            return [self._crop(t) for t in self.outputs]

    def _crop(self, t: Tensor) -> V:
        cut = tuple(
            slice(w[0] - b[0], w[1] - b[0])
            for w, b in zip(self.wanted[t], self.boxes[t], strict=True)
        )
        return self.take(self.known[t], cut)

    def _compute(self, op: ComputeOp) -> None:
        box = self.boxes[op.outputs[0]]
        axes = op.axis + op.reduce_axis
        whole = Grid(axes, box + tuple((a.lo, a.lo + a.extent) for a in op.reduce_axis))
        results = [self.empty(tuple(e - b for b, e in box), t.dtype) for t in op.outputs]
        if not self._fill(op, results, whole, use_products=True):
            self._fill(op, results, whole, use_products=False)
        self.known.update(zip(op.outputs, results, strict=True))

    def _fill(self, op: ComputeOp, results: list[V], whole: Grid, use_products: bool) -> bool:
        """Compute chunk by chunk; False if a sum of products can't be a matrix product."""
        rank = len(op.axis)
        tile = tiles(whole, len(op.reduce_axis), op.body, use_products)
        box = whole.box[:rank]
        for part in chunks(box, tile[:rank]):
            if isinstance(op.body[0], Reduce):
                values = self._reduction(op, part, whole.box[rank:], tile[rank:], use_products)
                if values is None:
                    return False
            else:
                grid = Grid(op.axis, part)
                values = [self.expr(e, grid, None) for e in op.body]
            at = tuple(
                slice(b - start, e - start) for (b, e), (start, _) in zip(part, box, strict=True)
            )
            for result, value in zip(results, values, strict=True):
                self.put(result, at, value)
        return True

    def _reduction(
        self, op: ComputeOp, part: Box, domain: Box, tile: Sequence[int], use_products: bool
    ) -> list[V] | None:
        parts = [e for e in op.body if isinstance(e, Reduce)]
        first, rank = parts[0], len(op.axis)
        data = Grid(op.axis, part)
        init = None if first.init is None else [self.expr(e, data, None) for e in first.init]
        state: Any = None
        for block in chunks(domain, tile):
            grid = Grid(op.axis + op.reduce_axis, part + block)
            dims = tuple(range(rank, len(grid.axes)))
            mask = None if first.where is None else self.expr(first.where, grid, None)
            product = summed_product(first) if use_products else None
            if product is not None:
                x, y = (self.expr(side, grid, None) for side in product[:2])
                state = self.add_products(state, x, y, first, product[2], grid.shape, dims)
                if state is None:
                    return None
                continue
            active = None if mask is None else self.truth(mask)
            sources = [self.expr(s, grid, active) for s in first.sources]
            state = self.add_block(state, first, sources, mask, grid.shape, dims)
        finished = self.finish(state, first, init, data.shape)
        return [finished[e.index] for e in parts]

    def expr(self, e: Expr, grid: Grid, active: Array | None) -> V:
        """The value of `e` on the grid; where `active` is False it is never used."""
        if not isinstance(e, Const) and is_index(e):
            return self.lift(convert(evaluate_index(e, grid.vectors), e.dtype), e.dtype)
        match e:
            case Const():
                return self.lift(np.asarray(e.value).astype(dtypes.numpy_dtype(e.dtype)), e.dtype)
            case Var() | Affine():
                value = evaluate_index(e, grid.vectors)
                return self.lift(convert(value, e.dtype), e.dtype)
            case Binary(op="&&" | "||"):
                a = self.expr(e.a, grid, active)
                live = self.truth(a) if e.op == "&&" else np.logical_not(self.truth(a))
                return self.binary(e.op, a, self.expr(e.b, grid, _both(active, live)), "bool")
            case Binary() if e.op in COMPARISONS and is_index(e.a) and is_index(e.b):
                return self.lift(np.asarray(evaluate_index(e, grid.vectors)), "bool")
            case Binary():
                return self.binary(
                    e.op, self.expr(e.a, grid, active), self.expr(e.b, grid, active), e.a.dtype
                )
            case Unary():
                return self.unary(e.op, self.expr(e.a, grid, active))
            case Cast():
                return self.cast(self.expr(e.a, grid, active), e.a.dtype, e.dtype)
            case Select():
                condition = self.expr(e.condition, grid, active)
                yes, no = active, active
                if e.guards:
                    truth = self.truth(condition)
                    yes, no = _both(active, truth), _both(active, np.logical_not(truth))
                return self.select(condition, self.expr(e.a, grid, yes), self.expr(e.b, grid, no))
            case Call():
                return self.call(e.name, [self.expr(a, grid, active) for a in e.args], e.dtype)
            case Load():
                return self._load(e, grid, active)
        raise InternalError(f"{type(e).__name__} can't be evaluated")

    def _load(self, e: Load, grid: Grid, active: Array | None) -> V:
        source: Tensor = e.source  # type: ignore[assignment]
        box = self.boxes[source]
        view = self._view(e, grid, box)
        if view is not None:
            return view
        indices: list[Array] = []
        for dim, (i, n, (begin, end)) in enumerate(zip(e.indices, source.shape, box, strict=True)):
            index = np.asarray(
                evaluate_index(i, grid.vectors)
                if is_index(i)
                else self.indices(self.expr(i, grid, active))
            )
            if index.size and (index.min() < 0 or index.max() >= n):
                bad = (index < 0) | (index >= n)
                wrong = bad if active is None else bad & active
                if wrong.any():
                    value = int(np.broadcast_to(index, wrong.shape)[wrong][0])
                    raise ExpressionError(
                        f"{e} reads index {value} of dimension {dim}, which has extent {n}",
                        hint="guard the read with te.if_then_else(condition, ..., value)",
                    )
            indices.append(np.clip(index, begin, max(end - 1, begin)) - begin)
        if any(b == x for b, x in box):
            shape = np.broadcast_shapes(*(i.shape for i in indices)) if indices else ()
            return self.empty(shape, e.dtype)
        return self.inexact_where(self.take(self.known[source], tuple(indices)), e, grid, active)

    def _view(self, e: Load, grid: Grid, box: Box) -> V | None:
        """A slice, not a gather, where each index is a constant or `axis * stride + offset`."""
        cut: list[Any] = []
        dims: list[int] = []
        for i, (begin, end) in zip(e.indices, box, strict=True):
            if isinstance(i, Const):
                if not begin <= i.value < end:
                    return None
                cut.append(int(i.value) - begin)
                continue
            atom, stride, offset = i, 1, 0
            if isinstance(i, Affine) and len(i.terms) == 1:
                (atom, stride), offset = i.terms[0], i.const
            if not isinstance(atom, IterVar) or atom not in grid.vectors or stride < 1:
                return None
            dim = grid.axes.index(atom)
            lo, hi = grid.box[dim]
            first, last = lo * stride + offset, (hi - 1) * stride + offset
            if dim in dims or hi <= lo or first < begin or last >= end:
                return None
            cut.append(slice(first - begin, last - begin + 1, stride))
            dims.append(dim)
        order = sorted(range(len(dims)), key=lambda n: dims[n])
        expand = tuple(slice(None) if d in dims else None for d in range(len(grid.axes)))
        return self.view(self.known[e.source], tuple(cut), order, expand)  # type: ignore[index]

    @abstractmethod
    def view(
        self, value: V, cut: tuple[Any, ...], order: list[int], expand: tuple[Any, ...]
    ) -> V: ...

    def inexact_where(self, value: V, e: Load, grid: Grid, active: Array | None) -> V:
        """Hook: the value of a gather whose indices may be inexact."""
        return value

    @abstractmethod
    def lift(self, array: Array, dtype: str) -> V: ...

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str) -> V: ...

    @abstractmethod
    def put(self, target: V, at: tuple[slice, ...], value: V) -> None: ...

    @abstractmethod
    def take(self, value: V, index: tuple[Any, ...]) -> V: ...

    @abstractmethod
    def truth(self, value: V) -> Array: ...

    @abstractmethod
    def indices(self, value: V) -> Array: ...

    @abstractmethod
    def binary(self, op: str, a: V, b: V, dtype: str) -> V: ...

    @abstractmethod
    def unary(self, op: str, a: V) -> V: ...

    @abstractmethod
    def cast(self, a: V, source: str, dtype: str) -> V: ...

    @abstractmethod
    def select(self, condition: V, a: V, b: V) -> V: ...

    @abstractmethod
    def call(self, name: str, args: list[V], dtype: str) -> V: ...

    @abstractmethod
    def add_products(
        self,
        state: Any,
        x: V,
        y: V,
        r: Reduce,
        dtype: str,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> Any: ...

    @abstractmethod
    def add_block(
        self,
        state: Any,
        r: Reduce,
        sources: list[V],
        mask: V | None,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> Any: ...

    @abstractmethod
    def finish(
        self, state: Any, r: Reduce, init: list[V] | None, shape: tuple[int, ...]
    ) -> list[V]: ...


def _both(a: Array | None, b: Array) -> Array:
    return b if a is None else np.logical_and(a, b)


def combine(walker: GridEvaluator[V], r: Reduce, lhs: Sequence[V], rhs: Sequence[V]) -> list[V]:
    """The user's combiner on values."""
    c = r.combiner
    env = dict(zip(c.lhs + c.rhs, (*lhs, *rhs), strict=True))

    def value(e: Expr) -> V:
        match e:
            case Var():
                return env[e]
            case Const():
                return walker.lift(np.asarray(e.value).astype(dtypes.numpy_dtype(e.dtype)), e.dtype)
            case Affine():
                total = walker.lift(np.asarray(e.const, np.int32), e.dtype)
                for atom, coef in e.terms:
                    scaled = walker.binary(
                        "*", value(atom), walker.lift(np.asarray(coef, np.int32), e.dtype), e.dtype
                    )
                    total = walker.binary("+", total, scaled, e.dtype)
                return total
            case Binary():
                return walker.binary(e.op, value(e.a), value(e.b), e.a.dtype)
            case Unary():
                return walker.unary(e.op, value(e.a))
            case Cast():
                return walker.cast(value(e.a), e.a.dtype, e.dtype)
            case Select():
                return walker.select(value(e.condition), value(e.a), value(e.b))
            case Call():
                return walker.call(e.name, [value(a) for a in e.args], e.dtype)
        raise InternalError(f"{type(e).__name__} in a combiner")

    return [value(e) for e in c.result]


# ---------------------------------------------------------------- values of the dtypes


class Evaluator(GridEvaluator[Any]):
    """Values as numpy arrays of the operations' dtypes."""

    def view(
        self, value: Array, cut: tuple[Any, ...], order: list[int], expand: tuple[Any, ...]
    ) -> Array:
        part: Array = np.asarray(value[cut]).transpose(order)[expand]
        return part

    def lift(self, array: Array, dtype: str) -> Array:
        return np.asarray(array)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.zeros(shape, dtypes.numpy_dtype(dtype))

    def put(self, target: Array, at: tuple[slice, ...], value: Array) -> None:
        target[at] = value

    def take(self, value: Array, index: tuple[Any, ...]) -> Array:
        return np.asarray(value[index])

    def truth(self, value: Array) -> Array:
        return value

    def indices(self, value: Array) -> Array:
        return value.astype(np.int64)

    def binary(self, op: str, a: Array, b: Array, dtype: str) -> Array:
        return np.asarray(apply_binary(op, a, b, dtype))

    def unary(self, op: str, a: Array) -> Array:
        return np.logical_not(a) if op == "!" else np.negative(a)

    def cast(self, a: Array, source: str, dtype: str) -> Array:
        return np.asarray(convert(a, dtype))

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition, a, b)

    def call(self, name: str, args: list[Array], dtype: str) -> Array:
        return np.asarray(apply_call(name, args, dtype))

    def add_products(
        self,
        state: Any,
        x: Array,
        y: Array,
        r: Reduce,
        dtype: str,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> Any:
        depth = int(np.prod([shape[d] for d in dims], dtype=np.int64))
        if dtypes.is_float(dtype):
            limit = {"float16": 2.0**11, "bfloat16": 2.0**8}.get(dtype)
            if limit is not None and not (
                _all_integers(x) and _all_integers(y) and _peak(x) * _peak(y) <= limit
            ):
                return None
            if not _peak(x) * _peak(y) * depth < 3e38:  # overflow, infinity or NaN
                return None
            total = matrix_product(x.astype(np.float64), y.astype(np.float64), shape, dims)
        elif dtypes.is_int(dtype):
            top = 2.0 ** (8 * dtypes.size_bytes(dtype) - 1)
            if _peak(x) * _peak(y) >= top:  # the product wraps around
                return None
            if _peak(x) * _peak(y) * depth < 2.0**53:
                exact = matrix_product(x.astype(np.float64), y.astype(np.float64), shape, dims)
                total = exact.astype(np.int64).astype(dtypes.numpy_dtype(r.sources[0].dtype))
            else:
                return None
        else:
            return None
        return [total] if state is None else [state[0] + total]

    def add_block(
        self,
        state: Any,
        r: Reduce,
        sources: list[Array],
        mask: Array | None,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> Any:
        name = r.combiner.name
        if name not in STANDARD or len(sources) > 1:
            return self._combine_block(state, r, sources, mask, shape, dims)
        dtype = sources[0].dtype if dtypes.is_int(r.dtype) else np.dtype(np.float64)
        identity = np.asarray(_number(r.combiner.identity[0])).astype(dtype)
        values = np.broadcast_to(sources[0].astype(dtype), shape)
        if mask is not None:
            values = np.where(mask, values, identity)
        ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
        total = ufunc.reduce(values, axis=dims, dtype=dtype, initial=identity)
        return [total] if state is None else [ufunc(state[0], total)]

    def _combine_block(
        self,
        state: Any,
        r: Reduce,
        sources: list[Array],
        mask: Array | None,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> list[Array]:
        acc = (
            state
            if state is not None
            else [
                np.asarray(_number(i)).astype(s.dtype)
                for i, s in zip(r.combiner.identity, sources, strict=True)
            ]
        )
        data, steps = shape[: dims[0]], shape[dims[0] :]
        values = [np.broadcast_to(s, shape).reshape(*data, -1) for s in sources]
        masks = None if mask is None else np.broadcast_to(mask, shape).reshape(*data, -1)
        for n in range(int(np.prod(steps, dtype=np.int64))):
            new = combine(self, r, acc, [v[..., n] for v in values])
            acc = (
                new
                if masks is None
                else [np.where(masks[..., n], x, old) for x, old in zip(new, acc, strict=True)]
            )
        return acc

    def finish(
        self, state: Any, r: Reduce, init: list[Array] | None, shape: tuple[int, ...]
    ) -> list[Array]:
        name, kinds = r.combiner.name, [s.dtype for s in r.sources]
        if state is None:
            state = [
                np.asarray(_number(i)).astype(dtypes.numpy_dtype(d))
                for i, d in zip(r.combiner.identity, kinds, strict=True)
            ]
        if name in STANDARD and len(kinds) == 1:
            if init is not None:
                ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[
                    name
                ]
                start = init[0].astype(np.float64) if dtypes.is_float(kinds[0]) else init[0]
                state = [ufunc(start, state[0])]
            return [convert(convert(state[0], dtypes.accumulator(kinds[0])), kinds[0])]
        if init is not None:
            state = combine(self, r, init, state)
        return [convert(s, d) for s, d in zip(state, kinds, strict=True)]


def _number(e: Expr) -> int | float | bool:
    while isinstance(e, Cast):
        e = e.a
    if isinstance(e, Unary) and e.op == "-":
        return -_number(e.a)
    if not isinstance(e, Const):
        raise ExpressionError(
            f"the identity {e} of a reduction is not a constant",
            hint="use te.const, te.min_value or te.max_value",
        )
    return e.value


def _peak(x: Array) -> float:
    return float(np.max(np.abs(x.astype(np.float64)))) if x.size else 0.0


def _all_integers(x: Array) -> bool:
    wide = x.astype(np.float32)
    return bool(np.all(wide == np.rint(wide))) and bool(np.all(np.isfinite(wide)))


__all__ = ["evaluate", "graph_inputs"]
