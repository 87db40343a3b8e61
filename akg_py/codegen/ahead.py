"""Which elements of large arrays a loop fetches before it needs them, where the processor doesn't.

Kernels that pass several times over a row: the second pass fetches a later row. The first one
waits for memory, later ones find their row in the cache, and the memory would rest meanwhile.

Loops that take a short piece of each row: rows further down are fetched. A processor foresees what
follows in a row, not what comes in the next one.

In: loop IR; out: for a buffer, how many bytes further on to fetch.
"""

from __future__ import annotations

from collections.abc import Iterator

from akg_py import dtypes
from akg_py.codegen.strides import flat_index, lane_stride
from akg_py.ir.expr import Expr, Load, Var, bounds, walk
from akg_py.ir.stmt import Buffer, For, Stmt, sub_exprs, walk_stmts

MIN_ROW_BYTES = 1 << 10  # the processor itself fetches shorter rows ahead
LATER_BYTES = 8 << 10  # how far on a later row is, at least: the next one would come too late
MIN_STEP_BYTES = 1 << 10  # and foresees shorter steps
ROWS_AHEAD = 8
ALONG_BYTES = 2 << 10  # along rows that are read side by side


def next_rows(
    stmts: tuple[Stmt, ...], row: Var, large: frozenset[int]
) -> dict[int, dict[int, int]]:
    """For each loop (by id) that is the second one over a large buffer: bytes to a later row."""
    passes: dict[int, list[tuple[For, int]]] = {}
    for s in stmts:
        if isinstance(s, For):
            for key, distance in _rows_read(s, row, large).items():
                passes.setdefault(key, []).append((s, distance))
    found: dict[int, dict[int, int]] = {}
    for key, readers in passes.items():
        if len(readers) > 1:
            second, distance = readers[1]
            found.setdefault(id(second), {})[key] = distance
    return found


def rows_below(loop: For, far: frozenset[int], around: tuple[Var, ...] = ()) -> dict[int, int]:
    """For large buffers of which `loop` reads a short piece of every row: bytes to a later row.

    A piece is of one row only: a loop around loops over rows is none over rows.

    Args:
        around: loops further out that must not come back to the same rows.
    """
    inner = {f.var: f for f in walk_stmts(loop.body) if isinstance(f, For)}
    found: dict[int, int] = {}
    for x in _loads(loop.body, far):
        assert isinstance(x.source, Buffer)
        flat = flat_index(x.source, x.indices)
        if flat is None:
            continue
        size = dtypes.size_bytes(x.source.dtype)
        step = (lane_stride(flat, loop.var) or 0) * size
        moving = [lane_stride(flat, v) for v in inner]
        if step < MIN_STEP_BYTES or None in moving or 1 not in moving:
            continue
        if any(lane_stride(flat, v) == 0 for v in around):
            continue
        strides = [stride or 0 for stride in moving]
        extents = [max(bounds(f.extent)[1], 1) for f in inner.values()]
        piece = 1 + sum(n * (extent - 1) for n, extent in zip(strides, extents, strict=True))
        if piece * size < step and max(strides) * size < MIN_STEP_BYTES:
            found[id(x.source)] = ROWS_AHEAD * step
    return found


def rows_beside(lanes: For, large: frozenset[int]) -> dict[int, int]:
    """For large buffers of which a loop over lanes reads rows side by side: bytes to what is next.

    The processor follows one row by itself; beside others it comes too late.
    """
    inner = [f.var for f in walk_stmts(lanes.body) if isinstance(f, For)]
    return {
        key: ALONG_BYTES
        for key, flat, size in _reads_along(lanes, large)
        if any((lane_stride(flat, v) or 0) * size >= MIN_STEP_BYTES for v in inner)
    }


def _reads_along(loop: For, buffers: frozenset[int]) -> Iterator[tuple[int, Expr, int]]:
    """Buffers (by id) that `loop` steps through element by element: number and bytes of one."""
    for x in _loads(loop.body, buffers):
        assert isinstance(x.source, Buffer)
        flat = flat_index(x.source, x.indices)
        if flat is not None and lane_stride(flat, loop.var) == 1:
            yield id(x.source), flat, dtypes.size_bytes(x.source.dtype)


def _loads(s: Stmt, buffers: frozenset[int]) -> Iterator[Load]:
    """Loads of some buffers in a statement."""
    for inner in walk_stmts(s):
        for e in sub_exprs(inner):
            for x in walk(e):
                if isinstance(x, Load) and id(x.source) in buffers:
                    yield x


def _rows_read(loop: For, row: Var, large: frozenset[int]) -> dict[int, int]:
    """Large buffers that `loop` steps through, with the bytes to a row that is far enough.

    Of one row or, in a loop further in, of every row of a few that `row` counts at once.
    """
    result: dict[int, int] = {}
    for inner in (x for x in walk_stmts(loop) if isinstance(x, For)):
        for key, flat, size in _reads_along(inner, large):
            step = lane_stride(flat, row) or 0
            if step >= bounds(inner.extent)[1] and step * size >= MIN_ROW_BYTES:
                result[key] = -(-LATER_BYTES // (step * size)) * step * size
    return result
