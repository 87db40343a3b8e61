"""Kernels that pass several times over the rows of a large array: the next row is fetched early.

In: the statements inside a loop over rows; out: for the second pass over an array, how far ahead
the next row lies. The first pass waits for memory, later ones find their row in the cache, and the
memory would rest meanwhile.
"""

from __future__ import annotations

from akg_py import dtypes
from akg_py.codegen.strides import flat_index, lane_stride
from akg_py.ir.expr import Load, Var, bounds, walk
from akg_py.ir.stmt import Buffer, For, Stmt, sub_exprs, walk_stmts

MIN_ROW_BYTES = 4 << 10  # the processor itself fetches shorter rows ahead


def next_rows(
    stmts: tuple[Stmt, ...], row: Var, large: frozenset[int]
) -> dict[int, dict[int, int]]:
    """For each loop (by id) that is the second one over a large buffer: bytes to the next row."""
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


def _rows_read(loop: For, row: Var, large: frozenset[int]) -> dict[int, int]:
    """Large buffers that `loop` steps through, with the bytes between two rows."""
    result: dict[int, int] = {}
    for s in walk_stmts(loop.body):
        for e in sub_exprs(s):
            for x in walk(e):
                if not isinstance(x, Load) or id(x.source) not in large:
                    continue
                assert isinstance(x.source, Buffer)
                flat = flat_index(x.source, x.indices)
                if flat is None or lane_stride(flat, loop.var) != 1:
                    continue
                size = dtypes.size_bytes(x.source.dtype)
                step = lane_stride(flat, row) or 0
                if step >= bounds(loop.extent)[1] and step * size >= MIN_ROW_BYTES:
                    result[id(x.source)] = step * size
    return result
