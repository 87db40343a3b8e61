"""Synchronisation: which flags order the pipes so that every tile is read and reused in time.

Pipes run in order, so order is needed only between different pipes that touch the same tile, one of
them writing. Inside one body such a pair gets a flag from the earlier child to the later one;
around a loop, from the last use of a slot to the iteration that reuses it, `copies` iterations
later. A flag that another one implies is left out. Every set precedes its wait in program order:
slots that are free at the start are set in a prologue and taken back in an epilogue.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial

from akg_py.ascend.memory import accesses
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import Loop, Node, Tile
from akg_py.errors import CapacityError
from akg_py.ir.expr import Var, require
from akg_py.records import dataclass


@dataclass(slots=True)
class Uses:
    """What a node does to tiles.

    Attributes:
        by_tile: (pipe, writes) of every access.
        ordered: (tile, p, q) if inside the node every use of the tile by q comes after a flag that
            p set in the same execution of the node, hence after all that p did before.
        chained: the same for a flag that p set after all its earlier uses inside the node.
    """

    by_tile: dict[Var, set[tuple[str, bool]]] = field(default_factory=dict)
    ordered: set[tuple[Var, str, str]] = field(default_factory=set)
    chained: set[tuple[Var, str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Sync:
    """A flag of one body: set by `src` after child `after`, awaited by `dst` before child `before`.

    `distance` 0 is within an iteration, n > 0 n iterations later. `events` slots are used in turn.
    """

    src: str
    dst: str
    after: int
    before: int
    distance: int
    events: int


@dataclass(slots=True)
class BodySync:
    """Flags of one body and the number of the first flag of each."""

    syncs: list[Sync] = field(default_factory=list)
    first: list[int] = field(default_factory=list)


def insert_sync(
    body: list[Node], tiles: dict[Var, Tile], events_per_pair: int
) -> dict[int, BodySync]:
    """Flags for all bodies of a phase, by the id of the loop (0 for the phase itself).

    Raises:
        CapacityError: a pair of pipes needs more flags than the device has.
    """
    result: dict[int, BodySync] = {}
    used: dict[tuple[str, str], int] = {}
    next_flag = 0

    def visit(loop: Loop | None, nodes: list[Node]) -> Uses:
        nonlocal next_flag
        children = [
            _uses_of(n, tiles) if isinstance(n, Instruction) else visit(n, n.body) for n in nodes
        ]
        syncs = _body_syncs(loop, children, tiles)
        found = BodySync(syncs)
        for s in syncs:
            found.first.append(next_flag)
            next_flag += s.events
            used[s.src, s.dst] = used.get((s.src, s.dst), 0) + s.events
        result[0 if loop is None else id(loop)] = found
        return _merge(children, syncs, {t.base for t in loop.tiles} if loop is not None else set())

    visit(None, body)
    for (src, dst), count in used.items():
        require(
            count <= events_per_pair, partial(_too_many_flags, src, dst, count, events_per_pair)
        )
    return result


def _too_many_flags(src: str, dst: str, count: int, limit: int) -> CapacityError:
    return CapacityError(
        f"{src} -> {dst} needs {count} flags, the device has {limit}",
        hint="fewer copies of a stage, or fewer stages attached at different loops",
    )


def _uses_of(node: Instruction, tiles: dict[Var, Tile]) -> Uses:
    uses = Uses()
    for a in accesses(node):
        if a.base in tiles:  # else a tensor in GM that is only read or only written
            uses.by_tile.setdefault(a.base, set()).add((a.pipe, a.is_write))
    return uses


def _merge(children: list[Uses], syncs: list[Sync], local: set[Var]) -> Uses:
    """The uses of a body by what it contains, without the tiles that live in it."""
    merged = Uses()
    first: dict[tuple[Var, str], int] = {}
    last: dict[tuple[Var, str], int] = {}
    for n, child in enumerate(children):
        for base, how in child.by_tile.items():
            if base not in local:
                merged.by_tile.setdefault(base, set()).update(how)
                for pipe, _ in how:
                    first.setdefault((base, pipe), n)
                    last[base, pipe] = n
    for (base, q), n in first.items():
        merged.ordered |= {o for o in children[n].ordered if o[0] is base and o[2] == q}
        only_here = {p for b, p in first if b is base and first[b, p] == last[b, p] == n}
        merged.chained |= {
            o for o in children[n].chained if o[0] is base and o[2] == q and o[1] in only_here
        }
        for s in syncs:
            if s.dst != q or s.before > n:
                continue
            if s.distance == 0:
                merged.ordered.add((base, s.src, q))
            elif s.distance == 1 and s.after >= last.get((base, s.src), len(children)):
                merged.chained.add((base, s.src, q))
    return merged


def _body_syncs(loop: Loop | None, children: list[Uses], tiles: dict[Var, Tile]) -> list[Sync]:
    forward: set[tuple[str, str, int, int]] = set()
    carried: set[tuple[str, str, int, int, int]] = set()
    inside: set[tuple[str, str, int, int, int]] = (
        set()
    )  # carried, but ordered by flags inside child y
    users: dict[Var, list[int]] = {}
    for n, child in enumerate(children):
        for base in child.by_tile:
            users.setdefault(base, []).append(n)
    for base, where in users.items():
        tile = tiles[base]
        distance = 0 if loop is None else tile.buffer.copies if tile.loop is loop else 1
        for x in where:
            for y in where:
                for p, writes in children[x].by_tile[base]:
                    for q, other_writes in children[y].by_tile[base]:
                        if p == q or not (writes or other_writes):
                            continue
                        if x < y:
                            forward.add((p, q, x, y))
                        elif distance:
                            key, child = (base, p, q), children[y]
                            implied = key in child.ordered or (x == y and key in child.chained)
                            found = inside if implied else carried
                            found.add((p, q, x, y, distance))
    kept_forward = _minimal_forward(forward)
    kept_carried = _minimal_carried(carried, kept_forward)
    syncs = []
    for p, q, x, y in kept_forward:
        syncs.append(Sync(p, q, x, y, 0, _lead(p, q, x, y, kept_forward, carried | inside)))
    for p, q, x, y, d in kept_carried:
        syncs.append(Sync(p, q, x, y, d, d))
    return syncs


def _minimal_forward(found: set[tuple[str, str, int, int]]) -> list[tuple[str, str, int, int]]:
    """Without those that a later set and an earlier wait of the same pipes imply."""
    kept = []
    for s in sorted(found):
        p, q, x, y = s
        if not any(o != s and o[:2] == (p, q) and o[2] >= x and o[3] <= y for o in found):
            kept.append(s)
    return kept


def _minimal_carried(
    found: set[tuple[str, str, int, int, int]], forward: list[tuple[str, str, int, int]]
) -> list[tuple[str, str, int, int, int]]:
    kept = []
    for s in sorted(found):
        p, q, x, y, d = s
        if any(o[:2] == (p, q) and (o[2] >= x or o[3] <= y) for o in forward):
            continue  # q has waited for this within the iteration, or waits for what p does later
        implied = any(
            o != s and o[:2] == (p, q) and o[2] >= x and (o[4] < d or (o[4] == d and o[3] <= y))
            for o in found
        )
        if not implied:
            kept.append(s)
    return kept


def _lead(
    p: str,
    q: str,
    x: int,
    y: int,
    forward: list[tuple[str, str, int, int]],
    carried: set[tuple[str, str, int, int, int]],
) -> int:
    """How many iterations p may run ahead of q here: the number of events the flag needs."""
    if any(o[:2] == (q, p) and o[2] >= y for o in forward):
        return 1
    back = [d for a, b, i, j, d in carried if (a, b) == (q, p) and i >= y and j <= x]
    return min(back, default=1)
