"""Instruction selection: a Func becomes phases of loops and instructions over tiles.

Loops that hold other stages stay loops; the nest of one stage under them is selected as a whole by
where its operands lie: copies between memories, the cube's contraction, vector code. What no pattern
takes loses its outermost loop and is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from akg_py.ascend import instructions as ins
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import Loop, Node, Tile, depends_on, element_address, is_multiple, make_tile, walk_nodes
from akg_py.ascend.vector import VectorSelector
from akg_py.errors import InternalError, UnsupportedError
from akg_py.ir.expr import (
    Binary, Cast, Const, Expr, Load, Var, const, free_vars, linear_combination, maximum, minimum, walk,
)  # fmt: skip
from akg_py.ir.stmt import (
    GLOBAL, Alloc, Buffer, For, Func, If, Intrinsic, Origin, Seq, Stmt, Store, substitute_stmt, uses_var, walk_stmts,
)  # fmt: skip

from akg_py.te.intrin import find_intrin

CUBE_SCOPES = ("L1", "L0A", "L0B", "L0C")
SCOPES = (GLOBAL, "workspace", *CUBE_SCOPES, "UB")


@dataclass(slots=True, eq=False)
class SelectedPhase:
    """One root nest after selection.

    Attributes:
        block: Var of the block index, or None if a single block does everything.
        blocks: number of blocks.
    """

    name: str
    block: Var | None
    blocks: Expr
    body: list[Node]
    origin: Origin | None


@dataclass(slots=True, eq=False)
class Nest:
    """Perfect loops around one store; `init` is the store that initialises a reduction."""

    loops: list[For]
    store: Store
    init: Store | None = None
    name: str = ""  # of a tensorized nest


@dataclass(slots=True, eq=False)
class Selection:
    """What selection found: phases, GM tensors, and stages that fell back to the scalar pipe."""

    phases: list[SelectedPhase] = field(default_factory=list)
    tensors: list[Tile] = field(default_factory=list)
    scalar_stages: dict[str, Origin] = field(default_factory=dict)


def select_instructions(func: Func) -> Selection:
    """Select instructions for all of `func`, whose buffers carry scopes of the device."""
    return _Selector(func).run()


class _Selector:
    def __init__(self, func: Func) -> None:
        self.func = func
        self.selection = Selection()
        self.tiles: dict[int, Tile] = {}
        self.transposed = _stored_transposed(func)
        self.pending_init: dict[int, int] = {}  # L0C buffer -> loops around its initialisation
        self.loops: list[Loop] = []
        for buffer in func.params:
            self._add_tensor(buffer)

    # ------------------------------------------------------------ structure

    def run(self) -> Selection:
        body = self.func.body
        while isinstance(body, Alloc):
            _check_scope(body.buffer, body.origin)
            if body.buffer.scope in (GLOBAL, "workspace", "local"):
                self._add_tensor(body.buffer)
            else:
                raise UnsupportedError(
                    f"{body.buffer.name} is in {body.buffer.scope} but computed at the root",
                    where=body.origin.place if body.origin else None,
                    hint="compute_at a loop of its consumer: on-chip memory doesn't outlive a phase",
                )
            body = body.body
        for root in body.stmts if isinstance(body, Seq) else (body,):
            self._phase(root)
        return self.selection

    def _add_tensor(self, buffer: Buffer) -> None:
        tile = make_tile(buffer)
        self.tiles[id(buffer)] = tile
        self.selection.tensors.append(tile)

    def _phase(self, root: Stmt) -> None:
        block, blocks, inner = None, const(1), root
        if isinstance(root, For) and root.kind in ("core", "parallel"):
            block, blocks, inner = root.var, root.extent, root.body
        # The block loop is a loop of the tree: its body is a generation of what is allocated there.
        loop = Loop(block if block is not None else Var("block", "int32", 0, 0), blocks, origin=root.origin)
        self.loops = [loop]
        self._walk(inner, loop.body)
        name = root.origin.stage if root.origin else next(
            (s.origin.stage for s in walk_stmts(root) if s.origin), f"phase{len(self.selection.phases)}"
        )
        self.selection.phases.append(SelectedPhase(name, block, blocks, [loop], root.origin))

    def _walk(self, s: Stmt, out: list[Node]) -> None:
        match s:
            case Seq() if find_nest(s) is None:
                for inner in s.stmts:
                    self._walk(inner, out)
            case Alloc():
                _check_scope(s.buffer, s.origin)
                tile = make_tile(s.buffer, id(s.buffer) in self.transposed, s.origin)
                tile.loop = self.loops[-1]
                self.loops[-1].tiles.append(tile)
                self.tiles[id(s.buffer)] = tile
                self._walk(s.body, out)
            case If():
                loop = Loop(Var("if", "int32", 0, 0), trips_of(s.condition), origin=s.origin)
                self._in_loop(loop, s.body, out)
                if s.orelse is not None:
                    other = Loop(Var("else", "int32", 0, 0), const(1) - trips_of(s.condition), origin=s.origin)
                    self._in_loop(other, s.orelse, out)
            case _:
                nest = find_nest(s)
                if nest is not None:
                    if not _is_empty(nest):
                        self._select_pinned(nest, out)
                elif isinstance(s, For):
                    self._in_loop(Loop(s.var, s.extent, origin=s.origin), s.body, out)
                elif isinstance(s, Intrinsic):
                    self._walk(s.body, out)
                else:
                    raise InternalError(f"no instruction for {type(s).__name__}")

    def _in_loop(self, loop: Loop, body: Stmt, out: list[Node]) -> None:
        out.append(loop)
        self.loops.append(loop)
        self._walk(body, loop.body)
        self.loops.pop()

    # ------------------------------------------------------------ nests

    def _select_pinned(self, nest: Nest, out: list[Node]) -> None:
        """Select a nest; one that was tensorized must come out as the intrinsic's instruction."""
        before = len(out)
        self._select(nest, out)
        wanted = find_intrin(nest.name).instruction if nest.name else ""
        made = [n.op for n in walk_nodes(out[before:]) if isinstance(n, Instruction)]
        if wanted and not any(op.split("_")[0] == wanted for op in made):
            raise self._unsupported(
                nest.store, f"tensorized by {nest.name}, but the nest is no {wanted}",
                f"it became {', '.join(dict.fromkeys(made))}; scopes of its operands decide",
            )  # fmt: skip

    def _select(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        scope = store.buffers[0].scope
        if scope == "L0C":
            if nest.init is not None:
                self._note_init(nest.init)
            if not _reads(store, store.buffers[0]):
                return self._note_init(store)
            return self._contraction(nest, out)
        if scope in ("L0A", "L0B"):
            return self._load_operand(nest, out)
        if scope == "L1":
            return self._load_l1(nest, out)
        sources = [load.source for v in store.values for load in _loads(v)]
        if any(isinstance(b, Buffer) and b.scope == "L0C" for b in sources):
            return self._fix(nest, out)
        for b in sources:
            if isinstance(b, Buffer) and b.scope in ("L1", "L0A", "L0B"):
                raise self._unsupported(store, f"{b.name} in {b.scope} can't be read by the vector unit", "read it from UB")
        repeated = repeated_loops(nest.loops, store)
        if repeated:  # in order, one after the other
            outer = nest.loops[: max(nest.loops.index(f) for f in repeated) + 1]
            out = self._peel(nest, out, [f for f in nest.loops if f not in outer])
            nest = Nest([f for f in nest.loops if f not in outer], store, None, nest.name)
        vector = VectorSelector(self.tiles, self.loops[-1], self.selection.scalar_stages)
        out.extend(vector.select(nest.loops, store, nest.init))
        return None

    def _unsupported(self, store: Store, problem: str, hint: str) -> UnsupportedError:
        stage = store.origin.stage if store.origin else store.buffers[0].name
        place = store.origin.place if store.origin else None
        return UnsupportedError(f"{stage}: {problem}", where=place, hint=hint)

    def _peel(self, nest: Nest, out: list[Node], keep: list[For]) -> list[Node]:
        """Emit the loops that the instruction doesn't take; return the body to emit into."""
        for f in nest.loops:
            if not any(f is k for k in keep):
                loop = Loop(f.var, f.extent, origin=f.origin)
                out.append(loop)
                out = loop.body
        return out

    def _note_init(self, store: Store) -> None:
        value = store.values[0]
        if not (isinstance(value, Const) and value.value == 0):
            raise self._unsupported(store, f"the cube can't start from {value}", "add it after the product")
        self.pending_init[id(store.buffers[0])] = len(self.loops)

    def _contraction(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        c = self.tiles[id(store.buffers[0])]
        product = _product(store)
        if product is None:
            raise self._unsupported(
                store, f"no cube instruction computes {store.values[0]}",
                "L0C holds sums of products of an operand in L0A and one in L0B; other stages belong into UB",
            )  # fmt: skip
        a, b = product
        m_var, n_var = _last_vars(store.indices, nest)
        index_vars = {v for i in store.indices for v in free_vars(i)}
        k_vars = (free_vars_of(a) & free_vars_of(b)) - index_vars
        k_loop = next((f for f in reversed(nest.loops) if f.var in k_vars), None)
        m_loop = next((f for f in nest.loops if f.var is m_var), None)
        n_loop = next((f for f in nest.loops if f.var is n_var), None)
        if not _moves(a, m_var, n_var) or not _moves(b, n_var, m_var):
            raise self._unsupported(
                store, f"no cube instruction computes {store.values[0]}",
                "rows of the result move the operand in L0A only, columns the one in L0B only",
            )  # fmt: skip
        keep = [f for f in (m_loop, n_loop, k_loop) if f is not None]
        peeled = [f for f in nest.loops if not any(f is x for x in keep)]
        out = self._peel(nest, out, keep)
        since = self.pending_init.get(id(store.buffers[0]), 0)
        reduce_vars: Expr = const(0)
        for loop in self.loops[since:]:
            reduce_vars = reduce_vars + loop.var
        for f in peeled:
            if not any(depends_on(i, f.var) for i in store.indices):
                reduce_vars = reduce_vars + f.var
        init = Binary("==", reduce_vars, const(0), "bool") if not isinstance(reduce_vars, Const) else const(1)
        dtype = a.source.dtype
        out.append(
            ins.mmad(
                self._fractal_address(c, store.indices, (m_var, n_var)), self._operand_address(a), self._operand_address(b),
                m_loop.extent if m_loop else 1, n_loop.extent if n_loop else 1, k_loop.extent if k_loop else 1, init, dtype,
                c_col_stride=c.column_stride, origin=store.origin,
            )  # fmt: skip
        )

    def _operand_address(self, load: Load) -> Expr:
        tile = self.tiles[id(load.source)]
        e: Expr = tile.base
        for index, stride in zip(load.indices[:-2], tile.strides, strict=True):
            e = e + index * stride
        return e

    def _fractal_address(self, tile: Tile, indices: tuple[Expr, ...], loop_vars: tuple[Var | None, ...]) -> Expr:
        """Address of the first fractal: `indices` at the start of the loops."""
        start = [const(0)] * (2 - len(indices)) + [_without(i, loop_vars) for i in indices]
        e: Expr = tile.base
        for index, stride in zip(start[:-2], tile.strides, strict=True):
            e = e + index * stride
        row, col = start[-2:]
        c0 = 16 if tile.buffer.scope == "L0C" else tile.columns
        for what, index, unit in (("row", row, 16), ("column", col, c0)):
            if not is_multiple(index, unit):
                raise UnsupportedError(
                    f"{tile.buffer.name}: {what} {index} of a tile in {tile.buffer.scope} is not a multiple of {unit}",
                    where=tile.origin.place if tile.origin else None,
                    hint=f"split that axis by a multiple of {unit}",
                )
        return e + row * (64 if tile.buffer.scope == "L0C" else 32) + col // c0 * tile.column_stride

    def _load_l1(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        source = _plain_copy(store)
        if source is None or source.source.scope not in (GLOBAL, "workspace"):  # type: ignore[attr-defined]
            raise self._unsupported(store, "L1 takes copies of tensors in GM only", "cache_read the tensor to L1")
        dst, src = self.tiles[id(store.buffers[0])], self.tiles[id(source.source)]
        r_var, c_var = _last_vars(store.indices, nest)
        address = element_address(src, source.indices)
        terms, _ = linear_combination(address)
        if c_var is not None and terms.get(c_var) != src.element_bytes:
            raise self._unsupported(store, "rows of an L1 tile must be contiguous in GM", "keep the order of the axes")
        loops = {f.var: f for f in nest.loops}
        keep = [loops[v] for v in (r_var, c_var) if v is not None]
        out = self._peel(nest, out, keep)
        rows = loops[r_var].extent if r_var is not None else const(1)
        cols = loops[c_var].extent if c_var is not None else const(1)
        pitch = terms.get(r_var, 0) if r_var is not None else 0
        dst_address = self._fractal_address(dst, store.indices, (r_var, c_var))
        out.append(
            ins.nd2nz(
                dst_address, _without(address, (r_var, c_var)), rows, cols, pitch or src.element_bytes,
                dst.column_stride, store.buffers[0].dtype, origin=store.origin,
            )  # fmt: skip
        )

    def _load_operand(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        scope = store.buffers[0].scope
        source = _plain_copy(store)
        if source is None or source.source.scope != "L1":  # type: ignore[attr-defined]
            raise self._unsupported(store, f"{scope} takes copies of tiles in L1 only", f"cache_read to L1, then to {scope}")
        dst, src = self.tiles[id(store.buffers[0])], self.tiles[id(source.source)]
        r_var, c_var = _last_vars(store.indices, nest)
        loops = {f.var: f for f in nest.loops}
        keep = [loops[v] for v in (r_var, c_var) if v is not None]
        out = self._peel(nest, out, keep)
        rows = loops[r_var].extent if r_var is not None else const(1)
        cols = loops[c_var].extent if c_var is not None else const(1)
        src_address = self._fractal_address(src, source.indices, (r_var, c_var))
        dst_address: Expr = dst.base
        for index, stride in zip(store.indices[:-2], dst.strides, strict=True):
            dst_address = dst_address + index * stride
        transposed = id(store.buffers[0]) in self.transposed
        load = ins.load_a if scope == "L0A" else ins.load_b
        first, second = (cols, rows) if transposed else (rows, cols)
        out.append(
            load(
                dst_address, src_address, first, second, src.column_stride, store.buffers[0].dtype,
                transposed=transposed, origin=store.origin,
            )  # fmt: skip
        )

    def _fix(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        value, relu = store.values[0], False
        while True:
            if isinstance(value, Cast):
                value = value.a
            elif isinstance(value, Binary) and value.op == "max" and isinstance(value.b, Const) and value.b.value == 0:
                value, relu = value.a, True
            else:
                break
        target = store.buffers[0]
        if not isinstance(value, Load) or target.scope not in (GLOBAL, "workspace"):
            raise self._unsupported(
                store, f"the way out of L0C can't compute {store.values[0]}",
                "a cast and a relu may stand there; compute the rest in a stage of its own, on the vector cores",
            )  # fmt: skip
        src, dst = self.tiles[id(value.source)], self.tiles[id(target)]
        r_var, c_var = _last_vars(value.indices, nest)
        address = element_address(dst, store.indices)
        terms, _ = linear_combination(address)
        if c_var is not None and terms.get(c_var) != dst.element_bytes:
            raise self._unsupported(store, "rows of an L0C tile must be contiguous in GM", "keep the order of the axes")
        loops = {f.var: f for f in nest.loops}
        keep = [loops[v] for v in (r_var, c_var) if v is not None]
        out = self._peel(nest, out, keep)
        rows = loops[r_var].extent if r_var is not None else const(1)
        cols = loops[c_var].extent if c_var is not None else const(1)
        pitch = terms.get(r_var, 0) if r_var is not None else 0
        out.append(
            ins.fix(
                _without(address, (r_var, c_var)), self._fractal_address(src, value.indices, (r_var, c_var)), rows, cols,
                pitch or dst.element_bytes, src.column_stride, target.dtype, relu, origin=store.origin,
            )  # fmt: skip
        )


# ---------------------------------------------------------------- patterns


def find_nest(s: Stmt) -> Nest | None:
    """The nest that `s` is: loops of one stage around one store, with or without initialisation."""
    loops: list[For] = []
    name = ""
    while True:
        match s:
            case For():
                if isinstance(s.extent, Const) and s.extent.value == 1:  # a single iteration needs no loop
                    s = substitute_stmt(s.body, {s.var: const(0)}) if uses_var(s.body, s.var) else s.body
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
                if repeated_loops(loops + update.loops, update.store):
                    return None
                if not same_buffers or _reads(init.store, init.store.buffers[0]) or not _reads(update.store, init.store.buffers[0]):
                    return None
                return Nest(loops + update.loops, update.store, _renamed_init(init, update), name)
            case _:
                return None


def repeated_loops(loops: list[For], store: Store) -> list[For]:
    """Loops that a self-reading store is not affine in: several iterations may reach one element."""
    if not _reads(store, store.buffers[0]):
        return []
    found = []
    for f in loops:
        for index in store.indices:
            terms, _ = linear_combination(index)
            if any(atom is not f.var and depends_on(atom, f.var) for atom in terms):
                found.append(f)
                break
    return found


def _is_empty(nest: Nest) -> bool:
    """Whether a loop over an index of the store has no iteration."""
    index_vars = {v for i in nest.store.indices for v in free_vars(i)}
    return any(
        isinstance(f.extent, Const) and f.extent.value <= 0 and (f.var in index_vars or nest.init is None) for f in nest.loops
    )


def _renamed_init(init: Nest, update: Nest) -> Store:
    """The initialising store over the loops of the update."""
    from akg_py.ir.expr import substitute

    mapping: dict[Var, Expr] = {}
    for mine, theirs in zip(init.store.indices, update.store.indices, strict=True):
        own = [v for v in free_vars(mine) if any(f.var is v for f in init.loops)]
        others = [v for v in free_vars(theirs) if any(f.var is v for f in update.loops)]
        mapping.update(zip(sorted(own, key=_order_in(init)), sorted(others, key=_order_in(update)), strict=False))
    store = init.store
    return Store(
        store.buffers, update.store.indices, tuple(substitute(v, mapping) for v in store.values), store.origin
    )


def _order_in(nest: Nest):  # type: ignore[no-untyped-def]
    position = {f.var: n for n, f in enumerate(nest.loops)}
    return lambda v: position.get(v, -1)


def _loads(e: Expr) -> list[Load]:
    return [n for n in walk(e) if isinstance(n, Load)]


def _reads(store: Store, buffer: Buffer) -> bool:
    return any(load.source is buffer for v in store.values for load in _loads(v))


def _plain_copy(store: Store) -> Load | None:
    value = store.values[0]
    return value if len(store.values) == 1 and isinstance(value, Load) and isinstance(value.source, Buffer) else None


def _moves(load: Load, moving: Var | None, fixed: Var | None) -> bool:
    """Whether an operand is indexed by `moving` and not by `fixed`."""
    used = free_vars_of(load)
    return (moving is None or moving in used) and (fixed is None or fixed not in used)


def free_vars_of(load: Load) -> set[Var]:
    return {v for i in load.indices for v in free_vars(i)}


def _last_vars(indices: tuple[Expr, ...], nest: Nest) -> tuple[Var | None, Var | None]:
    """The loop variables that move the last two axes by one (None where the axis is a single index)."""
    loops = {f.var for f in nest.loops}
    found: list[Var | None] = []
    for e in ((const(0), const(0)) + indices)[-2:]:
        terms, _ = linear_combination(e)
        units = [a for a, c in terms.items() if isinstance(a, Var) and c == 1 and a in loops]
        found.append(units[-1] if units else None)
    return found[0], found[1]


def _without(e: Expr, variables: tuple[Var | None, ...]) -> Expr:
    for v in variables:
        if v is not None:
            terms, _ = linear_combination(e)
            e = e - v * terms.get(v, 0)
    return e


def _product(store: Store) -> tuple[Load, Load] | None:
    """(operand in L0A, operand in L0B) of `C += A * B`."""
    value = store.values[0]
    if not (isinstance(value, Binary) and value.op == "+"):
        return None
    for acc, term in ((value.a, value.b), (value.b, value.a)):
        while isinstance(term, Cast):
            term = term.a
        if isinstance(acc, Load) and acc.source is store.buffers[0] and isinstance(term, Binary) and term.op == "*":
            operands = []
            for side in (term.a, term.b):
                while isinstance(side, Cast):
                    side = side.a
                operands.append(side)
            if all(isinstance(o, Load) for o in operands):
                by_scope = {o.source.scope: o for o in operands}  # type: ignore[union-attr]
                if set(by_scope) == {"L0A", "L0B"}:
                    return by_scope["L0A"], by_scope["L0B"]  # type: ignore[return-value]
    return None


def _stored_transposed(func: Func) -> set[int]:
    """L0 operands whose last axis is not the one the cube wants last (k in L0A, n in L0B)."""
    transposed = set()
    for s in walk_stmts(func.body):
        if isinstance(s, Store) and s.buffers[0].scope == "L0C":
            operands = _product(s)
            if operands is None:
                continue
            outer = {v for i in s.indices for v in free_vars(i)}
            for load, wants_outer_last in zip(operands, (False, True), strict=True):
                last_is_outer = bool(free_vars(load.indices[-1]) & outer) if load.indices else False
                first_is_outer = bool(len(load.indices) > 1 and free_vars(load.indices[-2]) & outer)
                if wants_outer_last and first_is_outer and not last_is_outer:
                    transposed.add(id(load.source))
                if not wants_outer_last and last_is_outer and not first_is_outer:
                    transposed.add(id(load.source))
    return transposed


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
            return minimum(trips_of(condition.a <= condition.b), trips_of(condition.b <= condition.a))
        case Binary(op="!="):
            return const(1) - trips_of(Binary("==", condition.a, condition.b, "bool"))
    if getattr(condition, "op", "") == "!":
        return const(1) - trips_of(condition.a)  # type: ignore[attr-defined]
    raise UnsupportedError(f"the condition {condition} depends on data", hint="use te.Select, which computes both sides")


def _check_scope(buffer: Buffer, origin: Origin | None) -> None:
    if buffer.scope not in (*SCOPES, "local"):
        raise UnsupportedError(
            f"{buffer.name}: an Ascend part has no memory {buffer.scope!r}",
            where=origin.place if origin else None, hint=f"scopes: {', '.join(SCOPES)}",
        )  # fmt: skip


__all__ = ["Instruction", "Nest", "SelectedPhase", "Selection", "find_nest", "select_instructions", "trips_of"]
