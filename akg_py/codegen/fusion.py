"""Element-wise loop nests that stand side by side and share arrays become one nest.

In: a Func at level "loops"; out: one of the same meaning that reads shared operands once. Two nests
are joined if their loops have the same extents and kinds, and if no iteration of the joined loops
touches what another one writes: then it doesn't matter that the second nest starts earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from akg_py.codegen.dependence import accesses, is_independent
from akg_py.codegen.streams import straight
from akg_py.ir.expr import same
from akg_py.ir.stmt import Alloc, Buffer, For, Func, Seq, Stmt, seq, substitute_stmt

MAX_ARRAYS = 12  # that one loop steps through


def fuse_loops(func: Func, inplace: Mapping[Buffer, Buffer]) -> Func:
    """`func` with neighbouring element-wise nests joined.

    Args:
        inplace: output -> input that may be the same array.
    """
    alias = {id(out): id(given) for out, given in inplace.items()}
    return replace(func, body=_fuse(func.body, alias))


def _fuse(s: Stmt, alias: dict[int, int]) -> Stmt:
    if isinstance(s, Alloc):
        return replace(s, body=_fuse(s.body, alias))
    if not isinstance(s, Seq):
        return s
    done: list[Stmt] = []
    for inner in s.stmts:
        joined = _join(done[-1], inner, alias) if done else None
        if joined is None:
            done.append(inner)
        else:
            done[-1] = joined
    return seq(*done)


def _join(a: Stmt, b: Stmt, alias: dict[int, int]) -> For | None:
    """One nest for `a` and then `b`, or None."""
    if not isinstance(a, For) or not isinstance(b, For):
        return None
    if a.kind != b.kind or a.pragmas != b.pragmas or not same(a.extent, b.extent):
        return None
    second = substitute_stmt(b.body, {b.var: a.var})
    if straight(a.body) and straight(second):
        touched = [{id(buffer) for (buffer, _), _ in accesses(x)} for x in (a, b)]
        if touched[0].isdisjoint(touched[1]) or len(touched[0] | touched[1]) > MAX_ARRAYS:
            return None
        body: Stmt | None = seq(a.body, second)
    else:
        body = _join(a.body, second, alias)
    if body is None:
        return None
    joined = replace(a, body=body)
    return joined if is_independent(joined, alias) else None
