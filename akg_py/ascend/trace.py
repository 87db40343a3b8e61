"""Resolved rows of a core: what it issues, in order, with all operands as numbers.

For timelines, for looking at single instructions, and for executing them in an order of one's own.
"""

from __future__ import annotations

import numpy as np

from akg_py.ascend import isa
from akg_py.ascend.program import Program
from akg_py.ascend.table import table_of
from akg_py.ascend.values import check_arrays, core_memory
from akg_py.errors import InternalError

OP, PIPE, OPERANDS, ROW = 0, 1, 2, 14


def trace(program: Program, phase: int, core: int, limit: int = 1 << 20) -> np.ndarray:
    """int64[rows, 16]: op, pipe, twelve operands, row of the table.

    SET and WAIT have the number of a flag as operand.
    """
    from akg_py.ascend.readers.trace_loop import trace_core

    table = table_of(program, phase)
    code, registers = table.code.ctypes.data, table.cores[core].copy()
    end = code + table.code.nbytes
    out = np.zeros((1024, 16), np.int64)
    count = trace_core(code, end, registers.ctypes.data, out.ctypes.data, len(out))
    if count > len(out):
        out = np.zeros((min(count, limit), 16), np.int64)
        registers = table.cores[core].copy()
        trace_core(code, end, registers.ctypes.data, out.ctypes.data, len(out))
    return out[: min(count, limit)]


def run_rows(
    program: Program, rows: np.ndarray, arrays: list[np.ndarray], poison: bool = True
) -> None:
    """Execute resolved instructions on `arrays` in the order given; flags are ignored."""
    from akg_py.ascend.readers import trace_loop

    check_arrays(program, arrays)
    memory = core_memory(program.device)
    memory.attach(arrays)
    if poison:
        memory.poison()
    rows = np.ascontiguousarray(rows)
    bad = trace_loop.run_rows(
        rows.ctypes.data,
        len(rows),
        memory.base.ctypes.data,
        memory.size.ctypes.data,
        isa.TRAITS.ctypes.data,
        memory.work.ctypes.data,
    )
    if bad >= 0:
        raise InternalError(f"{program.name}: resolved row {bad} leaves its memory")
