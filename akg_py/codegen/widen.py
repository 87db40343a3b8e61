"""Copies of 16-bit floats that are read more often than written become float32 copies.

In: a Func; out: one of equal values. A processor multiplies float32, so each read of a float16 or
bfloat16 element converts it. A local buffer all of whose reads are converted to float32 can hold
the converted values instead; the conversion is exact, so it doesn't matter where it happens.
Products of 16-bit floats that a float32 sum takes are multiplied in float32, where they are exact.
"""

from __future__ import annotations

from dataclasses import replace

from akg_py.codegen.dependence import accesses
from akg_py.codegen.dots import group_loads
from akg_py.codegen.folds import accumulated
from akg_py.ir.expr import Binary, Cast, Expr, Load, bounds, cast, children, rebuild
from akg_py.ir.stmt import Alloc, Buffer, For, Func, Stmt, Store, rebuild_stmt, sub_exprs, sub_stmts

NARROW = ("float16", "bfloat16")
WIDE = "float32"


def widen_products(func: Func) -> Func:
    """`func` with float32 sums of 16-bit products `x * y` as sums of `float32(x) * float32(y)`."""

    def stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or len(s.values) > 1:
            return rebuild_stmt(s, stmt, lambda e: e)
        term = accumulated(s, {})
        if not isinstance(term, Cast) or term.dtype != WIDE or not isinstance(term.a, Binary):
            return s
        product = term.a
        if product.op != "*" or product.dtype not in NARROW:
            return s
        exact = Binary("*", cast(WIDE, product.a), cast(WIDE, product.b), WIDE)
        total = s.values[0]
        assert isinstance(total, Binary)
        a, b = (exact if e is term else e for e in (total.a, total.b))
        return replace(s, values=(Binary(total.op, a, b, WIDE),))

    return replace(func, body=stmt(func.body))


def widen_copies(func: Func) -> Func:
    """`func` with float32 buffers in the place of 16-bit ones where that saves conversions."""
    uses = _Uses()
    uses.visit(func.body, 1)
    wide = {
        id(b): replace(b, dtype=WIDE)
        for b in uses.allocated
        if id(b) not in uses.fixed and uses.reads.get(id(b), 0) > uses.writes.get(id(b), 0)
    }
    return replace(func, body=_widened(func.body, wide)) if wide else func


class _Uses:
    """How often buffers are read and written, and which ones can't change their dtype."""

    def __init__(self) -> None:
        self.allocated: list[Buffer] = []
        self.reads: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.fixed: set[int] = set()

    def visit(self, s: Stmt, times: int) -> None:
        match s:
            case Alloc() if s.buffer.dtype in NARROW:
                self.allocated.append(s.buffer)
            case For():
                if group_loads(s, {}) is not None:
                    self.fixed |= {id(b) for (b, _), _ in accesses(s)}
                times *= max(bounds(s.extent)[1], 1)
            case Store():
                for buffer in s.buffers:
                    self.writes[id(buffer)] = self.writes.get(id(buffer), 0) + times
                    if len(s.buffers) > 1:
                        self.fixed.add(id(buffer))
        for e in sub_exprs(s):
            self._expr(e, times, converted=False)
        for inner in sub_stmts(s):
            self.visit(inner, times)

    def _expr(self, e: Expr, times: int, converted: bool) -> None:
        if isinstance(e, Load):
            self.reads[id(e.source)] = self.reads.get(id(e.source), 0) + times
            if not converted:
                self.fixed.add(id(e.source))
        for child in children(e):
            self._expr(child, times, isinstance(e, Cast) and e.dtype == WIDE)


def _widened(s: Stmt, wide: dict[int, Buffer]) -> Stmt:
    def expr(e: Expr) -> Expr:
        if isinstance(e, Cast) and isinstance(e.a, Load) and id(e.a.source) in wide:
            return Load(wide[id(e.a.source)], tuple(map(expr, e.a.indices)), WIDE)
        return rebuild(e, expr)

    def stmt(s: Stmt) -> Stmt:
        s = rebuild_stmt(s, stmt, expr)
        if isinstance(s, Alloc) and id(s.buffer) in wide:
            return replace(s, buffer=wide[id(s.buffer)])
        if isinstance(s, Store) and id(s.buffers[0]) in wide:
            return replace(s, buffers=(wide[id(s.buffers[0])],), values=(cast(WIDE, s.values[0]),))
        return s

    return stmt(s)
