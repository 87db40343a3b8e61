"""How long an instruction occupies its pipe, in ticks of 1/16 cycle, from sizes and a cost row.

The cost row of an op is eight float64 (columns C_*), filled by `timing.cost_table` from the
device's constants. The same columns mean the same thing for a family only; see `ticks`.
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
    T_DST,
    T_FAMILY,
    T_SRC0,
    T_WIDEST,
)
from akg_py.codegen.memory import inlined, ld, ldf

TICKS = 16
C_ISSUE, C_START, C_UNIT, C_LATENCY, C_HEAD, C_A, C_B, C_C = range(8)
COST_COLUMNS = 8


@inlined
def slots(width):  # type: ignore[no-untyped-def]
    """Packets that a row of `width` bytes takes: pieces of 512, 256, 128, 64, 32 B, greedily."""
    rest = width & 511
    return (
        (width >> 9)
        + ((rest >> 8) & 1)
        + ((rest >> 7) & 1)
        + ((rest >> 6) & 1)
        + ((rest >> 5) & 1)
        + (1 if rest & 31 else 0)
    )


@inlined
def ticks(traits, x, cost, on_scalar):  # type: ignore[no-untyped-def]
    """Ticks the instruction with operands x occupies its pipe; traits and cost: the op's rows."""
    family = ld(traits + T_FAMILY * 8)
    unit = ldf(cost + C_UNIT * 8)
    start = ldf(cost + C_START * 8)
    if family > COPY:
        if family == BRCB:
            count = ld(x + 16)
            return int(unit * ((count + 7) >> 3)) if count > 0 else 0
        lanes, repeats = ld(x + 24), ld(x + 32)
        if lanes <= 0 or repeats <= 0:
            return 0
        if on_scalar:
            return int(ldf(cost + C_B * 8) * (lanes * repeats))
        mask = ldf(cost + C_A * 8) if lanes * ld(traits + T_WIDEST * 8) != 256 else 0.0
        return int(unit * repeats + mask)
    if family == MMAD:
        m, n, k = ld(x + 24), ld(x + 32), ld(x + 40)
        if m <= 0 or n <= 0 or k <= 0:
            return 0
        k0 = 32 // ld(traits + T_SRC0 * 8)
        return int(start + unit * (((m + 15) >> 4) * ((n + 15) >> 4) * ((k + k0 - 1) // k0)))
    p, q = ld(x + 16), ld(x + 24)
    if p <= 0 or q <= 0:
        return 0
    es = ld(traits + T_DST * 8)
    if family in (LOAD_A, LOAD_B):
        c0 = 32 // es
        if family == LOAD_A:
            return int(start + unit * (((p + 15) >> 4) * ((q + c0 - 1) // c0) * 512))
        return int(start + unit * (((p + c0 - 1) // c0) * ((q + 15) >> 4) * 512))
    if family == ND2NZ:
        pitch = ld(x + 32)
        penalty = 1.0
        if p > 1:
            if pitch & 31:
                penalty += ldf(cost + C_B * 8)
            elif pitch & 511:
                penalty += ldf(cost + C_A * 8)
        return int(start + unit * penalty * (p * slots(q * es) * 512))
    if family == FIX:
        factor = ldf(cost + C_A * 8) if ld(x + 48) & ATOMIC_ADD else 1.0
        return int(start + unit * factor * (p * q * es))
    reads = ld(x + 8) >> 43 != 0  # source in GM
    pieces = p
    if ld(x + 32) == q and ld(x + 40) == q:
        pieces, q = 1, p * q
    burst = ldf(cost + C_A * 8) * min(1.0, ldf(cost + C_C * 8) / q)
    if q & 31:
        burst += ldf(cost + C_B * 8) if reads else ldf(cost + C_HEAD * 8)
    return int(max(start, pieces * (unit * q + burst)))
