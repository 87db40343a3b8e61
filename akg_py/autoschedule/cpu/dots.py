"""Products of rows with rows, where few of one operand meet many of the other: sums in lanes.

In: a stage that sums a product of two operands which both lie along the sum, as of a few
activations with the weights of a linear layer; or of many rows with a few columns, as of a
classifier, which are turned round first. Out: tiles of a few rows of each. Every lane sums its own
part of the rows, which are read in order and once; the lanes are added up at the end (rfactor). So
the large operand isn't turned round, which would cost more than all the products, and no lane is
left without a column.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.autoschedule.cpu.contraction import (
    MANY_ROWS,
    PARALLEL_FLOPS,
    SET_BYTES,
    STREAM_ROWS,
    Product,
    ceildiv,
    epilogue,
    match_product,
    tile_cells,
)
from akg_py.codegen.target import host
from akg_py.ir.expr import loads
from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState

SUM_SHARE = 24  # elements of a sum for each row of A, from which on turning B round costs more
QUICK_GROUP, QUICK_ROWS = 4, 4  # dots of four elements: turning B round pays off beyond so few rows
QUICK_COST = 1.75  # of these dots: one side of each is made unsigned first
FEW_COLUMNS, LEAST_ROWS = 24, 32  # of B, and of an A that repays turning them round
STEP_BYTES = 32  # that a processor multiplies at once, or half of what it multiplies in two steps
ADD_UP = 40  # elements of a row that take as long as adding up its lanes; a rest costs that again
REST_SHARE = 16  # least elements of a sum for each row of A, if its rest fills no vector
SET_COST = 1.8  # of columns in lanes, where rows of A push each other out of the first cache
TILE_FEW, TILE_MANY = 4, 8  # the most rows of the small and of the large operand in a tile
BLOCK_TILES = 8  # of a block that waits for its consumer


def tile_dots(s: Schedule, name: str) -> set[str]:
    """Schedule the product that the stage `name` computes, with the consumer that can join it.

    Returns:
        The stages that are scheduled now; none if the stage is no such product.
    """
    state = s.state.stage(name)
    p = match_product(state)
    lanes = _lanes(state)
    if p is None or not lanes or p.k_first or p.lines is not None:
        return set()
    has_rest = p.k.extent % (lanes * p.group) > 0
    if has_rest and (p.k.extent % p.group or p.k.extent < 2 * lanes * p.group):
        return set()
    by_rows = _has_few_rows(p, has_rest)
    if _has_few_columns(p, lanes, has_rest) and not (by_rows and p.m.extent < LEAST_ROWS):
        few, many = p.n, p.m
    elif by_rows:
        few, many = p.m, p.n
    else:
        return set()
    out = epilogue(s, state)
    at_few, at_many = (state.op.axis.index(a) for a in (few, many))
    if not p.n_first:
        _turn_columns(s, name, p)
    _, lane = s[name].split(p.k, factor=lanes * p.group)
    if p.group > 1:
        lane, _ = s[name].split(lane, factor=p.group)
    partial = s[s.rfactor(state.outputs[0], lane, factor_axis=len(state.op.axis))]
    stage, target = s[name], s[out]
    height = ceildiv(few.extent, ceildiv(few.extent, TILE_FEW))
    width = min(tile_cells()[0] // height, TILE_MANY)

    inner = target.op.axis[at_many]
    outer = [a for d, a in enumerate(target.op.axis) if d not in (at_few, at_many)]
    size = width if out == name else width * BLOCK_TILES
    block, inner = target.split(inner, factor=size)
    target.reorder(*outer, block, target.op.axis[at_few], inner)
    block = target.fuse(*outer, block) if outer else block
    if 2 * math.prod(a.extent for a in stage.op.axis) * p.k.extent >= PARALLEL_FLOPS:
        target.parallel(block)
    if out != name:
        target.vectorize(inner)
        stage.compute_at(target, block)
        panel, inner = stage.split(stage.op.axis[at_many], factor=width)
    place, row = stage.split(stage.op.axis[at_few], factor=height)
    stage.reorder(*([panel] if out != name else []), place, row, inner, *stage.op.reduce_axis)

    partial.compute_at(stage, place)
    *axes, lane = partial.op.axis
    cells = [axes[at_few], axes[at_many]]
    others = [a for a in axes if a not in cells]
    step, *group = partial.op.reduce_axis
    partial.reorder(*others, step, *cells, lane, *group)
    for cell in cells:
        partial.unroll(cell)
    partial.vectorize(lane)
    return {name, out, partial.name}


def _has_few_columns(p: Product, lanes: int, has_rest: bool) -> bool:
    """Whether columns of B would leave lanes idle for longer than it takes to add lanes up."""
    rows, columns, k = p.m.extent, p.n.extent, p.k.extent // p.group
    if columns > FEW_COLUMNS or rows < (TILE_MANY if p.n_first else LEAST_ROWS):
        return False
    step = min(lanes, lanes * STEP_BYTES // host().vector_bytes)
    in_lanes = ceildiv(columns, step) * step * k
    is_apart = p.k.extent * dtypes.size_bytes(p.a.dtype) % SET_BYTES == 0
    along = columns * (k + ADD_UP * (1 + has_rest)) * (QUICK_COST if p.group == QUICK_GROUP else 1)
    return along < in_lanes * (SET_COST if is_apart else 1)


def _turn_columns(s: Schedule, name: str, p: Product) -> None:
    """Copy B with its columns as rows."""
    load = next(x for x in loads(s[name].op.body[0]) if x.source is p.b)
    k, n = load.indices.index(p.k), load.indices.index(p.n)
    others = [d for d in range(len(load.indices)) if d not in (k, n)]
    copy = s[s.cache_read(p.b, "global", [name])]
    copy.transform_layout(lambda *x: (*(x[d] for d in others), x[n], x[k]))
    copy.reorder(*(copy.op.axis[d] for d in (*others, n, k)))
    copy.vectorize(copy.op.axis[k])


def _has_few_rows(p: Product, has_rest: bool) -> bool:
    rows = p.m.extent
    if not p.n_first or (has_rest and p.k.extent < REST_SHARE * rows):
        return False
    if p.group == QUICK_GROUP:
        return rows <= QUICK_ROWS // (1 + has_rest)
    return rows <= STREAM_ROWS or (rows < MANY_ROWS and p.k.extent >= SUM_SHARE * rows)


def _lanes(stage: StageState) -> int:
    """Elements of a sum in a vector; 0 where partial sums would be rounded."""
    dtype = stage.op.body[0].dtype
    if dtypes.accumulator(dtype) != dtype:
        return 0
    return host().vector_bytes // dtypes.size_bytes(dtype)
