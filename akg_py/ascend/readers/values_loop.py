"""The value reader: program order, one core; every region is bounds-checked before its kernel runs.

Program order is a legal order of the machine (every set precedes its wait), so that flags cost a
counter here. Addresses are translated in place: `space << 40 | offset` to base[space] + offset.
"""

from __future__ import annotations

from akg_py.ascend.isa import FIRST_DEVICE, FIRST_INSTRUCTION, SET, T_ADDRESSES, TRAIT_COLUMNS
from akg_py.ascend.readers.regions import REGION_BYTES, extent, regions
from akg_py.ascend.readers.scalar import ROW_BYTES, gather, reg, step
from akg_py.codegen.memory import col, compiled, inlined, invoke, ld, st

OFFSET = (1 << 40) - 1

# outcomes
DONE, OUT_OF_BOUNDS, EMPTY_WAIT, FULL_SET = range(4)


@inlined
def outside(out, count, size):  # type: ignore[no-untyped-def]
    """Index of the first region that leaves its memory, or -1. `size`: bytes of each space."""
    for i in range(count):
        region = out + i * REGION_BYTES
        address = ld(region)
        space = address >> 40
        if space < 0 or space >= 64:
            return i
        if (
            ld(region + 8) <= 0
            or ld(region + 24) <= 0
            or ld(region + 16) < 0
            or ld(region + 32) < 0
        ):
            return i
        if (address & OFFSET) + extent(region) > ld(size + space * 8):
            return i
    return -1


@compiled
def run_core(code, end, r, flags, base, size, traits, work):  # type: ignore[no-untyped-def]
    """Run one core from the first row to the end; return (outcome, row, detail, device rows).

    code, end: addresses of the rows; r: registers (worked in); flags: int64 counters; base, size:
    int64[64] per space; work: operands (12), regions (4 x 8), then the addresses of two pack
    buffers and the number of flags, and the address of kernels.TABLE.
    """
    x, out = work, work + 128
    pack_a, pack_b, kernels = ld(work + 512), ld(work + 520), ld(work + 536)
    row = code
    rows = 0
    while row < end:
        op = col(row, 0)
        if op < FIRST_DEVICE:
            row = step(op, row, r)
            continue
        if op < FIRST_INSTRUCTION:
            number = col(row, 2) + reg(r, col(row, 3))
            if number < 0 or number >= ld(work + 528):
                return OUT_OF_BOUNDS, (row - code) // ROW_BYTES, -1, rows
            flag = flags + number * 8
            if op == SET:
                if ld(flag):
                    return FULL_SET, (row - code) // ROW_BYTES, number, rows
                st(flag, 1)
            else:
                if ld(flag) == 0:
                    return EMPTY_WAIT, (row - code) // ROW_BYTES, number, rows
                st(flag, 0)
            row += ROW_BYTES
            continue
        gather(row, r, x)
        trait = traits + op * (TRAIT_COLUMNS * 8)
        count = regions(trait, x, out)
        rows += 1
        if count:
            bad = outside(out, count, size)
            if bad >= 0:
                return OUT_OF_BOUNDS, (row - code) // ROW_BYTES, bad, rows
            addresses = ld(trait + T_ADDRESSES * 8)
            for i in range(3):
                if (addresses >> i) & 1:
                    address = ld(x + i * 8)
                    st(x + i * 8, ld(base + (address >> 40) * 8) + (address & OFFSET))
            invoke(ld(kernels + op * 8), op, x, trait, pack_a, pack_b)
        row += ROW_BYTES
    return DONE, 0, 0, rows
