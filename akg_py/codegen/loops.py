"""Statements and loops: serial, unrolled, over lanes, over threads, and reductions into registers.

A loop over lanes is checked first (`dependence`): if its iterations might meet, or its body needs
what lanes can't do, it runs as a serial loop. So a wrong annotation costs speed, never the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from akg_py.codegen import arithmetic
from akg_py.codegen.dependence import accesses, is_independent
from akg_py.codegen.indices import Linear, flat_index, lane_stride
from akg_py.codegen.llvm import ELEM_BYTES, Builder, Val, constant, constant_lanes
from akg_py.codegen.reductions import accumulated, combine, emit_reduction
from akg_py.codegen.registers import Registers
from akg_py.codegen.target import Processor
from akg_py.codegen.threads_ir import emit_parallel
from akg_py.codegen.values import Values
from akg_py.codegen.workspace import Workspace
from akg_py.errors import InternalError
from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Var,
    bounds,
    children,
    free_vars,
    is_index,
    linear_combination,
    loads,
    same,
    walk,
)
from akg_py.ir.stmt import (
    Alloc,
    Buffer,
    For,
    If,
    Intrinsic,
    Seq,
    Stmt,
    Store,
    sub_exprs,
    sub_stmts,
    walk_stmts,
)

MAX_COPIES = 64  # of a statement, by unrolling
WIDE = 4  # vectors that a loop over lanes around another loop takes at once
MAX_CELLS = 32  # accumulators of one loop
STACK_BYTES = 16 << 10  # of one buffer
STACK_TOTAL = 64 << 10


@dataclass
class _Plan:
    """What to hold in registers, loops to unroll for that, extents to assume, loops to mask."""

    held: list[tuple[Buffer, set[Var]]] = field(default_factory=list)
    assume: list[tuple[Expr, int]] = field(default_factory=list)
    masked: list[For] = field(default_factory=list)


class Loops(Values):
    """Emits statements."""

    def __init__(
        self, builder: Builder, processor: Processor, name: str, alias: dict[int, int]
    ) -> None:
        super().__init__(builder)
        self.processor = processor
        self.name = name
        self.alias = alias
        self.memory = Workspace(STACK_BYTES, STACK_TOTAL)
        self.copies = 1
        self.assumed: list[tuple[Expr, int]] = []
        self.unversioned = False
        self.lane_masks: dict[Var, list[Val]] = {}
        self.in_thread = False
        self.has_parallel = False
        self.thread_peak = 0
        self.buffers: dict[int, Buffer] = {}

    # ------------------------------------------------------------ statements

    def statement(self, s: Stmt) -> None:
        match s:
            case Seq():
                for inner in s.stmts:
                    self.statement(inner)
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
        size = ELEM_BYTES[arithmetic.memory_elem(buffer.dtype)]
        for extent in buffer.shape:
            size *= extent
        with self.memory.take(size) as offset:
            if offset is None:
                self.pointers[id(buffer)] = self.b.alloca(f"[{max(size, 1)} x i8]", 64)
            else:
                ref = self.b.name()
                self.b.emit(f"{ref} = getelementptr i8, ptr %workspace, i64 {offset}")
                self.pointers[id(buffer)] = ref
            self.statement(s.body)
            del self.pointers[id(buffer)]

    # ------------------------------------------------------------ loops

    def _for(self, s: For) -> None:
        extent = self._constant_extent(s)
        if extent is not None and extent <= 0:
            return
        if extent == 1:
            self._at(s, Linear())
            return
        if self.lanes == 1:
            if s.kind in ("parallel", "core") and not self.in_thread:
                if is_independent(s, self.alias):
                    emit_parallel(self, s)
                    return
            if self.takes_lanes(s) and not self._unrolls_for_registers(s):
                self._over_lanes(s)
                return
        required = self._unrolls_for_registers(s)
        if extent is not None and (required or (s.kind == "unroll" and self._may_copy(s, extent))):
            self.copies *= extent
            for i in range(extent):
                self._at(s, Linear(const=i))
            self.copies //= extent
            return
        if self.lanes == 1 and self._reduction(s):
            return
        self._serial(s)

    def _at(self, s: For, where: Linear) -> None:
        outer = self.env.get(s.var)
        self.env[s.var] = where
        self.statement(s.body)
        if outer is None:
            del self.env[s.var]
        else:
            self.env[s.var] = outer

    def _constant_extent(self, s: For) -> int | None:
        if isinstance(s.extent, Const):
            return int(s.extent.value)
        for e, value in self.assumed:
            if same(e, s.extent):
                return value
        return None

    def _may_copy(self, s: For, extent: int) -> bool:
        stores = sum(isinstance(inner, Store) for inner in walk_stmts(s.body))
        return self.copies * extent * stores <= MAX_COPIES

    def _unrolls_for_registers(self, s: For) -> bool:
        """Whether a loop around lanes must unroll for its accumulators to have names."""
        return any(s.var in held.unrolled for held in self.registers.values())

    def extent_value(self, s: For) -> Val:
        extent = self.linear(s.extent)
        if not extent.is_uniform:
            raise InternalError(f"the extent of {s.var.name} differs between lanes")
        return self.materialise(extent)

    def _serial(self, s: For) -> None:
        memo = dict(self.memo)
        plan = self._register_plan(s)
        if plan is None:
            self.counted(self.extent_value(s), 1, lambda i: self._at(s, i), [])
        elif plan.assume:
            self._versions(s, plan.assume)
        else:
            with self._masks(plan.masked):
                self.counted(self.extent_value(s), 1, lambda i: self._at(s, i), plan.held)
        self.memo = memo

    @contextmanager
    def _masks(self, loops: list[For]) -> Iterator[None]:
        """Masks of lane loops with an open extent, made once before the loop around them."""
        if not loops:
            yield
            return
        after = self.b.block("after")
        some: Val | None = None
        for f in loops:
            width, extent = self._lane_count(f), self.extent_value(f)
            some = self.b.both(some, self.b.compare("sgt", extent, constant(0, "i64")))
            count = self.b.cast("trunc", extent, "i32")
            chunks = range(0, self._full_extent(f) or width, width)
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

    def counted(
        self,
        extent: Val,
        step: int,
        body: Callable[[Linear], None],
        held: list[tuple[Buffer, set[Var]]],
    ) -> None:
        """`body(i)` for i in 0, step, ... below extent, with `held` buffers in registers."""
        before, head, after = self.b.block("before"), self.b.block("loop"), self.b.block("after")
        if extent.ref.startswith("%"):
            self.b.branch(self.b.compare("sgt", extent, constant(0, "i64")), before, after)
        else:
            self.b.jump(before if int(extent.ref) > 0 else after)
        before.end = f"br label %{head.label}"
        for buffer, unrolled in held:
            self.registers[id(buffer)] = Registers(buffer, before, unrolled)
        self.b.at = head
        i, following = self.b.name(), self.b.name()
        at = len(head.lines)
        body(Linear({i: 1}))
        latch = self.b.at
        self.b.emit(f"{following} = add nuw nsw i64 {i}, {step}")
        head.lines.insert(
            at, f"{i} = phi i64 [ 0, %{before.label} ], [ {following}, %{latch.label} ]"
        )
        more = self.b.compare("slt", Val(following, "i64"), extent)
        done = self.b.block("done")
        self.b.branch(more, head, done)
        self.b.at = done
        for buffer, _ in held:
            self.registers.pop(id(buffer)).store_back(self)
        self.b.jump(after)
        self.b.at = after

    def _versions(self, s: For, assume: list[tuple[Expr, int]]) -> None:
        """Emit `s` twice: for full tiles, whose extents are then constants, and for the rest."""
        full: Val | None = None
        for e, size in assume:
            one = self.b.compare("sge", self.materialise(self.linear(e)), constant(size, "i64"))
            full = self.b.both(full, one)
        assert full is not None
        yes, no, after = self.b.block("full"), self.b.block("partial"), self.b.block("joined")
        self.b.branch(full, yes, no)
        self.b.at = yes
        self.assumed += assume
        self._serial(s)
        del self.assumed[-len(assume) :]
        self.b.jump(after)
        self.b.at = no
        unversioned, self.unversioned = self.unversioned, True
        self._for(self._rows_outside(s))
        self.unversioned = unversioned
        self.b.jump(after)
        self.b.at = after

    def _rows_outside(self, s: For) -> For:
        """`s` inside the open loop of its body that can't be unrolled, if the order is free."""
        f = s.body
        if not isinstance(f, For) or self._constant_extent(f) is not None or f.kind == "vector":
            return s
        if not free_vars(f.extent) <= set(self.env) or not free_vars(s.extent) <= set(self.env):
            return s
        moved = replace(f, kind="serial", body=replace(s, body=f.body))
        return moved if is_independent(moved, self.alias) else s

    # ------------------------------------------------------------ registers

    def _register_plan(self, s: For) -> _Plan | None:
        """What can stay in registers during `s`, or None."""
        inner = {f.var: f for f in walk_stmts(s.body) if isinstance(f, For)}
        if any(f.kind in ("parallel", "core") for f in inner.values()) and not self.in_thread:
            return None
        guarded = _guarded_buffers(s.body)
        seen: dict[int, list[tuple[Expr, ...]]] = {}
        written: dict[int, Buffer] = {}
        for (buffer, indices), writes in accesses(s.body):
            seen.setdefault(id(buffer), []).append(indices)
            if writes:
                written[id(buffer)] = buffer
        shared = set(self.alias) | set(self.alias.values())
        plan = _Plan()
        hoist: list[Expr] = []
        lane_loops = self._lane_loops(s.body)
        for key, buffer in written.items():
            if key in self.registers or key in guarded or key in shared or key not in self.pointers:
                continue
            first, *rest = seen[key]
            if not all(all(map(same, first, other)) for other in rest) or not all(
                map(is_index, first)
            ):
                continue
            atoms = self._fixed_atoms(buffer, first, set(inner) | {s.var})
            if atoms is None:
                continue
            used = set().union(*(free_vars(e) for e in first)) if first else set()
            if s.var in used or not used <= set(self.env) | set(inner):
                continue
            moving = {v for v in used if v in inner}
            extents = [self._full_extent(inner[v]) for v in moving]
            if any(n is None for n in extents):
                continue
            cells = 1
            for v, n in zip(moving, extents, strict=True):
                assert n is not None
                cells *= -(-n // (self._lane_count(inner[v]) if v in lane_loops else 1))
            unrolled = moving - lane_loops
            if cells > MAX_CELLS or not self._may_unroll(s.body, [inner[v] for v in unrolled]):
                continue
            needed = [(inner[v], n) for v, n in zip(moving, extents, strict=True)
                      if n is not None and self._constant_extent(inner[v]) is None]  # fmt: skip
            if any(not free_vars(f.extent) <= set(self.env) for f, _ in needed):
                continue
            if self.unversioned and any(f.var in unrolled for f, _ in needed):
                continue
            for f, n in needed:
                if self.unversioned:
                    plan.masked += [f] if f not in plan.masked else []
                elif not any(same(f.extent, known) for known, _ in plan.assume):
                    plan.assume.append((f.extent, n))
            hoist += atoms
            plan.held.append((buffer, unrolled))
        if not plan.held:
            return None
        for atom in hoist:
            self.memo.setdefault(atom, self.linear(atom))
        return plan

    def _fixed_atoms(
        self, buffer: Buffer, indices: tuple[Expr, ...], moving: set[Var]
    ) -> list[Expr] | None:
        """The non-variable atoms of an index, if all of them are fixed over a loop."""
        flat = flat_index(buffer, indices)
        if flat is None:
            return None
        atoms = [a for a in linear_combination(flat)[0] if not isinstance(a, Var)]
        return atoms if all(free_vars(a).isdisjoint(moving) for a in atoms) else None

    def _full_extent(self, f: For) -> int | None:
        known = self._constant_extent(f)
        if known is not None:
            return known
        hi = bounds(f.extent)[1]
        return hi if 0 < hi <= 4096 and is_index(f.extent) else None

    def _may_unroll(self, body: Stmt, loops: list[For]) -> bool:
        product, stores = 1, sum(isinstance(x, Store) for x in walk_stmts(body))
        for f in loops:
            product *= self._full_extent(f) or MAX_COPIES + 1
        return self.copies * product * stores <= MAX_COPIES

    def _lane_loops(self, s: Stmt) -> set[Var]:
        """Variables of the loops in `s` that will run over lanes."""
        if self.lanes > 1:
            return set()
        if isinstance(s, For) and self.takes_lanes(s):
            return {s.var}
        return set().union(*(self._lane_loops(inner) for inner in sub_stmts(s)))

    def takes_lanes(self, s: For) -> bool:
        if self._constant_extent(s) == 1:
            return False
        wanted = s.kind == "vector" or (s.kind != "unroll" and self._pays_off(s))
        return wanted and self._can_vectorise(s)

    # ------------------------------------------------------------ lanes

    def _lane_count(self, s: For) -> int:
        """Lanes for a loop: one vector of the widest element, no more than the loop can fill."""
        widest = 1
        for inner in walk_stmts(s.body):
            if isinstance(inner, Store):
                sizes = [ELEM_BYTES[arithmetic.compute_elem(b.dtype)] for b in inner.buffers]
                sizes += [
                    ELEM_BYTES[arithmetic.compute_elem(e.dtype)]
                    for v in inner.values
                    for e in walk_values(v)
                ]
                widest = max(widest, *sizes)
        lanes = self.processor.vector_bytes // widest
        limit = self._constant_extent(s) or bounds(s.extent)[1]
        while lanes > 1 and lanes // 2 >= limit:
            lanes //= 2
        return lanes

    def _can_vectorise(self, s: For) -> bool:
        if self._lane_count(s) < 2:
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
        """Whether a serial loop should run over lanes unasked: contiguous stores, no gathers."""
        if any(isinstance(x, For) and x.kind != "serial" for x in walk_stmts(s.body)):
            return False
        limit = self._constant_extent(s) or bounds(s.extent)[1]
        if limit < 4 or self._lane_count(s) < 4:
            return False
        stored = False
        for (buffer, indices), writes in accesses(s.body):
            flat = flat_index(buffer, indices)
            stride = None if flat is None else lane_stride(flat, s.var)
            if stride is None or (writes and stride != 1) or stride not in (0, 1):
                return False
            stored = stored or writes
        if not stored:
            return False
        return not any(isinstance(x, For) and self._pays_off(x) for x in walk_stmts(s.body))

    def _over_lanes(self, s: For) -> None:
        width = self._lane_count(s)
        if s.var in self.lane_masks:
            for n, mask in enumerate(self.lane_masks[s.var]):
                self._chunk(s, Linear(const=n * width, lane=1), width, mask)
            return
        extent = self._constant_extent(s)
        if extent is None:
            self._over_lanes_open(s, width)
            return
        whole, rest = divmod(extent, width)
        blocks = whole // WIDE
        if blocks and not self.registers and any(isinstance(x, For) for x in walk_stmts(s.body)):
            # accumulators of the inner loop hide each other's latency
            wide = WIDE * width
            self.counted(
                constant(blocks * wide, "i64"),
                wide,
                lambda i: self._chunk(s, self._lane(i), wide, None),
                [],
            )
            for chunk in range(blocks * WIDE, whole):
                self._chunk(s, Linear(const=chunk * width, lane=1), width, None)
        elif whole * self.copies <= 8 or (self.registers and whole <= MAX_CELLS):
            for chunk in range(whole):
                self._chunk(s, Linear(const=chunk * width, lane=1), width, None)
        else:
            self.counted(
                constant(whole * width, "i64"),
                width,
                lambda i: self._chunk(s, self._lane(i), width, None),
                [],
            )
        if rest:
            width = max(2, 1 << (rest - 1).bit_length())
            tail = None if rest == width else _mask_constant(rest, width)
            self._chunk(s, Linear(const=extent - rest, lane=1), width, tail)

    def _lane(self, i: Linear) -> Linear:
        return Linear(i.terms, i.const, 1)

    def _over_lanes_open(self, s: For, width: int) -> None:
        extent = self.extent_value(s)
        whole = self.b.bin("and", extent, constant(-width, "i64"))
        self.counted(whole, width, lambda i: self._chunk(s, self._lane(i), width, None), [])
        rest = self.b.bin("sub", extent, self.b.intrinsic("smax", whole, constant(0, "i64")))
        tail, after = self.b.block("tail"), self.b.block("endtail")
        self.b.branch(self.b.compare("sgt", rest, constant(0, "i64")), tail, after)
        self.b.at = tail
        numbers = constant_lanes(list(range(width)), "i32")
        mask = self.b.compare("slt", numbers, self.b.cast("trunc", rest, "i32"))
        self._chunk(s, Linear({whole.ref: 1}, 0, 1), width, mask)
        self.b.jump(after)
        self.b.at = after

    def _chunk(self, s: For, where: Linear, width: int, mask: Val | None) -> None:
        self.lanes, self.mask = width, mask
        self._at(s, where)
        self.lanes, self.mask = 1, None

    # ------------------------------------------------------------ reductions

    def _reduction(self, s: For) -> bool:
        return emit_reduction(self, s)


def walk_values(e: Expr) -> Iterator[Expr]:
    """Like `walk`, but not into indices."""
    yield e
    if isinstance(e, Load):
        return
    for child in children(e):
        if not is_index(child):
            yield from walk_values(child)


def _mask_constant(count: int, width: int) -> Val:
    bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(width))
    return Val(f"<{bits}>", "i1", width)


def _guarded_buffers(s: Stmt) -> set[int]:
    """Buffers that some If, guarding select or short circuit keeps from being reached."""
    found: set[int] = set()
    for inner in walk_stmts(s):
        if isinstance(inner, If):
            found.update(id(buffer) for (buffer, _), _ in accesses(inner))
        for e in sub_exprs(inner):
            for node in walk(e):
                if isinstance(node, Select) or (
                    isinstance(node, Binary) and node.op in ("&&", "||")
                ):
                    found.update(id(load.source) for load in loads(node))
    return found
