"""Row kernels on a CPU: all stages of a row one after the other, while it is in the cache."""

from typing import Any

from akg_py import te
from akg_py.autoschedule import RowChoice, schedule_rows

SERVES = ("softmax", "layer_norm", "rms_norm", "layer_norm_gelu")


def rows(s: te.Schedule, config: Any) -> None:
    """Threads take `tile_rows` rows at once; cheap stages are computed again, not stored."""
    schedule_rows(s, RowChoice(config.tile_rows, config.inlined_operations))
