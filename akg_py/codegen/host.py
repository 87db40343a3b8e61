"""Kernels of the host processor: a compiled Func that takes numpy arrays.

In: a Func at level "loops"; out: `CpuKernel`. Machine code comes from `emitter` and `objects`,
arguments are checked by `arguments`, and parallel loops run on `threads`. The GIL is released
while a kernel runs.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from akg_py.codegen import objects, threads
from akg_py.codegen.arguments import Array, address_of, prepare
from akg_py.codegen.emitter import Emitted, emit_func
from akg_py.codegen.numba_host import jit_of
from akg_py.codegen.numba_source import source_of
from akg_py.cost_types import Cost
from akg_py.ir.stmt import Buffer, Func

_ALIGN = 64
_BATCHES = 7


class Compiled:
    """Machine code of a Func, called with addresses.

    Attributes:
        emitted: the LLVM IR and what it needs.
        loaded: the object in this process.
    """

    def __init__(self, emitted: Emitted, count: int) -> None:
        self.emitted = emitted
        self.loaded = objects.load(emitted.text)
        self.address = self.loaded.address(emitted.name)
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 2))(self.address)
        self._spare: list[tuple[int, Array]] = []

    def run(self, addresses: list[int]) -> None:
        """Run on the addresses of all parameters."""
        emitted = self.emitted
        if not emitted.is_parallel and not emitted.workspace_bytes:
            self._function(*addresses, None, None)
            return
        hands = threads.thread_count() if emitted.is_parallel else 1
        size = emitted.workspace_bytes + hands * emitted.thread_bytes
        space = self._take(size) if size else None
        start = None if space is None else -(-address_of(space) // _ALIGN) * _ALIGN
        self._function(*addresses, start, threads.team(hands))
        if space is not None:
            self._spare.append((size, space))

    def _take(self, size: int) -> Array:
        """A workspace that no other call is using."""
        try:
            held, space = self._spare.pop()
        except IndexError:
            held = -1
        return space if held >= size else np.empty(size + _ALIGN, np.uint8)


def compile_func(func: Func, *, inplace: Mapping[Buffer, Buffer] | None = None) -> Compiled:
    """Compile `func`, or take its object from the cache.

    Args:
        inplace: output -> input that may be the same array.
    """
    return Compiled(emit_func(func, inplace), len(func.params))


class CpuKernel:
    """A compiled Func.

    `kernel(a, b, c)` writes the outputs in place; `c = kernel(a, b)` allocates and returns
    them, a tuple when there are several.

    Attributes:
        func: the loop IR it was made from.
        schedule: what the caller made it from, kept for reading.
    """

    def __init__(
        self, func: Func, *, schedule: Any = None, inplace: Mapping[Buffer, Buffer] | None = None
    ) -> None:
        self.func = func
        self.schedule = schedule
        self.inplace = dict(inplace or {})
        self.compiled = compile_func(func, inplace=self.inplace)

    def __call__(self, *arrays: Any) -> Any:
        """Run.

        Raises:
            ExpressionError: an argument has the wrong shape, dtype or kind, or overlaps an output.
        """
        ready = prepare(self.func.params, self.func.outputs, arrays, self.inplace)
        self.compiled.run(ready.addresses)
        return ready.finish()

    def bind(self, *arrays: Any) -> Callable[[], Any]:
        """The call on these arrays with the checks done now; for repeated calls.

        Outputs that were left out are allocated once: every call returns the same arrays.
        """
        params, outputs = self.func.params, self.func.outputs
        ready = prepare(params, outputs, arrays, self.inplace)
        taken = ready.arrays
        if ready.allocated is not None:
            written = {id(b) for b in outputs}
            taken = [a for p, a in zip(params, taken, strict=True) if id(p) not in written]
        copies = [(a, b) for a, b in zip(taken, arrays, strict=True) if a is not b]
        run, finish, addresses = self.compiled.run, ready.finish, ready.addresses

        def bound() -> Any:
            for copy, array in copies:
                copy[...] = array
            run(addresses)
            return finish()

        return bound

    def time(self, *arrays: Any, seconds: float = 0.1) -> Cost:
        """The measured time of one run on these arrays.

        Args:
            seconds: how long to measure, about.

        Returns:
            The best of seven batches, with the best and the median as the interval.
        """
        bound = self.bind(*arrays)
        bound()
        start = time.perf_counter()
        bound()
        batch = max(1, int(seconds / _BATCHES / max(time.perf_counter() - start, 1e-7)))
        measured = []
        for _ in range(_BATCHES):
            start = time.perf_counter()
            for _ in range(batch):
                bound()
            measured.append((time.perf_counter() - start) / batch)
        measured.sort()
        interval = (measured[0], measured[_BATCHES // 2])
        return Cost(measured[0], interval, 0.0, {}, {}, bound="not known", source="measured")

    @property
    def source(self) -> str:
        """The loop nest as readable Python that numba compiles; see `numba_source`."""
        return source_of(self.func)

    @property
    def llvm(self) -> str:
        """The LLVM IR."""
        return self.compiled.emitted.text

    @property
    def assembly(self) -> str:
        """The machine code, for reading."""
        return objects.assembly_of(self.compiled.emitted.text)

    @cached_property
    def jit(self) -> Any:
        """A function that numba code can call with one array per parameter; nothing is checked."""
        return jit_of(self)

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in self.func.params)
        return f"<CpuKernel {self.func.name}({params})>"
