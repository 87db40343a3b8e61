"""Random loop nests (kinds, tails, guards, indices): kernels do what the interpreter does."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from akg_py import dtypes
from akg_py.ir.expr import Expr, Select, Var, binary, bounds, cast, const, logical, minimum
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Seq, Stmt
from tests.codegen.funcs import at, axis, buffer, check, func, put

KINDS = ("serial", "vector", "unroll", "parallel")
DTYPES = ("float32", "int32", "int8", "float16", "float64", "uint16", "int64")


class Draw:
    """One random Func."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.inputs: list[Buffer] = []
        self.dtype = self.pick(DTYPES)
        self.is_long = False  # too long for an exact sum in float16

    def pick(self, options: Any) -> Any:
        return self.data.draw(st.sampled_from(list(options)))

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def loops(self) -> tuple[list[tuple[Var, Any, str]], list[Expr]]:
        """Loops from the outside in, and the axes of the iteration space."""
        loops: list[tuple[Var, Any, str]] = []
        axes: list[Expr] = []
        count = self.number(1, 3)
        for n in range(count):
            extent = self.pick((1, 2, 3, 5, 8, 16, 17, 33, 40))
            if count == 1 and self.number(0, 1):
                extent, self.is_long = self.pick((131, 300, 700)), True
            if self.number(0, 2) == 0:
                tile = self.pick((2, 4, 7, 16))
                outer, inner = axis(f"o{n}", -(-extent // tile)), axis(f"t{n}", tile)
                start = outer * tile if bounds(outer)[1] else const(0)
                loops.append((outer, -(-extent // tile), self.pick(KINDS)))
                loops.append((inner, minimum(tile, extent - start), self.pick(KINDS)))
                axes.append(start + inner)
            else:
                v = axis(f"v{n}", extent)
                loops.append((v, extent, self.pick(KINDS)))
                axes.append(v + 0)
        if self.number(0, 1):
            loops = self.data.draw(st.permutations(loops))
            loops.sort(
                key=lambda x: not isinstance(x[1], int)
            )  # a tail's extent needs its outer loop
        return loops, axes

    def index(self, axes: list[Expr]) -> Expr:
        e = self.pick(axes)
        form = self.number(0, 6)
        if form == 0:
            e = e * self.pick((2, 3))
        elif form == 1:
            e = e // self.pick((2, 3, 4))
        elif form == 2:
            e = e % self.pick((2, 3, 4))
        elif form == 3:
            e = e + self.pick(axes)
        elif form == 4:
            e = bounds(e)[1] - e
        elif form == 5:
            e = minimum(e, self.number(0, 9))
        return e

    def load(self, axes: list[Expr]) -> Expr:
        indices = tuple(self.index(axes) for _ in range(self.number(1, 2)))
        shape = tuple(max(bounds(e)[1], 0) + 1 for e in indices)
        while len(shape) == 2 and shape[0] * shape[1] > 4000:
            indices, shape = indices[:1], shape[:1]
        b = buffer(f"A{len(self.inputs)}", shape, self.dtype)
        self.inputs.append(b)
        return at(b, *indices)

    def condition(self, axes: list[Expr]) -> Expr:
        a = binary(self.pick(("<", ">=", "==")), self.pick(axes), const(self.number(0, 12)))
        if self.number(0, 1):
            return a
        b = self.load(axes) > const(0, self.dtype)
        return logical(self.pick(("&&", "||")), a, b)

    def value(self, axes: list[Expr], depth: int) -> Expr:
        form = self.number(0, 7) if depth else 0
        if form <= 1:
            return self.load(axes)
        if form == 2:
            return cast(self.dtype, self.pick(axes) % 7)
        if form == 3:
            c = self.condition(axes)
            a, b = self.value(axes, depth - 1), self.value(axes, depth - 1)
            return (
                a
                if not isinstance(c, Expr)
                else Select(c, a, b, self.dtype, bool(self.number(0, 1)))
            )
        ops = ["+", "-", "max", "min"] + ([] if dtypes.is_float(self.dtype) else ["//", "%"])
        return binary(self.pick(ops), self.value(axes, depth - 1), self.value(axes, depth - 1))

    def func(self) -> Func:
        loops, axes = self.loops()
        whole = self.is_long or self.number(0, 2)
        keep = axes if whole else axes[: self.number(0, len(axes))]
        keep = self.data.draw(st.permutations(keep))
        out = buffer("Out", tuple(bounds(e)[1] + 1 for e in keep) or (1,), self.dtype)
        target = tuple(keep) or (const(0),)
        value = self.value(axes, 2)
        if len(keep) < len(axes):
            value = binary(self.pick(("+", "max", "min")), at(out, *target), value)
        elif self.number(0, 3) == 0:
            value = binary("+", value, at(out, *target))
        body: Stmt = put(out, target, value)
        if self.number(0, 3) == 0:
            body = If(
                self.condition(axes),
                body,
                put(out, target, const(1, self.dtype)) if self.number(0, 1) else None,
            )
        if self.number(0, 4) == 0:
            scratch = buffer("T", (1,), self.dtype)
            body = Alloc(
                scratch,
                Seq(
                    (
                        put(scratch, (0,), at(out, *target)),
                        body,
                        put(out, target, at(out, *target) + at(scratch, 0)),
                    )
                ),
            )
        for var, extent, kind in reversed(loops):
            body = For(var, extent if isinstance(extent, Expr) else const(extent), kind, body)
        return func([*self.inputs, out], [out], body, "random")


def check_random(data: st.DataObject) -> None:
    f = Draw(data).func()
    check(f, seed=len(f.params))


CHECKS = list(HealthCheck)


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=CHECKS)
@given(st.data())
def test_random_nests(data: st.DataObject) -> None:
    check_random(data)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=CHECKS)
@given(st.data())
def test_many_random_nests(data: st.DataObject) -> None:
    check_random(data)
