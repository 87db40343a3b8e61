"""Regions: which part of a producer its consumers need inside a loop.

A range is a pair of inclusive bounds that are index expressions over the loops around the point in
question. Axes whose loops lie outside that point are points; the others span their extent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from akg_py.ir.expr import (
    Affine,
    Binary,
    Const,
    Expr,
    Select,
    Var,
    bounds,
    ceildiv,
    const,
    maximum,
    minimum,
)
from akg_py.records import dataclass
from akg_py.te.stage import Fuse, Singleton, Split, StageState
from akg_py.te.tensor import IterVar


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds `lo .. hi`."""

    lo: Expr
    hi: Expr

    @property
    def extent(self) -> Expr:
        return self.hi - self.lo + 1

    @property
    def is_point(self) -> bool:
        return self.lo is self.hi


class Domain:
    """The axes of a stage over a region: static sizes, values in terms of loops, guards, ranges.

    Args:
        extents: extent of each root axis in the region, an index expression of the loops around it.

    Attributes:
        static: static upper bound of the extent of every axis.
    """

    def __init__(self, stage: StageState, extents: Mapping[IterVar, Expr]) -> None:
        self.stage = stage
        self.extents = dict(extents)
        self.static = {axis: max(bounds(e)[1], 0) for axis, e in extents.items()}
        self._split: dict[IterVar, Split] = {}
        self._fuse: dict[IterVar, Fuse] = {}
        for r in stage.relations:
            match r:
                case Split():
                    size = max(self.static[r.parent], 1)
                    chunk = (
                        min(r.factor, size)
                        if r.factor is not None
                        else -(-size // min(r.nparts or 1, size))
                    )
                    self.static[r.inner] = chunk
                    self.static[r.outer] = -(-self.static[r.parent] // chunk)
                    self._split[r.parent] = r
                case Fuse():
                    self.static[r.fused] = self.static[r.outer] * self.static[r.inner]
                    self._fuse[r.outer] = self._fuse[r.inner] = r
                case Singleton():
                    self.static[r.axis] = 1

    def value(self, axis: IterVar, leaf: Mapping[IterVar, Expr]) -> Expr:
        """Position on `axis`, counted from the start of the region, in terms of the loops."""
        if axis in leaf:
            return leaf[axis]
        if axis in self._split:
            r = self._split[axis]
            return self.value(r.outer, leaf) * self.static[r.inner] + self.value(r.inner, leaf)
        if axis in self._fuse:
            f = self._fuse[axis]
            fused, size = self.value(f.fused, leaf), max(self.static[f.inner], 1)
            return fused // size if axis is f.outer else fused % size
        raise KeyError(axis)

    def data_sides(self, leaf: IterVar) -> list[IterVar]:
        """The data axes that were fused with reduce axes on the way to the loop `leaf`."""
        for parent, r in self._split.items():
            if leaf is r.outer or leaf is r.inner:
                return [] if not parent.is_reduce else self.data_sides(parent)
        for f in {id(f): f for f in self._fuse.values()}.values():
            if leaf is f.fused:
                return [
                    x
                    for side in (f.outer, f.inner)
                    for x in (self.data_sides(side) if side.is_reduce else [side])
                ]
        return []

    def guards(
        self, leaf: Mapping[IterVar, Expr], data_only: bool = False
    ) -> list[tuple[Expr, Expr]]:
        """Pairs (value, bound): a point is in the region iff every value is below its bound.

        Args:
            leaf: values of the loops, or of axes that loops come from.
            data_only: leave out what concerns reduce axes.
        """
        result = []
        for axis in self.static:
            if data_only and axis.is_reduce:
                continue
            bound = self.extents.get(axis, const(self.static[axis]))
            if axis in self._split or axis in self._fuse:
                if self._is_guarded_fused(axis, bound, data_only):
                    continue
                value = self.value(axis, leaf)
                if bounds(value - bound)[1] >= 0:
                    result.append((value, bound))
        return result

    def _is_guarded_fused(self, axis: IterVar, bound: Expr, data_only: bool) -> bool:
        """Whether the guard of the axis that this one was fused into says as much."""
        f = self._fuse.get(axis)
        return (
            f is not None
            and axis is f.outer
            and isinstance(bound, Const)
            and bound.value == self.static[axis]
            and not (data_only and f.fused.is_reduce)
        )

    def ranges(self, leaf_value: Callable[[IterVar], Expr | None]) -> dict[IterVar, Range]:
        """Range of every root axis from the start of the region.

        Args:
            leaf_value: the variable of a loop outside the point in question, None for one inside.
        """
        return {
            axis: self._range(axis, extent, leaf_value) for axis, extent in self.extents.items()
        }

    def _range(
        self, axis: IterVar, extent: Expr, leaf_value: Callable[[IterVar], Expr | None]
    ) -> Range:
        if axis in self._split:
            r = self._split[axis]
            if self._is_inside(axis, leaf_value):
                return Range(const(0), extent - 1)
            chunk = self.static[r.inner]
            outer = self._range(r.outer, ceildiv(extent, chunk), leaf_value)
            start = outer.lo * chunk
            inner = self._range(
                r.inner,
                minimum(chunk, extent - start) if outer.is_point else const(chunk),
                leaf_value,
            )
            if outer.is_point:
                value = start + inner.lo
                return Range(value, value) if inner.is_point else Range(value, start + inner.hi)
            return Range(start + inner.lo, minimum(outer.hi * chunk + inner.hi, extent - 1))
        if axis in self._fuse:
            f = self._fuse[axis]
            size = max(self.static[f.inner], 1)
            fused = self._range(f.fused, const(self.static[f.fused]), leaf_value)
            if fused.is_point:
                value = fused.lo // size if axis is f.outer else fused.lo % size
                return Range(value, value)
            if axis is f.outer:
                return Range(fused.lo // size, minimum(fused.hi // size, extent - 1))
            return Range(const(0), extent - 1)
        value_or_none = leaf_value(axis)
        return (
            Range(const(0), extent - 1)
            if value_or_none is None
            else Range(value_or_none, value_or_none)
        )

    def _is_inside(self, axis: IterVar, leaf_value: Callable[[IterVar], Expr | None]) -> bool:
        """Whether every loop that moves `axis` lies inside, so that it takes all its values."""
        if axis in self._split:
            r = self._split[axis]
            return self._is_inside(r.outer, leaf_value) and self._is_inside(r.inner, leaf_value)
        if axis in self._fuse:
            return self._is_inside(self._fuse[axis].fused, leaf_value)
        return leaf_value(axis) is None


def relax(e: Expr, ranges: Mapping[Var, Range]) -> Range | None:
    """Range of an index expression whose Vars have ranges; None if it depends on data."""
    match e:
        case Const():
            return Range(e, e)
        case Var():
            return ranges.get(e) or Range(e, e)
        case Affine():
            lo: Expr = const(e.const)
            hi: Expr = lo
            point = True
            for atom, coef in e.terms:
                r = relax(atom, ranges)
                if r is None:
                    return None
                point = point and r.is_point
                lo = lo + (r.lo if coef > 0 else r.hi) * coef
                hi = hi + (r.hi if coef > 0 else r.lo) * coef
            return Range(lo, lo) if point else Range(lo, hi)
        case Binary(op="min" | "max" | "//" | "%"):
            a, b = relax(e.a, ranges), relax(e.b, ranges)
            if a is None or b is None:
                return None
            if e.op == "min":
                return Range(minimum(a.lo, b.lo), minimum(a.hi, b.hi))
            if e.op == "max":
                return Range(maximum(a.lo, b.lo), maximum(a.hi, b.hi))
            if not isinstance(e.b, Const) or int(e.b.value) <= 0:
                return None
            if e.op == "//":
                return Range(a.lo // e.b, a.hi // e.b)
            if a.is_point:
                value = a.lo % e.b
                return Range(value, value)
            return Range(const(0), e.b - 1)
        case Select():
            a, b = relax(e.a, ranges), relax(e.b, ranges)
            return None if a is None or b is None else union(a, b)
    return None


def union(a: Range, b: Range) -> Range:
    """The smallest range that holds both."""
    return Range(minimum(a.lo, b.lo), maximum(a.hi, b.hi))


def clip(r: Range, extent: int) -> Range:
    """`r` without what lies outside `0 .. extent - 1`."""
    return Range(maximum(r.lo, 0), minimum(r.hi, extent - 1))
