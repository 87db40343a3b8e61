"""Completes schedules for a target: appends what users left out, never alters what they wrote.

`tile_product` and `tile_convolution` are the parts that shipped schedules on a CPU call too.
"""

from akg_py.autoschedule.complete import complete_schedule
from akg_py.autoschedule.cpu.contraction import ProductTiles, tile_product
from akg_py.autoschedule.cpu.conv import ConvolutionTiles, tile_convolution

__all__ = [
    "ConvolutionTiles",
    "ProductTiles",
    "complete_schedule",
    "tile_convolution",
    "tile_product",
]
