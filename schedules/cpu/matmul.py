"""Matrix product on a CPU: parallel blocks of rows, accumulators in registers and cache."""

from typing import Any

from akg_py import te

SERVES = ("matmul", "batch_matmul")


def matmul(s: te.Schedule, config: Any) -> None:
    """Tiles of tile_m x tile_n; inside, k outermost so that the tile's columns are vector lanes."""
    out = s.outputs[0]
    acc = s.cache_write(out, "global") if s[out].op.reduce_axis else out.op.input_tensors[0]
    *batch, i, j = s[out].op.axis
    i_outer, i_inner = s[out].split(i, factor=config.tile_m)
    j_outer, j_inner = s[out].split(j, factor=config.tile_n)
    s[out].reorder(*batch, i_outer, j_outer, i_inner, j_inner)
    block = s[out].fuse(*batch, i_outer) if batch else i_outer
    s[out].parallel(block)
    s[out].vectorize(j_inner)
    s[acc].compute_at(s[out], j_outer)
    rows, columns = s[acc].op.axis[-2:]
    k_outer, k_inner = s[acc].split(s[acc].op.reduce_axis[0], factor=config.tile_k)
    s[acc].reorder(*s[acc].op.axis[:-2], k_outer, k_inner, rows, columns)
    s[acc].vectorize(columns)
