"""Neighbouring loops over the same range as one loop, so that rows are read once for both.

In: the statements of a Seq; out: the same with some pairs of loops joined, where no iteration of
the second needs what a later iteration of the first makes. Which pairs pay off the caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from akg_py.codegen.dependence import accesses, is_independent
from akg_py.ir.expr import Const, const, same
from akg_py.ir.stmt import (
    Alloc,
    Buffer,
    For,
    If,
    Intrinsic,
    Seq,
    Stmt,
    Store,
    rebuild_stmt,
    seq,
    substitute_stmt,
    walk_stmts,
)

Alias = Mapping[int, int]


def drop_unit_loops(s: Stmt) -> Stmt:
    """`s` without serial loops of one iteration."""
    s = rebuild_stmt(s, drop_unit_loops, lambda e: e)
    if isinstance(s, For) and s.kind == "serial" and not s.pragmas:
        if isinstance(s.extent, Const) and s.extent.value == 1:
            return substitute_stmt(s.body, {s.var: const(0)})
    return seq(*s.stmts) if isinstance(s, Seq) else s


def join_loops(
    stmts: tuple[Stmt, ...], alias: Alias, pays: Callable[[For], bool]
) -> tuple[Stmt, ...]:
    """`stmts` with each loop joined to the one before it if that is legal and `pays`."""
    done: list[Stmt] = []
    for s in stmts:
        at = next((n for n in range(len(done) - 1, -1, -1) if isinstance(done[n], For)), None)
        joined = None
        if isinstance(s, For) and at is not None:
            between = done[at + 1 :]
            if not any(_conflict(done[at], x, alias) for x in between):
                joined = _join(done[at], s, alias)  # type: ignore[arg-type]
        if joined is not None and at is not None and pays(joined):
            done[at:] = [*done[at + 1 :], joined]
        else:
            done.append(s)
    return tuple(done)


def _join(first: For, second: For, alias: Alias) -> For | None:
    """Both bodies in one loop, if its iterations stay independent where the bodies meet."""
    if first.kind != second.kind or not same(first.extent, second.extent):
        return None
    if not (_is_straight(first.body) and _is_straight(second.body)):
        return None
    body = substitute_stmt(second.body, {second.var: first.var})
    mine, other = _roots(first.body, alias), _roots(body, alias)
    if not set(mine) & set(other):
        return None
    both = For(first.var, first.extent, first.kind, seq(first.body, body), first.origin)
    apart: Stmt = both.body
    for key in set(mine) ^ set(other):  # within one of them, the order of its iterations stays
        for buffer in mine.get(key) or other[key]:
            apart = Alloc(buffer, apart)
    checked = For(first.var, first.extent, first.kind, apart)
    return both if is_independent(checked, dict(alias)) else None


def _is_straight(s: Stmt) -> bool:
    return all(isinstance(x, (Store, Seq, If, Intrinsic)) for x in walk_stmts(s))


def _roots(s: Stmt, alias: Alias) -> dict[int, list[Buffer]]:
    found: dict[int, list[Buffer]] = {}
    for (buffer, _), _ in accesses(s):
        found.setdefault(alias.get(id(buffer), id(buffer)), []).append(buffer)
    return found


def _conflict(a: Stmt, b: Stmt, alias: Alias) -> bool:
    """Whether the order of `a` and `b` may matter."""
    seen: list[dict[int, bool]] = []
    for s in (a, b):
        written: dict[int, bool] = {}
        for (buffer, _), writes in accesses(s):
            key = alias.get(id(buffer), id(buffer))
            written[key] = written.get(key, False) or writes
        seen.append(written)
    first, second = seen
    return any(first[key] or second[key] for key in set(first) & set(second))
