"""Values of a Program: runs the tables of its phases on modelled memories, in compiled code.

Cores of a phase are independent, so threads take them from a list; the bits don't depend on the
number of threads. Every access is bounds-checked (addresses are real). User arrays are used in
place.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from akg_py.ascend import isa
from akg_py.ascend.device import Device
from akg_py.ascend.program import Phase, Program
from akg_py.ascend.table import Table, table_of
from akg_py.codegen.threads import processors
from akg_py.errors import InternalError

PACK_BYTES = 1 << 19
POISON = 0xFF  # NaN in every float dtype
_local = threading.local()
_pool: list[ThreadPoolExecutor] = []


class CoreMemory:
    """On-chip memories and work space of one simulated core; kept per thread."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.arrays: list[np.ndarray] = []
        self.base = np.zeros(isa.MAX_SPACES, np.int64)
        self.size = np.zeros(isa.MAX_SPACES, np.int64)
        self.scopes: dict[str, np.ndarray] = {}
        for scope, space in isa.SPACES.items():
            array = self.allocate(device.capacity_bytes(scope))
            self.scopes[scope] = array
            self.base[space], self.size[space] = array.ctypes.data, len(array)
        self.work = np.zeros(72, np.int64)
        for i in range(2):
            self.work[64 + i] = self.allocate(PACK_BYTES).ctypes.data
        from akg_py.ascend.readers.kernels import TABLE

        self.work[67] = TABLE.ctypes.data

    def allocate(self, size: int) -> np.ndarray:
        """`size` zero bytes from a 64 B boundary."""
        raw = np.zeros(size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        self.arrays.append(raw)
        return raw[start : start + size]

    def attach(self, arrays: list[np.ndarray]) -> None:
        """Let tensor spaces name the user's arrays."""
        for i, array in enumerate(arrays):
            space = isa.FIRST_TENSOR + i
            self.base[space], self.size[space] = array.ctypes.data, array.nbytes
        self.size[isa.FIRST_TENSOR + len(arrays) :] = 0

    def poison(self, kind: str = "") -> None:
        """Fill the on-chip memories of a core kind (of all kinds) with NaN bytes."""
        for scope, array in self.scopes.items():
            if not kind or (scope == "UB") == (kind == "aiv"):
                array.fill(POISON)


def core_memory(device: Device) -> CoreMemory:
    """This thread's memories for the device."""
    known: dict[str, CoreMemory] = _local.__dict__.setdefault("memories", {})
    memory = known.get(device.digest)
    if memory is None:
        memory = known[device.digest] = CoreMemory(device)
    return memory


def pool() -> ThreadPoolExecutor:
    """The process's worker threads."""
    if not _pool:
        _pool.append(ThreadPoolExecutor(max(1, processors() - 1), "akg-core"))
    return _pool[0]


def check_arrays(program: Program, arrays: list[np.ndarray]) -> None:
    """Refuse arrays that don't fit the tensors byte for byte."""
    if len(arrays) != len(program.tensors):
        raise InternalError(
            f"{program.name} takes {len(program.tensors)} arrays, got {len(arrays)}"
        )
    for tensor, array in zip(program.tensors, arrays, strict=True):
        if array.nbytes != tensor.size_bytes or not array.flags.c_contiguous:
            raise InternalError(
                f"{tensor.name} needs {tensor.size_bytes} contiguous bytes, got {array.nbytes}"
            )


def execute(
    program: Program, arrays: list[np.ndarray], threads: int | None = None, poison: bool = False
) -> None:
    """Run the Program on `arrays`, in tensor order; outputs and workspaces are written in place.

    Args:
        threads: worker threads, default one per CPU.
        poison: fill on-chip memories, outputs and workspaces with NaN bytes first.
    """
    check_arrays(program, arrays)
    if poison:
        for tensor, array in zip(program.tensors, arrays, strict=True):
            if tensor.role != "input":
                array.reshape(-1).view(np.uint8).fill(POISON)
    for index, phase in enumerate(program.phases):
        _run_phase(program, phase, table_of(program, index), arrays, threads, poison)


def _run_phase(
    program: Program,
    phase: Phase,
    table: Table,
    arrays: list[np.ndarray],
    threads: int | None,
    poison: bool,
) -> None:
    from akg_py.ascend.readers.values_loop import run_core

    code = table.code.ctypes.data
    end = code + table.code.nbytes
    traits = isa.TRAITS.ctypes.data
    registers = table.cores.copy()
    waiting = iter(range(phase.cores))
    lock = threading.Lock()
    failures: list[tuple[int, tuple[int, int, int, int]]] = []

    def work() -> None:
        memory = core_memory(program.device)
        memory.attach(arrays)
        memory.work[66] = len(table.flags)
        flags = np.zeros(len(table.flags) + 1, np.int64)
        while not failures:
            with lock:
                core = next(waiting, None)
            if core is None:
                return
            flags.fill(0)
            if poison:
                memory.poison(phase.kind)
            result = run_core(
                code,
                end,
                registers[core].ctypes.data,
                flags.ctypes.data,
                memory.base.ctypes.data,
                memory.size.ctypes.data,
                traits,
                memory.work.ctypes.data,
            )
            if result[0]:
                failures.append((core, result))

    workers = min(threads or processors(), phase.cores)
    others = [pool().submit(work) for _ in range(workers - 1)]
    work()
    for other in others:
        other.result()
    if failures:
        core, (outcome, row, detail, _) = min(failures)
        raise InternalError(
            f"{program.name}: {describe(program, phase, table, core, outcome, row, detail)}"
        )


def describe(
    program: Program, phase: Phase, table: Table, core: int, outcome: int, row: int, detail: int
) -> str:
    """Why a core stopped, in words."""
    text = table.format_row(row, program, phase)
    if outcome == 1:
        what = f"access {detail} leaves its memory" if detail >= 0 else "no such flag"
    else:
        reason = "waited for but not set (deadlock)" if outcome == 2 else "set twice"
        what = f"flag {detail} is {reason}"
    return f"phase {phase.name}, core {core}: {what}: {text}"


def allocate(program: Program) -> list[Any]:
    """Zeroed arrays for all tensors of the Program."""
    from akg_py.dtypes import numpy_dtype

    return [np.zeros(t.shape, numpy_dtype(t.dtype)) for t in program.tensors]
