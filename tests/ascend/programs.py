"""Hand-written Programs, independent of the compiler: matmul, element-wise, layer_norm."""

from __future__ import annotations

from akg_py import dtypes
from akg_py.ascend import instructions as ins
from akg_py.ascend.device import load_device
from akg_py.ascend.program import (
    Flag,
    GlobalTensor,
    LocalBuffer,
    Node,
    Phase,
    Program,
    Repeat,
    SetFlag,
    WaitFlag,
    address,
)
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
    return WaitFlag(
        f.src, f.dst, f.first, const(event) if isinstance(event, int) else event, origin
    )


def free(*flags: Flag) -> list[Node]:
    """Prologue: all slots of these flags are free."""
    return [set_flag(f, e) for f in flags for e in range(f.events)]


def drain(*flags: Flag) -> list[Node]:
    """Epilogue: take the free slots back."""
    return [wait_flag(f, e) for f in flags for e in range(f.events)]


def matmul(
    M: int,
    N: int,
    K: int,
    dtype: str = "float16",
    out: str = "float16",
    *,
    tile: tuple[int, int, int, int] = (128, 256, 256, 64),
    cores: int = 20,
    copies: int = 2,
    l0c_copies: int = 1,
    trans_a: bool = False,
    trans_b: bool = False,
    relu: bool = False,
) -> Program:
    """C[M, N] = A B: blocks of tile[0] x tile[1] for the cores, K in tile[2] (L1), tile[3] (L0)."""
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
    i, kt, ks = (
        Var("i", lo=0, hi=per - 1),
        Var("kt", lo=0, hi=-(-K // kl1) - 1),
        Var("ks", lo=0, hi=kl1 // kl0 - 1),
    )
    tiles, steps, outs = Var("tiles", lo=0), Var("steps", lo=0), Var("outs", lo=0)
    f = Flags()
    l1_full, l1_free = f.pair("MTE2", "MTE1", copies), f.pair("MTE1", "MTE2", copies)
    l0_full, l0_free = f.pair("MTE1", "M", copies), f.pair("M", "MTE1", copies)
    c_full, c_free = f.pair("M", "FIX", l0c_copies), f.pair("FIX", "M", l0c_copies)

    def span(rows: int, cols: int) -> int:
        return -(-cols // c0) * c0 * es * (-(-rows // 16) * 16)

    a1 = LocalBuffer("a1", "L1", 0, max(span(bm, kl1), span(kl1, bm)), copies, dtype)
    b1 = LocalBuffer(
        "b1", "L1", a1.size_bytes * copies, max(span(kl1, bn), span(bn, kl1)), copies, dtype
    )
    a0 = LocalBuffer("a0", "L0A", 0, span(bm, kl0), copies, dtype)
    b0 = LocalBuffer("b0", "L0B", 0, span(bn, kl0), copies, dtype)
    l0c = LocalBuffer(
        "c0", "L0C", 0, -(-bm // 16) * 16 * (-(-bn // 16) * 16) * 4, l0c_copies, "float32"
    )
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
        load1 = ins.nd2nz(
            at_a1,
            address(a, kt * (kl1 * M * es) + row * es),
            kk,
            m,
            M * es,
            k16 * 32,
            dtype,
            "load A",
        )
        part_a, stride_a = at_a1 + ks * (kl0 * 32), k16 * 32
    else:
        load1 = ins.nd2nz(
            at_a1,
            address(a, row * (K * es) + kt * (kl1 * es)),
            m,
            kk,
            K * es,
            m16 * 32,
            dtype,
            "load A",
        )
        part_a, stride_a = at_a1 + ks * (kl0 // c0) * (m16 * 32), m16 * 32
    if trans_b:
        load2 = ins.nd2nz(
            at_b1,
            address(b, column * (K * es) + kt * (kl1 * es)),
            n,
            kk,
            K * es,
            n16 * 32,
            dtype,
            "load B",
        )
        part_b, stride_b = at_b1 + ks * (kl0 // c0) * (n16 * 32), n16 * 32
    else:
        load2 = ins.nd2nz(
            at_b1,
            address(b, kt * (kl1 * N * es) + column * es),
            kk,
            n,
            N * es,
            k16 * 32,
            dtype,
            "load B",
        )
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
        ins.fix(
            address(c, row * (N * eo) + column * eo),
            at_c0,
            m,
            n,
            N * eo,
            m16 * 64,
            out,
            relu,
            origin="store C",
        ),
        set_flag(c_free, sc),
    )
    body = (
        *free(l1_free, l0_free, c_free),
        Repeat(i, minimum(per, total - core * per), out_block, (outs,)),
        *drain(l1_free, l0_free, c_free),
    )
    phase = Phase("matmul", "aic", core, cores, body, tuple(f.all), (a1, b1, a0, b0, l0c))
    return Program(f"matmul_{M}x{N}x{K}_{dtype}", load_device(DEVICE), (a, b, c), (phase,))


def elementwise(
    total: int,
    op: str = "VADD",
    dtype: str = "float32",
    *,
    tile: int = 4096,
    cores: int = 40,
    copies: int = 2,
) -> Program:
    """C = A op B over `total` elements, in tiles of `tile` (a multiple of 64 lanes of 4 B)."""
    es = dtypes.size_bytes(dtype)
    lanes = 256 // es
    a, b, c = (
        GlobalTensor(n, dtype, (total,), r, i)
        for i, (n, r) in enumerate((("A", "input"), ("B", "input"), ("C", "output")))
    )
    tiles = -(-total // tile)
    cores = min(cores, tiles)
    per = -(-tiles // cores)
    core = Var("core", lo=0, hi=cores - 1)
    i, seen = Var("i", lo=0, hi=per - 1), Var("seen", lo=0)
    f = Flags()
    full, free_in = f.pair("MTE2", "V", copies), f.pair("V", "MTE2", copies)
    ready, free_out = f.pair("V", "MTE3", copies), f.pair("MTE3", "V", copies)
    buffers = tuple(
        LocalBuffer(n, "UB", k * tile * es * copies, tile * es, copies, dtype)
        for k, n in enumerate("abc")
    )
    s = seen % copies
    at = [address("UB", x.offset_bytes + s * x.size_bytes) for x in buffers]
    start = (core * per + i) * tile
    n = minimum(tile, total - start)
    whole = n // lanes
    tail = n - whole * lanes
    body = (
        *free(free_in, free_out),
        Repeat(
            i,
            minimum(per, tiles - core * per),
            (
                wait_flag(free_in, s),
                ins.copy(at[0], address(a, start * es), 1, n * es, 0, 0, "MTE2", "load A"),
                ins.copy(at[1], address(b, start * es), 1, n * es, 0, 0, "MTE2", "load B"),
                set_flag(full, s),
                wait_flag(full, s),
                wait_flag(free_out, s),
                ins.vector(
                    op, dtype, at[2], at[0], at[1], lanes=lanes, repeats=whole, origin="add"
                ),
                ins.vector(
                    op,
                    dtype,
                    at[2] + whole * 256,
                    at[0] + whole * 256,
                    at[1] + whole * 256,
                    lanes=tail,
                    origin="add tail",
                ),
                set_flag(free_in, s),
                set_flag(ready, s),
                wait_flag(ready, s),
                ins.copy(address(c, start * es), at[2], 1, n * es, 0, 0, "MTE3", "store C"),
                set_flag(free_out, s),
            ),
            (seen,),
        ),
        *drain(free_in, free_out),
    )
    phase = Phase("elementwise", "aiv", core, cores, body, tuple(f.all), buffers)
    return Program(f"{op.lower()}_{total}_{dtype}", load_device(DEVICE), (a, b, c), (phase,))


def layer_norm(
    rows: int, D: int, *, tile: int = 8, cores: int = 40, copies: int = 2, eps: float = 1e-5
) -> Program:
    """y = (x - mean) / sqrt(var + eps) * gamma + beta along D, float32, `tile` rows at a time."""
    pitch = -(-D * 4 // 32) * 32
    x, gamma, beta, y = (
        GlobalTensor(n, "float32", shape, role, k)
        for k, (n, shape, role) in enumerate(
            (
                ("x", (rows, D), "input"),
                ("gamma", (D,), "input"),
                ("beta", (D,), "input"),
                ("y", (rows, D), "output"),
            )
        )
    )
    tiles = -(-rows // tile)
    cores = min(cores, tiles)
    per = -(-tiles // cores)
    core = Var("core", lo=0, hi=cores - 1)
    chunks = -(-D // 64)
    i, seen = Var("i", lo=0, hi=per - 1), Var("seen", lo=0)
    f = Flags()
    params = f.pair("MTE2", "V")
    full, free_in = f.pair("MTE2", "V", copies), f.pair("V", "MTE2", copies)
    ready, free_out = f.pair("V", "MTE3", copies), f.pair("MTE3", "V", copies)
    buffers: list[LocalBuffer] = []
    offset = 0
    for name, size, n in (
        ("x", tile * pitch, copies),
        ("y", tile * pitch, copies),
        ("gamma", pitch, 1),
        ("beta", pitch, 1),
        ("square", tile * 256, 1),
        ("acc", tile * 256, 1),
        ("stat", -(-tile * 4 // 32) * 32, 1),
        ("wide", -(-tile // 8) * 256, 1),
    ):
        buffers.append(LocalBuffer(name, "UB", offset, size, n, "float32"))
        offset += size * n
    s = seen % copies
    at = {
        b.name: address("UB", b.offset_bytes + (s * b.size_bytes if b.copies > 1 else 0))
        for b in buffers
    }
    start = (core * per + i) * tile
    r = minimum(tile, rows - start)

    def vec(op: str, dst: Expr, a: Expr | int, b: Expr | int = 0, **kw: object) -> Node:
        return ins.vector(op, "float32", dst, a, b, origin=op.lower(), **kw)  # type: ignore[arg-type]

    def over_chunks(name: str, *nodes: object) -> Repeat:
        j = Var(name, lo=0, hi=chunks - 1)
        n = minimum(64, D - j * 64)
        return Repeat(j, const(chunks), tuple(node(j * 256, n) for node in nodes))  # type: ignore[operator]

    def statistic() -> tuple[Node, ...]:
        return (
            vec("VCADD", at["stat"], at["acc"], lanes=64, repeats=r, rep=(4, 256, 0)),
            vec("VMULS", at["stat"], at["stat"], ins.immediate(1 / D, "f32"), lanes=r),
        )

    wide = {"rep": (pitch, pitch, 32), "blk": (32, 32, 0)}
    body = (
        ins.copy(at["gamma"], address(gamma), 1, D * 4, 0, 0, "MTE2", "load gamma"),
        ins.copy(at["beta"], address(beta), 1, D * 4, 0, 0, "MTE2", "load beta"),
        set_flag(params),
        *free(free_in, free_out),
        wait_flag(params),
        Repeat(
            i,
            minimum(per, tiles - core * per),
            (
                wait_flag(free_in, s),
                ins.copy(
                    at["x"], address(x, start * (D * 4)), r, D * 4, pitch, D * 4, "MTE2", "load x"
                ),
                set_flag(full, s),
                wait_flag(full, s),
                vec("VDUP", at["acc"], 0, ins.immediate(0, "f32"), lanes=64, repeats=r),
                over_chunks(
                    "j1",
                    lambda at_j, n: vec(
                        "VADD",
                        at["acc"],
                        at["acc"],
                        at["x"] + at_j,
                        lanes=n,
                        repeats=r,
                        rep=(256, 256, pitch),
                    ),
                ),
                *statistic(),
                ins.brcb(at["wide"], at["stat"], r, "float32", "mean"),
                wait_flag(free_out, s),
                over_chunks(
                    "j2",
                    lambda at_j, n: vec(
                        "VSUB",
                        at["y"] + at_j,
                        at["x"] + at_j,
                        at["wide"],
                        lanes=n,
                        repeats=r,
                        **wide,
                    ),
                ),
                set_flag(free_in, s),
                vec("VDUP", at["acc"], 0, ins.immediate(0, "f32"), lanes=64, repeats=r),
                over_chunks(
                    "j3",
                    lambda at_j, n: vec(
                        "VMUL",
                        at["square"],
                        at["y"] + at_j,
                        at["y"] + at_j,
                        lanes=n,
                        repeats=r,
                        rep=(256, pitch, pitch),
                    ),
                    lambda at_j, n: vec(
                        "VADD", at["acc"], at["acc"], at["square"], lanes=n, repeats=r
                    ),
                ),
                *statistic(),
                vec("VADDS", at["stat"], at["stat"], ins.immediate(eps, "f32"), lanes=r),
                vec("VSQRT", at["stat"], at["stat"], lanes=r),
                vec("VRDIVS", at["stat"], at["stat"], ins.immediate(1, "f32"), lanes=r),
                ins.brcb(at["wide"], at["stat"], r, "float32", "rstd"),
                over_chunks(
                    "j4",
                    lambda at_j, n: vec(
                        "VMUL",
                        at["y"] + at_j,
                        at["y"] + at_j,
                        at["wide"],
                        lanes=n,
                        repeats=r,
                        **wide,
                    ),
                    lambda at_j, n: vec(
                        "VMUL",
                        at["y"] + at_j,
                        at["y"] + at_j,
                        at["gamma"] + at_j,
                        lanes=n,
                        repeats=r,
                        rep=(pitch, pitch, 0),
                    ),
                    lambda at_j, n: vec(
                        "VADD",
                        at["y"] + at_j,
                        at["y"] + at_j,
                        at["beta"] + at_j,
                        lanes=n,
                        repeats=r,
                        rep=(pitch, pitch, 0),
                    ),
                ),
                set_flag(ready, s),
                wait_flag(ready, s),
                ins.copy(
                    address(y, start * (D * 4)), at["y"], r, D * 4, D * 4, pitch, "MTE3", "store y"
                ),
                set_flag(free_out, s),
            ),
            (seen,),
        ),
        *drain(free_in, free_out),
    )
    phase = Phase("layer_norm", "aiv", core, cores, body, tuple(f.all), tuple(buffers))
    return Program(f"layer_norm_{rows}x{D}", load_device(DEVICE), (x, gamma, beta, y), (phase,))
