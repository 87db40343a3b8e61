"""Checks of a Program: races, undefined reads, flags, deadlock, bounds, alignment, coverage.

One pass in program order per core with vector clocks; the table and `regions` are those of the
other readers. Values see wrong data and no missing flag, checks see missing flags and no wrong
data: run both. A granule is 32 B, or a fractal of 512 B where buffers are aligned to it.
"""

from __future__ import annotations

import numpy as np

from akg_py import dtypes
from akg_py.ascend import isa
from akg_py.ascend.program import Instruction, Phase, Program, space_of, walk
from akg_py.ascend.table import Table, table_of
from akg_py.errors import InternalError
from akg_py.records import dataclass

KINDS = {
    1: "bounds",
    2: "undefined read",
    3: "read after write race",
    4: "write after read race",
    5: "write after write race",
    6: "flag used again too early",
    7: "flag set twice",
    8: "deadlock",
    9: "flag left over",
    10: "alignment",
    11: "limit",
    12: "overlap",
    13: "written twice",
    14: "race between cores",
    15: "no such flag",
    16: "not written",
}
_FLAG_KINDS = (6, 7, 8, 9, 15)
_SPACE_NAMES = {number: name for name, number in isa.SPACES.items()}


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding: its kind, a message with both parties, where it happened."""

    kind: str
    message: str
    phase: str = ""
    core: int = 0
    row: int = -1
    other_row: int = -1

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def _shift(phase: Phase, scope: str) -> int:
    """log2 of the shadow granule of an on-chip memory."""
    if scope == "UB":
        return 5
    mine = [b for b in phase.buffers if b.scope == scope]
    fine = any(b.offset_bytes % 512 or b.size_bytes % 512 for b in mine)
    return 5 if fine or not mine else 9


def check(program: Program, arrays: list[np.ndarray] | None = None) -> list[Fault]:
    """All faults of a Program, at most 64 per core; an empty list if it is right.

    Args:
        arrays: if given, the Program also runs on them with poisoned memories, after clean checks.
    """
    faults: list[Fault] = []
    coverage = {
        t.index: np.zeros(t.size_bytes // dtypes.size_bytes(t.dtype), np.uint8)
        for t in program.tensors
        if t.role != "input"
    }
    for index, phase in enumerate(program.phases):
        faults += _check_phase(program, phase, table_of(program, index), coverage)
        if index + 1 < len(program.phases):
            for cells in coverage.values():
                np.minimum(cells, 1, out=cells)
    stopped = any(f.kind in ("deadlock", "flag set twice", "no such flag") for f in faults)
    for t in program.tensors:
        if t.role == "output" and not stopped:
            cells = coverage[t.index]
            if len(cells) and cells.min() == 0:
                missing = np.flatnonzero(cells == 0)
                place = ", ".join(str(int(i)) for i in np.unravel_index(missing[0], t.shape))
                faults.append(
                    Fault("not written", f"{len(missing)} elements of {t.name}, first [{place}]")
                )
    if arrays is not None and not faults:
        from akg_py.ascend.values import execute

        execute(program, arrays, poison=True)
    return faults


def _check_phase(
    program: Program, phase: Phase, table: Table, coverage: dict[int, np.ndarray]
) -> list[Fault]:
    from akg_py.ascend.readers import check_loop as c

    device = program.device
    if phase.cores > c.MAX_CORES:
        raise InternalError(f"{program.name}: {phase.cores} cores, the checks know {c.MAX_CORES}")
    work = np.zeros(c.WORK_WORDS, np.int64)
    shadows: list[np.ndarray] = []
    for scope, space in isa.SPACES.items():
        shift = _shift(phase, scope)
        size = device.capacity_bytes(scope)
        shadows.append(np.zeros(((size >> shift) + 1) * 3, np.int64))
        work[c.W_SIZES + space], work[c.W_SHIFT + space] = size, shift
        work[c.W_SHADOW + space] = shadows[-1].ctypes.data
        work[c.W_ALIGN + space] = device.alignment_bytes(scope)
    keep: list[np.ndarray] = []
    read = {
        space_of(e)
        for node in walk(phase.body)
        if isinstance(node, Instruction)
        for operand, e in zip(isa.INSTRUCTIONS[node.op].operands, node.operands, strict=True)
        if operand.role != "dst"
    }
    for t in program.tensors:
        space = isa.FIRST_TENSOR + t.index
        work[c.W_SIZES + space] = t.size_bytes
        if t.index in coverage:
            if space in read:  # the order matters only then; coverage sees a second write
                keep.append(np.zeros(((t.size_bytes >> 5) + 1) * 3, np.int64))
                keep[-1][0::3] = (
                    1  # what an earlier phase wrote is ordered; coverage knows what it didn't
                )
                work[c.W_SHADOW + space], work[c.W_SHIFT + space] = keep[-1].ctypes.data, 5
            work[c.W_COVER + space] = coverage[t.index].ctypes.data
            work[c.W_ELEMENT + space] = dtypes.size_bytes(t.dtype)
    flags = np.zeros((len(table.flags) + 1, c.FLAG_WORDS), np.int64)
    code, place = table.code.ctypes.data, work.ctypes.data
    end, traits = code + table.code.nbytes, isa.TRAITS.ctypes.data
    faults: list[Fault] = []
    seen: set[tuple[int, int, int]] = set()
    classes: dict[int, int] = {}  # digest -> first core

    def collect(core: int) -> None:
        found = work[c.W_FAULTS :][: int(work[c.W_COUNT]) * c.FAULT_WORDS].reshape(
            -1, c.FAULT_WORDS
        )
        for kind, row, other, _, space, offset in found.tolist():
            if (kind, row, other) not in seen:
                seen.add((kind, row, other))
                faults.append(
                    _describe(program, phase, table, core, kind, row, other, space, offset)
                )
        work[c.W_COUNT] = 0

    registers = table.cores.copy()
    for core in range(phase.cores):
        digest = c.survey_core(code, end, registers[core].ctypes.data, traits, place, core)
        classes.setdefault(int(digest), core)
        collect(core)
    sequence = 1
    for core in classes.values():
        for shadow in shadows:
            shadow.fill(0)
        flags.fill(0)
        work[c.W_CLOCK : c.W_CLOCK + 63] = 0
        work[c.W_CLOCK + 63] = sequence
        registers = table.cores[core].copy()
        rows = c.check_core(
            code,
            end,
            registers.ctypes.data,
            flags.ctypes.data,
            len(table.flags),
            traits,
            place,
            core,
        )
        collect(core)
        sequence = int(rows) if rows > 0 else sequence + (1 << 30)
    return faults


def _describe(
    program: Program,
    phase: Phase,
    table: Table,
    core: int,
    kind: int,
    row: int,
    other: int,
    space: int,
    offset: int,
) -> Fault:
    text = table.format_row(row, program, phase)
    if kind in _FLAG_KINDS:
        where = f"flag {offset}"
    elif space >= isa.FIRST_TENSOR and space - isa.FIRST_TENSOR < len(program.tensors):
        where = f"{program.tensors[space - isa.FIRST_TENSOR].name} + {offset} B"
    else:
        where = f"{_SPACE_NAMES.get(space, f'space {space}')} + {offset} B"
    message = f"phase {phase.name}, core {core}, {where}: {text}"
    if other >= 0:
        message += f"\n  against {table.format_row(other, program, phase)}"
    return Fault(KINDS[kind], message, phase.name, core, row, other)
