"""The tracing reader: resolved rows of one core, and a reader that runs them in any order.

A resolved row is sixteen int64: op, pipe, twelve operand values (for flags: the flag's number),
row of the table, 0. It feeds timelines, debugging and the executor of random legal orders in the
tests.
"""

from __future__ import annotations

from akg_py.ascend.isa import FIRST_DEVICE, FIRST_INSTRUCTION, T_ADDRESSES, TRAIT_COLUMNS
from akg_py.ascend.readers.regions import regions
from akg_py.ascend.readers.scalar import ROW_BYTES, gather, reg, step
from akg_py.ascend.readers.values_loop import OFFSET, outside
from akg_py.codegen.memory import col, compiled, invoke, ld, st

TRACE_BYTES = 128


@compiled
def trace_core(code, end, r, out, limit):  # type: ignore[no-untyped-def]
    """Write up to `limit` resolved rows to out; return how many the core has."""
    row = code
    count = 0
    while row < end:
        op = col(row, 0)
        if op < FIRST_DEVICE:
            row = step(op, row, r)
            continue
        if count < limit:
            at = out + count * TRACE_BYTES
            st(at, op)
            st(at + 8, col(row, 1))
            if op < FIRST_INSTRUCTION:
                st(at + 16, col(row, 2) + reg(r, col(row, 3)))
            else:
                gather(row, r, at + 16)
            st(at + 112, (row - code) // ROW_BYTES)
        count += 1
        row += ROW_BYTES
    return count


@compiled
def run_rows(rows, count, base, size, traits, work):  # type: ignore[no-untyped-def]
    """Execute resolved instructions in the order given.

    Returns -1, or the index of the one that leaves its memory.
    """
    x, out = work, work + 128
    pack_a, pack_b, kernels = ld(work + 512), ld(work + 520), ld(work + 536)
    for index in range(count):
        row = rows + index * TRACE_BYTES
        op = ld(row)
        if op < FIRST_INSTRUCTION:
            continue
        for i in range(12):
            st(x + i * 8, ld(row + 16 + i * 8))
        trait = traits + op * (TRAIT_COLUMNS * 8)
        regions_count = regions(trait, x, out)
        if regions_count:
            if outside(out, regions_count, size) >= 0:
                return index
            addresses = ld(trait + T_ADDRESSES * 8)
            for i in range(3):
                if (addresses >> i) & 1:
                    address = ld(x + i * 8)
                    st(x + i * 8, ld(base + (address >> 40) * 8) + (address & OFFSET))
            invoke(ld(kernels + op * 8), op, x, trait, pack_a, pack_b)
    return -1
