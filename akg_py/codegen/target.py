"""The processor that kernels are made for: its name, features and width of a vector.

Asked once per process. A kernel compiled for one processor is never loaded on another: the name and
the features are part of the cache key.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from akg_py.records import dataclass

#: what dot instructions take: dtype of the elements -> (elements of a word, dtype of the sum)
GROUPS = {"int8": (4, "int32"), "uint8": (4, "int32"), "bfloat16": (2, "float32")}


@dataclass(frozen=True)
class Processor:
    """What kernels are made for. Sizes are bytes of a vector and of the last cache."""

    name: str
    features: str
    vector_bytes: int
    registers: int
    has_fma: bool
    has_half: bool  # instructions that convert float16
    has_scale: bool  # an instruction for x * 2**n on vectors
    has_vnni: bool = False  # dots of four uint8 and int8 on vectors of every width
    has_bf16: bool = False  # dots of two bfloat16, which take denormals as zero
    pair_lanes: tuple[int, ...] = ()  # widths in int32 with an instruction for dots of two int16
    has_masks: bool = True  # stores of some lanes cost no more than of all
    cache_bytes: int = 32 << 20  # of the last level
    has_fast_gather: bool = True  # faster than a load for each lane

    @property
    def has_few_registers(self) -> bool:
        """Whether a tile has room for 12 accumulators beside its operands, instead of 24."""
        return self.registers < 32


@functools.cache
def host() -> Processor:
    """The processor this process runs on."""
    import llvmlite.binding as llvm

    found = llvm.get_host_cpu_features()
    arm = llvm.get_default_triple().startswith(("aarch64", "arm64"))
    wide = 64 if found.get("avx512f") else 32 if found.get("avx2") else 16
    registers = 32 if wide == 64 or arm else 16
    has_fma = arm or bool(found.get("fma"))
    has_half = arm or bool(found.get("f16c"))
    has_scale = bool(found.get("avx512f") and found.get("avx512vl"))
    has_vnni = bool((found.get("avx512vnni") and found.get("avx512vl")) or found.get("avxvnni"))
    strict = os.environ.get("AKG_PY_STRICT_DENORMALS", "0") not in ("", "0")
    has_bf16 = bool(found.get("avx512bf16") and found.get("avx512vl")) and not strict
    widths = {"sse2": 4, "avx2": 8, "avx512bw": 16}
    return Processor(
        name=llvm.get_host_cpu_name(),
        features=found.flatten(),
        vector_bytes=wide,
        registers=registers,
        has_fma=has_fma,
        has_half=has_half,
        has_scale=has_scale,
        has_vnni=has_vnni,
        has_bf16=has_bf16,
        pair_lanes=tuple(n for name, n in widths.items() if found.get(name)),
        has_masks=wide == 64,
        cache_bytes=data_cache_bytes(3),
        has_fast_gather=wide > 16 and not llvm.get_host_cpu_name().startswith("znver"),
    )


@functools.cache
def data_cache_bytes(level: int) -> int:
    """Size of a data cache, 1 to 3; a usual size where the system doesn't say."""
    for place in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, size = (place / "type").read_text().strip(), (place / "size").read_text().strip()
            if kind != "Instruction" and int((place / "level").read_text()) == level:
                return int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    return {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}[level]
