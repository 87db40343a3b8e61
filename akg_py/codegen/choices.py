"""Reductions that keep one of two candidates with all that belongs to it, such as an argmax.

In: a Store of several buffers whose values are selects under one condition; out: a `Fold`. Each
lane remembers where its candidate came from, so that ties go as they do one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akg_py.codegen import arithmetic
from akg_py.codegen.folds import Fold, Slots, halves, is_old, write_element
from akg_py.codegen.llvm import ELEM_BYTES, Val, constant
from akg_py.ir.expr import (
    Cast,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    free_vars,
    is_index,
    loads,
    rebuild,
    same,
)
from akg_py.ir.stmt import Buffer, Store

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops


class Choice(Fold):
    """`A[i], B[i] = (A[i], B[i]) if keep else (a, b)`, for any number of parts.

    Attributes:
        keep: the condition, reading the old parts from their buffers and the new from `new`.
        held: parts that each lane keeps; the others follow from the place of its candidate.
    """

    def __init__(self, store: Store, var: Var, news: list[Expr], keep: Expr) -> None:
        self.store, self.var, self.news = store, var, news
        self.new = [Buffer(f"{b.name}.new", (), b.dtype, "local") for b in store.buffers]
        self.keep = self._abstract(keep)
        mentioned = {id(x.source) for x in loads(self.keep)}
        self.held = [
            n
            for n, (old, new) in enumerate(zip(store.buffers, self.new, strict=True))
            if not _is_place(news[n]) or {id(old), id(new)} & mentioned
        ]
        self.operands = [news[n] for n in self.held]
        kept = [arithmetic.compute_elem(store.buffers[n].dtype) for n in self.held]
        self.lane_bytes = max(ELEM_BYTES[elem] for elem in (*kept, "i32"))

    def _abstract(self, e: Expr) -> Expr:
        for buffer, new in zip(self.new, self.news, strict=True):
            if same(e, new):
                return Load(buffer, (), buffer.dtype)
        return rebuild(e, self._abstract)

    def is_closed(self) -> bool:
        """Whether the condition depends on nothing but the old and the new parts."""
        known = {id(b) for b in (*self.store.buffers, *self.new)}
        return self.var not in free_vars(self.keep) and all(
            id(x.source) in known for x in loads(self.keep)
        )

    def start(self, loops: Loops, count: int, lanes: int, total: Val) -> None:
        self.old = [loops.load(b, self.store.indices) for b in self.store.buffers]
        self.slots = [Slots(loops, self.old[n], count, lanes) for n in self.held]
        self.place = Slots(loops, constant(-1, "i32"), count, lanes)

    def _keeps(self, loops: Loops, old: list[Val], new: list[Val]) -> Val:
        """Whether `old` stays when `new` comes after it."""
        mask, loops.mask = loops.mask, None
        for n, x, y in zip(self.held, old, new, strict=True):
            loops.given[id(self.store.buffers[n])] = x
            loops.given[id(self.new[n])] = y
        result = loops.value(self.keep)
        for n in self.held:
            del loops.given[id(self.store.buffers[n])], loops.given[id(self.new[n])]
        loops.mask = mask
        return result

    def step(self, loops: Loops, n: int, more: bool) -> None:
        old = [slots.read(loops, n) for slots in self.slots]
        new = [loops.value(e) for e in self.operands]
        keep = self._keeps(loops, old, new)
        if loops.mask is not None:
            keep = loops.b.bin("or", keep, loops.b.invert(loops.mask))
        for slots, x, y in zip(self.slots, old, new, strict=True):
            slots.write(loops, n, loops.b.select(keep, x, y))
        here = loops.materialise(loops.env[self.var], "i32")
        self.place.write(loops, n, loops.b.select(keep, self.place.read(loops, n), here))

    def finish(self, loops: Loops) -> None:
        columns = [*(slots.all(loops) for slots in self.slots), self.place.all(loops)]
        parts = [list(row) for row in zip(*columns, strict=True)]
        while len(parts) > 1:
            parts = [
                self._join(loops, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                for i in range(0, len(parts), 2)
            ]
        result = parts[0]
        while result[-1].lanes > 1:
            pairs = [halves(loops, v) for v in result]
            result = self._join(loops, [a for a, _ in pairs], [b for _, b in pairs])
        *values, place = result
        found = loops.b.compare("sge", place, constant(0, "i32"))
        loops.env[self.var] = loops.from_value(loops.b.cast("sext", place, "i64"))
        for n, (buffer, old) in enumerate(zip(self.store.buffers, self.old, strict=True)):
            if n in self.held:
                final = values[self.held.index(n)]
            else:
                final = loops.b.select(found, loops.value(self.news[n]), old)
            write_element(loops, buffer, self.store.indices, final)
        del loops.env[self.var]

    def _join(self, loops: Loops, x: list[Val], y: list[Val]) -> list[Val]:
        """What one after the other would have left: the earlier one asks whether it stays."""
        first = loops.b.compare("slt", x[-1], y[-1])
        stays = self._keeps(loops, x[:-1], y[:-1])
        goes = loops.b.invert(self._keeps(loops, y[:-1], x[:-1]))
        takes_x = loops.b.select(first, stays, goes)
        return [loops.b.select(takes_x, a, b) for a, b in zip(x, y, strict=True)]


def _is_place(e: Expr) -> bool:
    """Whether `e` follows from the loop's variable alone."""
    return is_index(e.a if isinstance(e, Cast) else e)


def find_choice(store: Store, var: Var, alias: dict[int, int]) -> Choice | None:
    """The fold that `store` is over the loop of `var`, if it keeps one of two candidates."""
    roots = {alias.get(id(b), id(b)) for b in store.buffers}
    news: list[Expr] = []
    keeps: list[tuple[Expr, bool]] = []
    for buffer, value in zip(store.buffers, store.values, strict=True):
        if not isinstance(value, Select) or value.dtype != buffer.dtype or value.guards:
            return None
        sides = [is_old(e, buffer, store.indices) for e in (value.a, value.b)]
        if sum(sides) != 1:
            return None
        new = value.b if sides[0] else value.a
        reads = [alias.get(id(x.source), id(x.source)) for x in loads(new)]
        if any(root in roots for root in reads) or not (reads or var in free_vars(new)):
            return None
        news.append(new)
        keeps.append((value.condition, sides[0]))
    condition, stays = keeps[0]
    if not all(same(condition, c) and stays == s for c, s in keeps):
        return None
    choice = Choice(store, var, news, condition if stays else Unary("!", condition))
    return choice if choice.is_closed() else None
