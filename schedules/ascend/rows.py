"""Row kernels on vector cores: whole rows and every intermediate in UB; rows go to the cores."""

from typing import Any

from akg_py import te

SERVES = ("softmax", "layer_norm", "rms_norm", "layer_norm_gelu")


def rows(s: te.Schedule, config: Any) -> None:
    """Tiles of `tile_rows` whole rows, with `copies` slots for what comes in and goes out.

    `form = "auto"` leaves everything to schedule completion, which also cuts rows in pieces.
    """
    if config.form == "auto":
        return
    out = s.outputs[0]
    between = [stage for stage in s.stages if stage.op is not out.op]
    result = s.cache_write(out, "UB")
    *lead, _ = s[out].op.axis
    row = s[out].fuse(*lead) if len(lead) > 1 else lead[0]
    tile, _ = s[out].split(row, factor=config.tile_rows)
    s[out].bind(tile, te.thread_axis("blockIdx.x"))
    s[result].compute_at(s[out], tile)
    for stage in reversed(between):
        stage.set_scope("UB")
        stage.compute_at(s[out], tile)
    computing = [*between, s[result]]
    inputs = dict.fromkeys(t for stage in computing for t in stage.op.input_tensors if _is_input(t))
    for tensor in inputs:
        readers = [stage for stage in computing if tensor in stage.op.input_tensors]
        copy = s.cache_read(tensor, "UB", readers)
        s[copy].compute_at(s[out], tile)
        if config.copies == 2:
            s[copy].double_buffer()
    if config.copies == 2:
        s[result].double_buffer()


def _is_input(tensor: te.Tensor) -> bool:
    return isinstance(tensor.op, te.PlaceholderOp)
