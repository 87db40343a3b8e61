"""Grids of index vectors to evaluate expressions on: which box of each tensor, in what chunks.

A box is begin and end of each dimension. Arrays on a `Grid` broadcast lazily: dimension n has
length 1 wherever a value doesn't depend on axis n.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.errors import ExpressionError
from akg_py.ir.expr import (
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    Reduce,
    Var,
    children,
    is_index,
    loads,
)
from akg_py.records import dataclass
from akg_py.te.tensor import IterVar, PlaceholderOp, Tensor

Array = np.ndarray[Any, Any]
Box = tuple[tuple[int, int], ...]

CHUNK_ELEMENTS = 1 << 21  # largest temporary, in elements


def output_box(t: Tensor, region: Sequence[slice | range] | None) -> Box:
    if region is None:
        return tuple((0, n) for n in t.shape)
    if len(region) != t.ndim:
        raise ExpressionError(
            f"the region has {len(region)} dimensions, {t.name} has {t.ndim}",
            hint="one slice per dimension",
        )
    box = []
    for part, n in zip(region, t.shape, strict=True):
        r = part if isinstance(part, range) else range(*part.indices(n))
        if r.step != 1 or r.start < 0 or r.stop > n:
            raise ExpressionError(
                f"region {part} of {t.name}: a step of 1 inside 0..{n} is needed",
                hint="such as region=(slice(0, 8), slice(4, 6))",
            )
        box.append((r.start, max(r.stop, r.start)))
    return tuple(box)


def interval(e: Expr, ranges: Mapping[Any, tuple[int, int]]) -> tuple[int, int] | None:
    """Inclusive bounds of an index expression from those of its Vars; None if they aren't known."""
    match e:
        case Const():
            return int(e.value), int(e.value)
        case Var():
            return ranges.get(e)
        case Affine():
            lo = hi = e.const
            for atom, coef in e.terms:
                r = interval(atom, ranges)
                if r is None:
                    return None
                lo += min(coef * r[0], coef * r[1])
                hi += max(coef * r[0], coef * r[1])
            return lo, hi
        case Binary(op="min" | "max" | "*" | "//" | "%"):
            a, b = interval(e.a, ranges), interval(e.b, ranges)
            if a is None or b is None:
                return None
            if e.op in ("min", "max"):
                pick = min if e.op == "min" else max
                return pick(a[0], b[0]), pick(a[1], b[1])
            if e.op == "*":
                corners = [x * y for x in a for y in b]
                return min(corners), max(corners)
            if b[0] <= 0:
                return None
            if e.op == "//":
                corners = [x // y for x in a for y in b]
                return min(corners), max(corners)
            return (
                (0, b[1] - 1)
                if b[0] != b[1] or a[0] // b[0] != a[1] // b[0]
                else (a[0] % b[0], a[1] % b[0])
            )
    return None


def needed_boxes(order: Sequence[Any], wanted: dict[Tensor, Box]) -> dict[Tensor, Box]:
    """The box of each tensor that the wanted boxes depend on."""
    boxes = dict(wanted)
    for op in reversed(order):
        if isinstance(op, PlaceholderOp):
            boxes[op.outputs[0]] = tuple((0, n) for n in op.shape)
            continue
        parts = [boxes[t] for t in op.outputs if t in boxes]
        box = _join(parts)
        boxes.update(dict.fromkeys(op.outputs, box))
        ranges = {a: (b, e - 1) for a, (b, e) in zip(op.axis, box, strict=True)}
        ranges.update({a: (a.lo, a.lo + a.extent - 1) for a in op.reduce_axis})
        for e in op.body:
            for load in loads(e):
                source: Tensor = load.source  # type: ignore[assignment]
                if any(begin >= end for begin, end in box):
                    boxes.setdefault(source, tuple((0, 0) for _ in source.shape))
                    continue
                found = [interval(i, ranges) if is_index(i) else None for i in load.indices]
                need = tuple(
                    (0, n) if f is None else (min(max(f[0], 0), n), max(min(f[1] + 1, n), 0))
                    for f, n in zip(found, source.shape, strict=True)
                )
                boxes[source] = _join([boxes[source], need]) if source in boxes else _join([need])
    return boxes


def _join(boxes: Sequence[Box]) -> Box:
    joined = []
    for parts in zip(*boxes, strict=True):
        parts = tuple(p for p in parts if p[0] < p[1]) or ((0, 0),)
        joined.append((min(p[0] for p in parts), max(p[1] for p in parts)))
    return tuple(joined)


@dataclass(frozen=True)
class Grid:
    """Index ranges of axes; axis number n varies along dimension n of every array on the grid."""

    axes: tuple[IterVar, ...]
    box: Box
    vectors: dict[Var, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for n, (axis, (begin, end)) in enumerate(zip(self.axes, self.box, strict=True)):
            shape = [1] * len(self.axes)
            shape[n] = end - begin
            self.vectors[axis] = np.arange(begin, end, dtype=np.int64).reshape(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(e - b for b, e in self.box)


def chunks(box: Box, tile: Sequence[int]) -> Iterator[Box]:
    steps = [range(b, e, t) for (b, e), t in zip(box, tile, strict=True)]
    for corner in itertools.product(*steps):
        yield tuple((c, min(c + t, e)) for c, t, (_, e) in zip(corner, tile, box, strict=True))


def _keeps_value(source: str, dtype: str) -> bool:
    """Whether a cast changes no sum: floats get wider, integers stay integers."""
    if dtypes.is_int(source) and dtypes.is_int(dtype):
        return dtypes.size_bytes(dtype) >= dtypes.size_bytes(source)
    wider = dtypes.size_bytes(dtype) > dtypes.size_bytes(source)
    return dtypes.is_float(source) and dtypes.is_float(dtype) and wider


def as_product(e: Expr) -> tuple[Expr, Expr, str] | None:
    """`(x, y, dtype)` of `x * y` or `dtype(x * y)`; None for any other expression."""
    inner = e.a if isinstance(e, Cast) and _keeps_value(e.a.dtype, e.dtype) else e
    if isinstance(inner, Binary) and inner.op == "*" and not is_index(inner):
        return inner.a, inner.b, inner.dtype
    return None


def summed_product(r: Reduce) -> tuple[Expr, Expr, str] | None:
    return (
        as_product(r.sources[0])
        if r.combiner.name == "sum" and r.where is None and len(r.sources) == 1
        else None
    )


def _supports(body: Sequence[Expr], use_products: bool) -> set[frozenset[Var]]:
    """Sets of Vars that the temporaries of `body` vary over."""
    found: set[frozenset[Var]] = set()

    def visit(e: Expr) -> frozenset[Var]:
        if isinstance(e, Var):
            return frozenset((e,))
        mine: frozenset[Var] = frozenset().union(*map(visit, children(e)))
        found.add(mine)
        return mine

    for e in body:
        if use_products and isinstance(e, Reduce):
            product = summed_product(e)
            if product is not None:
                _ = visit(product[0]), visit(product[1])
                continue
        visit(e)
    return found


def tiles(grid: Grid, reduced: int, body: Sequence[Expr], use_products: bool) -> list[int]:
    """Chunk sizes that keep temporaries below CHUNK_ELEMENTS; the data axes are cut first."""
    tile = [max(n, 1) for n in grid.shape]
    data = frozenset(grid.axes[: len(grid.axes) - reduced])
    supports = [s for s in _supports(body, use_products) | {data} if s]

    def largest() -> tuple[int, frozenset[Var]]:
        size: dict[Var, int] = dict(zip(grid.axes, tile, strict=True))
        products = [math.prod([size[v] for v in s if v in size]) for s in supports]
        if not products:
            return 0, frozenset()
        most = max(products)
        return most, supports[products.index(most)]

    while True:
        count, support = largest()
        if count <= CHUNK_ELEMENTS:
            return tile
        own = [n for n, a in enumerate(grid.axes) if a in support and tile[n] > 1]
        spatial = [n for n in own if n < len(grid.axes) - reduced]
        pick = max(spatial or own, key=lambda n: tile[n])
        tile[pick] = -(-tile[pick] // 2)


def matrix_product(x: Array, y: Array, shape: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    """`sum(x * y)` over `dims` of arrays that broadcast to `shape`, as a batched matrix product."""
    rank = len(shape)
    x, y = (a.reshape((1,) * (rank - a.ndim) + a.shape) for a in (x, y))
    missing = 1
    for d in dims:  # a reduce axis that neither depends on repeats the same product
        if x.shape[d] == 1 and y.shape[d] == 1:
            missing *= shape[d]
    xs = x.sum(axis=tuple(d for d in dims if y.shape[d] == 1 and shape[d] > 1), keepdims=True)
    ys = y.sum(axis=tuple(d for d in dims if x.shape[d] == 1 and shape[d] > 1), keepdims=True)
    data = [d for d in range(rank) if d not in dims]
    batch = [d for d in data if xs.shape[d] > 1 and ys.shape[d] > 1]
    rows = [d for d in data if ys.shape[d] == 1 and xs.shape[d] > 1]
    columns = [d for d in data if xs.shape[d] == 1 and d not in rows]
    inner = [d for d in dims if xs.shape[d] > 1]

    def matrix(a: Array, *groups: list[int]) -> Array:
        used = [d for g in groups for d in g]
        ordered = a.transpose(used + [d for d in range(rank) if d not in used])
        return ordered.reshape(
            [int(np.prod([a.shape[d] for d in g], dtype=np.int64)) for g in groups]
        )

    product = np.matmul(matrix(xs, batch, rows, inner), matrix(ys, batch, inner, columns))
    sizes = [xs.shape[d] for d in batch + rows] + [ys.shape[d] for d in columns]
    order = batch + rows + columns
    result: Array = product.reshape(sizes).transpose([order.index(d) for d in data])
    return result * missing if missing != 1 else result
