"""Products of rows with rows, where few of A's meet many of B's: sums in lanes along both.

In: a stage that sums a product of two operands which both lie along the sum, as of activations
with the weights of a linear layer. Out: tiles of a few rows of each. Every lane sums its own part
of the rows, which are read in order and once; the lanes are added up at the end (rfactor). So no
row of B is turned round, which would cost more than all the products.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.autoschedule.cpu.contraction import (
    MANY_ROWS,
    PARALLEL_FLOPS,
    STREAM_ROWS,
    Product,
    ceildiv,
    epilogue,
    match_product,
    tile_cells,
)
from akg_py.codegen.target import host
from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState

SUM_SHARE = 24  # elements of a sum for each row of A, from which on turning B round costs more
QUICK_GROUP, QUICK_ROWS = 4, 4  # dots of four elements: turning B round pays off beyond so few rows
TILE_ROWS, TILE_COLUMNS = 4, 8  # the most rows of A and of B in a tile
BLOCK_TILES = 8  # of a block that waits for its consumer


def tile_dots(s: Schedule, name: str) -> set[str]:
    """Schedule the product that the stage `name` computes, with the consumer that can join it.

    Returns:
        The stages that are scheduled now; none if the stage is no such product.
    """
    state = s.state.stage(name)
    p = match_product(state)
    lanes = _lanes(state)
    if p is None or not lanes or not _is_of_rows(p) or p.k.extent % (lanes * p.group):
        return set()
    out = epilogue(s, state)
    at_m, at_n = (state.op.axis.index(a) for a in (p.m, p.n))
    _, lane = s[name].split(p.k, factor=lanes * p.group)
    if p.group > 1:
        lane, _ = s[name].split(lane, factor=p.group)
    partial = s[s.rfactor(state.outputs[0], lane, factor_axis=len(state.op.axis))]
    stage, target = s[name], s[out]
    rows = ceildiv(p.m.extent, ceildiv(p.m.extent, TILE_ROWS))
    columns = min(tile_cells()[0] // rows, TILE_COLUMNS)

    n = target.op.axis[at_n]
    outer = [a for d, a in enumerate(target.op.axis) if d not in (at_m, at_n)]
    size = columns if out == name else columns * BLOCK_TILES
    block, n = target.split(n, factor=size)
    target.reorder(*outer, block, target.op.axis[at_m], n)
    block = target.fuse(*outer, block) if outer else block
    if 2 * math.prod(a.extent for a in stage.op.axis) * p.k.extent >= PARALLEL_FLOPS:
        target.parallel(block)
    if out != name:
        target.vectorize(n)
        stage.compute_at(target, block)
        panel, n = stage.split(stage.op.axis[at_n], factor=columns)
    m_outer, m = stage.split(stage.op.axis[at_m], factor=rows)
    stage.reorder(*([panel] if out != name else []), m_outer, m, n, *stage.op.reduce_axis)

    partial.compute_at(stage, m_outer)
    *axes, lane = partial.op.axis
    cells = [axes[at_m], axes[at_n]]
    others = [a for a in axes if a not in cells]
    step, *group = partial.op.reduce_axis
    partial.reorder(*others, step, *cells, lane, *group)
    for cell in cells:
        partial.unroll(cell)
    partial.vectorize(lane)
    return {name, out, partial.name}


def _is_of_rows(p: Product) -> bool:
    if not p.n_first or p.k_first or p.lines is not None:
        return False
    rows = p.m.extent
    if p.group == QUICK_GROUP:
        return rows <= QUICK_ROWS
    return rows <= STREAM_ROWS or (rows < MANY_ROWS and p.k.extent >= SUM_SHARE * rows)


def _lanes(stage: StageState) -> int:
    """Elements of a sum in a vector; 0 where partial sums would be rounded."""
    dtype = stage.op.body[0].dtype
    if dtypes.accumulator(dtype) != dtype:
        return 0
    return host().vector_bytes // dtypes.size_bytes(dtype)
