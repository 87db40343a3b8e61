"""Loops over lanes that hold no other loop: unrolled, and past the cache when the data is large.

A main loop takes several vectors at once, one masked loop takes what is left. A store that goes
around the cache (see `streams`) must be aligned, so then the masked loop also runs up to the first
whole cache line, whose place is found at run time. Short runs don't do that: plain stores to the
lines at both ends of a run wait for memory, and the others wait for them.
"""

from __future__ import annotations

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

MIN_RUN_BYTES = 1024  # shorter runs of stores stay in the cache
MIN_HEAD_BYTES = 8192  # a shorter run goes around the cache only if whole lines hold it
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
    b = lanes.b
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
    head = _head(lanes, s, wide, stores, extent)
    is_short = _longest(lanes, s) * dtypes.size_bytes(stores[0][0].dtype) < MIN_HEAD_BYTES
    if is_short or _has_digits(s):
        _emit_from_line(lanes, s, width, stores, head, extent)
        return
    main = _below(lanes, _minus(lanes, extent, head), wide)
    end = b.bin("add", head, main)

    def phase(n: Linear) -> None:
        first = b.compare("eq", lanes.materialise(n), constant(0, "i64"))
        start = b.select(first, constant(0, "i64"), end)
        count = b.select(first, head, _minus(lanes, extent, end))
        _edge(lanes, s, width, start, count)
        with lanes.around_cache(_targets(stores)):
            lanes.counted(
                b.select(first, main, constant(0, "i64")),
                wide,
                lambda i: lanes.chunk(s, _at(i, head), wide, None),
                [],
                False,
            )

    lanes.counted(constant(2, "i64"), 1, phase, [], False)


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
    lanes: Lanes, s: For, width: int, stores: list[tuple[Buffer, Store]], head: Val, extent: Val
) -> None:
    """Around the cache if the run starts on a line; else in plain stores from end to end."""
    b = lanes.b
    wide = width * unroll_of(s)
    main = _below(lanes, extent, wide)
    aligned = b.select(b.compare("eq", head, constant(0, "i64")), main, constant(0, "i64"))
    with lanes.around_cache(_targets(stores)):
        lanes.counted(aligned, wide, lambda i: lanes.chunk(s, _at(i), wide, None), [], False)
    plain = b.bin("sub", main, aligned)
    lanes.multiples[aligned.ref] = wide
    lanes.counted(plain, wide, lambda i: lanes.chunk(s, _at(i, aligned), wide, None), [], False)
    _edge(lanes, s, width, main, _minus(lanes, extent, main))


def emit_line(lanes: Lanes, s: For) -> bool:
    """Emit `s` around the cache if it writes a line or two; False leaves the loop to the caller.

    It goes through the cache where it starts elsewhere than a line does.
    """
    extent, stores = lanes.constant_extent(s), straight(s.body)
    if extent is None or len(stores) != 1 or len(stores[0].buffers) != 1:
        return False
    (store,), (buffer,) = stores, stores[0].buffers
    size = extent * dtypes.size_bytes(buffer.dtype)
    if id(buffer) not in lanes.streams.stores or size not in (LINE_BYTES, 2 * LINE_BYTES):
        return False
    if stride_along(buffer, store.indices, s.var) != 1 or not lanes.takes_lanes(s):
        return False
    b = lanes.b
    with lanes.bound(s.var, Linear()):
        late = lanes.past_multiple(buffer, store.indices, LINE_BYTES)

    def through() -> None:
        lanes.chunk(s, Linear(lane=1), extent, None)

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


def _edge(lanes: Lanes, s: For, width: int, start: Val, count: Val) -> None:
    """`count` iterations from `start`, a masked vector at a time."""
    numbers = constant_lanes(list(range(width)), "i32")

    def body(i: Linear) -> None:
        left = lanes.b.bin("sub", count, lanes.materialise(i))
        left = lanes.b.intrinsic("smin", left, constant(width, "i64"))
        mask = lanes.b.compare("slt", numbers, lanes.b.cast("trunc", left, "i32"))
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
    run = _longest(lanes, s) * size
    if run < MIN_RUN_BYTES or (run < MIN_HEAD_BYTES and run % LINE_BYTES):
        return []
    return [(b, store) for b, store in found if dtypes.size_bytes(b.dtype) == size]


def _longest(lanes: Lanes, s: For) -> int:
    return lanes.constant_extent(s) or s.var.hi + 1


def _head(lanes: Lanes, s: For, wide: int, stores: list[tuple[Buffer, Store]], extent: Val) -> Val:
    """Iterations up to the first aligned store; all of them if the stores never agree."""
    b = lanes.b
    size = dtypes.size_bytes(stores[0][0].dtype)
    align = min(LINE_BYTES, wide * size)
    addresses = []
    with lanes.bound(s.var, Linear()):
        for buffer, store in stores:
            pointer = lanes.address(buffer, lanes.position(buffer, store.indices))
            addresses.append(b.op(f"ptrtoint ptr {pointer} to i64", "i64"))
    short = b.bin("and", b.bin("sub", constant(0, "i64"), addresses[0]), constant(align - 1, "i64"))
    head = b.intrinsic("smin", b.bin("lshr", short, constant(size.bit_length() - 1, "i64")), extent)
    for other in addresses[1:]:
        apart = b.bin("and", b.bin("xor", addresses[0], other), constant(align - 1, "i64"))
        head = b.select(b.compare("eq", apart, constant(0, "i64")), head, extent)
    return head
