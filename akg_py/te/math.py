"""Functions on elements: math, choices, logic, reductions. Names are TVM's te names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from akg_py import dtypes
from akg_py.errors import ExpressionError
from akg_py.ir.expr import (
    MATH_FUNCTIONS,
    Call,
    Combiner,
    Expr,
    Reduce,
    Unary,
    Var,
    as_expr,
    binary,
    cast,
    logical,
    select,
)
from akg_py.ir.expr import (
    const as make_const,
)
from akg_py.te.combiner_check import check_combiner
from akg_py.te.tensor import IterVar, Tensor


def _call(name: str, *args: object) -> Expr:
    tensor = next((a for a in args if isinstance(a, Tensor)), None)
    if tensor is not None:
        raise ExpressionError(
            f"{name} works on elements, not on tensor {tensor.name}",
            hint=f"te.compute({tensor.name}.shape, lambda *i: te.{name}({tensor.name}(*i)))",
        )
    exprs = [as_expr(a) for a in args]
    dtype = functools.reduce(dtypes.promote, (e.dtype for e in exprs))
    if not dtypes.is_float(dtype) and name != "abs":
        raise ExpressionError(
            f"{name} of {dtype}", hint=f'{name} needs floats: use .astype("float32")'
        )
    result = "bool" if name in ("isnan", "isinf", "isfinite") else dtype
    return Call(name, tuple(cast(dtype, e) for e in exprs), result)


def _function(name: str) -> Callable[..., Expr]:
    def function(*args: object) -> Expr:
        if len(args) != MATH_FUNCTIONS[name]:
            count = MATH_FUNCTIONS[name]
            raise ExpressionError(
                f"{name} takes {count} argument(s), {len(args)} given",
                hint=f"te.{name}({', '.join('xy'[:count])})",
            )
        return _call(name, *args)

    function.__name__ = name
    function.__doc__ = (
        f"{name}, element by element; float to float (see `te.evaluate` for its rounding)."
    )
    return function


exp, exp2, log, log2, log10 = map(_function, ("exp", "exp2", "log", "log2", "log10"))
log1p, expm1, sqrt, rsqrt, erf, sigmoid = map(
    _function, ("log1p", "expm1", "sqrt", "rsqrt", "erf", "sigmoid")
)
sin, cos, tan, sinh, cosh, tanh = map(_function, ("sin", "cos", "tan", "sinh", "cosh", "tanh"))
asin, acos, atan, atan2 = map(_function, ("asin", "acos", "atan", "atan2"))
floor, ceil, round, trunc, fmod = map(_function, ("floor", "ceil", "round", "trunc", "fmod"))
isnan, isinf, isfinite = map(_function, ("isnan", "isinf", "isfinite"))
power = _function("pow")
pow = power
abs = _function("abs")


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """A constant; unless given, dtype is int32 (or int64), float32 or bool by kind of `value`."""
    if dtype is None:
        wide = isinstance(value, int) and not -(1 << 31) <= value < 1 << 31
        return make_const(value, "int64") if wide else as_expr(value)
    return make_const(value, dtypes.check_dtype(dtype))


def var(name: str, dtype: str = "int32") -> Var:
    """A named scalar (only as a placeholder of expressions: shapes are integers)."""
    return Var(name, dtypes.check_dtype(dtype))


def if_then_else(condition: object, a: object, b: object) -> Expr:
    """`a if condition else b`; the side not taken is not evaluated, so it may guard a read."""
    return _select(condition, a, b, guards=True)


def Select(condition: object, a: object, b: object) -> Expr:
    """`a if condition else b`; both sides may be evaluated."""
    return _select(condition, a, b, guards=False)


def _select(condition: object, a: object, b: object, guards: bool) -> Expr:
    like = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else None
    return select(as_expr(condition), as_expr(a, like), as_expr(b, like), guards)


def all(*conditions: object) -> Expr:
    """True where every condition is."""
    return functools.reduce(lambda x, y: logical("&&", x, y), map(as_expr, conditions))


def any(*conditions: object) -> Expr:
    """True where some condition is."""
    return functools.reduce(lambda x, y: logical("||", x, y), map(as_expr, conditions))


def logical_not(condition: object) -> Expr:
    """True where the condition is not."""
    e = as_expr(condition)
    if e.dtype != "bool":
        raise ExpressionError(
            f"not needs a bool, not {e.dtype}", hint="compare first, such as x != 0"
        )
    return Unary("!", e)


def _n_ary(op: str, values: Sequence[object]) -> Expr:
    like = next((v.dtype for v in values if isinstance(v, Expr)), None)
    return functools.reduce(lambda x, y: binary(op, x, y), (as_expr(v, like) for v in values))


def minimum(*values: object) -> Expr:
    """Element-wise minimum; NaN wins."""
    return _n_ary("min", values)


def maximum(*values: object) -> Expr:
    """Element-wise maximum; NaN wins."""
    return _n_ary("max", values)


def floordiv(a: object, b: object) -> Expr:
    """`a // b`, rounded towards minus infinity."""
    return binary("//", as_expr(a), as_expr(b))


def floormod(a: object, b: object) -> Expr:
    """`a % b`, with the sign of `b`."""
    return binary("%", as_expr(a), as_expr(b))


indexdiv, indexmod = floordiv, floormod


def min_value(dtype: str) -> Expr:
    """The lowest value of `dtype` (-inf for floats)."""
    return make_const(dtypes.lowest(dtypes.check_dtype(dtype)), dtypes.check_dtype(dtype))


def max_value(dtype: str) -> Expr:
    """The highest value of `dtype` (inf for floats)."""
    return make_const(dtypes.highest(dtypes.check_dtype(dtype)), dtypes.check_dtype(dtype))


# ---------------------------------------------------------------- reductions


@functools.cache
def _standard_combiner(name: str, dtype: str) -> Combiner:
    operator, identity = {
        "sum": ("+", 0),
        "prod": ("*", 1),
        "max": ("max", dtypes.lowest(dtype)),
        "min": ("min", dtypes.highest(dtype)),
    }[name]
    lhs, rhs = Var("x", dtype), Var("y", dtype)
    return Combiner(
        name, (lhs,), (rhs,), (binary(operator, lhs, rhs),), (make_const(identity, dtype),)
    )


def _check_axes(name: str, axis: object) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for a in axes:
        if not isinstance(a, IterVar) or not a.is_reduce:
            raise ExpressionError(
                f"{name}: axis={a!r} is no reduce axis",
                hint="declare k = te.reduce_axis((0, K)) and pass axis=k",
            )
    if not axes or len(set(axes)) != len(axes):
        raise ExpressionError(
            f"{name}: {'an axis is given twice' if axes else 'no axis is given'}",
            hint="axis=k, or axis=[k1, k2]",
        )
    return axes


def _check_where(name: str, where: object) -> Expr | None:
    if where is None:
        return None
    condition = as_expr(where)
    if condition.dtype != "bool":
        raise ExpressionError(
            f"{name}: where is a bool, not {condition.dtype}", hint="compare, such as where=k < 3"
        )
    return condition


def _reduction(name: str) -> Callable[..., Expr]:
    def reducer(
        expr: object, axis: object = None, where: object = None, init: object = None
    ) -> Expr:
        if axis is None:
            raise ExpressionError(
                f"{name} needs axis=",
                hint=f"te.{name}(A[i, k], axis=k); for two values use te.maximum",
            )
        axes = _check_axes(name, axis)
        source = as_expr(expr)
        if source.dtype == "bool":
            raise ExpressionError(f"{name} of bools", hint='use .astype("int32")')
        combiner = _standard_combiner(name, source.dtype)
        start = None if init is None else (cast(source.dtype, as_expr(init, source.dtype)),)
        return Reduce(combiner, (source,), axes, _check_where(name, where), start, 0, source.dtype)

    reducer.__name__ = name
    reducer.__doc__ = f"""{name} of `expr` over `axis` (one reduce axis, or a tuple of them).

    16-bit floats accumulate in float32 and round once. `where` skips points, `init` replaces the
    identity.
    """
    return reducer


sum, prod, max, min = map(_reduction, ("sum", "prod", "max", "min"))


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Make a commutative, associative reduction of your own.

    Args:
        fcombine: (lhs, rhs) -> combined; for several components all three are tuples.
        fidentity: dtype (or dtypes) -> identity element(s).

    Returns:
        A function (expr or tuple of exprs, axis, where=None, init=None) -> expression or tuple.
        With a second argument that is no axis it combines its two arguments.
    """
    combiners: dict[tuple[str, ...], Combiner] = {}

    def combiner_for(kinds: tuple[str, ...], single: bool) -> Combiner:
        if kinds not in combiners:
            lhs = tuple(Var(f"x{i}", d) for i, d in enumerate(kinds))
            rhs = tuple(Var(f"y{i}", d) for i, d in enumerate(kinds))
            result = fcombine(lhs[0], rhs[0]) if single else fcombine(lhs, rhs)
            identity = fidentity(*kinds)
            results = (result,) if single else tuple(result)
            identities = (identity,) if single else tuple(identity)
            if len(results) != len(kinds) or len(identities) != len(kinds):
                raise ExpressionError(
                    f"{name}: {len(kinds)} components, but its function gives {len(results)}, "
                    f"its identity {len(identities)}",
                    hint="both give one value per component",
                )
            combiners[kinds] = Combiner(
                name,
                lhs,
                rhs,
                tuple(cast(d, as_expr(r, d)) for r, d in zip(results, kinds, strict=True)),
                tuple(cast(d, as_expr(i, d)) for i, d in zip(identities, kinds, strict=True)),
            )
            check_combiner(combiners[kinds])
        return combiners[kinds]

    def reducer(expr: object, axis: object, where: object = None, init: object = None) -> Any:
        single = not isinstance(expr, (tuple, list))
        if single and not isinstance(axis, (IterVar, tuple, list)):
            a, b = as_expr(expr), as_expr(axis, as_expr(expr).dtype)
            return combiner_for((a.dtype,), True)((a,), (cast(a.dtype, b),))[0]
        given = expr if isinstance(expr, (tuple, list)) else (expr,)
        sources = tuple(as_expr(e) for e in given)
        axes = _check_axes(name, axis)
        combiner = combiner_for(tuple(s.dtype for s in sources), single)
        start = None
        if init is not None:
            inits = init if isinstance(init, (tuple, list)) else (init,)
            if len(inits) != len(sources):
                raise ExpressionError(
                    f"{name}: {len(inits)} init values for {len(sources)} components",
                    hint="init=(a, b, ...)",
                )
            start = tuple(
                cast(s.dtype, as_expr(i, s.dtype)) for i, s in zip(inits, sources, strict=True)
            )
        condition = _check_where(name, where)
        parts = tuple(
            Reduce(combiner, sources, axes, condition, start, i, s.dtype)
            for i, s in enumerate(sources)
        )
        return parts[0] if single else parts

    return reducer


__all__ = [
    "Select",
    "abs",
    "acos",
    "all",
    "any",
    "asin",
    "atan",
    "atan2",
    "ceil",
    "comm_reducer",
    "const",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_not",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "pow",
    "power",
    "prod",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "var",
]
