"""Element-wise kernels on vector cores: tiles of rows x columns through UB, dealt to the cores."""

from typing import Any

from akg_py import te

SERVES = ("add", "mul", "relu", "gelu", "sigmoid", "silu", "swiglu", "scale_shift", "bias_add")


def elementwise(s: te.Schedule, config: Any) -> None:
    """Tiles of `tile_rows` rows and a `col_parts`-th of the columns, with `copies` slots each."""
    out = s.outputs[0]
    inputs = out.op.input_tensors
    result = s.cache_write(out, "UB")
    rows, cols = s[out].op.axis
    tile, inner = s[out].split(rows, factor=config.tile_rows)
    if config.col_parts > 1:
        width = -(-cols.extent // config.col_parts)
        col, inner_col = s[out].split(cols, factor=-(-width // 64) * 64)
        s[out].reorder(tile, col, inner, inner_col)
        tile = s[out].fuse(tile, col)
    s[out].bind(tile, te.thread_axis("blockIdx.x"))
    s[result].compute_at(s[out], tile)
    staged = [result]
    for tensor in inputs:
        staged.append(s.cache_read(tensor, "UB", [result]))
        s[staged[-1]].compute_at(s[out], tile)
    if config.copies == 2:
        for copy in staged:
            s[copy].double_buffer()
