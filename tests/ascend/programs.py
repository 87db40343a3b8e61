"""Hand-written Programs, independent of the compiler: matmul, element-wise, layer_norm."""

from __future__ import annotations

from akg_py import dtypes
from akg_py.ascend import instructions as ins
from akg_py.ascend.device import load_device
from akg_py.ascend.program import Flag, GlobalTensor, LocalBuffer, Node, Phase, Program, Repeat, SetFlag, WaitFlag, address
from akg_py.ir.expr import Expr, Var, ceildiv, const, minimum

DEVICE = "ascend910b3"


class Flags:
    """Numbers flags in order of use."""

    def __init__(self) -> None:
        self.all: list[Flag] = []
        self.next = 0

    def pair(self, src: str, dst: str, events: int = 1) -> Flag:
        flag = Flag(src, dst, self.next, events)
        self.next += events
        self.all.append(flag)
        return flag


def set_flag(f: Flag, event: Expr | int = 0, origin: object = None) -> SetFlag:
    return SetFlag(f.src, f.dst, f.first, const(event) if isinstance(event, int) else event, origin)


def wait_flag(f: Flag, event: Expr | int = 0, origin: object = None) -> WaitFlag:
    return WaitFlag(f.src, f.dst, f.first, const(event) if isinstance(event, int) else event, origin)


def free(*flags: Flag) -> list[Node]:
    """Prologue: all slots of these flags are free."""
    return [set_flag(f, e) for f in flags for e in range(f.events)]


def drain(*flags: Flag) -> list[Node]:
    """Epilogue: take the free slots back."""
    return [wait_flag(f, e) for f in flags for e in range(f.events)]


def matmul(
    M: int, N: int, K: int, dtype: str = "float16", out: str = "float16", *, tile: tuple[int, int, int, int] = (128, 256, 256, 64),
    cores: int = 20, copies: int = 2, l0c_copies: int = 1, trans_a: bool = False, trans_b: bool = False, relu: bool = False,
) -> Program:  # fmt: skip
    """C[M, N] = A B, blocks of tile[0] x tile[1] dealt to cores, K in L1 tiles of tile[2], L0 steps of tile[3]."""
    bm, bn, kl1, kl0 = tile
    es, eo = dtypes.size_bytes(dtype), dtypes.size_bytes(out)
    c0 = 32 // es
    a = GlobalTensor("A", dtype, (K, M) if trans_a else (M, K), "input", 0)
    b = GlobalTensor("B", dtype, (N, K) if trans_b else (K, N), "input", 1)
    c = GlobalTensor("C", out, (M, N), "output", 2)
    mb, nb = -(-M // bm), -(-N // bn)
    total = mb * nb
    cores = min(cores, total)
    core = Var("core", lo=0, hi=cores - 1)
    per = -(-total // cores)
    i, kt, ks = Var("i", lo=0, hi=per - 1), Var("kt", lo=0, hi=-(-K // kl1) - 1), Var("ks", lo=0, hi=kl1 // kl0 - 1)
    tiles, steps, outs = Var("tiles", lo=0), Var("steps", lo=0), Var("outs", lo=0)
    f = Flags()
    l1_full, l1_free = f.pair("MTE2", "MTE1", copies), f.pair("MTE1", "MTE2", copies)
    l0_full, l0_free = f.pair("MTE1", "M", copies), f.pair("M", "MTE1", copies)
    c_full, c_free = f.pair("M", "FIX", l0c_copies), f.pair("FIX", "M", l0c_copies)

    def span(rows: int, cols: int) -> int:
        return -(-cols // c0) * c0 * es * (-(-rows // 16) * 16)

    a1 = LocalBuffer("a1", "L1", 0, max(span(bm, kl1), span(kl1, bm)), copies, dtype)
    b1 = LocalBuffer("b1", "L1", a1.size_bytes * copies, max(span(kl1, bn), span(bn, kl1)), copies, dtype)
    a0 = LocalBuffer("a0", "L0A", 0, span(bm, kl0), copies, dtype)
    b0 = LocalBuffer("b0", "L0B", 0, span(bn, kl0), copies, dtype)
    l0c = LocalBuffer("c0", "L0C", 0, -(-bm // 16) * 16 * (-(-bn // 16) * 16) * 4, l0c_copies, "float32")
    block = core * per + i
    row, column = block // nb * bm, block % nb * bn
    m, n = minimum(bm, M - row), minimum(bn, N - column)
    kk = minimum(kl1, K - kt * kl1)
    k = minimum(kl0, kk - ks * kl0)
    s1, s0, sc = tiles % copies, steps % copies, outs % l0c_copies
    at_a1 = address("L1", a1.offset_bytes + s1 * a1.size_bytes)
    at_b1 = address("L1", b1.offset_bytes + s1 * b1.size_bytes)
    at_a0, at_b0 = address("L0A", s0 * a0.size_bytes), address("L0B", s0 * b0.size_bytes)
    at_c0 = address("L0C", sc * l0c.size_bytes)
    m16, n16, k16 = (ceildiv(x, 16) * 16 for x in (m, n, kk))
    if trans_a:
        load1 = ins.nd2nz(at_a1, address(a, kt * (kl1 * M * es) + row * es), kk, m, M * es, k16 * 32, dtype, "load A")
        part_a, stride_a = at_a1 + ks * (kl0 * 32), k16 * 32
    else:
        load1 = ins.nd2nz(at_a1, address(a, row * (K * es) + kt * (kl1 * es)), m, kk, K * es, m16 * 32, dtype, "load A")
        part_a, stride_a = at_a1 + ks * (kl0 // c0) * (m16 * 32), m16 * 32
    if trans_b:
        load2 = ins.nd2nz(at_b1, address(b, column * (K * es) + kt * (kl1 * es)), n, kk, K * es, n16 * 32, dtype, "load B")
        part_b, stride_b = at_b1 + ks * (kl0 // c0) * (n16 * 32), n16 * 32
    else:
        load2 = ins.nd2nz(at_b1, address(b, kt * (kl1 * N * es) + column * es), kk, n, N * es, k16 * 32, dtype, "load B")
        part_b, stride_b = at_b1 + ks * (kl0 * 32), k16 * 32
    step: tuple[Node, ...] = (
        wait_flag(l0_free, s0),
        ins.load_a(at_a0, part_a, m, k, stride_a, dtype, trans_a, "A to L0A"),
        ins.load_b(at_b0, part_b, k, n, stride_b, dtype, trans_b, "B to L0B"),
        set_flag(l0_full, s0),
        wait_flag(l0_full, s0),
        ins.mmad(at_c0, at_a0, at_b0, m, n, k, (kt + ks) == 0, dtype, m16 * 64, "C += A B"),
        set_flag(l0_free, s0),
    )
    k_tile: tuple[Node, ...] = (
        wait_flag(l1_free, s1),
        load1,
        load2,
        set_flag(l1_full, s1),
        wait_flag(l1_full, s1),
        Repeat(ks, ceildiv(kk, kl0), step, (steps,)),
        set_flag(l1_free, s1),
    )
    out_block: tuple[Node, ...] = (
        wait_flag(c_free, sc),
        Repeat(kt, const(-(-K // kl1)), k_tile, (tiles,)),
        set_flag(c_full, sc),
        wait_flag(c_full, sc),
        ins.fix(address(c, row * (N * eo) + column * eo), at_c0, m, n, N * eo, m16 * 64, out, relu, origin="store C"),
        set_flag(c_free, sc),
    )
    body = (
        *free(l1_free, l0_free, c_free),
        Repeat(i, minimum(per, total - core * per), out_block, (outs,)),
        *drain(l1_free, l0_free, c_free),
    )
    phase = Phase("matmul", "aic", core, cores, body, tuple(f.all), (a1, b1, a0, b0, l0c))
    return Program(f"matmul_{M}x{N}x{K}_{dtype}", load_device(DEVICE), (a, b, c), (phase,))
