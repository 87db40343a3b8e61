"""The C function of every instruction, compiled once and called by address.

Vector instructions have one each; those of the cube path share `execute`.
"""

from __future__ import annotations

import numpy as np

from akg_py.ascend.isa import (
    COPY,
    FIX,
    INSTRUCTIONS,
    LAST_OP,
    LOAD_A,
    LOAD_B,
    MMAD,
    ND2NZ,
    T_DST,
    T_FAMILY,
    T_SRC0,
)
from akg_py.ascend.readers.cube_kernels import (
    copy,
    fix,
    load_a,
    load_b,
    load_fractals_b16,
    mmad,
    nd2nz,
)
from akg_py.ascend.readers.vector_kernels import vector_kernels
from akg_py.codegen.memory import entry, ld

MMAD_BF16 = INSTRUCTIONS["MMAD_bf16"].number
FIX_F32 = INSTRUCTIONS["FIX_f32"].number


@entry(5)
def execute(op, x, traits, pack_a, pack_b):  # type: ignore[no-untyped-def]
    """Run one instruction of the cube path; addresses in x are machine addresses."""
    family = ld(traits + T_FAMILY * 8)
    es = ld(traits + T_DST * 8)
    if family == MMAD:
        mmad(x, ld(traits + T_SRC0 * 8), op == MMAD_BF16, pack_a, pack_b)
    elif family == ND2NZ:
        nd2nz(x, es)
    elif family == LOAD_A:
        if es == 2:
            load_fractals_b16(x)
        else:
            load_a(x, es)
    elif family == LOAD_B:
        if es == 2:
            load_fractals_b16(x)
        else:
            load_b(x, es)
    elif family == FIX:
        fix(x, op - FIX_F32)
    elif family == COPY:
        copy(x)


def _table() -> np.ndarray:
    table = np.full(LAST_OP, execute.address, np.int64)
    for number, address in vector_kernels().items():
        table[number] = address
    return table


#: address of the C function of each op number
TABLE = _table()
