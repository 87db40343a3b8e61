"""Text of expressions, statements and functions: what a user reads.

Indentation is two spaces; a loop reads `for i in 8:  # serial`, tails show their `min`.
"""

from __future__ import annotations

from akg_py.ir.expr import (
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
)
from akg_py.ir.nodes import FORMATTERS
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt, Store

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "//": 5,
    "%": 5,
}
_WORDS = {"&&": "and", "||": "or"}


def format_expr(e: Expr, parent: int = 0) -> str:
    """`e` as Python-like text, with the parentheses that its parent's precedence demands."""
    match e:
        case Const():
            return _format_const(e)
        case Var():
            return e.name
        case Affine():
            text = _format_affine(e)
            return (
                f"({text})"
                if parent > 4 or (parent == 4 and len(e.terms) + bool(e.const) > 1)
                else text
            )
        case Binary(op="min" | "max" | "pow"):
            return f"{e.op}({format_expr(e.a)}, {format_expr(e.b)})"
        case Binary():
            level = _PRECEDENCE.get(e.op, 1)
            text = (
                f"{format_expr(e.a, level)} {_WORDS.get(e.op, e.op)} {format_expr(e.b, level + 1)}"
            )
            return f"({text})" if level < parent else text
        case Unary():
            return f"{'not ' if e.op == '!' else e.op}{format_expr(e.a, 6)}"
        case Cast():
            return f"{e.dtype}({format_expr(e.a)})"
        case Select():
            name = "if_then_else" if e.guards else "select"
            return f"{name}({format_expr(e.condition)}, {format_expr(e.a)}, {format_expr(e.b)})"
        case Call():
            return f"{e.name}({', '.join(map(format_expr, e.args))})"
        case Load():
            return f"{e.source.name}[{', '.join(map(format_expr, e.indices))}]"
        case Reduce():
            axes = ", ".join(a.name for a in e.axes)
            return f"{e.combiner.name}({', '.join(map(format_expr, e.sources))}, axis=[{axes}])"
    return repr(e)


def _format_const(e: Const) -> str:
    if e.dtype in ("int32", "float32", "bool"):
        return repr(e.value)
    return f"{e.dtype}({e.value!r})"


def _format_affine(e: Affine) -> str:
    if not e.terms:
        return str(e.const)
    level = (
        6 if max(coef for _, coef in e.terms) < 0 and e.const <= 0 else 5
    )  # a minus sign in front binds tighter than //
    signed = [
        (coef < 0, format_expr(atom, level) + (f" * {abs(coef)}" if abs(coef) != 1 else ""))
        for atom, coef in e.terms
    ]
    if e.const:
        signed.append((e.const < 0, str(abs(e.const))))
    signed.sort(key=lambda part: part[0])  # a positive part first reads better
    text = ("-" if signed[0][0] else "") + signed[0][1]
    for negative, part in signed[1:]:
        text += f" {'-' if negative else '+'} {part}"
    return text


def format_buffer(b: Buffer) -> str:
    """`name: float32[128, 256] in L0C x 2`."""
    copies = f" x {b.copies}" if b.copies > 1 else ""
    return f"{b.name}: {b.dtype}[{', '.join(map(str, b.shape))}] in {b.scope}{copies}"


def format_stmt(s: Stmt, indent: int = 0) -> str:
    """`s` as an indented listing, without a final newline."""
    return "\n".join(_lines(s, indent))


def _lines(s: Stmt, indent: int) -> list[str]:
    pad = "  " * indent
    match s:
        case For():
            notes = [s.kind] if s.kind != "serial" else []
            notes += [f"{k}={v}" for k, v in s.pragmas]
            note = f"  # {', '.join(notes)}" if notes else ""
            return [
                f"{pad}for {s.var.name} in {format_expr(s.extent)}:{note}",
                *_lines(s.body, indent + 1),
            ]
        case If():
            lines = [f"{pad}if {format_expr(s.condition)}:", *_lines(s.body, indent + 1)]
            return (
                lines
                if s.orelse is None
                else [*lines, f"{pad}else:", *_lines(s.orelse, indent + 1)]
            )
        case Store():
            index = f"[{', '.join(map(format_expr, s.indices))}]"
            targets = ", ".join(b.name + index for b in s.buffers)
            return [f"{pad}{targets} = {', '.join(map(format_expr, s.values))}"]
        case Alloc():
            return [f"{pad}alloc {format_buffer(s.buffer)}", *_lines(s.body, indent)]
        case Seq():
            return [line for inner in s.stmts for line in _lines(inner, indent)] or [f"{pad}pass"]
        case Intrinsic():
            return [f"{pad}intrinsic {s.name}:", *_lines(s.body, indent + 1)]
    return [f"{pad}{s!r}"]


def format_func(f: Func) -> str:
    """The whole function with its parameters."""
    params = ", ".join(f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]" for p in f.params)
    outputs = ", ".join(p.name for p in f.outputs)
    return f"def {f.name}({params}):  # writes {outputs}\n{format_stmt(f.body, 1)}\n"


FORMATTERS.update(expr=format_expr, stmt=format_stmt, func=format_func)
