"""Row kernels on a CPU: parallel rows, intermediates for one row, columns in vector lanes."""

from typing import Any

from akg_py import te

SERVES = ("softmax", "layer_norm", "rms_norm", "layer_norm_gelu")


def rows(s: te.Schedule, config: Any) -> None:
    """Chunks of `tile_rows` rows go to the threads; columns run in pieces of `tile_cols` lanes."""
    out = s.outputs[0]
    row, cols = s[out].op.axis
    outer, inner = s[out].split(row, factor=config.tile_rows)
    _, lanes = s[out].split(cols, factor=config.tile_cols)
    s[out].parallel(outer)
    s[out].vectorize(lanes)
    for stage in reversed(s.stages):
        if stage.op is out.op:
            continue
        stage.compute_at(s[out], inner)
        if len(stage.op.axis) > 1:
            _, lane = stage.split(stage.op.axis[1], factor=config.tile_cols)
            stage.vectorize(lane)
