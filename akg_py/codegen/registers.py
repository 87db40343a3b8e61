"""Accumulators in registers: elements that a loop rereads and rewrites without moving.

While a loop runs whose body reaches a buffer only at indices that the loop does not change, each
such element (or run of lanes) lives in a stack slot that LLVM turns into registers. It is loaded
before the loop and stored behind it. If the statement before the loop gives all of them a constant,
which may depend on a condition, they start with that and memory is not written twice.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from akg_py.codegen import arithmetic
from akg_py.codegen.dependence import accesses
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import Block, Val
from akg_py.codegen.strides import flat_index
from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Var,
    bounds,
    free_vars,
    is_index,
    linear_combination,
    loads,
    same,
    substitute,
    walk,
)
from akg_py.ir.stmt import Buffer, For, If, Stmt, Store, sub_exprs, walk_stmts
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.codegen.lanes import Lanes
    from akg_py.codegen.loops import Loops
    from akg_py.codegen.values import Values


MAX_COPIES = 64  # of a statement, by unrolling
MAX_CELLS = 32  # accumulators of one loop


@dataclass
class _Cell:
    slot: str
    where: Linear
    lanes: int
    mask: Val | None
    is_stored: bool = False


@dataclass(frozen=True)
class Start:
    """What elements are at the start of a loop: a constant, where `condition` holds."""

    store: Store
    condition: Expr | None


class Registers:
    """The cells of one buffer during one loop.

    Args:
        unrolled: loops that must unroll for the cells to have names.
        before: the block before the loop in which cells are loaded.
        depth: how many loops are around that block.
    """

    def __init__(self, buffer: Buffer, unrolled: set[Var], before: Block, depth: int) -> None:
        self.buffer = buffer
        self.unrolled = unrolled
        self.depth = depth
        self.before: Block | None = before
        self.start: tuple[Block, Store] | None = None
        self.around = Linear()
        self.elem = arithmetic.memory_elem(buffer.dtype)
        self.cells: dict[object, _Cell] = {}

    def start_as(self, start: Start, first: Block, again: Block, around: Linear) -> None:
        """Let cells start with a constant in the block `first`, and be loaded in `again` only.

        Args:
            around: counter of the next loop outside; what its next round loads is fetched.
        """
        self.start = first, start.store
        self.around = around
        self.before = None if start.condition is None else again

    def _cell(self, values: Values, where: Linear) -> _Cell:
        lanes = 1 if where.is_uniform else values.lanes
        key = (where.key, lanes)
        cell = self.cells.get(key)
        if cell is None:
            slot = values.b.slot(self.elem, lanes)
            cell = self.cells[key] = _Cell(slot, where, lanes, values.mask if lanes > 1 else None)
            here, guarded, counters = values.b.at, values.guarded, values.counters
            values.guarded, values.counters = False, counters[: self.depth]
            if self.before is not None:
                values.b.at = self.before
                values.b.hold(slot, values.read(self.buffer, where))
                step = sum(where.terms.get(ref, 0) * n for ref, n in self.around.terms.items())
                if step:
                    values.fetch(self.buffer, where, step)
            if self.start is not None:
                values.b.at, store = self.start
                values.b.hold(slot, values.b.splat(values.stored_form(store, 0), lanes))
            values.b.at, values.guarded, values.counters = here, guarded, counters
        return cell

    def reach(self, values: Values, where: Linear) -> None:
        """Load an element before the loop, if that is new: it is reached in every iteration."""
        self._cell(values, where)

    def read(self, values: Values, where: Linear) -> Val:
        cell = self._cell(values, where)
        return values.b.held(cell.slot, self.elem, cell.lanes)

    def write(self, values: Values, where: Linear, value: Val) -> None:
        cell = self._cell(values, where)
        cell.is_stored = True
        values.b.hold(cell.slot, values.b.splat(value, cell.lanes))

    def store_back(self, values: Values) -> None:
        """Write the cells to the buffer, from the present block."""
        lanes, mask = values.lanes, values.mask
        for cell in self.cells.values():
            if cell.is_stored:
                values.lanes, values.mask = cell.lanes, cell.mask
                last = values.b.held(cell.slot, self.elem, cell.lanes)
                values.write(self.buffer, cell.where, last)
        values.lanes, values.mask = lanes, mask


@dataclass
class Plan:
    """What to hold in registers, loops to unroll for that, extents to assume, loops to mask."""

    held: list[tuple[Buffer, set[Var]]] = field(default_factory=list)
    assume: list[tuple[Expr, int]] = field(default_factory=list)
    masked: list[For] = field(default_factory=list)


def plan_registers(loops: Loops, s: For) -> Plan | None:
    """What can stay in registers during `s`, or None."""
    inner = {f.var: f for f in walk_stmts(s.body) if isinstance(f, For)}
    if any(f.kind in ("parallel", "core") for f in inner.values()) and not loops.in_thread:
        return None
    guarded = _guarded_buffers(s.body)
    seen: dict[int, list[tuple[Expr, ...]]] = {}
    written: dict[int, Buffer] = {}
    for (buffer, indices), writes in accesses(s.body):
        seen.setdefault(id(buffer), []).append(indices)
        if writes:
            written[id(buffer)] = buffer
    shared = set(loops.alias) | set(loops.alias.values())
    plan = Plan()
    hoist: list[Expr] = []
    lane_loops = loops.lane_loops(s.body)
    for key, buffer in written.items():
        if key in loops.registers or key in guarded or key in shared or key not in loops.pointers:
            continue
        first, *rest = seen[key]
        if not all(all(map(same, first, other)) for other in rest) or not all(map(is_index, first)):
            continue
        atoms = _fixed_atoms(buffer, first, set(inner) | {s.var})
        if atoms is None:
            continue
        used = set().union(*(free_vars(e) for e in first)) if first else set()
        if s.var in used or not used <= set(loops.env) | set(inner):
            continue
        moving = [v for v in inner if v in used]  # in order, for equal code in every process
        extents = [full_extent(loops, inner[v]) for v in moving]
        if any(n is None for n in extents):
            continue
        cells = 1
        for v, n in zip(moving, extents, strict=True):
            assert n is not None
            cells *= -(-n // (loops.lane_count(inner[v]) if v in lane_loops else 1))
        unrolled = set(moving) - lane_loops
        if cells > MAX_CELLS or not _may_unroll(loops, s.body, [inner[v] for v in unrolled]):
            continue
        needed = [(inner[v], n) for v, n in zip(moving, extents, strict=True)
                  if n is not None and loops.constant_extent(inner[v]) is None]  # fmt: skip
        if any(not free_vars(f.extent) <= set(loops.env) for f, _ in needed):
            continue
        if loops.unversioned and any(f.var in unrolled for f, _ in needed):
            continue
        for f, n in needed:
            if loops.unversioned:
                plan.masked += [f] if f not in plan.masked else []
            elif not any(same(f.extent, known) for known, _ in plan.assume):
                plan.assume.append((f.extent, n))
        hoist += atoms
        plan.held.append((buffer, unrolled))
    if not plan.held:
        return None
    for atom in hoist:
        loops.memo.setdefault(atom, loops.linear(atom))
    return plan


def find_start(s: Stmt, loop: For, plan: Plan) -> Start | None:
    """What `s` gives exactly the elements that `loop`, which runs next, holds in registers."""
    condition = None
    if isinstance(s, If) and s.orelse is None:
        condition, s = s.condition, s.body
    nest: list[For] = []
    while isinstance(s, For):
        nest.append(s)
        s = s.body
    if not isinstance(s, Store) or len(s.buffers) != 1 or not isinstance(s.values[0], Const):
        return None
    (buffer,) = s.buffers
    if bounds(loop.extent)[0] < 1 or not any(held is buffer for held, _ in plan.held):
        return None
    inner = {f.var: f for f in walk_stmts(loop.body) if isinstance(f, For)}
    indices = next(i for (b, i), _ in accesses(loop.body) if b is buffer)
    used = set().union(*map(free_vars, indices)) if indices else set()
    steps = [f for v, f in inner.items() if v in used]
    if len(steps) != len(nest):
        return None
    given: dict[Var, Expr] = {
        mine.var: theirs.var for mine, theirs in zip(nest, steps, strict=True)
    }
    for mine, theirs in zip(nest, steps, strict=True):
        if not same(substitute(mine.extent, given), theirs.extent):
            return None
    if not all(same(substitute(a, given), b) for a, b in zip(s.indices, indices, strict=True)):
        return None
    return Start(s, condition)


def _fixed_atoms(buffer: Buffer, indices: tuple[Expr, ...], moving: set[Var]) -> list[Expr] | None:
    """The non-variable atoms of an index, if all of them are fixed over a loop."""
    flat = flat_index(buffer, indices)
    if flat is None:
        return None
    atoms = [a for a in linear_combination(flat)[0] if not isinstance(a, Var)]
    return atoms if all(free_vars(a).isdisjoint(moving) for a in atoms) else None


def full_extent(loops: Lanes, f: For) -> int | None:
    """The extent of a whole tile, which tails may fall short of; None when it isn't known."""
    known = loops.constant_extent(f)
    if known is not None:
        return known
    hi = bounds(f.extent)[1]
    return hi if 0 < hi <= 4096 and is_index(f.extent) else None


def remainder(extent: Expr, size: int) -> int | None:
    """What `extent`, the part of a tile of `size` that is left, is when it is less; None: unknown.

    `min(6, 1000 - io * 6)` is 6 or 4: all it can be is 1000 modulo 6.
    """
    found = _residues(extent, size)
    if found is None:
        return None
    partial = found - {0}
    return (partial.pop() if partial else 0) if len(partial) < 2 else None


def _residues(e: Expr, size: int) -> set[int] | None:
    """What `e` can be modulo `size`."""
    if isinstance(e, Binary) and e.op == "min":
        a, b = _residues(e.a, size), _residues(e.b, size)
        return None if a is None or b is None else a | b
    total = {0}
    terms, constant = linear_combination(e)
    for atom, coef in terms.items():
        if coef % size:
            found = _residues(atom, size) if isinstance(atom, Binary) and atom.op == "min" else None
            if found is None:
                return None
            total = {(x + coef * y) % size for x in total for y in found}
    return {(x + constant) % size for x in total}


def _may_unroll(loops: Lanes, body: Stmt, unrolled: list[For]) -> bool:
    product, stores = 1, sum(isinstance(x, Store) for x in walk_stmts(body))
    for f in unrolled:
        product *= full_extent(loops, f) or MAX_COPIES + 1
    return loops.copies * product * stores <= MAX_COPIES


def _guarded_buffers(s: Stmt) -> set[int]:
    """Buffers that some If, guarding select or short circuit keeps from being reached.

    A store reaches what it writes, whether or not its value is chosen from what was there.
    """
    found: set[int] = set()
    for inner in walk_stmts(s):
        if isinstance(inner, If):
            found.update(id(buffer) for (buffer, _), _ in accesses(inner))
        reached = set(map(id, inner.buffers)) if isinstance(inner, Store) else set()
        for e in sub_exprs(inner):
            for node in walk(e):
                if isinstance(node, Select) or (
                    isinstance(node, Binary) and node.op in ("&&", "||")
                ):
                    found.update({id(load.source) for load in loads(node)} - reached)
    return found
