"""Batched matrix product on cube cores: the blocks of all batches are dealt to the cores."""

from typing import Any

from akg_py.schedules.ascend.matmul import matmul

from akg_py import te


def batch_matmul(s: te.Schedule, config: Any) -> None:
    """As matmul, with the batch as the outermost part of the block loop."""
    matmul(s, config)
