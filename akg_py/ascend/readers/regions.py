"""What an instruction touches: the only text about it, read by bounds, checks and byte counts.

A region is eight int64: address, n1, stride1, n2, stride2, bytes of a piece, bytes of the last
piece of the inner count, 1 if written (2 for read and written). Sources come before destinations.
"""

from __future__ import annotations

from akg_py.ascend.isa import (
    ATOMIC_ADD,
    BRCB,
    COPY,
    FIX,
    LOAD_A,
    LOAD_B,
    MMAD,
    ND2NZ,
    REDUCE,
    T_DST,
    T_FAMILY,
    T_INOUT,
    T_SRC0,
    T_SRC1,
    VECTOR,
)
from akg_py.codegen.memory import called, inlined, ld, st

REGION_BYTES = 64


@inlined
def put(out, address, n1, s1, n2, s2, size, last, write):  # type: ignore[no-untyped-def]
    st(out, address)
    st(out + 8, n1)
    st(out + 16, s1)
    st(out + 24, n2)
    st(out + 32, s2)
    st(out + 40, size)
    st(out + 48, last)
    st(out + 56, write)
    return out + REGION_BYTES


@inlined
def operand(x, i):  # type: ignore[no-untyped-def]
    return ld(x + i * 8)


@inlined
def align16(n):  # type: ignore[no-untyped-def]
    return (n + 15) & -16


@inlined
def lanes_region(x, out, i, es, lanes, repeats, write):  # type: ignore[no-untyped-def]
    """Region of operand i (0 dst, 1 src0, 2 src1) of a vector instruction.

    It consists of repeats of 32 B blocks.
    """
    size = lanes * es
    block = operand(x, 8 + i)
    rep = operand(x, 5 + i)
    if block == 32 or size <= 32:
        return put(out, operand(x, i), 1, 0, repeats, rep, size, size, write)
    pieces = (size + 31) >> 5
    return put(
        out, operand(x, i), repeats, rep, pieces, block, 32, size - ((pieces - 1) << 5), write
    )


@called
def regions(traits, x, out):  # type: ignore[no-untyped-def]
    """Write the regions of the instruction with operands x to out; return how many.

    traits: address of the op's row of isa.TRAITS. An instruction with a zero size touches nothing.
    """
    family = ld(traits + T_FAMILY * 8)
    es = ld(traits + T_DST * 8)
    end = out
    if family == VECTOR:
        lanes = operand(x, 3)
        repeats = operand(x, 4)
        if lanes <= 0 or repeats <= 0:
            return 0
        es0 = ld(traits + T_SRC0 * 8)
        es1 = ld(traits + T_SRC1 * 8)
        if es0:
            end = lanes_region(x, end, 1, es0, lanes, repeats, 0)
        if es1:
            end = lanes_region(x, end, 2, es1, lanes, repeats, 0)
        end = lanes_region(x, end, 0, es, lanes, repeats, 1 + ld(traits + T_INOUT * 8))
    elif family == MMAD:
        m, n, k = operand(x, 3), operand(x, 4), operand(x, 5)
        if m <= 0 or n <= 0:
            return 0
        es = ld(traits + T_SRC0 * 8)
        if k > 0:
            k0 = 32 // es
            k_blocks = (k + k0 - 1) // k0
            size_a = (align16(m) >> 4) * k_blocks * 512
            size_b = (align16(n) >> 4) * k_blocks * 512
            end = put(end, operand(x, 1), 1, 0, 1, 0, size_a, size_a, 0)
            end = put(end, operand(x, 2), 1, 0, 1, 0, size_b, size_b, 0)
        columns = align16(n) >> 4
        write = 1 if operand(x, 6) else 2
        end = put(
            end,
            operand(x, 0),
            1,
            0,
            columns,
            operand(x, 7),
            align16(m) * 64,
            align16(m) * 64,
            write,
        )
    elif family in (LOAD_A, LOAD_B):
        rows, columns = operand(x, 2), operand(x, 3)  # of the fractal matrix: m, k or k, n
        if rows <= 0 or columns <= 0:
            return 0
        c0 = 32 // es
        stored_rows, stored_columns = rows, columns
        if operand(x, 5):
            stored_rows, stored_columns = columns, rows
        size = align16(stored_rows) * 32
        end = put(
            end, operand(x, 1), 1, 0, (stored_columns + c0 - 1) // c0, operand(x, 4), size, size, 0
        )
        if family == LOAD_A:
            size = (align16(rows) >> 4) * ((columns + c0 - 1) // c0) * 512
        else:
            size = ((rows + c0 - 1) // c0) * (align16(columns) >> 4) * 512
        end = put(end, operand(x, 0), 1, 0, 1, 0, size, size, 1)
    elif family == ND2NZ:
        rows, columns = operand(x, 2), operand(x, 3)
        if rows <= 0 or columns <= 0:
            return 0
        c0 = 32 // es
        end = put(end, operand(x, 1), 1, 0, rows, operand(x, 4), columns * es, columns * es, 0)
        end = put(
            end,
            operand(x, 0),
            1,
            0,
            (columns + c0 - 1) // c0,
            operand(x, 5),
            rows * 32,
            rows * 32,
            1,
        )
    elif family == FIX:
        m, n = operand(x, 2), operand(x, 3)
        if m <= 0 or n <= 0:
            return 0
        end = put(end, operand(x, 1), 1, 0, align16(n) >> 4, operand(x, 5), m * 64, m * 64, 0)
        write = 2 if operand(x, 6) & ATOMIC_ADD else 1
        end = put(end, operand(x, 0), 1, 0, m, operand(x, 4), n * es, n * es, write)
    elif family == COPY:
        rows, size = operand(x, 2), operand(x, 3)
        if rows <= 0 or size <= 0:
            return 0
        end = put(end, operand(x, 1), 1, 0, rows, operand(x, 5), size, size, 0)
        end = put(end, operand(x, 0), 1, 0, rows, operand(x, 4), size, size, 1)
    elif family == REDUCE:
        lanes = operand(x, 3)
        repeats = operand(x, 4)
        if lanes <= 0 or repeats <= 0:
            return 0
        end = lanes_region(x, end, 1, es, lanes, repeats, 0)
        end = put(end, operand(x, 0), 1, 0, repeats, operand(x, 5), es, es, 1)
    elif family == BRCB:
        count = operand(x, 2)
        if count <= 0:
            return 0
        end = put(end, operand(x, 1), 1, 0, 1, 0, count * es, count * es, 0)
        end = put(end, operand(x, 0), 1, 0, 1, 0, count * 32, count * 32, 1)
    return (end - out) >> 6


@inlined
def extent(out):  # type: ignore[no-untyped-def]
    """Bytes from the region's address to its last byte; strides must not be negative."""
    return (
        (ld(out + 8) - 1) * ld(out + 16)
        + (ld(out + 24) - 1) * ld(out + 32)
        + max(ld(out + 48), ld(out + 40) if ld(out + 24) > 1 else 0)
    )
