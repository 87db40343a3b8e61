"""Expressions: the constructors that build nodes, and functions over them.

Constructors promote dtypes and fold; index expressions stay canonical (`ir.index`), all others
stay as they were written. Passes branch on values only through `decide` and state constraints by
`require`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akg_py import dtypes
from akg_py.errors import AkgError, ExpressionError, InternalError
from akg_py.ir.index import (
    COMPARE,
    COMPARISONS,
    FOLD,
    bounds,
    index_binary,
    is_index,
    linear_combination,
)
from akg_py.ir.nodes import (
    CONSTRUCTORS,
    INDEX,
    MATH_FUNCTIONS,
    UNBOUNDED,
    Affine,
    Binary,
    Call,
    Cast,
    Combiner,
    Const,
    Expr,
    ExprLike,
    Load,
    Loadable,
    Reduce,
    Select,
    Unary,
    Var,
    check_fits,
    children,
    const,
    free_vars,
    is_zero,
    loads,
    same,
    walk,
)

INDEX_OPERATORS = frozenset(("+", "-", "*", "//", "%", "min", "max", "<", "<=", ">", ">="))


def as_expr(value: object, like: str | None = None) -> Expr:
    """Wrap a Python or numpy scalar, or anything with `as_expr`; expressions pass through.

    Args:
        like: dtype of the other operand, which decides the dtype of a bare number.
    """
    if isinstance(value, Expr):
        return value
    if hasattr(value, "as_expr"):
        return value.as_expr()  # type: ignore[no-any-return]
    if isinstance(value, bool):
        return Const(value, "bool")
    if isinstance(value, int):
        if like and dtypes.is_float(like):
            return Const(float(value), like)
        if like and dtypes.is_int(like):
            check_fits(value, like)
            return Const(value, like)
        return Const(value, INDEX)
    if isinstance(value, float):
        return Const(value, like if like and dtypes.is_float(like) else "float32")
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", ()) == ():
        return const(value.item(), dtypes.check_dtype(value.dtype))
    raise ExpressionError(
        f"{type(value).__name__} {value!r} is no expression",
        hint="index a tensor, A[i, j], to use its elements",
    )


def lift(op: str, a: object, b: object) -> Expr:
    """Build `a op b` for operands a user may write: numbers adopt the other side's dtype."""
    if op in INDEX_OPERATORS:  # the usual case first
        if type(b) is int and isinstance(a, Expr) and is_index(a):
            return index_binary(op, a, Const(b, INDEX))
        if type(a) is int and isinstance(b, Expr) and is_index(b):
            return index_binary(op, Const(a, INDEX), b)
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    return binary(op, a, b)


def negate(e: Expr) -> Expr:
    """`-e`."""
    return lift("-", const(0, e.dtype), e) if is_index(e) else Unary("-", e)


def equality(op: str, a: Expr, other: object) -> Any:
    """`a == other` as an unfolded expression; its truth is structural equality, for dicts."""
    if not isinstance(other, (Expr, int, float)) and not hasattr(other, "as_expr"):
        return NotImplemented
    b = as_expr(other, a.dtype)
    return Binary(op, a, b, "bool") if a.dtype == b.dtype else binary(op, a, b)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """Build `a op b`, promoting dtypes and folding index expressions."""
    if op not in ("/", "pow") and is_index(a) and is_index(b):
        return index_binary(op, a, b)
    if op in ("&&", "||"):
        return logical(op, a, b)
    if a.dtype != b.dtype:
        dtype = dtypes.promote(a.dtype, b.dtype)
        a, b = cast(dtype, a), cast(dtype, b)
    if op in COMPARISONS:
        return Binary(op, a, b, "bool")
    if a.dtype == "bool" and op not in ("min", "max"):
        raise ExpressionError(
            f"can't compute {op} of bools",
            hint='convert with .astype("int32"), or use te.all / te.any',
        )
    if op == "/" and not dtypes.is_float(a.dtype):
        raise ExpressionError(
            f"the division of two {a.dtype} is ambiguous",
            hint='use // (floor) or .astype("float32") / ...',
        )
    return Binary(op, a, b, a.dtype)


def logical(op: str, a: Expr, b: Expr) -> Expr:
    """`a && b` or `a || b` of bools; constants fold."""
    for e in (a, b):
        if e.dtype != "bool":
            raise ExpressionError(
                f"{op} needs bools, not {e.dtype}", hint="compare first, such as x != 0"
            )
    absorbing = op == "||"
    for this, other in ((a, b), (b, a)):
        if isinstance(this, Const):
            return this if bool(this.value) == absorbing else other
    return Binary(op, a, b, "bool")


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return lift("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return lift("max", a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """`a / b` rounded up, for positive `b`."""
    b = as_expr(b)
    return (as_expr(a) + (b - 1)) // b


def align(a: ExprLike, multiple: int) -> Expr:
    """`a` rounded up to a multiple."""
    return ceildiv(a, multiple) * multiple


def decide(condition: Expr | bool) -> bool:
    """Branch on a value: the only way a pass may do so.

    Concrete lowering always has a constant here. A condition that varies over a loop is a fault of
    the pass (ask about the full tile instead).
    """
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Const):
        return bool(condition.value)
    raise InternalError(f"decide() on the open condition {condition}")


def require(condition: Expr | bool, error: Callable[[], AkgError]) -> None:
    """State a constraint that a config must satisfy; the error carries the reason."""
    if not decide(condition):
        raise error()


def constant_value(e: Expr) -> int | None:
    """The integer that `e` is, or None if it varies."""
    return int(e.value) if isinstance(e, Const) else None


def cast(dtype: str, e: Expr) -> Expr:
    """`e` converted to `dtype`; constants fold."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const) and (not dtypes.is_float(e.dtype) or dtypes.is_float(dtype)):
        if not dtypes.is_int(dtype) or 0 <= e.value < 128:
            exact = (
                dtypes.numpy_dtype(e.dtype).type(e.value) if dtypes.is_float(e.dtype) else e.value
            )
            return const(float(exact) if dtypes.is_float(e.dtype) else exact, dtype)
    return Cast(e, dtype)


def select(condition: Expr, a: Expr, b: Expr, guards: bool = False) -> Expr:
    """`a if condition else b` with promotion; a constant condition folds."""
    if condition.dtype != "bool":
        raise ExpressionError(
            f"a condition is a bool, not {condition.dtype}", hint="compare first, such as x != 0"
        )
    dtype = dtypes.promote(a.dtype, b.dtype)
    a, b = cast(dtype, a), cast(dtype, b)
    if isinstance(condition, Const):
        return a if condition.value else b
    return Select(condition, a, b, dtype, guards)


def rebuild(e: Expr, new: Callable[[Expr], Expr]) -> Expr:
    """`e` with `new` applied to each operand, through the constructors (so that it folds again)."""
    match e:
        case Affine():
            total: Expr | None = None  # operands that are no index any more shall not meet 0 and 1
            for atom, coef in e.terms:
                term = new(atom) if coef == 1 else new(atom) * coef
                total = term if total is None else total + term
            assert total is not None
            return total + e.const if e.const else total
        case Binary():
            a, b = new(e.a), new(e.b)
            return e if a is e.a and b is e.b else binary(e.op, a, b)
        case Unary():
            return Unary(e.op, new(e.a))
        case Cast():
            a = new(e.a)
            return e if a is e.a else cast(e.dtype, a)
        case Select():
            return select(new(e.condition), new(e.a), new(e.b), e.guards)
        case Call():
            return Call(e.name, tuple(map(new, e.args)), e.dtype)
        case Load():
            return Load(e.source, tuple(map(new, e.indices)), e.dtype)
        case Reduce():
            return Reduce(
                e.combiner,
                tuple(map(new, e.sources)),
                e.axes,
                None if e.where is None else new(e.where),
                None if e.init is None else tuple(map(new, e.init)),
                e.index,
                e.dtype,
            )
    return e


def substitute(e: Expr, mapping: dict[Any, Expr]) -> Expr:
    """Replace Vars by expressions."""
    if not mapping:
        return e
    if isinstance(e, Var):
        return mapping.get(e, e)
    if isinstance(e, Const):
        return e
    return rebuild(e, lambda x: substitute(x, mapping))


def evaluate_index(e: Expr, env: dict[Any, Any]) -> Any:
    """The value of an index expression or condition, with ints or numpy arrays for its Vars."""
    import numpy as np

    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, Affine):
        total: Any = e.const
        for atom, coef in e.terms:
            total = total + coef * evaluate_index(atom, env)
        return total
    if isinstance(e, Unary) and e.op == "!":
        return np.logical_not(evaluate_index(e.a, env))
    if not isinstance(e, Binary):
        raise InternalError(f"{type(e).__name__} in an index expression")
    a, b = evaluate_index(e.a, env), evaluate_index(e.b, env)
    if e.op in COMPARISONS:
        return COMPARE[e.op](a, b)
    match e.op:
        case "&&":
            return np.logical_and(a, b)
        case "||":
            return np.logical_or(a, b)
        case "min" | "max" if not isinstance(a, int) or not isinstance(b, int):
            return np.minimum(a, b) if e.op == "min" else np.maximum(a, b)
    return FOLD[e.op](a, b)


CONSTRUCTORS.update(lift=lift, equality=equality, negate=negate, cast=cast, substitute=substitute)

__all__ = [
    "COMPARISONS",
    "INDEX",
    "MATH_FUNCTIONS",
    "UNBOUNDED",
    "Affine",
    "Binary",
    "Call",
    "Cast",
    "Combiner",
    "Const",
    "Expr",
    "ExprLike",
    "Load",
    "Loadable",
    "Reduce",
    "Select",
    "Unary",
    "Var",
    "align",
    "as_expr",
    "binary",
    "bounds",
    "cast",
    "ceildiv",
    "children",
    "const",
    "constant_value",
    "decide",
    "evaluate_index",
    "free_vars",
    "is_index",
    "is_zero",
    "lift",
    "linear_combination",
    "loads",
    "logical",
    "maximum",
    "minimum",
    "rebuild",
    "require",
    "same",
    "select",
    "substitute",
    "walk",
]
