"""The scalar machine that every reader shares: loops and index arithmetic on int64 registers.

A row is 16 x uint16 (op, pipe, twelve operands, tag, mark); operands of scalar rows are register
numbers, except jump distances. Addresses come in, the address of the next row goes out.
"""

from __future__ import annotations

from akg_py.ascend.isa import DIV, END, EQ, LE, LOOP, LT, MADD, MAX, MIN, MOD, NE
from akg_py.codegen.memory import col, inlined, ld, st, udiv, urem

ROW_BYTES = 32
MARK = 15


@inlined
def reg(r, number):  # type: ignore[no-untyped-def]
    """Value of a register; r is the address of register 0."""
    return ld(r + number * 8)


@inlined
def step(op, row, r):  # type: ignore[no-untyped-def]
    """Execute one scalar row; return the address of the next one."""
    d = r + col(row, 2) * 8
    a = col(row, 3)
    b = col(row, 4)
    if op == MADD:
        st(d, reg(r, a) + reg(r, b) * reg(r, col(row, 5)))
    elif op == END:
        i = ld(d) + 1
        st(d, i)
        if i < reg(r, a):
            return row - b * ROW_BYTES
    elif op == LOOP:
        st(d, 0)
        if reg(r, a) <= 0:
            return row + b * ROW_BYTES
    elif op == MIN:
        st(d, min(reg(r, a), reg(r, b)))
    elif op == DIV:
        st(d, udiv(reg(r, a), reg(r, b)))
    elif op == MOD:
        st(d, urem(reg(r, a), reg(r, b)))
    elif op == MAX:
        st(d, max(reg(r, a), reg(r, b)))
    elif op == EQ:
        st(d, 1 if reg(r, a) == reg(r, b) else 0)
    elif op == NE:
        st(d, 1 if reg(r, a) != reg(r, b) else 0)
    elif op == LT:
        st(d, 1 if reg(r, a) < reg(r, b) else 0)
    elif op == LE:
        st(d, 1 if reg(r, a) <= reg(r, b) else 0)
    return row + ROW_BYTES


@inlined
def gather(row, r, x):  # type: ignore[no-untyped-def]
    """Write the twelve operand values of an instruction to x."""
    for i in range(12):
        st(x + i * 8, reg(r, col(row, 2 + i)))


@inlined
def gather_sizes(row, r, x):  # type: ignore[no-untyped-def]
    """The first seven operands: all that cycles and traffic depend on."""
    for i in range(7):
        st(x + i * 8, reg(r, col(row, 2 + i)))
