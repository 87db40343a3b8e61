"""Loops of which only the last step is guarded: the steps before it run without the guard.

In: a Func at level "loops"; out: one of equal meaning. A sum of 1000 elements in parts of 16 reads
`if part * 16 + lane < 1000`: 62 parts are whole, and of the last one the lanes end at 8. What is
guarded can't be held in registers, what isn't can.
"""

from __future__ import annotations

from dataclasses import replace

from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Var,
    bounds,
    const,
    is_index,
    linear_combination,
    minimum,
)
from akg_py.ir.stmt import (
    For,
    Func,
    If,
    Seq,
    Stmt,
    rebuild_stmt,
    seq,
    substitute_stmt,
    walk_stmts,
)


def unguard_whole_steps(func: Func) -> Func:
    """`func` with guards in the last steps of loops only."""
    has_guards = any(isinstance(s, If) for s in walk_stmts(func.body))
    return replace(func, body=_split(func.body)) if has_guards else func


def _split(s: Stmt) -> Stmt:
    s = rebuild_stmt(s, _split, lambda e: e)
    if isinstance(s, Seq):
        return seq(*s.stmts)
    if not isinstance(s, For) or s.kind != "serial" or not isinstance(s.extent, Const):
        return s
    guard = _guard(s)
    if guard is None or _whole_steps(guard, s.var) != s.extent.value - 1:
        return s
    last = int(s.extent.value) - 1
    whole = replace(s, extent=const(last), body=_without(s.body, guard))
    return seq(whole, _shortened(substitute_stmt(s.body, {s.var: const(last)})))


def _guard(s: Stmt) -> If | None:
    """The only thing in a nest of loops, if that is an If."""
    while isinstance(s, For):
        s = s.body
    return s if isinstance(s, If) and s.orelse is None else None


def _whole_steps(guard: If, var: Var) -> int | None:
    """In how many steps the guard holds for all that is inside a step, if then it ends in one."""
    excess = _excess(guard)
    step = 0 if excess is None else linear_combination(excess)[0].get(var, 0)
    if excess is None or step < 1:
        return None
    least, most = bounds(excess - var * step)
    return (step - 1 - most) // step if most - least < step else None


def _excess(guard: If) -> Expr | None:
    """What is less than zero where the guard holds."""
    e = guard.condition
    if not isinstance(e, Binary) or e.op != "<" or not (is_index(e.a) and is_index(e.b)):
        return None
    return e.a - e.b


def _without(s: Stmt, guard: If) -> Stmt:
    return guard.body if s is guard else rebuild_stmt(s, lambda x: _without(x, guard), lambda e: e)


def _shortened(nest: Stmt) -> Stmt:
    """A nest of which the loop that its guard counts ends where the guard does, if one does."""
    guard = _guard(nest)
    excess = None if guard is None else _excess(guard)
    if guard is None or excess is None:
        return nest
    terms, constant = linear_combination(excess)
    counter, step = max(terms.items(), key=lambda term: term[1], default=(None, 0))
    if counter is None or step < 1 or constant >= 0 or constant % step:
        return nest
    least, most = bounds(excess - counter * step - constant)
    if least < 0 or most >= step:
        return nest
    count = -constant // step

    def shorten(s: Stmt) -> Stmt:
        if not isinstance(s, For):
            return s
        if s.var is counter:
            return replace(s, extent=minimum(s.extent, count), body=_without(s.body, guard))
        return replace(s, body=shorten(s.body))

    return shorten(nest)
