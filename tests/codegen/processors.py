"""Narrower processors that this machine contains: kernels made for them run here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akg_py.codegen.emitter import Emitted, emit_func
from akg_py.codegen.host import Compiled
from akg_py.codegen.target import Processor, host
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Func
from tests.codegen.funcs import assert_same, random_array

AVX2 = replace(
    host(), name="haswell", vector_bytes=32, registers=16, has_fma=True, has_half=True,
    has_scale=False,
)  # fmt: skip
SSE = replace(
    host(), name="x86-64", vector_bytes=16, registers=16, has_fma=False, has_half=False,
    has_scale=False,
)  # fmt: skip


def available() -> list[Any]:
    """The host, and AVX2 and SSE variants where they are parts of it."""
    found = [pytest.param(host(), id="host")]
    if "+avx2" in host().features and "+fma" in host().features:
        found.append(pytest.param(AVX2, id="avx2"))
    if "+sse2" in host().features:
        found.append(pytest.param(SSE, id="sse"))
    return found


def emit_for(f: Func, processor: Processor) -> Emitted:
    """The module for `processor`, to be compiled with its instructions only."""
    emitted = emit_func(f, processor=processor)
    if processor.name == host().name:
        return emitted
    marked = f'nounwind "target-cpu"="{processor.name}" "target-features"="" '
    return replace(emitted, text=emitted.text.replace("{ nounwind ", f"{{ {marked} "))


def check_on(
    processor: Processor, f: Func, *arrays: np.ndarray[Any, Any], seed: int = 0
) -> list[np.ndarray[Any, Any]]:
    """The kernel for `processor` gives every bit that `interpret` gives."""
    rng = np.random.default_rng(seed)
    given = list(arrays) or [random_array(rng, p) for p in f.params]
    expected, actual = [a.copy() for a in given], [a.copy() for a in given]
    interpret(f, *expected)
    Compiled(emit_for(f, processor), len(f.params)).run([a.ctypes.data for a in actual])
    for p, a, e in zip(f.params, actual, expected, strict=True):
        assert_same(a, e, p.name)
    return actual
