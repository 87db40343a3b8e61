"""Narrower processors that this machine contains: kernels made for them run here."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akg_py.codegen import objects
from akg_py.codegen.emitter import Emitted, emit_func
from akg_py.codegen.target import Processor, host
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Func
from tests.codegen.funcs import assert_same, random_array

AVX2 = replace(
    host(), name="haswell", features="", vector_bytes=32, registers=16, has_fma=True, has_half=True,
    has_scale=False, has_vnni=False, has_bf16=False, pair_lanes=(4, 8), has_masks=False,
    has_fast_gather=True,
)  # fmt: skip
SSE = replace(
    host(), name="x86-64", features="", vector_bytes=16, registers=16, has_fma=False,
    has_half=False, has_scale=False, has_vnni=False, has_bf16=False, pair_lanes=(4,),
    has_masks=False, has_fast_gather=False,
)  # fmt: skip


def available() -> list[Any]:
    """The host, and AVX2 and SSE variants where they are parts of it."""
    found = [pytest.param(host(), id="host")]
    if "+avx2" in host().features and "+fma" in host().features:
        found.append(pytest.param(AVX2, id="avx2"))
    if "+sse2" in host().features:
        found.append(pytest.param(SSE, id="sse"))
    return found


def run_emitted(emitted: Emitted, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Run a module on arrays that its Func's parameters allow, in one thread."""
    loaded = objects.load(emitted.text)
    space = np.empty(emitted.workspace_bytes + emitted.thread_bytes + 64, np.uint8)
    start = -(-space.ctypes.data // 64) * 64
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 2))
    function(loaded.address(emitted.name))(*[a.ctypes.data for a in arrays], start, None)


def check_on(
    processor: Processor, f: Func, *arrays: np.ndarray[Any, Any], seed: int = 0
) -> list[np.ndarray[Any, Any]]:
    """The kernel for `processor` gives every bit that `interpret` gives."""
    rng = np.random.default_rng(seed)
    given = list(arrays) or [random_array(rng, p) for p in f.params]
    expected, actual = [a.copy() for a in given], [a.copy() for a in given]
    interpret(f, *expected)
    run_emitted(emit_func(f, processor=processor), actual)
    for p, a, e in zip(f.params, actual, expected, strict=True):
        assert_same(a, e, p.name)
    return actual
