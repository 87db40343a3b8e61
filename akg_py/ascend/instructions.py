"""Constructors of instructions with their layouts, for passes and hand-written Programs.

Layouts, with c0 = 32 B / element (32, 16 or 8) and true sizes (padding is never read back):
L1 holds NZ tiles, element (r, c) at `c // c0 * col_stride + r * 32 + c % c0 * es`, col_stride at
least `align16(rows) * 32`. L0A holds 512 B fractals m0 x k0 in order (m1, k1), k1 < ceil(k / c0).
L0B holds fractals k0 x n0 in order (k1, n1), n0 = 16. L0C holds float32 columns of 16: element
(i, j) at `j // 16 * col_stride + i * 64 + j % 16 * 4`, col_stride `align16(m) * 64`.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.ascend.isa import INSTRUCTIONS, SHORT_DTYPE
from akg_py.ascend.program import Instruction
from akg_py.errors import InternalError
from akg_py.ir.expr import ExprLike, align, as_expr


def _make(op: str, operands: tuple[ExprLike, ...], pipe: str | None, origin: Any) -> Instruction:
    if op not in INSTRUCTIONS:
        raise InternalError(f"no instruction {op}")
    return Instruction(
        op, tuple(as_expr(o) for o in operands), pipe or INSTRUCTIONS[op].pipe, origin
    )


def _width(dtype: str) -> str:
    return f"b{8 * dtypes.size_bytes(dtype)}"


def nd2nz(
    dst: ExprLike,
    src: ExprLike,
    rows: ExprLike,
    cols: ExprLike,
    src_pitch: ExprLike,
    dst_col_stride: ExprLike,
    dtype: str,
    origin: Any = None,
) -> Instruction:
    """GM [rows, cols], rows `src_pitch` bytes apart, to an NZ tile in L1.

    The padding of the last column is zeroed.
    """
    return _make(
        f"ND2NZ_{_width(dtype)}", (dst, src, rows, cols, src_pitch, dst_col_stride), None, origin
    )


def load_a(
    dst: ExprLike,
    src: ExprLike,
    m: ExprLike,
    k: ExprLike,
    src_col_stride: ExprLike,
    dtype: str,
    transposed: bool = False,
    origin: Any = None,
) -> Instruction:
    """A [m, k] to L0A from an NZ tile of [m, k], or of [k, m] if transposed.

    A part of a tile: row r (multiple of 16) adds r * 32 bytes to src, column c (of c0) c // c0 *
    col_stride.
    """
    return _make(
        f"LOAD_A_{_width(dtype)}", (dst, src, m, k, src_col_stride, int(transposed)), None, origin
    )


def load_b(
    dst: ExprLike,
    src: ExprLike,
    k: ExprLike,
    n: ExprLike,
    src_col_stride: ExprLike,
    dtype: str,
    transposed: bool = False,
    origin: Any = None,
) -> Instruction:
    """B [k, n] to L0B from an NZ tile of [k, n], or of [n, k] if transposed."""
    return _make(
        f"LOAD_B_{_width(dtype)}", (dst, src, k, n, src_col_stride, int(transposed)), None, origin
    )


def mmad(
    c: ExprLike,
    a: ExprLike,
    b: ExprLike,
    m: ExprLike,
    n: ExprLike,
    k: ExprLike,
    init: ExprLike,
    dtype: str,
    c_col_stride: ExprLike | None = None,
    origin: Any = None,
) -> Instruction:
    """C [m, n] float32 += A B, from zero where `init` is not 0.

    The dtype is float16, bfloat16, float32, or int8 with an int32 C.
    """
    stride = align(m, 16) * 64 if c_col_stride is None else c_col_stride
    return _make(f"MMAD_{SHORT_DTYPE[dtype]}", (c, a, b, m, n, k, init, stride), None, origin)


def fix(
    dst: ExprLike,
    src: ExprLike,
    m: ExprLike,
    n: ExprLike,
    dst_pitch: ExprLike,
    src_col_stride: ExprLike,
    out_dtype: str,
    relu: bool = False,
    atomic_add: bool = False,
    origin: Any = None,
) -> Instruction:
    """L0C [m, n] to GM rows `dst_pitch` bytes apart, rounded to out_dtype, relu before it."""
    mode = int(relu) | 2 * int(atomic_add)
    return _make(
        f"FIX_{SHORT_DTYPE[out_dtype]}",
        (dst, src, m, n, dst_pitch, src_col_stride, mode),
        None,
        origin,
    )


def copy(
    dst: ExprLike,
    src: ExprLike,
    rows: ExprLike,
    row_bytes: ExprLike,
    dst_pitch: ExprLike,
    src_pitch: ExprLike,
    pipe: str,
    origin: Any = None,
) -> Instruction:
    """Rows of bytes: GM to UB on MTE2, UB to GM on MTE3."""
    return _make("COPY", (dst, src, rows, row_bytes, dst_pitch, src_pitch), pipe, origin)


def immediate(value: float, dtype: str) -> int:
    """Raw bits of a scalar operand, as a non-negative integer."""
    match SHORT_DTYPE.get(dtype, dtype):
        case "f32":
            with np.errstate(over="ignore"):
                return int(np.float32(value).view(np.uint32))
        case "f16":
            with np.errstate(over="ignore"):
                return int(np.float16(value).view(np.uint16))
        case _:
            return int(struct.unpack("<I", struct.pack("<i", int(value)))[0])


def vector(
    op: str,
    dtype: str,
    dst: ExprLike,
    src0: ExprLike = 0,
    src1: ExprLike = 0,
    *,
    lanes: ExprLike,
    repeats: ExprLike = 1,
    rep: tuple[ExprLike, ExprLike, ExprLike] = (256, 256, 256),
    blk: tuple[ExprLike, ExprLike, ExprLike] = (32, 32, 32),
    pipe: str = "V",
    origin: Any = None,
) -> Instruction:
    """A vector instruction `{op}_{dtype}`, such as `vector("VADD", "float32", ...)`.

    `src1` is an address for two-source ops and VSEL; for VADDS .. VRDIVS and VDUP it is
    `immediate(...)`. Conversions: `vector("VCONV", "float16_float32", ...)`. `rep` and `blk` are
    byte strides of (dst, src0, src1) between repeats and between 32 B blocks. VCADD, VCMAX, VCMIN
    write one element per repeat at dst + i * rep[0]. With pipe "S" and lanes 1 it is the scalar
    fallback, at any address of UB.
    """
    suffix = "_".join(SHORT_DTYPE.get(d, d) for d in dtype.split("_"))
    return _make(f"{op}_{suffix}", (dst, src0, src1, lanes, repeats, *rep, *blk), pipe, origin)


def brcb(
    dst: ExprLike, src: ExprLike, count: ExprLike, dtype: str, origin: Any = None
) -> Instruction:
    """Element i of `src` fills the 32 B block at dst + 32 * i, i < count; 2 or 4 byte dtypes."""
    return _make(f"BRCB_{_width(dtype)}", (dst, src, count), None, origin)
