"""Element-wise kernels on a CPU: rows in parallel, columns in vector lanes."""

from typing import Any

from akg_py import te

SERVES = ("add", "mul", "relu", "gelu", "sigmoid", "silu", "swiglu", "scale_shift", "bias_add")


def elementwise(s: te.Schedule, config: Any) -> None:
    """Chunks of `tile_rows` rows go to the threads; columns run in pieces of `tile_cols` lanes."""
    out = s.outputs[0]
    rows, cols = s[out].op.axis
    outer, _ = s[out].split(rows, factor=config.tile_rows)
    _, lanes = s[out].split(cols, factor=config.tile_cols)
    s[out].parallel(outer)
    s[out].vectorize(lanes)
