"""Loops over lanes: which ones run as vectors, how wide, and their chunks, blocks and tails.

A loop over lanes is checked first (`dependence`): if its iterations might meet, or its body needs
what lanes can't do, it runs as a serial loop. So a wrong annotation costs speed, never the result.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from akg_py.codegen import arithmetic
from akg_py.codegen.arithmetic import compute_elem
from akg_py.codegen.dependence import accesses, is_independent
from akg_py.codegen.flat import MOST_VECTORS, emit_flat, emit_lines
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import ELEM_BYTES, Builder, Val, constant, constant_lanes, first_lanes
from akg_py.codegen.registers import MAX_CELLS, Registers, Start
from akg_py.codegen.strides import stride_along
from akg_py.codegen.target import Processor
from akg_py.codegen.values import MAX_SPAN, Values, is_copy
from akg_py.errors import InternalError
from akg_py.ir.expr import Const, Expr, Load, Var, bounds, children, free_vars, is_index, same
from akg_py.ir.stmt import Alloc, Buffer, For, Stmt, Store, sub_stmts, walk_stmts

WIDE = 4  # vectors that a loop over lanes around another loop takes at once;
WIDE_BESIDE = 2  # of rows that come from memory side by side, each a line: fewer wait at once
TILE_CELLS = 8  # accumulators from which on a loop has no registers left for more of them;
FULL_CELLS = 16  # from which on the loop's own instructions don't matter beside theirs
LONG_BODY = 24  # values of a loop without accumulators, from which on copies of it gain nothing
UNROLLED = 4  # copies of the body of an innermost loop with fewer


class Lanes(Values):
    """Emits counted loops and loops over lanes."""

    def __init__(self, builder: Builder, processor: Processor, alias: dict[int, int]) -> None:
        super().__init__(builder)
        self.processor = processor
        self.alias = alias
        self.copies = 1  # of the current statement, by unrolling
        self.assumed: list[tuple[Expr, int]] = []
        self.lane_masks: dict[Var, list[Val]] = {}
        self.has_streamed = False
        self.wide = WIDE

    @abstractmethod
    def statement(self, s: Stmt) -> None:
        """Emit a statement."""

    def at(self, s: For, where: Linear) -> None:
        with self.bound(s.var, where):
            self.statement(s.body)

    @contextmanager
    def bound(self, var: Var, where: Linear) -> Iterator[None]:
        """`var` has the value `where` inside."""
        outer = self.env.get(var)
        self.env[var] = where
        yield
        if outer is None:
            del self.env[var]
        else:
            self.env[var] = outer

    @contextmanager
    def around_cache(self, buffers: frozenset[int]) -> Iterator[None]:
        """Stores to `buffers` (by id) go around the cache inside."""
        self.streaming = buffers
        yield
        self.streaming = frozenset()
        self.has_streamed = self.has_streamed or bool(buffers)

    def past_multiple(self, buffer: Buffer, indices: tuple[Expr, ...], size: int) -> Val:
        """The bytes by which an element lies past a multiple of `size`, a power of two."""
        pointer = self.address(buffer, self.position(buffer, indices))
        address = self.b.op(f"ptrtoint ptr {pointer} to i64", "i64")
        return self.b.bin("and", address, constant(size - 1, "i64"))

    def finish(self) -> None:
        """End the function; whoever waits for it sees what it stored around the cache."""
        if self.has_streamed:
            self.b.emit("fence seq_cst")
        self.b.at.end = "ret void"

    def constant_extent(self, s: For) -> int | None:
        if isinstance(s.extent, Const):
            return int(s.extent.value)
        for e, value in self.assumed:
            if same(e, s.extent):
                return value
        return None

    def extent_value(self, s: For) -> Val:
        extent = self.linear(s.extent)
        if not extent.is_uniform:
            raise InternalError(f"the extent of {s.var.name} differs between lanes")
        return self.materialise(extent)

    def counted(
        self,
        extent: Val,
        step: int,
        body: Callable[[Linear], None],
        held: list[tuple[Buffer, set[Var]]],
        unrolls: bool = True,
        start: Start | None = None,
    ) -> None:
        """`body(i)` for i in 0, step, ... below extent, with `held` buffers in registers.

        Args:
            unrolls: whether LLVM may unroll the loop.
            start: what one of the buffers is in the beginning.
        """
        before, head, after = self.b.block("before"), self.b.block("loop"), self.b.block("after")
        if extent.ref.startswith("%"):
            self.b.branch(self.b.compare("sgt", extent, constant(0, "i64")), before, after)
        else:
            self.b.jump(before if int(extent.ref) > 0 else after)
        first = again = before
        if start is not None and start.condition is not None:
            self.b.at, before = before, self.b.block("both")
            first, again = self.b.block("first"), self.b.block("again")
            self.b.branch(self.value(start.condition), first, again)
            first.end = again.end = f"br label %{before.label}"
        before.end = f"br label %{head.label}"
        around = next(reversed(self.env.values()), Linear())
        for buffer, unrolled in held:
            tile = Registers(buffer, unrolled, before, len(self.counters))
            if start is not None and buffer in start.store.buffers:
                tile.start_as(start, first, again, around)
            self.registers[id(buffer)] = tile
        self.b.at = head
        i, following = self.b.name(), self.b.name()
        at, size = len(head.lines), self.b.count
        self.multiples[i] = step
        self.counters.append((i, before))
        body(Linear({i: 1}))
        self.counters.pop()
        latch = self.b.at
        self.b.emit(f"{following} = add nuw nsw i64 {i}, {step}")
        head.lines.insert(
            at, f"{i} = phi i64 [ 0, %{before.label} ], [ {following}, %{latch.label} ]"
        )
        more = self.b.compare("slt", Val(following, "i64"), extent)
        done = self.b.block("done")
        self.b.branch(more, head, done)
        cells = sum(len(t.cells) for t in self.registers.values())
        unrolls = unrolls and (cells > 0 or self.b.count - size <= LONG_BODY)
        if not unrolls or cells >= TILE_CELLS:
            copies = UNROLLED if unrolls and cells < FULL_CELLS and latch is head else 1
            self.b.at.end += f", !llvm.loop {self.b.module.unrolled(copies)}"
        self.b.at = done
        for buffer, _ in held:
            self.registers.pop(id(buffer)).store_back(self)
        self.b.jump(after)
        self.b.at = after

    def lane_loops(self, s: Stmt) -> set[Var]:
        """Variables of the loops in `s` that will run over lanes."""
        if self.lanes > 1:
            return set()
        if isinstance(s, For) and self.takes_lanes(s):
            return {s.var}
        return set().union(*(self.lane_loops(inner) for inner in sub_stmts(s)))

    def takes_lanes(self, s: For) -> bool:
        if self.constant_extent(s) == 1:
            return False
        wanted = s.kind == "vector" or (s.kind != "unroll" and self._pays_off(s))
        return wanted and self._can_vectorise(s)

    # ------------------------------------------------------------ lanes

    def lane_count(self, s: For) -> int:
        """Lanes for a loop: one vector of the widest element, no more than the loop can fill."""
        lanes = self._vector_lanes(s)
        limit = self.constant_extent(s) or bounds(s.extent)[1]
        while lanes > 1 and lanes // 2 >= limit:
            lanes //= 2
        return lanes

    def _vector_lanes(self, s: For) -> int:
        """Elements of the widest kind in a vector."""
        widest = 1
        for inner in walk_stmts(s.body):
            if isinstance(inner, Store):
                for buffer, value in zip(inner.buffers, inner.values, strict=True):
                    kinds = [buffer.dtype, *(e.dtype for e in walk_values(value))]
                    elem = arithmetic.memory_elem if is_copy(buffer, value) else compute_elem
                    widest = max(widest, *(ELEM_BYTES[elem(dtype)] for dtype in kinds))
        return self.processor.vector_bytes // widest

    def _can_vectorise(self, s: For) -> bool:
        if self.lane_count(s) < 2:
            return False
        for inner in walk_stmts(s.body):
            if isinstance(inner, Alloc):
                return False
            if isinstance(inner, For) and not self._is_uniform_extent(inner.extent, s):
                return False
            if isinstance(inner, Store) and any(id(b) in self.registers for b in inner.buffers):
                if not all(map(is_index, inner.indices)):
                    return False
        return is_independent(s, self.alias)

    def _is_uniform_extent(self, extent: Expr, s: For) -> bool:
        return is_index(extent) and s.var not in free_vars(extent)

    def _pays_off(self, s: For) -> bool:
        """Whether a serial loop should run over lanes unasked: contiguous stores, short steps."""
        if any(isinstance(x, For) and x.kind != "serial" for x in walk_stmts(s.body)):
            return False
        limit = self.constant_extent(s) or bounds(s.extent)[1]
        if limit < 4 or self.lane_count(s) < 4:
            return False
        stored = False
        for (buffer, indices), writes in accesses(s.body):
            stride = stride_along(buffer, indices, s.var)
            if stride is None or (stride != 1 if writes else abs(stride) > MAX_SPAN):
                return False
            stored = stored or writes
        if not stored:
            return False
        return not any(isinstance(x, For) and self._pays_off(x) for x in walk_stmts(s.body))

    def over_lanes(self, s: For) -> None:
        width = self.lane_count(s)
        if s.var in self.lane_masks:
            for n, mask in enumerate(self.lane_masks[s.var]):
                self.chunk(s, Linear(const=n * width, lane=1), width, mask)
            return
        extent = self.constant_extent(s)
        nested = any(isinstance(x, For) for x in walk_stmts(s.body))
        if not nested and not self.registers and emit_lines(self, s, width):
            return
        if not nested and not self.registers and (extent is None or extent > MOST_VECTORS * width):
            emit_flat(self, s, width)
            return
        if extent is None:
            self._over_lanes_open(s, width)
            return
        whole, rest = divmod(extent, width)
        blocks = whole // self.wide
        if blocks and nested and not self.registers:
            # accumulators of the inner loop hide each other's latency
            wide = self.wide * width
            self.counted(
                constant(blocks * wide, "i64"),
                wide,
                lambda i: self.chunk(s, self._lane(i), wide, None),
                [],
            )
            for chunk in range(blocks * self.wide, whole):
                self.chunk(s, Linear(const=chunk * width, lane=1), width, None)
        elif whole * self.copies <= MOST_VECTORS or (self.registers and whole <= MAX_CELLS):
            for chunk in range(whole):
                self.chunk(s, Linear(const=chunk * width, lane=1), width, None)
        else:
            self.counted(
                constant(whole * width, "i64"),
                width,
                lambda i: self.chunk(s, self._lane(i), width, None),
                [],
            )
        if rest.bit_count() == 2 and 2 * rest > width and self._takes_two(s, width, whole + 2):
            part = 1 << (rest.bit_length() - 1)
            self.chunk(s, Linear(const=extent - rest, lane=1), part, None)
            rest -= part
        if rest:
            width = max(2, 1 << (rest - 1).bit_length())
            tail = None if rest == width else first_lanes(rest, width)
            self.chunk(s, Linear(const=extent - rest, lane=1), width, tail)

    def _takes_two(self, s: For, width: int, vectors: int) -> bool:
        """Whether two narrow vectors without a mask may take the place of one with a mask.

        They cost the same where wide operations take two steps, and less where a mask hinders, but
        as accumulators they are one more for each step of the loops around.
        """
        if width < self._vector_lanes(s) and self.processor.has_masks:
            return False
        return all(
            vectors * math.prod(v.hi + 1 for v in held.unrolled) <= MAX_CELLS - 4
            for held in self.registers.values()
        )

    def _lane(self, i: Linear) -> Linear:
        return Linear(i.terms, i.const, 1)

    def _over_lanes_open(self, s: For, width: int) -> None:
        extent = self.extent_value(s)
        whole = self.b.bin("and", extent, constant(-width, "i64"))
        self.counted(whole, width, lambda i: self.chunk(s, self._lane(i), width, None), [])
        rest = self.b.bin("sub", extent, self.b.intrinsic("smax", whole, constant(0, "i64")))
        tail, after = self.b.block("tail"), self.b.block("endtail")
        self.b.branch(self.b.compare("sgt", rest, constant(0, "i64")), tail, after)
        self.b.at = tail
        numbers = constant_lanes(list(range(width)), "i32")
        mask = self.b.compare("slt", numbers, self.b.cast("trunc", rest, "i32"))
        self.chunk(s, Linear({whole.ref: 1}, 0, 1), width, mask)
        self.b.jump(after)
        self.b.at = after

    def chunk(self, s: For, where: Linear, width: int, mask: Val | None) -> None:
        self.lanes, self.mask = width, mask
        self.at(s, where)
        self.lanes, self.mask = 1, None


def walk_values(e: Expr) -> Iterator[Expr]:
    """Like `walk`, but not into indices."""
    yield e
    if isinstance(e, Load):
        return
    for child in children(e):
        if not is_index(child):
            yield from walk_values(child)
