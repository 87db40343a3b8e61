"""Statements and loops: serial, unrolled, over threads, with accumulators in registers.

What a loop becomes depends on its kind and on what its body allows; loops over lanes are in
`lanes`, sums into one element in `reductions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.ahead import next_rows, rows_below, rows_beside
from akg_py.codegen.blocks import emit_blocks, is_blocks
from akg_py.codegen.dependence import is_independent
from akg_py.codegen.dots import emit_dot, emit_group_store
from akg_py.codegen.folds import accumulated, combine
from akg_py.codegen.indices import Linear
from akg_py.codegen.interleave import emit_interleaved
from akg_py.codegen.joins import join_loops
from akg_py.codegen.lanes import WIDE, WIDE_BESIDE, Lanes
from akg_py.codegen.llvm import Builder, Val, constant, constant_lanes
from akg_py.codegen.reductions import emit_extremes, emit_reduction, is_reduction
from akg_py.codegen.registers import (
    MAX_COPIES,
    Plan,
    Start,
    find_start,
    full_extent,
    plan_registers,
    remainder,
)
from akg_py.codegen.strides import size_of
from akg_py.codegen.target import Processor
from akg_py.codegen.threads_ir import emit_parallel
from akg_py.codegen.transpose import emit_transpose
from akg_py.codegen.workspace import Workspace
from akg_py.errors import InternalError
from akg_py.ir.expr import Expr, bounds, free_vars, same
from akg_py.ir.stmt import (
    Alloc,
    For,
    If,
    Intrinsic,
    Seq,
    Stmt,
    Store,
    walk_stmts,
)

STACK_BYTES = 16 << 10  # of one buffer
STACK_TOTAL = 64 << 10
NEVER_REGISTERS = 1 << 10  # bytes of storage that isn't worth putting into registers
_LAUNDER = "llvm.launder.invariant.group.p0"
MAX_VECTORS = 8  # of a whole loop over lanes that gets code of its own beside its tail's


class Loops(Lanes):
    """Emits statements."""

    def __init__(
        self, builder: Builder, processor: Processor, name: str, alias: dict[int, int]
    ) -> None:
        super().__init__(builder, processor, alias)
        self.name = name
        self.memory = Workspace(STACK_BYTES, STACK_TOTAL)
        self.unversioned = False
        self.in_thread = False
        self.has_parallel = False
        self.thread_peak = 0

    # ------------------------------------------------------------ statements

    def statement(self, s: Stmt) -> None:
        match s:
            case Seq():
                self._sequence(s)
            case For():
                self._for(s)
            case If():
                self._if(s)
            case Store():
                self.store(s)
            case Alloc():
                self._alloc(s)
            case Intrinsic():
                self.statement(s.body)
            case _:
                raise InternalError(f"no code for the statement {type(s).__name__}")

    def _if(self, s: If) -> None:
        condition = arithmetic.convert(self.b, self.value(s.condition), s.condition.dtype, "bool")
        if condition.lanes > 1:
            self._under_mask(condition, s.body)
            if s.orelse is not None:
                self._under_mask(self.b.invert(condition), s.orelse)
            return
        then, after = self.b.block("if"), self.b.block("endif")
        other = after if s.orelse is None else self.b.block("orelse")
        self.b.branch(condition, then, other)
        self.b.at = then
        self.statement(s.body)
        self.b.jump(after)
        if s.orelse is not None:
            self.b.at = other
            self.statement(s.orelse)
            self.b.jump(after)
        self.b.at = after

    def _under_mask(self, condition: Val, body: Stmt) -> None:
        mask, guarded = self.mask, self.guarded
        self.mask, self.guarded = self.b.both(mask, condition), True
        self.statement(body)
        self.mask, self.guarded = mask, guarded

    def stored_value(self, s: Store, n: int) -> Val:
        if len(s.values) == 1:
            operand = accumulated(s, self.alias)
            if operand is not None and s.values[n].op == "+":  # type: ignore[attr-defined]
                old = self.load(s.buffers[0], s.indices)
                return combine(self, "+", old, operand, s.buffers[0].dtype)
        return super().stored_value(s, n)

    def _alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        size = dtypes.size_bytes(buffer.dtype) * size_of(buffer)
        with self.memory.take(size) as offset:
            if offset is None:
                place = self.b.alloca(f"[{max(size, 1)} x i8]", 64)
                self.pointers[id(buffer)] = self._beside_registers(place, size)
            else:
                here, self.b.at = self.b.at, self.b.entry  # before all that may use it
                place = f"getelementptr i8, ptr %workspace, i64 {offset}"
                self.pointers[id(buffer)] = self.b.op(place, "ptr").ref
                self.b.at = here
            self.statement(s.body)
            del self.pointers[id(buffer)]

    def _beside_registers(self, pointer: str, size: int) -> str:
        """Storage that LLVM doesn't try to keep in registers, where it is larger than these.

        Its attempts on each loop around would take longer than all its other work on loops.
        """
        if size < NEVER_REGISTERS:
            return pointer
        name = self.b.name()
        self._declare(_LAUNDER, f"declare ptr @{_LAUNDER}(ptr)")
        self.b.emit(f"{name} = call ptr @{_LAUNDER}(ptr {pointer})")
        self.b.depths[name] = len(self.counters)
        return name

    # ------------------------------------------------------------ loops

    def _for(self, s: For) -> None:
        extent = self.constant_extent(s)
        if extent is not None and extent <= 0:
            return
        if self.lanes > 1 and (emit_dot(self, s) or emit_group_store(self, s)):
            return
        if self.lanes > 1 and emit_interleaved(self, s):
            return
        if extent == 1:
            self.at(s, Linear())
            return
        if self.lanes == 1:
            if s.kind in ("parallel", "core") and not self.in_thread:
                if is_independent(s, self.alias):
                    emit_parallel(self, s)
                    return
            if emit_transpose(self, s) or emit_blocks(self, s) or self._open_blocks(s):
                return
            if self.takes_lanes(s) and not self._unrolls_for_registers(s):
                self._lane_loop(s)
                return
        required = self._unrolls_for_registers(s)
        if extent is not None and (required or (s.kind == "unroll" and self._may_copy(s, extent))):
            self.copies *= extent
            for i in range(extent):
                self.at(s, Linear(const=i))
            self.copies //= extent
            return
        if (emit_reduction if self.lanes == 1 else emit_extremes)(self, s):
            return
        self._serial(s)

    def _lane_loop(self, s: For) -> None:
        ahead, beside = self.ahead, rows_beside(s, self.streams.loads)
        self.ahead = ahead | beside
        self.wide = WIDE_BESIDE if beside else WIDE
        self._whole_or_open(s)
        self.ahead, self.wide = ahead, WIDE

    def _whole_or_open(self, s: For) -> None:
        full = full_extent(self, s)
        is_open = self.constant_extent(s) is None and s.var not in self.lane_masks
        if is_open and not self.unversioned and full and full <= MAX_VECTORS * self.lane_count(s):
            self._versions(s, s.extent, full)
        else:
            self.over_lanes(s)

    def _open_blocks(self, s: For) -> bool:
        """Emit `s` twice, for full tiles and the rest, if blocks change places in full ones."""
        for f in walk_stmts(s.body):
            if not isinstance(f, For) or self.unversioned or self.constant_extent(f) is not None:
                continue
            full = full_extent(self, f)
            if full is None or not free_vars(f.extent) <= set(self.env):
                return False
            self.assumed.append((f.extent, full))
            found = is_blocks(self, s)
            self.assumed.pop()
            if found:
                self._versions(s, f.extent, full)
            return found
        return False

    def _may_copy(self, s: For, extent: int) -> bool:
        stores = sum(isinstance(inner, Store) for inner in walk_stmts(s.body))
        return self.copies * extent * stores <= MAX_COPIES

    def _unrolls_for_registers(self, s: For) -> bool:
        """Whether a loop around lanes must unroll for its accumulators to have names."""
        return any(s.var in held.unrolled for held in self.registers.values())

    def _serial(self, s: For, start: Start | None = None) -> None:
        memo, ahead = dict(self.memo), self.ahead
        plan = plan_registers(self, s)
        may_repeat = plan is None or self.processor.has_few_registers
        around = () if may_repeat else tuple(v for v, at in self.env.items() if at.terms)
        self.ahead = ahead | rows_below(s, self.streams.far, around)
        if plan is None:
            self.counted(self.extent_value(s), 1, lambda i: self.at(s, i), [])
        elif plan.assume:
            self._versions(s, *plan.assume[0])
        else:
            with self._masks(plan.masked):
                extent = self.extent_value(s)
                self.counted(extent, 1, lambda i: self.at(s, i), plan.held, start=start)
        self.memo, self.ahead = memo, ahead

    @contextmanager
    def _masks(self, loops: list[For]) -> Iterator[None]:
        """Masks of lane loops with an open extent, made once before the loop around them."""
        if not loops:
            yield
            return
        after = self.b.block("after")
        some: Val | None = None
        for f in loops:
            width, extent = self.lane_count(f), self.extent_value(f)
            some = self.b.both(some, self.b.compare("sgt", extent, constant(0, "i64")))
            count = self.b.cast("trunc", extent, "i32")
            chunks = range(0, full_extent(self, f) or width, width)
            numbers = [constant_lanes([start + i for i in range(width)], "i32") for start in chunks]
            self.lane_masks[f.var] = [self.b.compare("slt", n, count) for n in numbers]
        assert some is not None
        run = self.b.block("run")
        self.b.branch(some, run, after)
        self.b.at = run
        yield
        self.b.jump(after)
        self.b.at = after
        for f in loops:
            del self.lane_masks[f.var]

    def _sequence(self, s: Seq) -> None:
        """Statements in order; what starts and ends a tile shares the versions of its loop."""
        stmts = s.stmts
        if self.lanes == 1:
            stmts = join_loops(stmts, self.alias, lambda joined: is_reduction(self, joined))
        for inner in stmts if self.lanes == 1 and len(stmts) > 1 else ():
            if not isinstance(inner, For):
                continue
            memo = dict(self.memo)
            plan = self._serial_plan(inner)
            self.memo = memo
            if plan is None or not plan.assume:
                continue
            tile, size = plan.assume[0]
            if all(_only_within(other, tile) for other in stmts if other is not inner):
                self._versions(replace(s, stmts=stmts), tile, size)
                return
        row = next(reversed(self.env), None)
        ahead = {} if row is None else next_rows(stmts, row, self.streams.loads)
        start: Start | None = None
        for inner, following in zip_longest(stmts, stmts[1:]):
            if start is not None:
                assert isinstance(inner, For)
                self._serial(inner, start)
                start = None
                continue
            start = self._start(inner, following)
            if start is None:
                outer = self.ahead
                self.ahead = outer | ahead.get(id(inner), {})
                self.statement(inner)
                self.ahead = outer

    def _start(self, s: Stmt, following: Stmt | None) -> Start | None:
        """What `s` is for the accumulators of the loop that follows it, if no more than that."""
        if self.lanes > 1 or not isinstance(following, For):
            return None
        if is_reduction(self, following, least_lanes=1):
            return None
        memo = dict(self.memo)
        plan = self._serial_plan(following)
        self.memo = memo
        return None if plan is None or plan.assume else find_start(s, following, plan)

    def _serial_plan(self, s: For) -> Plan | None:
        """The registers of a loop that will run serially; None for other loops."""
        is_parallel = s.kind in ("parallel", "core") and not self.in_thread
        extent = self.constant_extent(s)
        if s.kind in ("vector", "unroll") or is_parallel or extent == 1 or self.takes_lanes(s):
            return None
        return plan_registers(self, s)

    def _versions(self, s: Stmt, tile: Expr, size: int) -> None:
        """Emit `s` twice: for full tiles, whose extent is then constant, and for the rest."""
        rest = remainder(tile, size)
        surely_some = bounds(tile)[0] > 0
        if rest == 0 and surely_some:
            self._assuming(s, tile, size)
            return
        extent = self.materialise(self.linear(tile))
        full = self.b.compare("sge", extent, constant(size, "i64"))
        yes, no, after = self.b.block("full"), self.b.block("partial"), self.b.block("joined")
        self.b.branch(full, yes, no)
        self.b.at = yes
        self._assuming(s, tile, size)
        self.b.jump(after)
        self.b.at = no
        if rest is None or not (surely_some or _only_within(s, tile)):
            unversioned, self.unversioned = self.unversioned, True
            self.statement(self._rows_outside(s) if isinstance(s, For) else s)
            self.unversioned = unversioned
        elif rest:
            if not surely_some:
                some = self.b.block("some")
                self.b.branch(self.b.compare("sgt", extent, constant(0, "i64")), some, after)
                self.b.at = some
            self._assuming(s, tile, rest)
        self.b.jump(after)
        self.b.at = after

    def _assuming(self, s: Stmt, extent: Expr, value: int) -> None:
        """Emit `s` where `extent` is known to be `value`."""
        self.assumed.append((extent, value))
        self.statement(s)
        self.assumed.pop()

    def _rows_outside(self, s: For) -> For:
        """`s` inside the open loop of its body that can't be unrolled, if the order is free."""
        f = s.body
        if not isinstance(f, For) or self.constant_extent(f) is not None or f.kind == "vector":
            return s
        if not free_vars(f.extent) <= set(self.env) or not free_vars(s.extent) <= set(self.env):
            return s
        moved = replace(f, kind="serial", body=replace(s, body=f.body))
        return moved if is_independent(moved, self.alias) else s


def _only_within(s: Stmt, extent: Expr) -> bool:
    """Whether all that `s` does happens in loops of this extent."""
    match s:
        case For() if same(s.extent, extent):
            return True
        case For() | Intrinsic() | If(orelse=None):
            return _only_within(s.body, extent)
        case Seq():
            return all(_only_within(inner, extent) for inner in s.stmts)
    return False
