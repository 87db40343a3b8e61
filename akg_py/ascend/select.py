"""Instruction selection: a Func becomes phases of loops and instructions over tiles.

Loops that hold other stages stay loops; the nest of one stage under them is selected as a whole by
where its operands lie: copies between memories, the cube's contraction, vector code. What no
pattern takes loses its outermost loop and is tried again.
"""

from __future__ import annotations

from dataclasses import field

from akg_py.ascend.cube import CubeSelector
from akg_py.ascend.nest import Nest, find_nest, is_empty, loads_of, reads, repeated_loops, trips_of
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import Loop, Node, Tile, make_tile, walk_nodes
from akg_py.ascend.vector import VectorSelector
from akg_py.errors import InternalError, UnsupportedError
from akg_py.ir.expr import Expr, Var, const, is_zero
from akg_py.ir.stmt import (
    GLOBAL,
    Alloc,
    Buffer,
    For,
    Func,
    If,
    Intrinsic,
    Origin,
    Seq,
    Stmt,
    walk_stmts,
)
from akg_py.records import dataclass
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
class Selection:
    """What selection found: phases, GM tensors, and stages that fell back to the scalar pipe."""

    phases: list[SelectedPhase] = field(default_factory=list)
    tensors: list[Tile] = field(default_factory=list)
    scalar_stages: dict[str, Origin] = field(default_factory=dict)


def select_instructions(func: Func) -> Selection:
    """Select instructions for all of `func`, whose buffers carry scopes of the device."""
    return _Selector(func).run()


class _Selector(CubeSelector):
    def __init__(self, func: Func) -> None:
        super().__init__(func)
        self.func = func
        self.selection = Selection()
        for buffer in func.params:
            self._add_tensor(buffer)

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
                    hint="compute_at a loop of its consumer: on-chip memory doesn't outlive a "
                    "phase",
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
        block: Var | None = None
        blocks: Expr = const(1)
        inner = root
        if isinstance(root, For) and root.kind in ("core", "parallel"):
            block, blocks, inner = root.var, root.extent, root.body
        # The block loop is a loop of the tree: its body is a generation of what is allocated there.
        loop = Loop(
            block if block is not None else Var("block", "int32", 0, 0), blocks, origin=root.origin
        )
        self.loops = [loop]
        if not is_zero(blocks):
            self._walk(inner, loop.body)
        name = (
            root.origin.stage
            if root.origin
            else next(
                (s.origin.stage for s in walk_stmts(root) if s.origin),
                f"phase{len(self.selection.phases)}",
            )
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
                    other = Loop(
                        Var("else", "int32", 0, 0),
                        const(1) - trips_of(s.condition),
                        origin=s.origin,
                    )
                    self._in_loop(other, s.orelse, out)
            case For() if is_zero(s.extent):
                pass
            case _:
                nest = find_nest(s)
                if nest is not None:
                    if not is_empty(nest):
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

    def _select_pinned(self, nest: Nest, out: list[Node]) -> None:
        """Select a nest; one that was tensorized must come out as the intrinsic's instruction."""
        before = len(out)
        self._select(nest, out)
        wanted = find_intrin(nest.name).instruction if nest.name else ""
        made = [n.op for n in walk_nodes(out[before:]) if isinstance(n, Instruction)]
        if wanted and not any(op.split("_")[0] == wanted for op in made):
            raise self._unsupported(
                nest.store,
                f"tensorized by {nest.name}, but the nest is no {wanted}",
                f"it became {', '.join(dict.fromkeys(made))}; scopes of its operands decide",
            )

    def _select(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        scope = store.buffers[0].scope
        if scope == "L0C":
            if nest.init is not None:
                self._note_init(nest.init)
            if not reads(store, store.buffers[0]):
                return self._note_init(store)
            return self._contraction(nest, out)
        if scope in ("L0A", "L0B"):
            return self._load_operand(nest, out)
        if scope == "L1":
            return self._load_l1(nest, out)
        sources = [load.source for v in store.values for load in loads_of(v)]
        if any(isinstance(b, Buffer) and b.scope == "L0C" for b in sources):
            return self._fix(nest, out)
        for b in sources:
            if isinstance(b, Buffer) and b.scope in ("L1", "L0A", "L0B"):
                raise self._unsupported(
                    store,
                    f"{b.name} in {b.scope} can't be read by the vector unit",
                    "read it from UB",
                )
        repeated = repeated_loops(nest.loops, store)
        if repeated:  # in order, one after the other
            outer = nest.loops[: max(nest.loops.index(f) for f in repeated) + 1]
            out = self._peel(nest, out, [f for f in nest.loops if f not in outer])
            nest = Nest([f for f in nest.loops if f not in outer], store, None, nest.name)
        vector = VectorSelector(self.tiles, self.loops[-1], self.selection.scalar_stages)
        out.extend(vector.select(nest.loops, store, nest.init))
        return None


def _check_scope(buffer: Buffer, origin: Origin | None) -> None:
    if buffer.scope not in (*SCOPES, "local"):
        raise UnsupportedError(
            f"{buffer.name}: an Ascend part has no memory {buffer.scope!r}",
            where=origin.place if origin else None,
            hint=f"scopes: {', '.join(SCOPES)}",
        )
