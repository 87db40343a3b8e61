"""Memory planning: where each tile lies, exactly, and whether it fits.

Tiles that only the vector pipe touches share space when their lives don't overlap, because one pipe
runs in order; every other tile has a place of its own for the whole phase. Offsets come from
formulas over the program order, never from sorting by size.
"""

from __future__ import annotations

from functools import partial

from akg_py.ascend.device import Device
from akg_py.ascend.isa import INSTRUCTIONS, VECTOR
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import Loop, Node, Tile, round_up
from akg_py.errors import CapacityError
from akg_py.ir.expr import Expr, Var, free_vars, require, same
from akg_py.records import dataclass

ON_CHIP = ("L1", "L0A", "L0B", "L0C", "UB")


@dataclass(slots=True)
class Access:
    """One instruction's use of a tile."""

    base: Var
    pipe: str
    is_write: bool


def tile_bases(e: Expr) -> list[Var]:
    """Tiles that an address refers to."""
    return [v for v in free_vars(e) if v.name.startswith("&")]


def accesses(node: Instruction) -> list[Access]:
    """What an instruction reads and writes, tile by tile."""
    found = []
    for operand, e in zip(INSTRUCTIONS[node.op].operands, node.operands, strict=True):
        if operand.role in ("dst", "src", "inout"):
            for base in tile_bases(e):
                found.append(Access(base, node.pipe, operand.role != "src"))
    return found


@dataclass(slots=True)
class Life:
    """Program positions between which a tile holds data, pipes that touch it, outermost uses."""

    tile: Tile
    first: int
    last: int
    pipes: set[str]
    first_node: Instruction
    last_node: Instruction


def find_lives(body: list[Node]) -> dict[Var, Life]:
    """Lives of all tiles of a phase; a use inside a loop that the tile outlives spans that loop."""
    lives: dict[Var, Life] = {}
    tiles: dict[Var, Tile] = {}
    position = 0

    def visit(nodes: list[Node]) -> set[Var]:
        nonlocal position
        used: set[Var] = set()
        for node in nodes:
            if isinstance(node, Loop):
                tiles.update((t.base, t) for t in node.tiles)
                start = position
                inside = visit(node.body) - {t.base for t in node.tiles}
                for base in inside:
                    life = lives[base]
                    life.first, life.last = min(life.first, start), max(life.last, position)
                used |= inside
                continue
            position += 1
            for a in accesses(node):
                if a.base not in tiles:
                    continue
                if a.base not in lives:
                    lives[a.base] = Life(tiles[a.base], position, position, set(), node, node)
                life = lives[a.base]
                life.last, life.last_node = position, node
                life.pipes.add(a.pipe)
                used.add(a.base)
        return used

    visit(body)
    return lives


def plan_memory(body: list[Node], device: Device) -> dict[Var, int]:
    """Byte offset of every tile of a phase in its memory.

    Raises:
        CapacityError: a memory is too small; names the tiles in it.
    """
    lives = find_lives(body)
    offsets: dict[Var, int] = {}
    for scope in ON_CHIP:
        own = [life for life in lives.values() if life.tile.buffer.scope == scope]
        alignment = max(device.alignment_bytes(scope), 32)
        placed: list[Placed] = []
        end = 0
        for life in own:
            size = round_up(life.tile.size_bytes, alignment) * life.tile.buffer.copies
            offset = _offset(life, size, placed)
            placed.append(Placed(offset, size, life))
            offsets[life.tile.base] = offset
            end = max(end, offset + size)
        capacity = device.capacity_bytes(scope)
        tiles = [p.life.tile for p in placed]
        require(end <= capacity, partial(_overflow, scope, end, capacity, tiles, device))
    return offsets


@dataclass(frozen=True, slots=True)
class Placed:
    """A tile with its place."""

    offset: int
    size: int
    life: Life


def _offset(life: Life, size: int, placed: list[Placed]) -> int:
    """The place of a source that dies where `life` begins, else the lowest free one."""
    for p in placed:
        if p.size == size and _takes_over(life, p.life):
            if not any(
                o is not p
                and o.offset < p.offset + size
                and p.offset < o.offset + o.size
                and not _may_share(life, o.life)
                for o in placed
            ):
                return p.offset
    offset = 0
    for begin, stop in sorted(
        (p.offset, p.offset + p.size) for p in placed if not _may_share(life, p.life)
    ):
        if offset + size <= begin:
            break
        offset = max(offset, stop)
    return offset


def _in_order(a: Life, b: Life) -> bool:
    """Whether one in-order pipe alone touches both."""
    return a.pipes | b.pipes == {"V"} and a.tile.buffer.copies == b.tile.buffer.copies == 1


def _may_share(a: Life, b: Life) -> bool:
    """In-order on one pipe and never alive together."""
    return _in_order(a, b) and (a.last < b.first or b.last < a.first)


def _takes_over(new: Life, old: Life) -> bool:
    """Whether the first instruction to write `new` is the last to read `old`, by element."""
    node = new.first_node
    if not _in_order(new, old) or old.last_node is not node or old.last > new.first + 1:
        return False
    spec = INSTRUCTIONS[node.op]
    if spec.family != VECTOR or new.tile.element_bytes != old.tile.element_bytes:
        return False
    shifts = []
    for n, (operand, e) in enumerate(zip(spec.operands, node.operands, strict=True)):
        for base in tile_bases(e) if operand.role in ("dst", "src", "inout") else ():
            if base in (new.tile.base, old.tile.base):
                if operand.role == "inout":
                    return False
                shifts.append((e - base, *node.operands[5 + n :: 3][:2]))
    return all(all(map(same, s, shifts[0])) for s in shifts)


def _overflow(
    scope: str, needed: int, capacity: int, tiles: list[Tile], device: Device
) -> CapacityError:
    tiles = sorted(tiles, key=lambda t: -t.size_bytes * t.buffer.copies)
    lines = [
        f"\n    {t.size_bytes * t.buffer.copies:>9,} B  {t.buffer.name}: "
        f"{t.buffer.copies} cop{'y' if t.buffer.copies == 1 else 'ies'} "
        f"of {' x '.join(map(str, t.buffer.shape)) or 'one'} {t.buffer.dtype}"
        for t in tiles[:6]
    ]
    more = f"\n    ... and {len(tiles) - 6} more" if len(tiles) > 6 else ""
    biggest = tiles[0]
    hint = f"smaller tiles for {biggest.buffer.name}"
    doubled = [t.buffer.name for t in tiles if t.buffer.copies > 1]
    if doubled:
        hint += f"; or one copy instead of two of {doubled[0]}"
    return CapacityError(
        f"{scope} needs {needed:,} bytes, {device.name} has {capacity:,}{''.join(lines)}{more}",
        where=biggest.origin.place if biggest.origin else None,
        hint=hint,
    )
