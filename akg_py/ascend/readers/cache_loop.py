"""What of a phase's traffic misses L2 when its tensors exceed it: a cache of tiles by arrival.

Cores progress alike, so their accesses are interleaved one by one. A tile (the range that one
instruction moves) stays until as many bytes as L2 holds have come in after it.
"""

from __future__ import annotations

from akg_py.ascend.isa import (
    COPY,
    FIRST_DEVICE,
    FIRST_INSTRUCTION,
    FIX,
    ND2NZ,
    T_DST,
    T_FAMILY,
    TRAIT_COLUMNS,
)
from akg_py.ascend.readers.scalar import ROW_BYTES, gather_sizes, step
from akg_py.codegen.memory import col, compiled, ld, st

ENTRY_BYTES = 24  # address, bytes, written
READ_MISSES, WRITE_BYTES = 0, 1


@compiled
def list_accesses(code, end, r, x, traits, out, limit):  # type: ignore[no-untyped-def]
    """Write a core's accesses of GM to out, up to `limit`; return how many there are."""
    row = code
    count = 0
    while row < end:
        op = col(row, 0)
        if op < FIRST_DEVICE:
            row = step(op, row, r)
            continue
        if op >= FIRST_INSTRUCTION:
            trait = traits + op * (TRAIT_COLUMNS * 8)
            family = ld(trait + T_FAMILY * 8)
            if family in (ND2NZ, FIX, COPY):
                gather_sizes(row, r, x)
                size = ld(x + 16) * ld(x + 24)
                if family != COPY:
                    size *= ld(trait + T_DST * 8)
                written = 1 if ld(x) >> 43 else 0
                if size > 0:
                    if count < limit:
                        at = out + count * ENTRY_BYTES
                        st(at, ld(x) if written else ld(x + 8))
                        st(at + 8, size)
                        st(at + 16, written)
                    count += 1
        row += ROW_BYTES
    return count


@compiled
def miss_bytes(starts, counts, cores, capacity, keys, arrivals, mask, result):  # type: ignore[no-untyped-def]
    """Interleave the accesses of all cores; write missed and written bytes to result.

    starts, counts: address and number of each core's accesses; keys, arrivals: a hash table of
    mask + 1 words, keys zeroed.
    """
    longest = 0
    for core in range(cores):
        longest = max(longest, ld(counts + core * 8))
    arrived = 0
    for i in range(longest):
        for core in range(cores):
            if i >= ld(counts + core * 8):
                continue
            entry = ld(starts + core * 8) + i * ENTRY_BYTES
            key = ld(entry)
            size = ld(entry + 8)
            slot = (key * 0x9E3779B97F4A7C1 >> 20) & mask
            while ld(keys + slot * 8) != 0 and ld(keys + slot * 8) != key:
                slot = (slot + 1) & mask
            known = ld(keys + slot * 8) == key
            place = arrivals + slot * 8
            if ld(entry + 16):
                st(result + WRITE_BYTES * 8, ld(result + WRITE_BYTES * 8) + size)
            elif known and arrived - ld(place) < capacity:
                continue
            else:
                st(result + READ_MISSES * 8, ld(result + READ_MISSES * 8) + size)
            arrived += size
            st(keys + slot * 8, key)
            st(place, arrived)
    return longest
