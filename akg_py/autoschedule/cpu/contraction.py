"""Products and other reductions into many elements: tiles whose accumulators stay in registers."""

from __future__ import annotations

from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState

TILE_ROWS, TILE_COLUMNS = 6, 64


def tile_reduction(s: Schedule, stage: StageState) -> None:
    """Tiles of the last two axes around the reduction, columns in lanes."""
    data, reduce = stage.op.axis, stage.op.reduce_axis
    i, j = data[-2:]
    io, jo, ii, ji = s[stage.name].tile(i, j, TILE_ROWS, TILE_COLUMNS)
    s[stage.name].reorder(io, jo, *reduce, ii, ji)
    s[stage.name].vectorize(ji)
    s[stage.name].parallel(data[0] if len(data) > 2 else io)
