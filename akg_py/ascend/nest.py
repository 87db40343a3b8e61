"""Nests: perfect loops around one store, the unit that instruction selection takes as a whole."""

from __future__ import annotations

from collections.abc import Callable

from akg_py.ascend.tiles import depends_on
from akg_py.errors import UnsupportedError
from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    const,
    free_vars,
    linear_combination,
    maximum,
    minimum,
    substitute,
    walk,
)
from akg_py.ir.stmt import Buffer, For, Intrinsic, Seq, Stmt, Store, substitute_stmt, uses_var
from akg_py.records import dataclass


@dataclass(slots=True, eq=False)
class Nest:
    """Perfect loops around one store; `init` is the store that initialises a reduction."""

    loops: list[For]
    store: Store
    init: Store | None = None
    name: str = ""  # of a tensorized nest


def find_nest(s: Stmt) -> Nest | None:
    """The nest that `s` is: loops of one stage around one store, with or without initialisation."""
    loops: list[For] = []
    name = ""
    while True:
        match s:
            case For():
                if (
                    isinstance(s.extent, Const) and s.extent.value == 1
                ):  # a single iteration needs no loop
                    s = (
                        substitute_stmt(s.body, {s.var: const(0)})
                        if uses_var(s.body, s.var)
                        else s.body
                    )
                else:
                    loops.append(s)
                    s = s.body
            case Intrinsic():
                name = s.name
                s = s.body
            case Store():
                return Nest(loops, s, None, name)
            case Seq(stmts=(first, second)):
                init, update = find_nest(first), find_nest(second)
                if init is None or update is None or init.init or update.init:
                    return None
                same_buffers = init.store.buffers == update.store.buffers
                if _is_interleaved(loops + update.loops, update.store):
                    return None
                if (
                    not same_buffers
                    or reads(init.store, init.store.buffers[0])
                    or not reads(update.store, init.store.buffers[0])
                ):
                    return None
                return Nest(loops + update.loops, update.store, _renamed_init(init, update), name)
            case _:
                return None


def repeated_loops(loops: list[For], store: Store) -> list[For]:
    """Loops that a self-reading store is not affine in: iterations may share an element."""
    if not reads(store, store.buffers[0]):
        return []
    found = []
    for f in loops:
        for index in store.indices:
            terms, _ = linear_combination(index)
            if any(atom is not f.var and depends_on(atom, f.var) for atom in terms):
                found.append(f)
                break
    return found


def _is_interleaved(loops: list[For], store: Store) -> bool:
    """Whether data and reduce loops can't be told apart: they are fused, or bound each other."""
    index_vars = {v for i in store.indices for v in free_vars(i)}
    bound = {v for f in loops if f.var in index_vars for v in free_vars(f.extent)}
    reduce_vars = {f.var for f in loops} - index_vars
    return bool(repeated_loops(loops, store) or bound & reduce_vars)


def is_empty(nest: Nest) -> bool:
    """Whether a loop over an index of the store has no iteration."""
    index_vars = {v for i in nest.store.indices for v in free_vars(i)}
    return any(
        isinstance(f.extent, Const)
        and f.extent.value <= 0
        and (f.var in index_vars or nest.init is None)
        for f in nest.loops
    )


def _renamed_init(init: Nest, update: Nest) -> Store:
    """The initialising store over the loops of the update."""
    mapping: dict[Var, Expr] = {}
    for mine, theirs in zip(init.store.indices, update.store.indices, strict=True):
        own = [v for v in free_vars(mine) if any(f.var is v for f in init.loops)]
        others = [v for v in free_vars(theirs) if any(f.var is v for f in update.loops)]
        mapping.update(
            zip(
                sorted(own, key=_order_in(init)),
                sorted(others, key=_order_in(update)),
                strict=False,
            )
        )
    store = init.store
    return Store(
        store.buffers,
        update.store.indices,
        tuple(substitute(v, mapping) for v in store.values),
        store.origin,
    )


def _order_in(nest: Nest) -> Callable[[Expr], int]:
    position: dict[Expr, int] = {f.var: n for n, f in enumerate(nest.loops)}
    return lambda v: position.get(v, -1)


def loads_of(e: Expr) -> list[Load]:
    return [n for n in walk(e) if isinstance(n, Load)]


def reads(store: Store, buffer: Buffer) -> bool:
    return any(load.source is buffer for v in store.values for load in loads_of(v))


def trips_of(condition: Expr) -> Expr:
    """1 where a condition over indices holds, else 0."""
    match condition:
        case Const():
            return const(int(bool(condition.value)))
        case Binary(op="<"):
            return minimum(1, maximum(0, condition.b - condition.a))
        case Binary(op="<="):
            return minimum(1, maximum(0, condition.b - condition.a + 1))
        case Binary(op=">"):
            return trips_of(Binary("<", condition.b, condition.a, "bool"))
        case Binary(op=">="):
            return trips_of(Binary("<=", condition.b, condition.a, "bool"))
        case Binary(op="&&"):
            return minimum(trips_of(condition.a), trips_of(condition.b))
        case Binary(op="||"):
            return maximum(trips_of(condition.a), trips_of(condition.b))
        case Binary(op="=="):
            return minimum(
                trips_of(condition.a <= condition.b), trips_of(condition.b <= condition.a)
            )
        case Binary(op="!="):
            return const(1) - trips_of(Binary("==", condition.a, condition.b, "bool"))
    if getattr(condition, "op", "") == "!":
        return const(1) - trips_of(condition.a)  # type: ignore[attr-defined]
    raise UnsupportedError(
        f"the condition {condition} depends on data",
        hint="use te.Select, which computes both sides",
    )
