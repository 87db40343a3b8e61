"""Element-wise kernels on vector cores: tiles of rows x columns through UB, dealt to the cores."""

from typing import Any

from akg_py import te

SERVES = ("add", "mul", "relu", "gelu", "sigmoid", "silu", "swiglu", "scale_shift", "bias_add")


def elementwise(s: te.Schedule, config: Any) -> None:
    """`blocks` cores, tiles of `tile_rows` rows and a `col_parts`-th of the columns, `copies` slots each."""
    out = s.outputs[0]
    inputs = out.op.input_tensors
    result = s.cache_write(out, "UB")
    rows, cols = s[out].op.axis
    row, inner = s[out].split(rows, factor=config.tile_rows)
    if config.col_parts > 1:
        width = -(-cols.extent // config.col_parts)
        col, inner_col = s[out].split(cols, factor=-(-width // 64) * 64)
        s[out].reorder(row, col, inner, inner_col)
        row = s[out].fuse(row, col)
    core, tile = s[out].split(row, nparts=config.blocks)
    s[out].bind(core, te.thread_axis("blockIdx.x"))
    s[result].compute_at(s[out], tile)
    staged = [result]
    for tensor in inputs:
        copy = s.cache_read(tensor, "UB", [result])
        s[copy].compute_at(s[out], core if tensor.ndim == 1 and config.col_parts == 1 else tile)
        if tensor.ndim > 1:
            staged.append(copy)
    if config.copies == 2:
        for copy in staged:
            s[copy].double_buffer()
