"""Convolutions on a CPU: register tiles of channels by pixels, blocks of rows for the caches."""

from typing import Any

from akg_py import te
from akg_py.autoschedule import ConvolutionTiles, tile_convolution

SERVES = ("conv2d",)


def conv2d(s: te.Schedule, config: Any) -> None:
    """Sums of `tile_oc` channels by `tile_h` x `tile_w` pixels stay in registers.

    `block_h` output rows are computed for all channels together; threads take blocks of rows, or of
    channels too. A final conversion joins the tile it converts.
    """
    out = s.outputs[0]
    sums = out if s[out].op.reduce_axis else out.op.input_tensors[0]
    tiles = ConvolutionTiles(
        channels=config.tile_oc,
        rows=config.tile_h,
        columns=config.tile_w,
        block_rows=config.block_h,
        deal=config.deal,
    )
    tile_convolution(s, s[sums].name, tiles)
