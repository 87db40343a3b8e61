"""Formulas of search-space files: text to expressions, and their values over arrays of configs.

A formula is Python expression syntax over knobs, workload sizes and device sizes. It is parsed with
`ast` (never evaluated by Python) into `ir.expr` nodes, so that one formula is a check of one
config, a filter over a million of them, and text in an error message. Integers stay integers; `/`
divides as floats.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from akg_py.errors import AkgError, InternalError, SpaceError
from akg_py.ir import expr as ir
from akg_py.records import dataclass

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "&&",
    ast.Or: "||",
}
_FUNCTIONS: dict[str, tuple[int, Callable[..., ir.Expr]]] = {
    "min": (-2, lambda *a: _chain(ir.minimum, a)),
    "max": (-2, lambda *a: _chain(ir.maximum, a)),
    "ceildiv": (2, lambda a, b: ir.binary("//", a + b - 1, b)),
    "align": (2, lambda a, b: ir.binary("//", a + b - 1, b) * b),
    "ceil": (1, lambda a: ir.Call("ceil", (ir.cast("float64", a),), "float64")),
    "floor": (1, lambda a: ir.Call("floor", (ir.cast("float64", a),), "float64")),
    "sqrt": (1, lambda a: ir.Call("sqrt", (ir.cast("float64", a),), "float64")),
    "log2": (1, lambda a: ir.Call("log2", (ir.cast("float64", a),), "float64")),
    "exp": (1, lambda a: ir.Call("exp", (ir.cast("float64", a),), "float64")),
    "abs": (1, lambda a: ir.maximum(a, 0 - a)),
}
_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": np.minimum,
    "max": np.maximum,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&&": np.logical_and,
    "||": np.logical_or,
}
_CALLS: dict[str, Callable[[Any], Any]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "log2": np.log2,
    "exp": np.exp,
}


def _chain(f: Callable[[Any, Any], ir.Expr], args: tuple[ir.Expr, ...]) -> ir.Expr:
    result = args[0]
    for a in args[1:]:
        result = f(result, a)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """A parsed formula: its text, its expression and the names that it uses."""

    text: str
    expr: ir.Expr
    names: frozenset[str]

    def value(self, values: Mapping[str, Any], scope: Scope) -> Any:
        """The formula's value; `values` maps names to numbers or equally long arrays."""
        return evaluate(self.expr, {scope.vars[name]: values[name] for name in self.names})


class Scope:
    """The names that formulas of one space may use, each with one Var.

    Args:
        names: knobs, workload sizes, device sizes.
        choices: for a knob with text values, the code of each text.
    """

    def __init__(self, names: Mapping[str, str], choices: Mapping[str, tuple[Any, ...]]) -> None:
        self.kinds = dict(names)
        self.vars = {name: ir.Var(name) for name in names}
        self.choices = dict(choices)

    def define(self, name: str, kind: str = "quantity") -> None:
        self.kinds[name] = kind
        self.vars[name] = ir.Var(name, "float64")

    def parse(self, text: object, where: str) -> Formula:
        """Parse one formula; a wrong one is a SpaceError with the place and the known names."""
        if isinstance(text, (int, float)):
            text = repr(text)
        if not isinstance(text, str):
            raise SpaceError(
                f"a formula is text or a number, not {text!r}",
                where=where,
                hint='write a formula such as "min(m, 128)"',
            )
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise SpaceError(
                f"can't read the formula {text!r}: {error.args[0]}",
                where=where,
                hint="see the formulas of docs/tuning.md",
            ) from None
        parser = _Parser(self, text, where)
        try:
            result = parser.convert(tree)
        except SpaceError:
            raise
        except AkgError as error:
            raise SpaceError(
                f"in the formula {text!r}: {error.message}",
                where=where,
                hint="see the formulas of docs/tuning.md",
            ) from None
        except RecursionError:
            raise SpaceError(
                "a formula is nested too deeply",
                where=where,
                hint="give its parts names in [estimate]",
            ) from None
        return Formula(text.strip(), result, frozenset(parser.used))


class _Parser:
    def __init__(self, scope: Scope, text: str, where: str) -> None:
        self.scope, self.text, self.where = scope, text, where
        self.used: set[str] = set()

    def fail(self, what: str, hint: str = "") -> SpaceError:
        return SpaceError(f"in the formula {self.text!r}: {what}", where=self.where, hint=hint)

    def convert(self, node: ast.expr) -> ir.Expr:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return (
                    ir.as_expr(node.value)
                    if not isinstance(node.value, float)
                    else ir.const(node.value, "float64")
                )
            case ast.Name():
                return self.name(node.id)
            case ast.BinOp(op=ast.Div()):
                a, b = self.convert(node.left), self.convert(node.right)
                return ir.binary("/", ir.cast("float64", a), ir.cast("float64", b))
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return self.binary(
                    _OPERATORS[type(node.op)], self.convert(node.left), self.convert(node.right)
                )
            case ast.UnaryOp(op=ast.USub()):
                return self.binary("-", ir.const(0), self.convert(node.operand))
            case ast.UnaryOp(op=ast.Not()):
                return ir.Unary("!", self.convert(node.operand))
            case ast.BoolOp():
                return _chain(
                    lambda a, b: ir.logical(_OPERATORS[type(node.op)], a, b), self.all(node.values)
                )
            case ast.Compare():
                return self.compare(node)
            case ast.IfExp():
                return ir.select(
                    self.convert(node.test), self.convert(node.body), self.convert(node.orelse)
                )
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self.call(name, self.all(node.args))
        raise self.fail(
            f"{ast.unparse(node)} is not allowed",
            hint="use numbers, names, + - * / // %, comparisons, and or not, if else, "
            + ", ".join(_FUNCTIONS),
        )

    def all(self, nodes: list[ast.expr]) -> tuple[ir.Expr, ...]:
        return tuple(map(self.convert, nodes))

    def binary(self, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        return ir.binary(op, a, b)

    def name(self, name: str) -> ir.Expr:
        if name not in self.scope.vars:
            from difflib import get_close_matches

            near = get_close_matches(name, self.scope.vars, 3)
            known = ", ".join(near or sorted(self.scope.vars))
            raise self.fail(
                f"unknown name {name}", hint=f"{'did you mean' if near else 'known'}: {known}"
            )
        self.used.add(name)
        return self.scope.vars[name]

    def call(self, name: str, args: tuple[ir.Expr, ...]) -> ir.Expr:
        if name not in _FUNCTIONS:
            raise self.fail(f"unknown function {name}", hint=f"functions: {', '.join(_FUNCTIONS)}")
        count, build = _FUNCTIONS[name]
        if (count >= 0 and len(args) != count) or len(args) < -count:
            raise self.fail(
                f"{name} takes {count if count > 0 else f'at least {-count}'} arguments"
            )
        return build(*args)

    def compare(self, node: ast.Compare) -> ir.Expr:
        result: ir.Expr | None = None
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _OPERATORS:
                raise self.fail("only < <= > >= == != compare")
            a, b = self.sides(left, right)
            term = self.binary(_OPERATORS[type(op)], a, b)
            result = term if result is None else ir.logical("&&", result, term)
            left = right
        assert result is not None
        return result

    def sides(self, left: ast.expr, right: ast.expr) -> tuple[ir.Expr, ir.Expr]:
        for text, other, swap in ((right, left, False), (left, right, True)):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                choices = (
                    self.scope.choices.get(other.id, ()) if isinstance(other, ast.Name) else ()
                )
                if text.value not in choices:
                    raise self.fail(
                        f"{ast.unparse(other)} never is {text.value!r}",
                        hint=f"its values: {', '.join(map(str, choices))}"
                        if choices
                        else "it has no text values",
                    )
                pair = (self.convert(other), ir.const(choices.index(text.value)))
                return pair[::-1] if swap else pair
        return self.convert(left), self.convert(right)


def evaluate(e: ir.Expr, env: Mapping[ir.Var, Any]) -> Any:
    """The value of `e` with numbers or numpy arrays for its Vars."""
    match e:
        case ir.Const():
            return e.value
        case ir.Var():
            return env[e]
        case ir.Affine():
            total: Any = e.const
            for atom, coef in e.terms:
                value = evaluate(atom, env)
                term = value if coef == 1 else coef * value
                total = term if total is e.const and e.const == 0 else total + term
            return total
        case ir.Binary():
            return _VALUES[e.op](evaluate(e.a, env), evaluate(e.b, env))
        case ir.Unary():
            value = evaluate(e.a, env)
            return np.logical_not(value) if e.op == "!" else -value
        case ir.Select():
            return np.where(evaluate(e.condition, env), evaluate(e.a, env), evaluate(e.b, env))
        case ir.Cast():
            return np.asarray(evaluate(e.a, env), dtype=np.float64)[()]
        case ir.Call():
            return _CALLS[e.name](evaluate(e.args[0], env))
    raise InternalError(f"{type(e).__name__} in a formula")
