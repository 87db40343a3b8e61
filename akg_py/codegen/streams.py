"""Which stores of a kernel go around the cache, and of which inputs its loops fetch ahead.

In: a Func; out: `Streams`. Where the arrays of a kernel exceed the last-level cache, lines that a
plain store would first read from memory are lost again before anyone needs them; a non-temporal
store saves that third of a copy's traffic. Only outputs that are written once and not read later
qualify. An input that is read once needn't pass through the outer caches either.
"""

from __future__ import annotations

from collections.abc import Iterator

from akg_py import dtypes
from akg_py.codegen.dependence import accesses
from akg_py.codegen.strides import size_of
from akg_py.codegen.target import Processor
from akg_py.ir.expr import Load, Var, free_vars, loads, same
from akg_py.ir.stmt import (
    Buffer,
    For,
    Func,
    Intrinsic,
    Seq,
    Stmt,
    Store,
    sub_exprs,
    sub_stmts,
    walk_stmts,
)
from akg_py.records import dataclass

LINE_BYTES = 64
FAR_BYTES = 1 << 20  # of an array that the caches of one core don't hold
PREFETCH_BYTES = 2048  # how far ahead of a streaming loop its inputs are fetched
ONCE_BYTES = 256  # how far ahead of a reduction what is read once is fetched


@dataclass(frozen=True)
class Streams:
    """Buffers of one kernel, by id.

    Attributes:
        stores: outputs that stores may pass the cache for.
        loads: inputs that come from memory.
        once: those of them of which no element is read again.
        far: inputs that come from the last cache or from memory.
    """

    stores: frozenset[int] = frozenset()
    loads: frozenset[int] = frozenset()
    once: frozenset[int] = frozenset()
    far: frozenset[int] = frozenset()


def plan_streams(func: Func, alias: dict[int, int], processor: Processor) -> Streams:
    """Outputs that are written once and not read later, if the arrays hardly fit the last cache.

    Where they fit, plain stores leave the output there for whoever reads it: that gains as much as
    is lost if other data was in the cache, with three quarters of it on one thread and two.
    """
    sizes = {id(b): _bytes(b) for b in func.params}
    outputs = {id(b) for b in func.outputs}
    far = frozenset(key for key, size in sizes.items() if size >= FAR_BYTES) - outputs
    if sum(sizes.values()) < processor.cache_bytes * 3 // 4:
        return Streams(far=far)
    large = {key for key, size in sizes.items() if size >= processor.cache_bytes // 16}
    shared = set(alias) | set(alias.values())
    streamed = outputs & large - shared
    stores = frozenset(key for key in streamed if _is_only_written(func.body, key))
    read = frozenset(large) - streamed
    once = frozenset(key for key in read - shared if _is_read_once(func.body, key))
    return Streams(stores, read, once, far)


def _bytes(b: Buffer) -> int:
    return dtypes.size_bytes(b.dtype) * size_of(b)


def _is_only_written(s: Stmt, key: int) -> bool:
    """Whether one Store writes a buffer, and all reads find what their iteration just stored."""
    stores = [x for x in walk_stmts(s) if isinstance(x, Store) and key in map(id, x.buffers)]
    if len(stores) != 1:
        return False
    reads = [indices for (b, indices), writes in accesses(s) if id(b) == key and not writes]
    if not reads:
        return True
    bodies = [x.body for x in walk_stmts(s) if isinstance(x, For) and stores[0] in straight(x.body)]
    if not bodies:
        return False
    later = bodies[0].stmts if isinstance(bodies[0], Seq) else ()
    later = later[later.index(stores[0]) + 1 :] if stores[0] in later else ()
    near = [indices for x in later for (b, indices), writes in accesses(x) if id(b) == key]
    return len(near) == len(reads) and all(
        all(map(same, indices, stores[0].indices)) for indices in near
    )


def _is_read_once(s: Stmt, key: int) -> bool:
    """Whether one statement reads a buffer, at another place in each iteration."""
    readers = list(_readers(s, key, frozenset()))
    return len(readers) == 1 and all(
        counters <= set().union(*map(free_vars, load.indices))
        for found, counters in readers
        for load in found
    )


def _readers(
    s: Stmt, key: int, counters: frozenset[Var]
) -> Iterator[tuple[list[Load], frozenset[Var]]]:
    """Statements that load from a buffer: their loads, and the counters of the loops around."""
    found = [x for e in sub_exprs(s) for x in loads(e) if id(x.source) == key]
    if found:
        yield found, counters
    for inner in sub_stmts(s):
        yield from _readers(inner, key, counters | {s.var} if isinstance(s, For) else counters)


def straight(s: Stmt) -> list[Store]:
    """The stores that a body consists of, or none if there is more to it."""
    if isinstance(s, Store):
        return [s]
    if isinstance(s, Intrinsic):
        return straight(s.body)
    if isinstance(s, Seq):
        parts = [straight(x) for x in s.stmts]
        return [x for part in parts for x in part] if all(parts) else []
    return []
