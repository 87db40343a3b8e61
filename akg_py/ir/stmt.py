"""Loop IR: statements, buffers and functions. This page is the whole grammar.

    func   ::= Func(name, params: Buffer*, body: stmt)
    stmt   ::= For(var, extent, kind, body)        var runs 0 .. extent-1; extent <= 0 runs nothing
             | If(condition, body, orelse?)
             | Store(buffers, indices, values)     every value is evaluated before any is stored
             | Alloc(buffer, body)                 buffer lives in body, undefined at its start
             | Seq(stmts)
             | Intrinsic(name, body)               body is the meaning; targets have instructions
    kind   ::= serial | parallel | vector | unroll | core
    buffer ::= Buffer(name, shape, dtype, scope, copies)      shape: static upper bounds of its size

Extents and indices are index expressions over the Vars of enclosing loops. A loop over a tail has
the extent `min(tile, size - start)`; nothing else guards it. `interpret` is the meaning of all
this, `verify` says what must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from akg_py.errors import Place
from akg_py.ir.expr import Expr, Load, Var, children, substitute
from akg_py.ir.nodes import FORMATTERS
from akg_py.records import dataclass

LOOP_KINDS = ("serial", "parallel", "vector", "unroll", "core")
GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a statement or instruction comes from: stage, schedule step, the user's line."""

    stage: str
    step: str = ""
    place: Place | None = None

    def __str__(self) -> str:
        parts = [self.stage, self.step, str(self.place) if self.place else ""]
        return " ".join(p for p in parts if p)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Storage for elements of one dtype; compared by identity.

    Attributes:
        shape: static upper bound of each extent, in elements.
        scope: `global` for parameters and whole intermediates, else a memory of the target.
        copies: number of slots used in turn (2 is double buffering).
        align: (axis, factor, offset) of storage_align, or None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str = GLOBAL
    copies: int = 1
    align: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        return self.name


class Stmt:
    """Base of all statements."""

    __slots__ = ()
    origin: Origin | None

    def __str__(self) -> str:
        return FORMATTERS["stmt"](self)


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """`body` for `var` in 0 .. `extent` - 1; `kind` says how they may run."""

    var: Var
    extent: Expr
    kind: str
    body: Stmt
    origin: Origin | None = None
    pragmas: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    """`body` where `condition` holds, `orelse` where it does not."""

    condition: Expr
    body: Stmt
    orelse: Stmt | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    """`buffers[n][indices] = values[n]` for all n; the buffers share the indices."""

    buffers: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Alloc(Stmt):
    """`body` with a buffer of its own, whose elements are undefined at the start."""

    buffer: Buffer
    body: Stmt
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Seq(Stmt):
    """Statements one after the other."""

    stmts: tuple[Stmt, ...]
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic(Stmt):
    """`body` done by the instruction `name`."""

    name: str
    body: Stmt
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A kernel: parameters (inputs and outputs, in call order), which are written, and the body.

    `level` is "loops" after lowering and says which rules of `verify` hold.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Stmt
    level: str = "loops"

    def __str__(self) -> str:
        return FORMATTERS["func"](self)


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements one after the other; nested Seqs flatten, None disappears."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def sub_stmts(s: Stmt) -> tuple[Stmt, ...]:
    """Direct sub-statements."""
    match s:
        case For() | Alloc() | Intrinsic():
            return (s.body,)
        case If():
            return (s.body,) if s.orelse is None else (s.body, s.orelse)
        case Seq():
            return s.stmts
    return ()


def sub_exprs(s: Stmt) -> tuple[Expr, ...]:
    """Expressions that stand directly in `s`."""
    match s:
        case For():
            return (s.extent,)
        case If():
            return (s.condition,)
        case Store():
            return s.indices + s.values
    return ()


def walk_stmts(s: Stmt) -> Iterator[Stmt]:
    """`s` and all statements inside it, in program order."""
    stack = [s]
    while stack:
        inner = stack.pop()
        yield inner
        stack.extend(reversed(sub_stmts(inner)))


def rebuild_stmt(s: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr]) -> Stmt:
    """`s` with its sub-statements and expressions replaced."""
    match s:
        case For():
            return replace(s, extent=on_expr(s.extent), body=on_stmt(s.body))
        case If():
            return replace(
                s,
                condition=on_expr(s.condition),
                body=on_stmt(s.body),
                orelse=None if s.orelse is None else on_stmt(s.orelse),
            )
        case Store():
            return replace(
                s, indices=tuple(map(on_expr, s.indices)), values=tuple(map(on_expr, s.values))
            )
        case Alloc() | Intrinsic():
            return replace(s, body=on_stmt(s.body))
        case Seq():
            return replace(s, stmts=tuple(map(on_stmt, s.stmts)))
    return s


def substitute_stmt(s: Stmt, mapping: dict[Var, Expr]) -> Stmt:
    """Replace Vars by expressions everywhere in `s`."""
    return rebuild_stmt(s, lambda x: substitute_stmt(x, mapping), lambda e: substitute(e, mapping))


def uses_var(s: Stmt, var: Var) -> bool:
    """Whether any expression inside `s` depends on `var`."""

    def in_expr(e: Expr) -> bool:
        return e is var or any(in_expr(c) for c in children(e))

    return any(in_expr(e) for inner in walk_stmts(s) for e in sub_exprs(inner))


def buffer_of(load: Load) -> Buffer:
    """The buffer a Load of loop IR reads."""
    assert isinstance(load.source, Buffer)
    return load.source
