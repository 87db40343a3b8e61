"""Completes schedules for a target: appends what users left out, never alters what they wrote.

`tile_product`, `tile_convolution` and `schedule_rows` are the parts that shipped schedules on a CPU
call too.
"""

from akg_py.autoschedule.complete import complete_schedule
from akg_py.autoschedule.cpu.contraction import ProductTiles, tile_product
from akg_py.autoschedule.cpu.conv import ConvolutionTiles, tile_convolution
from akg_py.autoschedule.cpu.rows import RowChoice, schedule_rows

__all__ = [
    "ConvolutionTiles",
    "ProductTiles",
    "RowChoice",
    "complete_schedule",
    "schedule_rows",
    "tile_convolution",
    "tile_product",
]
