"""Completes schedules for a target: appends what users left out, never alters what they wrote.

`tile_product` is the part that shipped schedules of products on a CPU call too.
"""

from akg_py.autoschedule.complete import complete_schedule
from akg_py.autoschedule.cpu.contraction import ProductTiles, tile_product

__all__ = ["ProductTiles", "complete_schedule", "tile_product"]
