"""The checking reader: vector clocks over pipes, shadow memory per granule, coverage of outputs.

`clock[p, q]` is the last row of pipe q that pipe p is known to run after. A shadow granule holds
the epoch of its last write, last read, and a second read not ordered with the first. An epoch is
`sequence << 19 | row << 3 | pipe`; 0 is none. Coverage of a tensor in GM is a byte per element: 0
never written, 1 in an earlier phase, 2 + core in this one.
"""

from __future__ import annotations

from akg_py.ascend.isa import (
    COPY,
    FIRST_DEVICE,
    FIRST_INSTRUCTION,
    FIX,
    ND2NZ,
    REDUCE,
    SET,
    T_FAMILY,
    T_WIDEST,
    TRAIT_COLUMNS,
    VECTOR,
)
from akg_py.ascend.readers.regions import REGION_BYTES, extent, regions
from akg_py.ascend.readers.scalar import ROW_BYTES, gather, reg, step
from akg_py.ascend.readers.values_loop import OFFSET, outside
from akg_py.codegen.memory import called, col, compiled, inlined, ld, ld8, ldu, st, st8, stu

(
    BOUNDS,
    UNDEFINED,
    RAW,
    WAR,
    WAW,
    REUSE,
    FULL,
    DEADLOCK,
    LEFTOVER,
    ALIGNMENT,
    LIMIT,
    OVERLAP,
    TWICE,
    CROSS_CORE,
    NO_FLAG,
) = range(1, 16)
FAULT_WORDS = 6  # kind, row, other row, operand, space, offset; core is added by the host
MAX_FAULTS = 64
MAX_CORES = 253
ONES = 0x0101010101010101
FLAG_WORDS = 16
W_BASE = (
    63 * 8
)  # bytes from the clocks: sequence at which this core began; what is older is ordered
# what work points to, in words
(
    W_X,
    W_REGIONS,
    W_SIZES,
    W_SHADOW,
    W_SHIFT,
    W_COVER,
    W_ELEMENT,
    W_CLOCK,
    W_ALIGN,
    W_COUNT,
    W_FAULTS,
) = (
    0,
    16,
    64,
    128,
    192,
    256,
    320,
    384,
    448,
    456,
    464,
)
WORK_WORDS = W_FAULTS + MAX_FAULTS * FAULT_WORDS


@called
def report(work, kind, row, other, operand, space, offset):  # type: ignore[no-untyped-def]
    """Add a fault unless the same rows had it."""
    count = ld(work + W_COUNT * 8)
    for i in range(count):
        fault = work + (W_FAULTS + i * FAULT_WORDS) * 8
        if ld(fault) == kind and ld(fault + 8) == row and ld(fault + 16) == other:
            return
    if count < MAX_FAULTS:
        fault = work + (W_FAULTS + count * FAULT_WORDS) * 8
        st(fault, kind)
        st(fault + 8, row)
        st(fault + 16, other)
        st(fault + 24, operand)
        st(fault + 32, space)
        st(fault + 40, offset)
        st(work + W_COUNT * 8, count + 1)


@inlined
def unordered(clocks, pipe, epoch):  # type: ignore[no-untyped-def]
    """Whether an earlier access is not known to be finished when `pipe` runs the current row."""
    other = epoch & 7
    sequence = epoch >> 19
    return (
        other != pipe
        and sequence > ld(clocks + W_BASE)
        and ld(clocks + (pipe * 8 + other) * 8) < sequence
    )


@called
def touch(work, shadow, first, last, epoch, write, row, space, shift):  # type: ignore[no-untyped-def]
    """Check and note the access of granules first .. last."""
    clocks = work + W_CLOCK * 8
    pipe = epoch & 7
    known_write = -1
    known_read = -1
    for g in range(first, last + 1):
        cell = shadow + g * 24
        written = ld(cell)
        if write != 1 and written == 0:
            report(work, UNDEFINED, row, -1, 0, space, g << shift)
        if written != known_write:
            known_write = written
            if unordered(clocks, pipe, written):
                report(
                    work,
                    WAW if write == 1 else RAW,
                    row,
                    (written >> 3) & 0xFFFF,
                    0,
                    space,
                    g << shift,
                )
        one = ld(cell + 8)
        if write:
            if one:
                two = ld(cell + 16)
                if one != known_read:
                    known_read = one
                    if unordered(clocks, pipe, one):
                        report(work, WAR, row, (one >> 3) & 0xFFFF, 0, space, g << shift)
                if unordered(clocks, pipe, two):
                    report(work, WAR, row, (two >> 3) & 0xFFFF, 0, space, g << shift)
                st(cell + 8, 0)
                st(cell + 16, 0)
            st(cell, epoch)
        elif one == 0 or one & 7 == pipe or not unordered(clocks, pipe, one):
            st(cell + 8, epoch)
        else:
            st(cell + 16, epoch)


@called
def cover(cells, first, last, write, core, work, row, space, es):  # type: ignore[no-untyped-def]
    """Check and note the access of a tensor's elements first .. last."""
    e = first
    mine = (core + 2) * ONES
    while e <= last:
        if e + 7 <= last:
            eight = ldu(cells + e)
            if eight == (0 if write else ONES) or (eight == mine and not write):
                if write:
                    stu(cells + e, mine)
                e += 8
                continue
        state = ld8(cells + e)
        if write:
            # a tensor that the phase also reads may be stepped over again by the core that wrote it
            if (
                write == 1
                and state >= 2
                and (state != core + 2 or ld(work + (W_SHADOW + space) * 8) == 0)
            ):
                report(work, TWICE, row, -1, 0, space, e * es)
            st8(cells + e, core + 2)
        elif state == 0:
            report(work, UNDEFINED, row, -1, 0, space, e * es)
        elif state >= 2 and state != core + 2:
            report(work, CROSS_CORE, row, -1, 0, space, e * es)
        e += 1


@called
def access(work, region, epoch, row, core, full):  # type: ignore[no-untyped-def]
    """Check one region of an instruction; it is within bounds.

    full: order of accesses in shadow memory; otherwise coverage of tensors only.
    """
    address = ld(region)
    space = address >> 40
    shadow = ld(work + (W_SHADOW + space) * 8)
    cells = ld(work + (W_COVER + space) * 8)
    if (full and shadow == 0) or (not full and cells == 0):
        return
    offset = address & OFFSET
    n1, s1, n2, s2 = ld(region + 8), ld(region + 16), ld(region + 24), ld(region + 32)
    size, last, write = ld(region + 40), ld(region + 48), ld(region + 56)
    if s2 == size and n2 > 1:
        last, n2 = (n2 - 1) * size + last, 1
    shift = ld(work + (W_SHIFT + space) * 8)
    es = ld(work + (W_ELEMENT + space) * 8)
    for i in range(n1):
        for j in range(n2):
            at = offset + i * s1 + j * s2
            end = at + (last if j == n2 - 1 else size) - 1
            if not full:
                cover(cells, at // es, end // es, write, core, work, row, space, es)
                continue
            if cells:
                if write and (i or j) and (at >> shift) << shift != at:
                    at = min(
                        ((at >> shift) + 1) << shift, end
                    )  # a granule shared with the piece before
                write = 1 if write else 0
            touch(work, shadow, at >> shift, end >> shift, epoch, write, row, space, shift)


@inlined
def mix(digest, value):  # type: ignore[no-untyped-def]
    """One more value in a digest."""
    digest = (digest ^ value) * 0x100000001B3
    return digest ^ ((digest >> 29) & 0x7FFFFFFFF)


@compiled
def survey_core(code, end, r, traits, work, core):  # type: ignore[no-untyped-def]
    """Bounds and coverage of one core; returns a digest of all it does but where in GM.

    Cores with equal digests touch on-chip memories and flags alike, so `check_core` needs one of
    them.
    """
    x = work + W_X * 8
    out = work + W_REGIONS * 8
    sizes = work + W_SIZES * 8
    row = code
    digest = 0xCBF29CE4
    while row < end:
        op = col(row, 0)
        if op < FIRST_DEVICE:
            row = step(op, row, r)
            continue
        digest = mix(digest, (row - code) // ROW_BYTES)
        if op < FIRST_INSTRUCTION:
            digest = mix(digest, reg(r, col(row, 3)))
            row += ROW_BYTES
            continue
        gather(row, r, x)
        trait = traits + op * (TRAIT_COLUMNS * 8)
        total = 0
        for i in range(12):
            value = ld(x + i * 8)
            total += (value >> 40 if value >> 43 else value) * (
                0x9E3779B97F4A7C15 * (2 * i + 1) & 0x7FFFFFFFFFFFFFFF
            )
        digest = mix(digest, total)
        at = (row - code) // ROW_BYTES
        family = ld(trait + T_FAMILY * 8)
        on_chip = family != ND2NZ and family != FIX and family != COPY
        count = (
            0 if on_chip else regions(trait, x, out)
        )  # on-chip operands are equal in equal cores
        if count:
            bad = outside(out, count, sizes)
            if bad >= 0:
                address = ld(out + bad * REGION_BYTES)
                report(work, BOUNDS, at, -1, bad, address >> 40, address & OFFSET)
                digest = mix(digest, core)
            else:
                for i in range(count):
                    access(work, out + i * REGION_BYTES, 0, at, core, False)
        row += ROW_BYTES
    return digest


@called
def alignment(work, region, row, operand, loose):  # type: ignore[no-untyped-def]
    """Addresses and strides of on-chip operands."""
    address = ld(region)
    space = address >> 40
    if space < 8 and not loose:
        unit = ld(work + (W_ALIGN + space) * 8)
        wrong = (address & OFFSET) % unit
        step = 32
        if ld(region + 8) > 1:
            wrong |= ld(region + 16) % step
        if ld(region + 24) > 1:
            wrong |= ld(region + 32) % step
        if wrong:
            report(work, ALIGNMENT, row, -1, operand, space, address & OFFSET)


@called
def overlaps(work, x, out, count, row):  # type: ignore[no-untyped-def]
    """Refuse a destination that overlaps a source with a shift inside one vector instruction."""
    dst = out + (count - 1) * REGION_BYTES
    a = ld(dst)
    for i in range(count - 1):
        src = out + i * REGION_BYTES
        b = ld(src)
        if a == b or a >= b + extent(src) or b >= a + extent(dst):
            continue
        pitch = ld(dst + 32) if ld(dst + 8) == 1 else ld(dst + 16)
        other = ld(src + 32) if ld(src + 8) == 1 else ld(src + 16)
        if (
            pitch == other
            and pitch > 0
            and ld(dst + 8) == 1
            and ld(src + 8) == 1
            and ld(dst + 24) > 1
        ):
            gap = (a - b) % pitch
            if gap >= ld(src + 48) and pitch - gap >= ld(dst + 48):
                continue
        elif ld(dst + 8) * ld(dst + 24) > 1 and ld(src + 8) * ld(src + 24) > 1:
            continue
        report(work, OVERLAP, row, -1, i, b >> 40, b & OFFSET)


@compiled
def check_core(code, end, r, flags, flag_count, traits, work, core):  # type: ignore[no-untyped-def]
    """Check one core in program order and leave faults in work.

    Returns the number of rows executed, or -1 when stopped.
    """
    x = work + W_X * 8
    out = work + W_REGIONS * 8
    clocks = work + W_CLOCK * 8
    sizes = work + W_SIZES * 8
    row = code
    sequence = ld(clocks + W_BASE)
    while row < end:
        op = col(row, 0)
        if op < FIRST_DEVICE:
            row = step(op, row, r)
            continue
        pipe = col(row, 1)
        sequence += 1
        at = (row - code) // ROW_BYTES
        if op < FIRST_INSTRUCTION:
            number = col(row, 2) + reg(r, col(row, 3))
            if number < 0 or number >= flag_count:
                report(work, NO_FLAG, at, -1, 0, 0, number)
                return -1
            flag = flags + number * (FLAG_WORDS * 8)
            if op == SET:
                if ld(flag):
                    report(work, FULL, at, ld(flag + 16), 0, 0, number)
                    return -1
                taken = ld(flag + 8)
                if (
                    taken
                    and (taken & 7) != pipe
                    and ld(clocks + (pipe * 8 + (taken & 7)) * 8) < taken >> 3
                ):
                    report(work, REUSE, at, ld(flag + 24), 0, 0, number)
                st(flag, 1)
                st(flag + 16, at)
                for q in range(8):
                    st(flag + (8 + q) * 8, ld(clocks + (pipe * 8 + q) * 8))
                st(flag + (8 + pipe) * 8, sequence)
            else:
                if ld(flag) == 0:
                    report(work, DEADLOCK, at, -1, 0, 0, number)
                    return -1
                st(flag, 0)
                st(flag + 8, sequence << 3 | pipe)
                st(flag + 24, at)
                for q in range(8):
                    mine = clocks + (pipe * 8 + q) * 8
                    st(mine, max(ld(mine), ld(flag + (8 + q) * 8)))
            row += ROW_BYTES
            continue
        gather(row, r, x)
        trait = traits + op * (TRAIT_COLUMNS * 8)
        family = ld(trait + T_FAMILY * 8)
        count = regions(trait, x, out)
        if count:
            bad = outside(out, count, sizes)
            if bad >= 0:
                address = ld(out + bad * REGION_BYTES)
                report(work, BOUNDS, at, -1, bad, address >> 40, address & OFFSET)
                row += ROW_BYTES
                continue
            epoch = sequence << 19 | at << 3 | pipe
            if family in (VECTOR, REDUCE):
                if ld(x + 32) > 255 or ld(x + 24) * ld(trait + T_WIDEST * 8) > 256:
                    report(work, LIMIT, at, -1, 0, 5, 0)
                overlaps(work, x, out, count, at)
            for i in range(count):
                region = out + i * REGION_BYTES
                loose = pipe == 0 or (family == REDUCE and i == count - 1)
                alignment(work, region, at, i, loose)
                access(work, region, epoch, at, core, True)
        row += ROW_BYTES
    for i in range(flag_count):
        if ld(flags + i * (FLAG_WORDS * 8)):
            report(work, LEFTOVER, ld(flags + i * (FLAG_WORDS * 8) + 16), -1, 0, 0, i)
    return sequence
