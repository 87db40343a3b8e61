"""Time of a Program by its events: pipes, flags, queues and the scalar unit of every core.

time = launch + sum over phases of max(slowest core, GM port, HBM) + barriers. The model and its
constants come from the device studies; the table of the device names the source of each.
"""

from __future__ import annotations

import math

import numpy as np

from akg_py.ascend import isa
from akg_py.ascend.device import Device
from akg_py.ascend.program import Phase, Program
from akg_py.ascend.table import Table, table_of
from akg_py.cost_types import Cost, PhaseCost
from akg_py.errors import InternalError
from akg_py.records import dataclass

PARTS = (*isa.PIPES, "issue", "latency")
MAX_ACCESSES = 1 << 18  # of a core; what comes later is left out of the L2 model


def cost_table(device: Device, kind: str, cores: int) -> np.ndarray:
    """float64[ops, 8] ticks (see readers.cycles) on a device with `cores` active cores."""
    key = ("costs", kind, cores)
    table: np.ndarray | None = device.cache.get(key)
    if table is None:
        table = device.cache[key] = _fill_costs(device, cores)
    return table


def _fill_costs(device: Device, cores: int) -> np.ndarray:
    from akg_py.ascend.readers.cycles import (
        C_A,
        C_B,
        C_C,
        C_HEAD,
        C_ISSUE,
        C_LATENCY,
        C_START,
        C_UNIT,
        TICKS,
    )

    d = device
    table = np.zeros((isa.LAST_OP, 8))
    table[0, C_LATENCY] = d["copy.write_latency_cycles"]
    for spec in isa.INSTRUCTIONS.values():
        row = table[spec.number]
        if spec.family == isa.ND2NZ:
            row[C_ISSUE], row[C_LATENCY] = d["mte2.issue_cycles"], d["mte2.latency_cycles"]
            row[C_UNIT] = 1 / min(d["mte2.bytes_per_cycle"], d["mte2.l2_bytes_per_cycle"] / cores)
            row[C_A], row[C_B] = d["mte2.stride_penalty"], d["mte2.odd_row_penalty"]
        elif spec.family in (isa.LOAD_A, isa.LOAD_B):
            row[C_ISSUE], row[C_LATENCY] = d["mte1.issue_cycles"], d["mte1.latency_cycles"]
            row[C_UNIT] = (
                1
                / d[
                    "mte1.l0a_bytes_per_cycle"
                    if spec.family == isa.LOAD_A
                    else "mte1.l0b_bytes_per_cycle"
                ]
            )
        elif spec.family == isa.MMAD:
            row[C_ISSUE], row[C_START] = d["cube.issue_cycles"], d["cube.start_cycles"]
            row[C_UNIT] = d[f"cube.fractal_cycles_{spec.dtypes[1]}"]
        elif spec.family == isa.FIX:
            row[C_ISSUE], row[C_START] = d["fix.issue_cycles"], d["fix.start_cycles"]
            row[C_UNIT], row[C_A] = 1 / d["fix.bytes_per_cycle"], d["fix.atomic_factor"]
        elif spec.family == isa.COPY:
            row[C_ISSUE], row[C_LATENCY] = d["copy.issue_cycles"], d["copy.read_latency_cycles"]
            row[C_START], row[C_UNIT] = d["copy.minimum_cycles"], 1 / d["copy.bytes_per_cycle"]
            row[C_A] = d["copy.burst_cycles"]
            row[C_B], row[C_HEAD] = (
                d["copy.misaligned_read_cycles"],
                d["copy.misaligned_write_cycles"],
            )
        else:
            head, repeat, tail = d[f"vector.ops.{spec.cost}"]
            if "f16" in spec.dtypes:
                repeat = d.get(f"vector.half.{spec.cost}", repeat)
            row[C_ISSUE], row[C_HEAD], row[C_LATENCY] = d["vector.issue_cycles"], head, tail
            row[C_UNIT], row[C_B] = repeat * d["vector.kv"], d["vector.scalar_cycles"]
            two_sources = spec.dtypes[2] != "" and spec.cost != "VSEL"
            row[C_A] = d["vector.mask_cycles"] if two_sources else 0
    table *= TICKS
    table[isa.INSTRUCTIONS["COPY"].number, C_C] = d["copy.burst_scaled_above_bytes"]
    for spec in isa.INSTRUCTIONS.values():
        row = table[spec.number]
        if spec.family == isa.ND2NZ:
            row[[C_A, C_B]] /= TICKS  # shares, not times
        elif spec.family == isa.FIX:
            row[C_A] /= TICKS
    return table


@dataclass(frozen=True, slots=True, eq=False)
class PhaseTimes:
    """Raw results of a phase: per core cycles, busy cycles by pipe, device rows; bytes by space."""

    cycles: np.ndarray
    busy: np.ndarray
    rows: np.ndarray
    executed: np.ndarray
    read: np.ndarray
    written: np.ndarray
    port_bytes: np.ndarray


def time_phase(
    program: Program, index: int, *, early_stop: bool = True, costs: np.ndarray | None = None
) -> PhaseTimes:
    """Run the time reader over all cores of a phase."""
    from akg_py.ascend.readers.cycles import TICKS
    from akg_py.ascend.readers.timing_loop import (
        S_BUSY,
        S_EXECUTED,
        S_PORT,
        S_READ,
        S_ROWS,
        S_WRITTEN,
        simulate_cores,
    )

    phase, table = program.phases[index], table_of(program, index)
    if costs is None:
        costs = cost_table(program.device, phase.kind, phase.cores)
    states = _run(program, phase, table, costs, early_stop, simulate_cores)
    pipes = states[:, S_BUSY : S_BUSY + len(isa.PIPES)] / TICKS
    return PhaseTimes(
        _finish(states) / TICKS,
        pipes,
        states[:, S_ROWS],
        states[:, S_EXECUTED],
        states[:, S_READ : S_READ + 64].sum(0),
        states[:, S_WRITTEN : S_WRITTEN + 64].sum(0),
        states[:, S_PORT],
    )


def _finish(states: np.ndarray) -> np.ndarray:
    return states[:, :16].max(axis=1)  # type: ignore[no-any-return]


def _run(
    program: Program, phase: Phase, table: Table, costs: np.ndarray, early: bool, reader: object
) -> np.ndarray:
    from akg_py.ascend.readers.timing_loop import MAX_COUNTERS, N_STATE, PIPES, QUEUE, S_FLAGS

    flags = len(table.flags)
    words = S_FLAGS + flags
    snapshot_words = N_STATE + 15 + flags + PIPES * QUEUE
    early = early and table.marks > 0 and len(table.counters) <= MAX_COUNTERS
    states = np.zeros((phase.cores, words), np.int64)
    work = np.zeros(16 + table.cores.shape[1] + table.marks * snapshot_words + 1, np.int64)
    code = table.code.ctypes.data
    outcome, core, row, detail = reader(  # type: ignore[operator]
        code,
        code + table.code.nbytes,
        table.cores.ctypes.data,
        table.cores.shape[1],
        phase.cores,
        isa.TRAITS.ctypes.data,
        costs.ctypes.data,
        flags,
        table.pipes,
        table.counters.ctypes.data,
        len(table.counters),
        int(early),
        states.ctypes.data,
        words,
        work.ctypes.data,
        snapshot_words,
    )
    if outcome:
        from akg_py.ascend.values import describe

        reason = {1: 2, 2: 3, 3: 1}[outcome]
        detail = -1 if outcome == 3 else detail
        why = describe(program, phase, table, core, reason, row, detail)
        raise InternalError(f"{program.name}: {why}")
    return states


def critical_path(
    program: Program, index: int, core: int, costs: np.ndarray | None = None
) -> dict[str, float]:
    """Cycles of a core's critical path by pipe, "issue" and "latency"; they add up."""
    from akg_py.ascend.readers.cycles import TICKS
    from akg_py.ascend.readers.timing_loop import EMPTY, S_FLAGS, simulate_core

    phase, table = program.phases[index], table_of(program, index)
    if costs is None:
        costs = cost_table(program.device, phase.kind, phase.cores)
    flags = len(table.flags)
    state = np.zeros(S_FLAGS + flags, np.int64)
    state[S_FLAGS:] = EMPTY
    parts = np.zeros((len(state), len(PARTS)), np.int64)
    registers, x, code = table.cores[core].copy(), np.zeros(16, np.int64), table.code.ctypes.data
    simulate_core(
        code,
        code + table.code.nbytes,
        registers.ctypes.data,
        isa.TRAITS.ctypes.data,
        costs.ctypes.data,
        flags,
        table.pipes,
        0,
        0,
        0,
        state.ctypes.data,
        x.ctypes.data,
        0,
        0,
        parts.ctypes.data,
    )
    last = int(state[:16].argmax())
    return {name: float(v) / TICKS for name, v in zip(PARTS, parts[last], strict=True)}


def launch_seconds(program: Program) -> float:
    """Launch and prologue of the whole Program."""
    d = program.device
    cube = [p for p in program.phases if p.kind == "aic"]
    if cube:
        return (
            float(
                d["launch.matmul_us"] + d["launch.matmul_us_per_core"] * max(p.cores for p in cube)
            )
            * 1e-6
        )
    blocks = max((p.cores for p in program.phases), default=1)
    inputs = sum(t.role == "input" for t in program.tensors)
    launch = d["launch.vector_us"] + d["launch.vector_saturation_us"] * (
        1 - math.exp(-(blocks - 1) / d["launch.vector_saturation_cores"])
    )
    spread = (blocks - 1) / max(d.cores("aiv") - 1, 1)
    prologue = (
        d["launch.prologue_us"]
        + d["launch.prologue_us_per_input"] * inputs
        + d["launch.code_fetch_us"] * spread
    )
    return float(launch + prologue) * 1e-6


def _hbm(
    program: Program, index: int, read: np.ndarray, written: np.ndarray, touched: set[int], l2: str
) -> tuple[int, int]:
    """Bytes a phase reads from and writes to HBM.

    Tensors that fit L2 together: cold, the first touch of each input byte; warm, nothing. Otherwise
    the accesses of all cores go through a model of L2 (device study of matmul, section 3: waves of
    cores share what they read at the same time).
    """
    capacity = program.device.capacity_bytes("L2")
    spaces = {t.index: isa.FIRST_TENSOR + t.index for t in program.tensors}
    once = {t.index: min(t.size_bytes, int(read[spaces[t.index]])) for t in program.tensors}
    out = {t.index: min(t.size_bytes, int(written[spaces[t.index]])) for t in program.tensors}
    footprint = sum(min(t.size_bytes, once[t.index] + out[t.index]) for t in program.tensors)
    if footprint > capacity:
        return _l2_misses(program, index, capacity)
    reads = 0
    for t in program.tensors:
        if l2 == "cold" and t.role == "input" and t.index not in touched:
            reads += once[t.index]
        if once[t.index] or out[t.index]:
            touched.add(t.index)
    return reads, 0


def _l2_misses(program: Program, index: int, capacity: int) -> tuple[int, int]:
    """Read misses and written bytes of a phase whose tensors exceed L2."""
    from akg_py.ascend.readers.cache_loop import list_accesses, miss_bytes

    phase, table = program.phases[index], table_of(program, index)
    code, x = table.code.ctypes.data, np.zeros(16, np.int64)
    lists: list[np.ndarray] = []
    guess = 1024
    while len(lists) < phase.cores:
        entries = np.empty((min(guess, MAX_ACCESSES), 3), np.int64)
        registers = table.cores[len(lists)].copy()
        count = list_accesses(
            code,
            code + table.code.nbytes,
            registers.ctypes.data,
            x.ctypes.data,
            isa.TRAITS.ctypes.data,
            entries.ctypes.data,
            len(entries),
        )
        if count > len(entries) and len(entries) < MAX_ACCESSES:
            guess = count
        else:
            lists.append(entries[:count])
    counts = np.array([len(entries) for entries in lists], np.int64)
    starts = np.array([entries.ctypes.data for entries in lists], np.int64)
    size = 1 << max(10, int(counts.sum() * 2).bit_length())
    keys, arrivals, result = (
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(2, np.int64),
    )
    miss_bytes(
        starts.ctypes.data,
        counts.ctypes.data,
        phase.cores,
        capacity,
        keys.ctypes.data,
        arrivals.ctypes.data,
        size - 1,
        result.ctypes.data,
    )
    return int(result[0]), int(result[1])


def _hbm_seconds(device: Device, kind: str, reads: int, writes: int) -> float:
    if kind == "aic":
        return (reads + writes) / float(device["hbm.bytes_per_us_matmul"]) * 1e-6
    small, large = sorted((reads, writes))
    mix = min(1.0, small / large / device["hbm.mixed_full_share"]) if large else 0.0
    rate = device["hbm.bytes_per_us_vector"] * (1 - mix * (1 - device["hbm.mixed_factor"]))
    return float((reads + writes) / rate) * 1e-6


def simulate(
    program: Program, l2: str = "warm", early_stop: bool = True, attribute: bool = False
) -> Cost:
    """Time of a Program with its breakdown.

    Args:
        l2: "warm" (inputs in L2 as far as they fit) or "cold" (inputs in HBM).
        early_stop: skip loop iterations once the state of the pipes recurs; exact.
        attribute: follow the critical path of each phase's slowest core.
    """
    device = program.device
    phases: list[PhaseCost] = []
    read, written = np.zeros(64, np.int64), np.zeros(64, np.int64)
    touched: set[int] = set()
    hbm_bytes = 0
    for index, phase in enumerate(program.phases):
        times = time_phase(program, index, early_stop=early_stop)
        slowest = int(times.cycles.argmax())
        cycles, clock = float(times.cycles[slowest]), device.clock_hz(phase.kind)
        reads, writes = _hbm(program, index, times.read, times.written, touched, l2)
        hbm_bytes += reads + writes
        hbm = _hbm_seconds(device, phase.kind, reads, writes)
        port = float(times.port_bytes.max()) / device["copy.port_bytes_per_cycle"] / clock
        busy = dict(zip(isa.PIPES, map(float, times.busy[slowest]), strict=True))
        critical = critical_path(program, index, slowest) if attribute else {}
        seconds = max(cycles / clock, port, hbm)
        if seconds == hbm and hbm > cycles / clock:
            bound = "HBM"
        elif port > cycles / clock:
            bound = "GM port"
        else:
            share = critical or busy
            bound = max(share, key=lambda k: share[k])
        phases.append(
            PhaseCost(
                phase.name,
                phase.kind,
                phase.cores,
                seconds,
                cycles,
                busy,
                critical,
                hbm,
                port,
                bound,
            )
        )
        read += times.read
        written += times.written
    launch = launch_seconds(program)
    barrier = max(0, len(phases) - 1) * device["sync.barrier_us"] * 1e-6
    seconds = launch + barrier + sum(p.seconds for p in phases)
    family = "matmul" if any(p.kind == "aic" for p in phases) else "vector"
    residual = float(device[f"residual.{family}"])
    longest = max(phases, key=lambda p: p.seconds, default=None)
    bound = (
        "launch" if longest is None or launch > max(p.seconds for p in phases) else longest.bound
    )
    return Cost(
        seconds,
        (seconds * (1 - residual), seconds * (1 + residual)),
        sum(p.cycles for p in phases),
        _sum(p.busy for p in phases),
        _sum(p.critical for p in phases),
        bound,
        tuple(phases),
        launch,
        barrier,
        {t.name: int(read[8 + t.index]) for t in program.tensors},
        {t.name: int(written[8 + t.index]) for t in program.tensors},
        hbm_bytes,
        l2,
        "simulated",
        residual,
        device.parameters[f"residual.{family}"].source,
    )


def _sum(parts: object) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:  # type: ignore[attr-defined]
        for key, value in part.items():
            total[key] = total.get(key, 0.0) + value
    return total
