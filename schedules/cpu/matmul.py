"""Matrix product on a CPU: register tiles, packed panels of B, blocks for threads and caches."""

from typing import Any

from akg_py import te
from akg_py.autoschedule import ProductTiles, tile_product

SERVES = ("matmul", "batch_matmul")


def matmul(s: te.Schedule, config: Any) -> None:
    """`tile_m` x `tile_n` accumulators around chunks of `block_k`; blocks go to the threads.

    A block is `block_m` rows (`deal = "rows"`) or `block_n` columns (`deal = "columns"`). Its tiles
    follow each other along rows of the result (`order = "along"`) or down its columns. A final
    conversion joins the block of the product it converts.
    """
    out = s.outputs[0]
    product = out if s[out].op.reduce_axis else out.op.input_tensors[0]
    by_rows = config.deal == "rows"
    tiles = ProductTiles(
        rows=config.tile_m,
        columns=config.tile_n,
        block_k=config.block_k,
        block_rows=config.block_m if by_rows else 0,
        block_columns=config.block_n if not by_rows or product is not out else 0,
        pack="" if config.pack == "none" else config.pack,
        along_rows=config.order == "along",
    )
    tile_product(s, s[product].name, tiles)
