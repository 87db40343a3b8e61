"""Nests that read along one loop and write along another: tiles transposed in registers.

In: two loops `i`, `j` around stores that are contiguous in `j`, with loads that are contiguous in
`i`. Out: tiles of a few rows `i` by one vector `j`. A tile's elements are loaded along `i` and
transposed by shuffles; then each of its rows is an ordinary loop body over lanes, in which those
loads find their vector. Tiles start at whole vectors of what is written and of what is read; those
over an edge are moved inside, where they store some elements again, or masked if that isn't
possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen.dependence import is_independent
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import ELEM_BYTES, Builder, Module, Val, constant, constant_lanes
from akg_py.codegen.streams import LINE_BYTES, straight
from akg_py.codegen.strides import stride_along
from akg_py.codegen.values import SECOND_CACHE, stays_inside
from akg_py.ir.expr import Binary, Expr, Load, Select, Var, children, free_vars, loads
from akg_py.ir.stmt import Buffer, For, Stmt, Store, buffer_of
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.codegen.lanes import Lanes

MAX_ROWS = 32  # of a tile
MIN_EXTENT = 5  # of either loop; a shorter one is a small lane stride
WHOLE = 1 << 40  # more than any extent
MAX_RUN = 512  # of rows whose lines wait in the cache for the next vector
BLOCK_ROWS, BLOCK_BYTES = 128, 4096  # of what is written before the next rows
AHEAD_BYTES = 128  # how far ahead in each row what is read next is fetched
CONFLICT_BYTES = 16 << 10  # rows at multiples of this share a few sets of the caches
ALIGNED_VECTORS = 16  # of a row, from which on its first whole cache line is looked for
ALIGNED_TILES = 8  # in a column, from which on they start at whole vectors of what is read
LONG_RUN_BYTES = 1024  # of one read or write, from which on it is long

Body = Callable[[Linear, Linear], None]


@dataclass(frozen=True)
class _Nest:
    """Loops that a tile runs over, and the loads that it transposes."""

    row: For
    lane: For
    middle: list[For]  # between the two
    stores: list[Store]
    loads: list[Load]


def is_transpose(lanes: Lanes, s: For) -> bool:
    """Whether `emit_transpose` takes `s`."""
    return _match(lanes, s) is not None


def emit_transpose(lanes: Lanes, s: For) -> bool:
    """Emit the nest that starts with `s` by tiles if it is one; False leaves it to the caller."""
    nest = _match(lanes, s)
    if nest is None:
        return False
    if nest.middle:  # the order of the loops is free
        body: Stmt = replace(nest.row, body=replace(nest.lane, body=_body(nest)))
        for f in reversed(nest.middle):
            body = replace(f, kind="serial", body=body)
        lanes.statement(body)
        return True
    _Tiles(lanes, nest).emit()
    return True


def _body(nest: _Nest) -> Stmt:
    inner: Stmt = nest.lane
    while isinstance(inner, For):
        inner = inner.body
    return inner


def _match(lanes: Lanes, s: For) -> _Nest | None:
    loops: list[For] = []
    inner: Stmt = s
    while isinstance(inner, For):
        if inner.kind not in ("serial", "vector"):
            return None
        loops.append(inner)
        inner = inner.body
    stores = straight(inner)
    if len(loops) < 2 or not stores:
        return None
    own = {f.var for f in loops}
    if any(not own.isdisjoint(free_vars(f.extent)) for f in loops):
        return None
    if any(id(b) in lanes.registers for x in stores for b in x.buffers):
        return None
    for lane in loops:
        if all(stride_along(x.buffers[0], x.indices, lane.var) == 1 for x in stores):
            break
    else:
        return None
    for row in loops:
        if row is lane or s not in (row, lane):
            continue
        loads = [x for x in _free_loads(stores) if _runs_along(x, row.var, lane.var)]
        if loads:
            break
    else:
        return None
    if any((lanes.constant_extent(f) or f.var.hi + 1) < MIN_EXTENT for f in (row, lane)):
        return None
    if min(lanes.lane_count(row), lanes.lane_count(lane)) < 2:
        return None
    if not all(is_independent(f, lanes.alias) for f in loops):
        return None
    middle = [f for f in loops if f is not row and f is not lane]
    if middle and loops[-1] not in (row, lane):
        return None
    between = loops[1 : len(loops) - 1]
    return _Nest(row, lane, between, stores, loads)


def _runs_along(load: Load, row: Var, lane: Var) -> bool:
    along, across = (stride_along(buffer_of(load), load.indices, v) for v in (row, lane))
    return along == 1 and across not in (None, 0, 1, -1)


def _free_loads(stores: list[Store]) -> Iterator[Load]:
    """Loads that may happen whatever the conditions around them say."""

    def visit(e: Expr, guarded: bool) -> Iterator[Load]:
        if isinstance(e, Load):
            if not guarded or stays_inside(buffer_of(e), e.indices):
                yield e
        inside = (
            guarded or isinstance(e, Select) or (isinstance(e, Binary) and e.op in ("&&", "||"))
        )
        for child in children(e):
            yield from visit(child, inside)

    for s in stores:
        for e in s.values:
            yield from visit(e, False)


class _Tiles:
    """Emits the tiles of one nest."""

    def __init__(self, lanes: Lanes, nest: _Nest) -> None:
        self.lanes = lanes
        self.nest = nest
        self.width = lanes.lane_count(nest.lane)
        line = LINE_BYTES // self._size()
        if self._limit(nest.lane) >= 2 * line and self._has_aligned_rows():
            self.width = max(self.width, line)  # a line is written at once
        self.height = min(lanes.lane_count(nest.row), self.width, MAX_ROWS)
        self.rows = lanes.extent_value(nest.row)
        self.columns = lanes.extent_value(nest.lane)
        self.targets = frozenset(id(buffer) for s in nest.stores for buffer in s.buffers)
        self.streaming: frozenset[int] = frozenset()
        self.along_writes = self._walks_along_writes()
        self.is_whole = False  # whether all tiles are: those at an edge then overlap others

    def emit(self) -> None:
        lanes = self.lanes
        if self.width * self._size() == LINE_BYTES and len(self.targets) == 1:
            self.streaming = self.targets & lanes.streams.stores
        shift = self._shift()
        if shift is None:
            self.streaming = frozenset()
        above = self._rows_above()
        self.is_whole = self._may_overlap()
        total, top = self._shifted(self.rows, above)
        columns, left = self._shifted(self.columns, shift)
        # Walk along what is written, in a few rows. Where that would be short, or the lines read
        # push each other out of the caches, walk along what is read, a vector of what is written
        # at a time: then a line that two vectors share must stay in the cache until the second one.
        rows, run = BLOCK_ROWS, max(BLOCK_BYTES // self._size(), self.width)
        if not self.along_writes:
            rows, run = WHOLE if shift is not None else MAX_RUN, self.width

        def block(i: Linear, j: Linear) -> None:
            def tile(n: Linear, k: Linear) -> None:
                self._tile(lanes.add(lanes.add(top, i), n), lanes.add(lanes.add(left, j), k))

            size = self._part(total, i, rows), self._part(columns, j, run)
            self._grid(size[0], self.height, size[1], self.width, tile)

        self._grid(total, rows, columns, run, block)

    def _shifted(self, extent: Val, shift: Val | None) -> tuple[Val, Linear]:
        """Extent and start of a loop that begins `shift` earlier."""
        if shift is None:
            return extent, Linear()
        return self.lanes.b.bin("add", extent, shift), Linear({shift.ref: -1})

    def _grid(self, rows: Val, height: int, columns: Val, width: int, body: Body) -> None:
        self._steps(rows, height, lambda i: self._steps(columns, width, lambda j: body(i, j)))

    def _steps(self, extent: Val, step: int, body: Callable[[Linear], None]) -> None:
        """A loop, but for one that is known to have a single step."""
        if not extent.ref.startswith("%") and 0 < int(extent.ref) <= step:
            body(Linear())
        else:
            self.lanes.counted(extent, step, body, [], False)

    def _part(self, extent: Val, start: Linear, size: int) -> Val:
        """What is left of a loop from `start`, at most `size`."""
        b = self.lanes.b
        if start == Linear() and not extent.ref.startswith("%"):
            return constant(min(int(extent.ref), size), "i64")
        left = b.bin("sub", extent, self.lanes.materialise(start))
        return b.intrinsic("smin", left, constant(size, "i64"))

    def _size(self) -> int:
        return dtypes.size_bytes(self.nest.stores[0].buffers[0].dtype)

    def _limit(self, f: For) -> int:
        return self.lanes.constant_extent(f) or f.var.hi + 1

    def _walks_along_writes(self) -> bool:
        if self._limit(self.nest.row) * self._size() < LONG_RUN_BYTES:
            return True
        for x in self.nest.loads:
            pitch = stride_along(buffer_of(x), x.indices, self.nest.lane.var)
            if pitch is None or pitch * dtypes.size_bytes(x.dtype) % CONFLICT_BYTES == 0:
                return False
        return self._limit(self.nest.lane) * self._size() >= LONG_RUN_BYTES

    def _has_aligned_rows(self) -> bool:
        """Whether all rows of what is written start at the same place in a cache line."""
        store = self.nest.stores[0]
        pitch = stride_along(store.buffers[0], store.indices, self.nest.row.var)
        return pitch is not None and pitch * self._size() % LINE_BYTES == 0

    def _shift(self) -> Val | None:
        """How many lanes the tiles start before column 0, so that others write whole vectors."""
        store, size = self.nest.stores[0], self._size()
        least = 2 if self.streaming else ALIGNED_VECTORS
        if self._limit(self.nest.lane) < least * self.width:
            return None
        if not self._has_aligned_rows() or self.width * size > LINE_BYTES:
            return None
        return self._late(store.buffers[0], store.indices, self.width * size)

    def _rows_above(self) -> Val | None:
        """How many rows the tiles start before row 0, so that no other's reads cross a line."""
        load = self.nest.loads[0]
        source, size = buffer_of(load), dtypes.size_bytes(load.dtype)
        pitch = stride_along(source, load.indices, self.nest.lane.var)
        if self._limit(self.nest.row) < ALIGNED_TILES * self.height:
            return None
        if pitch is None or pitch * size % LINE_BYTES or self.height * size > LINE_BYTES:
            return None
        return self._late(source, load.indices, self.height * size)

    def _late(self, buffer: Buffer, indices: tuple[Expr, ...], size: int) -> Val:
        """How many elements the first one lies past a multiple of `size` bytes."""
        lanes, b = self.lanes, self.lanes.b
        with lanes.bound(self.nest.row.var, Linear()), lanes.bound(self.nest.lane.var, Linear()):
            late = lanes.past_multiple(buffer, indices, size)
        item = dtypes.size_bytes(buffer.dtype)
        return b.bin("lshr", late, constant(item.bit_length() - 1, "i64"))

    def _tile(self, i: Linear, j: Linear) -> None:
        lanes, b = self.lanes, self.lanes.b
        if self.is_whole:
            self._whole_tile(self._inside(i, self.rows, self.height), j)
            return
        first, last = (
            lanes.materialise(j),
            lanes.materialise(lanes.add(j, Linear(const=self.width))),
        )
        top = lanes.materialise(i)
        bottom = lanes.materialise(lanes.add(i, Linear(const=self.height)))
        whole = b.compare("sle", bottom, self.rows)
        whole = b.bin("and", whole, b.compare("sge", top, constant(0, "i64")))
        whole = b.bin("and", whole, b.compare("sge", first, constant(0, "i64")))
        whole = b.bin("and", whole, b.compare("sle", last, self.columns))

        def masked() -> None:
            rows = self._between(top, self.rows, self.height)
            self._rows(i, j, rows, self._between(first, self.columns, self.width))

        b.if_else(whole, lambda: self._aligned(i, j), masked)

    def _aligned(self, i: Linear, j: Linear) -> None:
        """A whole tile where tiles start at lines, around the cache if that pays off."""
        with self.lanes.around_cache(self.streaming):
            self._rows(i, j, None, None)

    def _may_overlap(self) -> bool:
        """Whether there is room for a tile, and storing an element twice stores the same."""
        reads = {id(x.source) for s in self.nest.stores for v in s.values for x in loads(v)}
        given = set(self.lanes.alias) | set(self.lanes.alias.values())
        return self.targets.isdisjoint(reads | given) and all(
            not extent.ref.startswith("%") and int(extent.ref) >= size
            for extent, size in ((self.rows, self.height), (self.columns, self.width))
        )

    def _whole_tile(self, i: Linear, j: Linear) -> None:
        """A tile without masks: at an edge it lies a bit further inside than `j` says."""
        lanes, b = self.lanes, self.lanes.b
        inside = self._inside(j, self.columns, self.width)
        if not self.streaming:
            self._rows(i, inside, None, None)
            return
        stays = b.compare("eq", lanes.materialise(j), lanes.materialise(inside))
        b.if_else(stays, lambda: self._aligned(i, j), lambda: self._rows(i, inside, None, None))

    def _inside(self, start: Linear, extent: Val, size: int) -> Linear:
        """Where a tile starts so that it lies within a constant extent."""
        if start.terms and all(n > 0 for n in start.terms.values()):  # from 0 in steps of `size`
            if int(extent.ref) % size == 0:
                return start
        if start == Linear():
            return start
        last = constant(int(extent.ref) - size, "i64")
        at = self.lanes.b.intrinsic("smin", self.lanes.materialise(start), last)
        return Linear({self.lanes.b.intrinsic("smax", at, constant(0, "i64")).ref: 1})

    def _between(self, start: Val, end: Val, width: int) -> Val:
        """The lanes from `start` on that number 0 to `end`."""
        b = self.lanes.b
        before = self._below(b.bin("sub", constant(0, "i64"), start), width)
        return b.bin("and", self._below(b.bin("sub", end, start), width), b.invert(before))

    def _below(self, count: Val, width: int) -> Val:
        """The lanes less than `count`."""
        b = self.lanes.b
        count = b.intrinsic("smin", count, constant(width, "i64"))
        count = b.intrinsic("smax", count, constant(0, "i64"))
        numbers = constant_lanes(list(range(width)), "i32")
        return b.compare("slt", numbers, b.cast("trunc", count, "i32"))

    def _copy_tile(self, i: Linear, j: Linear) -> bool:
        """A whole tile by a function, if elements are only copied; False otherwise.

        LLVM keeps one copy of the shuffles for all nests of the module, which takes it 0.2 ms each.
        """
        lanes, (load, *others), store = self.lanes, self.nest.loads, self.nest.stores[0]
        source, target = buffer_of(load), store.buffers[0]
        shared = set(lanes.alias) | set(lanes.alias.values())
        if others or len(self.nest.stores) > 1 or len(store.buffers) > 1 or self.streaming:
            return False
        if store.values[0] is not load or source.dtype != target.dtype:
            return False
        if self.width != self.height or id(target) in shared or self._fetches(source):
            return False
        pitches = (
            stride_along(source, load.indices, self.nest.lane.var),
            stride_along(target, store.indices, self.nest.row.var),
        )
        if None in pitches:
            return False
        with lanes.bound(self.nest.row.var, i), lanes.bound(self.nest.lane.var, j):
            ends = [
                lanes.address(buffer, lanes.position(buffer, indices))
                for buffer, indices in ((source, load.indices), (target, store.indices))
            ]
        elem = f"i{8 * self._size()}"
        name = copy_transposed(lanes.b.module, elem, self.width)
        pairs = zip(ends, pitches, strict=True)
        given = ", ".join(f"ptr {end}, i64 {pitch}" for end, pitch in pairs)
        lanes.b.emit(f"call void @{name}({given})")
        return True

    def _rows(self, i: Linear, j: Linear, rows: Val | None, columns: Val | None) -> None:
        if rows is None and columns is None and self._copy_tile(i, j):
            return
        lanes, b = self.lanes, self.lanes.b
        lanes.lanes, lanes.mask = self.width, columns
        with lanes.bound(self.nest.row.var, i), lanes.bound(self.nest.lane.var, _lane(j)):
            known: dict[object, list[Val]] = {}
            for load in self.nest.loads:
                where = lanes.position(buffer_of(load), load.indices)
                key = (id(load.source), where.key)
                if key not in known:
                    known[key] = self._transposed(buffer_of(load), where, rows, columns)
                lanes.tile[id(load.indices)] = known[key]
        lanes.guarded = rows is not None
        for n in range(self.height):
            lanes.tile_row = n
            lanes.mask = (
                columns
                if rows is None or columns is None
                else b.bin("and", columns, b.lane(rows, n))
            )
            row = Linear(i.terms, i.const + n)
            with lanes.bound(self.nest.row.var, row), lanes.bound(self.nest.lane.var, _lane(j)):
                for store in self.nest.stores:
                    lanes.store(store)
        lanes.tile = {}
        lanes.lanes, lanes.mask, lanes.guarded = 1, None, False

    def _fetches(self, buffer: Buffer) -> bool:
        """Whether what is read next is asked for ahead."""
        return self.along_writes and id(buffer) in self.lanes.streams.far

    def _transposed(
        self, buffer: Buffer, where: Linear, rows: Val | None, columns: Val | None
    ) -> list[Val]:
        """The tile of a load as one vector over lanes for each row."""
        lanes, b = self.lanes, self.lanes.b
        parts: list[list[Val]] = []
        mask, lanes.lanes = lanes.mask, self.height
        for start in range(0, self.width, self.height):
            runs = []
            for n in range(start, start + self.height):
                lanes.mask = None
                if rows is not None and columns is not None:
                    lanes.mask = b.bin("and", rows, b.lane(columns, n))
                at = Linear(where.terms, where.const + n * where.lane, 1)
                if self._fetches(buffer):
                    ahead = AHEAD_BYTES // dtypes.size_bytes(buffer.dtype)
                    lanes.fetch(buffer, at, ahead, SECOND_CACHE)
                runs.append(lanes.read(buffer, at))
            parts.append(transpose(b, runs))
        lanes.lanes, lanes.mask = self.width, mask
        while len(parts) > 1:
            halves = zip(parts[::2], parts[1::2], strict=True)
            parts = [[b.concatenate(x, y) for x, y in zip(*two, strict=True)] for two in halves]
        return parts[0]


def _lane(j: Linear) -> Linear:
    return Linear(j.terms, j.const, 1)


def copy_transposed(module: Module, elem: str, side: int) -> str:
    """The name of a function that copies a square of elements from rows to columns."""
    name = f"transpose.{side}.{elem}"
    if name not in module.definitions:
        b = Builder(module)

        def line(start: str, pitch: str, n: int) -> str:
            offset = b.op(f"mul nsw i64 {pitch}, {n}", "i64")
            return b.op(f"getelementptr {elem}, ptr {start}, i64 {offset.ref}", "ptr").ref

        rows = [
            b.load(line("%from", "%pitch", n), elem, side, ELEM_BYTES[elem]) for n in range(side)
        ]
        for n, column in enumerate(transpose(b, rows)):
            b.store(line("%to", "%step", n), column, ELEM_BYTES[elem])
        b.at.end = "ret void"
        module.definitions[name] = (
            f"define internal void @{name}(ptr noalias %from, i64 %pitch, ptr noalias %to, "
            f"i64 %step) noinline #0 {{\n{b.body()}\n}}"
        )
    return name


def transpose(b: Builder, rows: list[Val]) -> list[Val]:
    """The columns of a square of vectors, whose side is a power of two.

    First within pieces of 16 bytes, by interleaving, then between the pieces: each step is one
    instruction a vector on x86 and on 128-bit vectors elsewhere.
    """
    side, elem = len(rows), rows[0].elem
    if elem in ("float", "double"):
        whole = {"float": "i32", "double": "i64"}[elem]
        return [
            b.cast("bitcast", v, elem)
            for v in transpose(b, [b.cast("bitcast", v, whole) for v in rows])
        ]
    piece = min(side, 16 // ELEM_BYTES[elem])
    pieces = range(0, side, piece)
    low, high = (
        [x for p in pieces for k in range(piece // 2) for x in (p + k + h, side + p + k + h)]
        for h in (0, piece // 2)
    )
    done: list[list[Val]] = []  # done[g][k], piece q: column q * piece + k of the g-th few rows
    for g in pieces:
        group = rows[g : g + piece]
        for _ in range(piece.bit_length() - 1):
            pairs = list(zip(group[: piece // 2], group[piece // 2 :], strict=True))
            group = [b.shuffle(x, order, y) for x, y in pairs for order in (low, high)]
        done.append(group)
    result: list[Val] = [rows[0]] * side
    even, odd = (
        [
            o * side + p * piece + k
            for o in (0, 1)
            for p in range(h, len(pieces), 2)
            for k in range(piece)
        ]
        for h in (0, 1)
    )
    for k in range(piece):
        column = [group[k] for group in done]
        for _ in range(len(pieces).bit_length() - 1):
            pairs = list(zip(column[::2], column[1::2], strict=True))
            column = [b.shuffle(x, order, y) for order in (even, odd) for x, y in pairs]
        for q, v in enumerate(column):
            result[q * piece + k] = v
    return result
