"""Every instruction has operand names, regions, cycles, a kernel and a price with a source."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from akg_py.ascend import isa, timing
from akg_py.ascend.device import known_devices, load_device
from akg_py.ascend.values import core_memory
from akg_py.codegen.memory import compiled
from akg_py.errors import UnsupportedError

DEVICE = "ascend910b3"


def plausible(spec):
    """Operands of a small legal use."""
    space = {
        isa.ND2NZ: (isa.SPACES["L1"], 8),
        isa.LOAD_A: (isa.SPACES["L0A"], isa.SPACES["L1"]),
        isa.LOAD_B: (isa.SPACES["L0B"], isa.SPACES["L1"]),
        isa.MMAD: (isa.SPACES["L0C"], isa.SPACES["L0A"], isa.SPACES["L0B"]),
        isa.FIX: (8, isa.SPACES["L0C"]),
        isa.COPY: (isa.SPACES["UB"], 8),
    }.get(spec.family, (isa.SPACES["UB"],) * 3)
    out = np.zeros(16, np.int64)
    place = 0
    for i, o in enumerate(spec.operands):
        if o.role in ("dst", "src", "inout"):
            out[i] = space[place] << isa.SPACE_SHIFT | 4096 * place
            place += 1
        elif o.role == "size":
            out[i] = {"lanes": 16, "repeats": 2, "bytes": 64}.get(o.name, 16)
        elif o.role == "stride":
            out[i] = 32 if o.name.endswith("_blk") else 1024
    return out


@pytest.mark.parametrize("op", list(isa.INSTRUCTIONS))
def test_instruction_is_complete(op):
    from akg_py.ascend.readers import kernels, probe

    spec = isa.INSTRUCTIONS[op]
    assert len(spec.operands) <= isa.MAX_OPERANDS
    assert len(set(spec.names)) == len(spec.names)
    assert spec.doc and spec.pipe in isa.PIPES
    assert spec.operands[0].role in ("dst", "inout")
    x = plausible(spec)
    device = load_device(DEVICE)
    regions = np.zeros((4, 8), np.int64)
    costs = timing.cost_table(device, "aiv", 1)
    traits = isa.TRAITS[spec.number]
    count = probe.regions_of(traits.ctypes.data, x.ctypes.data, regions.ctypes.data)
    sources = sum(o.role == "src" for o in spec.operands)
    assert count == sources + 1
    assert regions[count - 1, 7] in (1, 2) and not regions[: count - 1, 7].any()
    assert {int(r[0]) for r in regions[:count]} <= {int(x[i]) for i in spec.addresses}
    assert probe.ticks_of(traits.ctypes.data, x.ctypes.data, costs[spec.number].ctypes.data) > 0
    assert costs[spec.number, 0] > 0  # issue
    memory = core_memory(device)
    tensor = np.zeros(65536, np.uint8)
    memory.attach([tensor])
    if spec.family == isa.FIX:
        memory.scopes["L0C"].view(np.float32)[:] = 1
    elif spec.family not in (isa.MMAD,):
        for array in (*memory.scopes.values(), tensor):
            array[:] = np.arange(1, len(array) + 1) % 60 + 1
    before = {name: a.copy() for name, a in (*memory.scopes.items(), ("GM", tensor))}
    for i in spec.addresses:
        x[i] = memory.base[x[i] >> 40] + (x[i] & isa.OFFSET_MASK)
    if op.startswith("VDUP"):
        x[2] = 12345
    if spec.family == isa.MMAD:
        for name in ("L0A", "L0B"):
            memory.scopes[name][:] = 0x3C if "bf16" not in op else 0x3F
    if spec.family == isa.VECTOR and op.startswith(
        ("VMAX_", "VMIN_", "VCOPY", "VRELU", "VABS", "VFLOOR", "VCEIL", "VROUND", "VTRUNC")
    ):
        memory.scopes["UB"][:4096] = 0
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)
    function(int(kernels.TABLE[spec.number]))(
        spec.number, x.ctypes.data, traits.ctypes.data, *memory.work[64:66].tolist()
    )
    changed = {
        name
        for name, a in (*memory.scopes.items(), ("GM", tensor))
        if not np.array_equal(a, before[name])
    }
    assert changed, f"{op} has no kernel"


@pytest.mark.parametrize("name", known_devices())
def test_every_constant_has_a_source(name):
    device = load_device(name)
    for key, p in device.parameters.items():
        assert p.unit and len(p.source) >= 3, key
    assert device.cores("aic") > 0 and device.capacity_bytes("UB") > 0


def test_devices_differ_where_their_tables_say():
    b3, b4 = load_device("ascend910b3"), load_device("ascend910b4")
    assert b4["hbm.bytes_per_us_vector"] < b3["hbm.bytes_per_us_vector"] / 2 + 1
    assert b4.capacity_bytes("L2") * 2 == b3.capacity_bytes("L2")
    assert b4["mte2.latency_cycles"] == b3["mte2.latency_cycles"]
    assert len({load_device(name).digest for name in known_devices()}) == len(known_devices())
    with pytest.raises(UnsupportedError, match="known devices: ascend910b1"):
        load_device("ascend999")


def test_compiled_is_cached_beside_the_source():
    assert callable(compiled)
    assert len({spec.number for spec in isa.INSTRUCTIONS.values()}) == len(isa.INSTRUCTIONS)
    assert min(spec.number for spec in isa.INSTRUCTIONS.values()) == isa.FIRST_INSTRUCTION
