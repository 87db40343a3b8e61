"""From selected phases to a Program: memory planned, flags placed, addresses filled in."""

from __future__ import annotations

from collections.abc import Sequence

from akg_py.ascend.device import Device
from akg_py.ascend.memory import plan_memory
from akg_py.ascend.program import (
    Flag,
    GlobalTensor,
    Instruction,
    LocalBuffer,
    Phase,
    Program,
    Repeat,
    SetFlag,
    WaitFlag,
    address,
)
from akg_py.ascend.program import Node as ProgramNode
from akg_py.ascend.select import SelectedPhase, Selection
from akg_py.ascend.sync import BodySync, insert_sync
from akg_py.ascend.tiles import Loop, Node, Tile, round_up, walk_nodes
from akg_py.errors import UnsupportedError
from akg_py.ir.expr import Const, Expr, Var, bounds, ceildiv, const, minimum, substitute
from akg_py.ir.stmt import Func

CUBE_PIPES = frozenset({"M", "MTE1", "FIX"})


def emit_program(func: Func, selection: Selection, device: Device) -> Program:
    """The Program of `func` on `device`.

    Raises:
        CapacityError: a memory or the flags of a pair of pipes do not suffice.
        UnsupportedError: a phase mixes cube and vector instructions.
    """
    roles = {id(p): "output" if p in func.outputs else "input" for p in func.params}
    tensors = tuple(
        GlobalTensor(
            t.buffer.name, t.buffer.dtype, t.buffer.shape, roles.get(id(t.buffer), "workspace"), n
        )
        for n, t in enumerate(selection.tensors)
    )
    bases: dict[Var, Expr] = {
        t.base: address(g) for t, g in zip(selection.tensors, tensors, strict=True)
    }
    phases = tuple(_emit_phase(p, selection, bases, device) for p in selection.phases)
    return Program(func.name, device, tensors, phases)


def _kind(phase: SelectedPhase) -> str:
    instructions = [n for n in walk_nodes(phase.body) if isinstance(n, Instruction)]
    cube = [n for n in instructions if n.pipe in CUBE_PIPES or n.op.startswith("ND2NZ")]
    vector = [n for n in instructions if n.pipe in ("V", "MTE3", "S") or n.op == "COPY"]
    if cube and vector:
        origin = vector[0].origin
        raise UnsupportedError(
            f"{phase.name} mixes cube and vector instructions in one phase",
            where=origin.place if origin else None,
            hint="compute_root the vector stage, so that the cube's result goes through a "
            "workspace in GM",
        )
    return "aic" if cube else "aiv"


def _emit_phase(
    phase: SelectedPhase, selection: Selection, tensor_bases: dict[Var, Expr], device: Device
) -> Phase:
    kind = _kind(phase)
    tiles = {t.base: t for n in walk_nodes(phase.body) if isinstance(n, Loop) for t in n.tiles}
    offsets = plan_memory(phase.body, device)
    shared = _shared_tensors(phase, selection)
    syncs = insert_sync(
        phase.body, {**tiles, **{t.base: t for t in shared}}, int(device["sync.events_per_pair"])
    )
    blocks = bounds(phase.blocks)[1]
    cores = max(min(device.cores(kind), blocks), 1)
    core = Var("core", "int32", 0, cores - 1)
    emitter = _Emitter(phase, core, cores, tensor_bases, tiles, offsets, syncs, device)
    body = emitter.phase_body()
    return Phase(phase.name, kind, core, cores, body, tuple(emitter.flags), tuple(emitter.buffers))


def _shared_tensors(phase: SelectedPhase, selection: Selection) -> list[Tile]:
    """GM tensors that a phase reads and writes; they need order between pipes like any tile."""
    from akg_py.ascend.memory import accesses

    read: set[Var] = set()
    written: set[Var] = set()
    for n in walk_nodes(phase.body):
        if isinstance(n, Instruction):
            for a in accesses(n):
                (written if a.is_write else read).add(a.base)
    return [t for t in selection.tensors if t.base in read and t.base in written]


class _Emitter:
    def __init__(
        self,
        phase: SelectedPhase,
        core: Var,
        cores: int,
        tensor_bases: dict[Var, Expr],
        tiles: dict[Var, Tile],
        offsets: dict[Var, int],
        syncs: dict[int, BodySync],
        device: Device,
    ) -> None:
        self.phase = phase
        self.core, self.cores = core, cores
        self.syncs = syncs
        self.mapping: dict[Var, Expr] = dict(tensor_bases)
        self.counters: dict[int, Var] = {}
        self.flags: list[Flag] = []
        self.buffers: list[LocalBuffer] = []
        self.done: dict[int, Expr] = {}
        for base, tile in tiles.items():
            if base in offsets:
                self._place(tile, offsets[base], device)

    def _place(self, tile: Tile, offset: int, device: Device) -> None:
        b = tile.buffer
        size = round_up(tile.size_bytes, max(device.alignment_bytes(b.scope), 32))
        self.buffers.append(LocalBuffer(b.name, b.scope, offset, size, b.copies, b.dtype, b.shape))
        slot: Expr = const(0)
        if b.copies > 1 and tile.loop is not None:
            slot = self._slot(tile.loop, b.copies)
        self.mapping[tile.base] = address(b.scope, slot * size + offset)

    def _slot(self, loop: Loop, copies: int) -> Expr:
        counter = self.counters.get(id(loop))
        if counter is None:
            counter = self.counters[id(loop)] = Var(f"{loop.var.name}.turns", "int32", 0, 1 << 40)
        return counter % copies

    def phase_body(self) -> tuple[ProgramNode, ...]:
        (root,) = self.phase.body
        assert isinstance(root, Loop)
        blocks = self.phase.blocks
        turns = ceildiv(blocks - self.core, self.cores)
        if self.phase.block is not None:
            index = Var(
                self.phase.block.name, "int32", 0, max(-(-bounds(blocks)[1] // self.cores) - 1, 0)
            )
            self.mapping[self.phase.block] = index * self.cores + self.core
            body = self._loop(root, index, turns)
        else:
            body = self._loop(root, root.var, minimum(1, blocks))
        prologue: list[ProgramNode] = []
        epilogue: list[ProgramNode] = []
        for found in self.syncs.values():
            for s, first in zip(found.syncs, found.first, strict=True):
                self.flags.append(Flag(s.src, s.dst, first, s.events))
                for event in range(s.distance):
                    prologue.append(SetFlag(s.src, s.dst, first, const(event)))
                    epilogue.append(WaitFlag(s.src, s.dst, first, const(event)))
        return (*prologue, body, *epilogue)

    def _loop(self, loop: Loop, var: Var, extent: Expr) -> Repeat:
        body = self._body(loop.body, self.syncs[id(loop)], loop)
        counter = self.counters.get(id(loop))
        return Repeat(var, extent, body, (counter,) if counter is not None else (), loop.origin)

    def _body(self, nodes: Sequence[Node], found: BodySync, loop: Loop) -> tuple[ProgramNode, ...]:
        before: dict[int, list[ProgramNode]] = {}
        after: dict[int, list[ProgramNode]] = {}
        for s, first in zip(found.syncs, found.first, strict=True):
            event = self._slot(loop, s.events) if s.events > 1 else const(0)
            after.setdefault(s.after, []).append(SetFlag(s.src, s.dst, first, event))
            before.setdefault(s.before, []).append(WaitFlag(s.src, s.dst, first, event))
        out: list[ProgramNode] = []
        for n, node in enumerate(nodes):
            out += before.get(n, [])
            if isinstance(node, Loop):
                out.append(self._loop(node, node.var, self._resolve(node.extent)))
            else:
                operands = tuple(self._resolve(e) for e in node.operands)
                out.append(Instruction(node.op, operands, node.pipe, node.origin))
            out += after.get(n, [])
        return tuple(out)

    def _resolve(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            return e
        return substitute(e, self.mapping)
