"""Values of the cube path: ND2NZ, fractal loads, MMAD as a packed 8 x 32 micro-kernel, FIX, COPY.

All memories keep the true bytes; fp16 and bf16 widen to fp32 only while MMAD packs its operands.
C is accumulated by fused multiply-adds in k order, one chain per element, so that every tiling
along k gives the same bits. Operand addresses are machine addresses; sizes were checked by the
caller.
"""

from __future__ import annotations

from typing import Any

from akg_py.ascend.isa import ATOMIC_ADD, RELU
from akg_py.ascend.readers import operations
from akg_py.codegen.linking import emitted
from akg_py.codegen.llvm import Builder, Val, constant
from akg_py.codegen.memory import called, inlined, ld, machine, move, move32, move64, st8, st16

#: floats between packed rows of A beyond k, so that rows don't share cache sets
PITCH_PAD = 16
LANES = 16


@inlined
def argument(x, i):  # type: ignore[no-untyped-def]
    return ld(x + i * 8)


def _widening_copy(dtype: str) -> Any:
    def make(b: Builder, dst: Val, src: Val) -> None:
        result = "i32" if dtype == "i8" else "f32"
        operations.store(b, operations.load_wide(b, src, dtype, LANES), dst, result)

    @machine
    def copy(typingctx: Any, dst: Any, src: Any) -> Any:
        return emitted(f"akg.widen_{dtype}", make)(dst, src)

    copy.__doc__ = f"Sixteen {dtype} elements as float32 (int8: int32)."
    return copy


widen_f16, widen_bf16, widen_i8 = map(_widening_copy, ("f16", "bf16", "i8"))


def _multiplication(dtype: str) -> Any:
    def make(b: Builder, *args: Val) -> None:
        b.if_else(
            b.compare("ne", args[7], constant(0, "i64")),
            lambda: _multiply(b, args, 2, dtype),
            lambda: _multiply(b, args, 1, dtype),
        )

    @machine
    def multiply(
        typingctx: Any,
        c: Any,
        c_stride: Any,
        a: Any,
        a_pitch: Any,
        b: Any,
        k: Any,
        init: Any,
        wide: Any,
    ) -> Any:
        """C (8 rows, two NZ columns of 16 c_stride apart) += A B.

        Rows of A are a_pitch bytes apart, B is packed 32 wide. With `wide` 0 only the first column
        is computed and stored.
        """
        function = emitted(f"akg.multiply_{dtype}", make, "noinline")
        return function(c, c_stride, a, a_pitch, b, k, init, wide)

    return multiply


multiply_f32, multiply_i32 = _multiplication("f32"), _multiplication("i32")


def _multiply(b: Builder, args: tuple[Val, ...], columns: int, dtype: str) -> None:
    c, c_stride, left, pitch, right, k, init, _ = args

    def word(value: int) -> Val:
        return constant(value, "i64")

    elem = "i32" if dtype == "i32" else "float"
    zero = Val("zeroinitializer", elem, LANES)
    sums = {(i, j): b.alloca(zero.type, 64) for i in range(8) for j in range(columns)}
    places = {
        (i, j): b.bin("add", b.bin("add", c, word(64 * i)), b.bin("mul", c_stride, word(j)))
        for i, j in sums
    }

    def clear() -> None:
        for slot in sums.values():
            b.store(slot, zero, 64)

    def fetch() -> None:
        for key, slot in sums.items():
            b.store(slot, b.load(b.pointer(places[key]), elem, LANES, 1), 64)

    b.if_else(b.compare("ne", init, word(0)), clear, fetch)
    rows = [b.bin("add", left, b.bin("mul", pitch, word(i))) for i in range(8)]

    def step(at: Val) -> None:
        start = b.bin("add", right, b.bin("shl", at, word(7)))
        vectors = [
            b.load(b.pointer(b.bin("add", start, word(64 * j))), elem, LANES, 1)
            for j in range(columns)
        ]
        offset = b.bin("shl", at, word(2))
        for i in range(8):
            one = b.load(b.pointer(b.bin("add", rows[i], offset)), elem, 1, 4)
            for j in range(columns):
                old = b.load(sums[i, j], elem, LANES, 64)
                b.store(sums[i, j], operations.fused(b, one, vectors[j], old), 64)

    b.times(k, step)
    for key, slot in sums.items():
        b.store(b.pointer(places[key]), b.load(slot, elem, LANES, 64), 1)


@called
def pack_16bit(out, src, rows_of_fractals, columns_of_fractals, pitch, bf16):  # type: ignore[no-untyped-def]
    """Fractals (r1, c1) of 16 x 16 elements to float32 rows `pitch` bytes apart."""
    for r1 in range(rows_of_fractals):
        for c1 in range(columns_of_fractals):
            dst = out + r1 * 16 * pitch + c1 * 64
            for r in range(16):
                if bf16:
                    widen_bf16(dst + r * pitch, src + r * 32)
                else:
                    widen_f16(dst + r * pitch, src + r * 32)
            src += 512


@called
def pack_b_16bit(out, src, k_blocks, n_blocks, bf16):  # type: ignore[no-untyped-def]
    """Fractals (k1, n1) of 16 x 16 elements to panels of 32 columns: [n2][k][32] float32."""
    panel = k_blocks * 16 * 128
    for k1 in range(k_blocks):
        for n1 in range(n_blocks):
            dst = out + (n1 >> 1) * panel + k1 * 16 * 128 + (n1 & 1) * 64
            for r in range(16):
                if bf16:
                    widen_bf16(dst + r * 128, src + r * 32)
                else:
                    widen_f16(dst + r * 128, src + r * 32)
            src += 512


@called
def pack_int8(pack_a, a, pack_b, b, m_blocks, n_blocks, k_blocks, pitch, panel):  # type: ignore[no-untyped-def]
    """Fractals of 16 x 32 and 32 x 16 bytes to int32 rows of A and panels of B."""
    for m1 in range(m_blocks):
        for k1 in range(k_blocks):
            for r in range(16):
                dst = pack_a + (m1 * 16 + r) * pitch + k1 * 128
                widen_i8(dst, a + r * 32)
                widen_i8(dst + 64, a + r * 32 + 16)
            a += 512
    for k1 in range(k_blocks):
        for n1 in range(n_blocks):
            dst = pack_b + (n1 >> 1) * panel + k1 * 32 * 128 + (n1 & 1) * 64
            for r in range(32):
                widen_i8(dst + r * 128, b + r * 16)
            b += 512


@called
def mmad(x, es, bf16, pack_a, pack_b):  # type: ignore[no-untyped-def]
    """C = (0 if init else C) + A B on true sizes m, n, k; padding rows of L0C may get garbage."""
    c, a, b = argument(x, 0), argument(x, 1), argument(x, 2)
    m, n, k = argument(x, 3), argument(x, 4), argument(x, 5)
    init, c_stride = argument(x, 6), argument(x, 7)
    m_blocks, n_blocks = (m + 15) >> 4, (n + 15) >> 4
    k0 = 32 // es
    k_blocks = (k + k0 - 1) // k0
    pitch = (k_blocks * k0 + PITCH_PAD) * 4
    panel = k_blocks * k0 * 128
    if es == 1:
        pack_int8(pack_a, a, pack_b, b, m_blocks, n_blocks, k_blocks, pitch, panel)
    elif es == 2:
        pack_16bit(pack_a, a, m_blocks, k_blocks, pitch, bf16)
        pack_b_16bit(pack_b, b, k_blocks, n_blocks, bf16)
    else:
        for m1 in range(m_blocks):
            for k1 in range(k_blocks):
                for r in range(16):
                    move32(pack_a + (m1 * 16 + r) * pitch + k1 * 32, a + r * 32)
                a += 512
        for k1 in range(k_blocks):
            for n1 in range(n_blocks):
                dst = pack_b + (n1 >> 1) * panel + k1 * 8 * 128 + (n1 & 1) * 64
                for r in range(8):
                    move64(dst + r * 128, b + r * 64)
                b += 512
    for n2 in range((n_blocks + 1) >> 1):
        wide = 1 if n2 * 2 + 1 < n_blocks else 0
        for i in range(0, m, 8):
            if es == 1:
                multiply_i32(
                    c + n2 * 2 * c_stride + i * 64,
                    c_stride,
                    pack_a + i * pitch,
                    pitch,
                    pack_b + n2 * panel,
                    k,
                    init,
                    wide,
                )
            else:
                multiply_f32(
                    c + n2 * 2 * c_stride + i * 64,
                    c_stride,
                    pack_a + i * pitch,
                    pitch,
                    pack_b + n2 * panel,
                    k,
                    init,
                    wide,
                )


@called
def nd2nz(x, es):  # type: ignore[no-untyped-def]
    """Rows of GM into columns of 32 B.

    The loop over columns is outside, two at a time, against cache set conflicts.
    """
    dst, src, rows, columns = argument(x, 0), argument(x, 1), argument(x, 2), argument(x, 3)
    pitch, stride = argument(x, 4), argument(x, 5)
    width = columns * es
    whole = width >> 5
    for c in range(0, whole - 1, 2):
        for r in range(rows):
            at = src + r * pitch + c * 32
            move32(dst + c * stride + r * 32, at)
            move32(dst + (c + 1) * stride + r * 32, at + 32)
    if whole & 1:
        c = whole - 1
        for r in range(rows):
            move32(dst + c * stride + r * 32, src + r * pitch + c * 32)
    rest = width & 31
    if rest:
        zeros = (32 - rest) >> 1 if es > 1 else 0
        for r in range(rows):
            at = dst + whole * stride + r * 32
            move(at, src + r * pitch + whole * 32, rest)
            for z in range(zeros):
                st16(at + rest + z * 2, 0)
            if es == 1:
                for z in range(rest, 32):
                    st8(at + z, 0)


def _transpose(b: Builder, dst: Val, src: Val) -> None:
    """A 512 B fractal of 16-bit elements, transposed in registers by four interleavings."""

    def row(base: Val, i: int) -> str:
        return b.pointer(b.bin("add", base, constant(32 * i, "i64")))

    rows = [b.load(row(src, i), "i16", 16, 1) for i in range(16)]
    low = [i // 2 + 16 * (i % 2) for i in range(16)]
    for _ in range(4):
        pairs = [(rows[i], rows[i + 8]) for i in range(8)]
        rows = [b.shuffle(x, order, y) for x, y in pairs for order in (low, [8 + i for i in low])]
    for i, value in enumerate(rows):
        b.store(row(dst, i), value, 1)


@machine
def transpose_16x16(typingctx: Any, dst: Any, src: Any) -> Any:
    """A 512 B fractal of 16-bit elements, transposed."""
    return emitted("akg.transpose", _transpose)(dst, src)


@called
def load_fractals_b16(x):  # type: ignore[no-untyped-def]
    """LOAD_A and LOAD_B of 16-bit elements: fractals by rows, then columns, of the result."""
    dst, src, rows, columns = argument(x, 0), argument(x, 1), argument(x, 2), argument(x, 3)
    stride, transposed = argument(x, 4), argument(x, 5)
    for r1 in range((rows + 15) >> 4):
        for c1 in range((columns + 15) >> 4):
            if transposed:
                transpose_16x16(dst, src + r1 * stride + c1 * 512)
            else:
                move(dst, src + c1 * stride + r1 * 512, 512)
            dst += 512


@called
def load_a(x, es):  # type: ignore[no-untyped-def]
    """Fractals (m1, k1) of 16 rows of 32 B, element by element when transposed."""
    dst, src, m, k = argument(x, 0), argument(x, 1), argument(x, 2), argument(x, 3)
    stride, transposed = argument(x, 4), argument(x, 5)
    c0 = 32 // es
    for m1 in range((m + 15) >> 4):
        for k1 in range((k + c0 - 1) // c0):
            if transposed:  # the tile is [k, m]
                for i in range(min(16, m - m1 * 16)):
                    row = m1 * 16 + i
                    column = src + (row // c0) * stride + (row % c0) * es
                    for j in range(min(c0, k - k1 * c0)):
                        move(dst + i * 32 + j * es, column + (k1 * c0 + j) * 32, es)
            else:
                move(dst, src + k1 * stride + m1 * 512, 512)
            dst += 512


@called
def load_b(x, es):  # type: ignore[no-untyped-def]
    """Fractals (k1, n1) of k0 rows of 16 elements."""
    dst, src, k, n = argument(x, 0), argument(x, 1), argument(x, 2), argument(x, 3)
    stride, transposed = argument(x, 4), argument(x, 5)
    c0 = 32 // es
    for k1 in range((k + c0 - 1) // c0):
        for n1 in range((n + 15) >> 4):
            for i in range(min(c0, k - k1 * c0)):
                row = k1 * c0 + i
                at = dst + i * 16 * es
                if transposed:  # the tile is [n, k]
                    column = src + k1 * stride + i * es
                    for j in range(min(16, n - n1 * 16)):
                        move(at + j * es, column + (n1 * 16 + j) * 32, es)
                elif es == 1:
                    move(at, src + (n1 >> 1) * stride + row * 32 + (n1 & 1) * 16, 16)
                else:
                    move32(at, src + 2 * n1 * stride + row * 32)
                    if n1 * 16 + 8 < n:
                        move32(at + 32, src + (2 * n1 + 1) * stride + row * 32)
            dst += 512


def _fix_row(dtype: str) -> Any:
    held = "i32" if dtype == "i32" else "f32"
    wide = operations.wide(held)

    def make(b: Builder, dst: Val, src: Val, count: Val, mode: Val) -> None:
        value = operations.load(b, src, held, LANES)
        rectified = operations.operation(b, "VRELU", wide, value, value)
        value = b.select(b.cast("trunc", mode, "i1"), rectified, value)
        mask = operations.lanes_below(b, count, LANES)
        slot = b.alloca(value.type, 64)
        b.store(slot, value, 64)

        def accumulate() -> None:
            old = operations.load_wide(b, dst, dtype, LANES, mask)
            b.store(slot, operations.operation(b, "VADD", wide, old, value), 64)

        zero = constant(0, "i64")
        adds = b.bin("and", mode, constant(ATOMIC_ADD, "i64"))
        b.when(b.compare("ne", adds, zero), accumulate)
        result = b.load(slot, value.elem, LANES, 64)
        b.if_else(
            b.compare("eq", count, constant(LANES, "i64")),
            lambda: operations.store(b, result, dst, dtype),
            lambda: operations.store(b, result, dst, dtype, mask),
        )

    @machine
    def row(typingctx: Any, dst: Any, src: Any, count: Any, mode: Any) -> Any:
        """Up to 16 accumulators to GM."""
        return emitted(f"akg.fix_{dtype}", make)(dst, src, count, mode)

    return row


assert RELU == 1
fix_row_f32, fix_row_f16 = _fix_row("f32"), _fix_row("f16")
fix_row_bf16, fix_row_i32 = _fix_row("bf16"), _fix_row("i32")


@called
def fix(x, kind):  # type: ignore[no-untyped-def]
    """Rows of L0C (NZ, float32) to GM; kind 0: float32, 1: float16, 2: bfloat16, 3: int32."""
    dst, src, m, n = argument(x, 0), argument(x, 1), argument(x, 2), argument(x, 3)
    pitch, stride, mode = argument(x, 4), argument(x, 5), argument(x, 6)
    for i in range(m):
        for j in range(0, n, 16):
            count = min(n - j, 16)
            at = src + (j >> 4) * stride + i * 64
            if kind == 0:
                fix_row_f32(dst + i * pitch + j * 4, at, count, mode)
            elif kind == 1:
                fix_row_f16(dst + i * pitch + j * 2, at, count, mode)
            elif kind == 3:
                fix_row_i32(dst + i * pitch + j * 4, at, count, mode)
            else:
                fix_row_bf16(dst + i * pitch + j * 2, at, count, mode)


@called
def copy(x):  # type: ignore[no-untyped-def]
    """Rows of bytes."""
    dst, src, rows, size = argument(x, 0), argument(x, 1), argument(x, 2), argument(x, 3)
    dst_pitch, src_pitch = argument(x, 4), argument(x, 5)
    if dst_pitch == size and src_pitch == size:
        move(dst, src, rows * size)
    else:
        for r in range(rows):
            move(dst + r * dst_pitch, src + r * src_pitch, size)
