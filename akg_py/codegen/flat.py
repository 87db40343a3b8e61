"""Loops over lanes that hold no other loop: unrolled, and past the cache when the data is large.

A main loop takes several vectors at once, one masked loop takes what is left. Stores that go around
the cache (see `streams`) fill whole lines, whose place is found at run time; the parts of lines at
both ends of a run are stored through the cache. Those wait for the line, and all stores behind them
too, so the line is fetched some runs earlier; and their vectors begin where lines do, because a
masked store waits for all lines that it could reach.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen.dependence import accesses
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import Val, constant, constant_lanes
from akg_py.codegen.streams import LINE_BYTES, straight
from akg_py.codegen.strides import flat_index, stride_along
from akg_py.ir.expr import Binary, free_vars, walk
from akg_py.ir.stmt import Buffer, For, Store, sub_exprs, walk_stmts

if TYPE_CHECKING:
    from akg_py.codegen.lanes import Lanes

MIN_RUN_BYTES = 512  # shorter runs of stores stay in the cache
END_BYTES = 8192  # how far ahead the line is fetched that a run ends in
MOST_VECTORS = 8  # of a run that is emitted without a loop
UNROLL = 4
LONG = ("%", "//", "pow")  # of floats, these are loops or many instructions themselves


def unroll_of(s: For) -> int:
    """How many vectors the main loop of `s` takes at once."""
    nodes = (e for inner in walk_stmts(s.body) for x in sub_exprs(inner) for e in walk(x))
    is_long = any(
        isinstance(e, Binary) and e.op in LONG and dtypes.is_float(e.dtype) for e in nodes
    )
    return 1 if is_long else UNROLL


def emit_flat(lanes: Lanes, s: For, width: int) -> None:
    """Emit `s`, whose body holds no loop."""
    extent = lanes.extent_value(s)
    wide = width * unroll_of(s)
    stores = _streaming_stores(lanes, s)
    if not stores:
        main = _below(lanes, extent, wide)
        lanes.counted(main, wide, lambda i: lanes.chunk(s, _at(i), wide, None), [], False)
        if not extent.ref.startswith("%") and int(extent.ref) % wide == 0:
            return
        _edge(lanes, s, width, main, _minus(lanes, extent, main))
        return
    if _has_digits(s):
        _emit_from_line(lanes, s, width, stores, extent)
    else:
        _emit_whole_lines(lanes, s, width, stores, extent)


def _emit_whole_lines(
    lanes: Lanes, s: For, width: int, stores: list[tuple[Buffer, Store]], extent: Val
) -> None:
    """Whole lines around the cache, first several vectors at once; parts of lines through it."""
    b = lanes.b
    wide, size = width * unroll_of(s), dtypes.size_bytes(stores[0][0].dtype)
    line, zero = LINE_BYTES // size, constant(0, "i64")
    lates = _past_line(lanes, s, stores)
    for (buffer, store), past in zip(stores, lates, strict=True):
        _fetch_end(lanes, s, buffer, store, past)
    late = b.bin("lshr", lates[0], constant(size.bit_length() - 1, "i64"))
    is_begun = b.compare("ne", late, zero)
    head = b.intrinsic("smin", b.bin("sub", constant(line, "i64"), late), extent)
    head = b.select(is_begun, head, zero)
    count = b.select(is_begun, b.bin("add", late, head), zero)
    _edge(lanes, s, width, b.bin("sub", zero, late), count, late)
    agree = _all_equal(lanes, lates)
    start = head
    for step, least in ((wide, wide), (width, line)):
        count = _below(lanes, _minus(lanes, extent, start), least)
        count = count if agree is None else b.select(agree, count, zero)
        with lanes.around_cache(_targets(stores)):
            _vectors(lanes, s, start, count, step)
        start = b.bin("add", start, count)
    if agree is not None:
        count = _below(lanes, _minus(lanes, extent, start), wide)
        _vectors(lanes, s, start, count, wide)
        start = b.bin("add", start, count)
    _edge(lanes, s, width, start, _minus(lanes, extent, start))


def _past_line(lanes: Lanes, s: For, stores: list[tuple[Buffer, Store]]) -> list[Val]:
    """The bytes by which each store of the first iteration lies past the beginning of a line."""
    with lanes.bound(s.var, Linear()):
        return [lanes.past_multiple(buffer, x.indices, LINE_BYTES) for buffer, x in stores]


def _all_equal(lanes: Lanes, lates: list[Val]) -> Val | None:
    """Whether values are equal; None for one alone."""
    b = lanes.b
    apart = [b.bin("xor", lates[0], other) for other in lates[1:]]
    if not apart:
        return None
    return b.compare("eq", functools.reduce(partial(b.bin, "or"), apart), constant(0, "i64"))


def _fetch_end(lanes: Lanes, s: For, buffer: Buffer, store: Store, late: Val) -> None:
    """Fetch the line that a later run begins in, unless the run begins with it."""
    b, distance = lanes.b, _later_run(lanes, s, buffer, store)
    if distance <= 0:
        return
    then = b.bin("add", late, constant(distance % LINE_BYTES, "i64"))
    then = b.bin("and", then, constant(LINE_BYTES - 1, "i64"))

    def fetch() -> None:
        with lanes.bound(s.var, Linear()):
            lanes.fetch_to_store(buffer, store.indices, distance)

    b.if_else(b.compare("ne", then, constant(0, "i64")), fetch, lambda: None)


def _later_run(lanes: Lanes, s: For, buffer: Buffer, store: Store) -> int:
    """Bytes to where `END_BYTES` of stores later a run begins; 0 if there is none."""
    size = dtypes.size_bytes(buffer.dtype)
    runs = -(-END_BYTES // (_longest(lanes, s) * size))
    for v in reversed(lanes.env):
        stride = stride_along(buffer, store.indices, v)
        if stride and runs <= v.hi:
            return runs * stride * size
        runs = -(-runs // (v.hi + 1)) if stride else runs
    return 0


def _vectors(lanes: Lanes, s: For, start: Val, count: Val, step: int) -> None:
    """`count` iterations from `start`, a multiple of `step`."""
    lanes.counted(count, step, lambda i: lanes.chunk(s, _at(i, start), step, None), [], False)


def _has_digits(s: For) -> bool:
    """Whether parts of an element's number say where it is: vectors start in step with them."""
    places = (flat_index(buffer, indices) for (buffer, indices), _ in accesses(s.body))
    return any(
        isinstance(e, Binary) and e.op in ("//", "%") and s.var in free_vars(e)
        for place in places
        if place is not None
        for e in walk(place)
    )


def _emit_from_line(
    lanes: Lanes, s: For, width: int, stores: list[tuple[Buffer, Store]], extent: Val
) -> None:
    """Around the cache if the run starts on a line; else in plain stores from end to end."""
    b = lanes.b
    wide = width * unroll_of(s)
    main = _below(lanes, extent, wide)
    late = functools.reduce(partial(b.bin, "or"), _past_line(lanes, s, stores))
    aligned = b.select(b.compare("eq", late, constant(0, "i64")), main, constant(0, "i64"))
    lanes.multiples[aligned.ref] = wide
    with lanes.around_cache(_targets(stores)):
        _vectors(lanes, s, constant(0, "i64"), aligned, wide)
    _vectors(lanes, s, aligned, b.bin("sub", main, aligned), wide)
    _edge(lanes, s, width, main, _minus(lanes, extent, main))


def emit_lines(lanes: Lanes, s: For, width: int) -> bool:
    """Emit `s` around the cache if it writes a few whole lines; False leaves it to the caller.

    It goes through the cache where it starts elsewhere than a line does.
    """
    extent, stores = lanes.constant_extent(s), straight(s.body)
    if extent is None or len(stores) != 1 or len(stores[0].buffers) != 1:
        return False
    (store,), (buffer,) = stores, stores[0].buffers
    size = dtypes.size_bytes(buffer.dtype)
    if id(buffer) not in lanes.streams.stores or extent * size % LINE_BYTES:
        return False
    if extent * lanes.copies > MOST_VECTORS * width:
        return False
    if stride_along(buffer, store.indices, s.var) != 1 or not lanes.takes_lanes(s):
        return False
    b, step = lanes.b, max(width, LINE_BYTES // size)
    with lanes.bound(s.var, Linear()):
        late = lanes.past_multiple(buffer, store.indices, LINE_BYTES)

    def through() -> None:
        for start in range(0, extent, step):
            lanes.chunk(s, Linear(const=start, lane=1), step, None)

    def past() -> None:
        with lanes.around_cache(frozenset([id(buffer)])):
            through()

    b.if_else(b.compare("eq", late, constant(0, "i64")), past, through)
    return True


def _at(i: Linear, start: Val | None = None) -> Linear:
    if start is None:
        return Linear(i.terms, i.const, 1)
    if start.ref.startswith("%"):
        return Linear({**i.terms, start.ref: 1}, i.const, 1)
    return Linear(i.terms, i.const + int(start.ref), 1)


def _below(lanes: Lanes, count: Val, step: int) -> Val:
    """`count` rounded down to a multiple of a power of two; not below zero."""
    if not count.ref.startswith("%"):
        return constant(max(int(count.ref), 0) // step * step, "i64")
    whole = lanes.b.bin("and", count, constant(-step, "i64"))
    return lanes.b.intrinsic("smax", whole, constant(0, "i64"))


def _minus(lanes: Lanes, x: Val, y: Val) -> Val:
    if x.ref.startswith("%") or y.ref.startswith("%"):
        return lanes.b.bin("sub", x, y)
    return constant(int(x.ref) - int(y.ref), "i64")


def _edge(
    lanes: Lanes, s: For, width: int, start: Val, count: Val, skipped: Val | None = None
) -> None:
    """`count` iterations from `start`, a masked vector at a time, without the first `skipped`."""
    b = lanes.b
    numbers = constant_lanes(list(range(width)), "i32")

    def body(i: Linear) -> None:
        left = b.bin("sub", count, lanes.materialise(i))
        left = b.intrinsic("smin", left, constant(width, "i64"))
        mask = b.compare("slt", numbers, b.cast("trunc", left, "i32"))
        if skipped is not None:
            first = b.cast("trunc", b.bin("sub", skipped, lanes.materialise(i)), "i32")
            mask = b.bin("and", mask, b.compare("sge", numbers, first))
        lanes.chunk(s, _at(i, start), width, mask)

    lanes.counted(count, width, body, [], False)


# ---------------------------------------------------------------- around the cache


def _targets(stores: list[tuple[Buffer, Store]]) -> frozenset[int]:
    return frozenset(id(buffer) for buffer, _ in stores)


def _streaming_stores(lanes: Lanes, s: For) -> list[tuple[Buffer, Store]]:
    """The contiguous stores of `s` that may go around the cache, all of one element size."""
    found = []
    for store in straight(s.body):
        if stride_along(store.buffers[0], store.indices, s.var) != 1:
            continue
        found += [(b, store) for b in store.buffers if id(b) in lanes.streams.stores]
    size = max((dtypes.size_bytes(b.dtype) for b, _ in found), default=1)
    if _longest(lanes, s) * size < MIN_RUN_BYTES:
        return []
    return [(b, store) for b, store in found if dtypes.size_bytes(b.dtype) == size]


def _longest(lanes: Lanes, s: For) -> int:
    return lanes.constant_extent(s) or s.var.hi + 1
