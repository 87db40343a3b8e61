"""Memory planning: where each tile lies, exactly, and whether it fits.

Tiles that only the vector pipe touches share space when their lives don't overlap, because one pipe
runs in order; every other tile has a place of its own for the whole phase. Offsets come from
formulas over the program order, never from sorting by size.
"""

from __future__ import annotations

from dataclasses import dataclass

from akg_py.ascend.device import Device
from akg_py.ascend.isa import INSTRUCTIONS
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import Loop, Node, Tile, round_up
from akg_py.errors import CapacityError
from akg_py.ir.expr import Expr, Var, free_vars

ON_CHIP = ("L1", "L0A", "L0B", "L0C", "UB")


@dataclass(slots=True)
class Access:
    """One instruction's use of a tile."""

    base: Var
    pipe: str
    is_write: bool
    is_read: bool


def tile_bases(e: Expr) -> list[Var]:
    """Tiles that an address refers to."""
    return [v for v in free_vars(e) if v.name.startswith("&")]


def accesses(node: Instruction) -> list[Access]:
    """What an instruction reads and writes, tile by tile."""
    found = []
    for operand, e in zip(INSTRUCTIONS[node.op].operands, node.operands, strict=True):
        if operand.role in ("dst", "src", "inout"):
            for base in tile_bases(e):
                found.append(Access(base, node.pipe, operand.role != "src", operand.role != "dst"))
    return found


@dataclass(slots=True)
class Life:
    """Program positions between which a tile holds data, and the pipes that touch it."""

    tile: Tile
    first: int
    last: int
    pipes: set[str]


def find_lives(body: list[Node]) -> dict[Var, Life]:
    """Lives of all tiles of a phase; a use inside a loop that the tile outlives spans that loop."""
    tiles: dict[Var, Tile] = {}
    lives: dict[Var, Life] = {}
    position = 0
    spans: list[tuple[Loop, list[Access]]] = []

    def visit(nodes: list[Node], loops: list[tuple[Loop, int]]) -> None:
        nonlocal position
        for node in nodes:
            if isinstance(node, Loop):
                for t in node.tiles:
                    tiles[t.base] = t
                start = position
                touched_before = {b: (x.first, x.last) for b, x in lives.items()}
                visit(node.body, [*loops, (node, start)])
                end = position
                for base, life in lives.items():
                    if touched_before.get(base) != (life.first, life.last) and not _lives_in(tiles[base], node):
                        life.first, life.last = min(life.first, start), max(life.last, end)
                continue
            position += 1
            for a in accesses(node):
                if a.base not in tiles:
                    continue
                life = lives.setdefault(a.base, Life(tiles[a.base], position, position, set()))
                life.first, life.last = min(life.first, position), max(life.last, position)
                life.pipes.add(a.pipe)

    del spans
    visit(body, [])
    return lives


def _lives_in(tile: Tile, loop: Loop) -> bool:
    """Whether the tile is allocated in the body of `loop` or deeper."""
    if tile.loop is loop:
        return True
    return any(_contains(loop.body, tile.loop) for _ in (0,)) if tile.loop is not None else False


def _contains(nodes: list[Node], loop: Loop) -> bool:
    return any(isinstance(n, Loop) and (n is loop or _contains(n.body, loop)) for n in nodes)


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
        placed: list[tuple[int, int, Life]] = []
        end = 0
        for life in own:
            size = round_up(life.tile.size_bytes, alignment) * life.tile.buffer.copies
            offset = _first_gap(life, size, placed)
            placed.append((offset, size, life))
            offsets[life.tile.base] = offset
            end = max(end, offset + size)
        capacity = device.capacity_bytes(scope)
        if end > capacity:
            raise _overflow(scope, end, capacity, [p[2].tile for p in placed], device)
    return offsets


def _first_gap(life: Life, size: int, placed: list[tuple[int, int, Life]]) -> int:
    """The lowest offset that no tile alive at the same time covers."""
    blocked = sorted((o, o + s) for o, s, other in placed if not _may_share(life, other))
    offset = 0
    for begin, stop in blocked:
        if offset + size <= begin:
            break
        offset = max(offset, stop)
    return offset


def _may_share(a: Life, b: Life) -> bool:
    """In-order on one pipe and never alive together."""
    in_order = a.pipes | b.pipes == {"V"}
    single = a.tile.buffer.copies == b.tile.buffer.copies == 1
    return in_order and single and (a.last < b.first or b.last < a.first)


def _overflow(scope: str, needed: int, capacity: int, tiles: list[Tile], device: Device) -> CapacityError:
    tiles = sorted(tiles, key=lambda t: -t.size_bytes * t.buffer.copies)
    lines = [
        f"\n    {t.size_bytes * t.buffer.copies:>9,} B  {t.buffer.name}: {t.buffer.copies} cop{'y' if t.buffer.copies == 1 else 'ies'} "
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
        where=biggest.origin.place if biggest.origin else None, hint=hint,
    )  # fmt: skip
