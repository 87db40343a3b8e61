"""Kernels of the host processor: a compiled Func that takes numpy arrays.

In: a Func at level "loops"; out: `CpuKernel`. Machine code comes from `emitter` and `objects`,
arguments are checked by `arguments`, and parallel loops run on `threads`.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from akg_py.codegen import objects, threads
from akg_py.codegen.addresses import Array, address_of
from akg_py.codegen.allocator import ALIGN
from akg_py.codegen.arguments import Signature
from akg_py.codegen.code import Code
from akg_py.codegen.target import Processor
from akg_py.ir.expr import Const
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt

if TYPE_CHECKING:
    from akg_py.codegen.emitter import Emitted
    from akg_py.cost_types import Cost

_BATCHES = 7
_BRIEF = 4096  # element operations: a few microseconds, less than taking the GIL back may cost


class Compiled:
    """Machine code of a Func, called with addresses; from the cache, or compiled now.

    Args:
        inplace: output -> input that may be the same array.
        processor: what to generate for; the host by default.

    Attributes:
        loaded: the object in this process.
        function: the C entry; it releases the GIL unless it is certain to return at once.
        workspace_bytes, thread_bytes: what it needs beside its arguments, and for each thread.
    """

    def __init__(
        self,
        func: Func,
        inplace: Mapping[Buffer, Buffer] | None = None,
        processor: Processor | None = None,
    ) -> None:
        self._code = Code(func, inplace, processor)
        self.loaded = self._code.load()
        facts = self.loaded.facts
        self.workspace_bytes = int(facts["workspace_bytes"])
        self.thread_bytes = int(facts["thread_bytes"])
        self.is_parallel = bool(facts["is_parallel"])
        self.address = self.loaded.address(facts["name"])
        brief = not self.is_parallel and iterations(func.body) <= _BRIEF
        prototype = ctypes.PYFUNCTYPE if brief else ctypes.CFUNCTYPE
        types = [ctypes.c_void_p] * (len(func.params) + 2)
        self.function = prototype(None, *types)(self.address)
        self.is_plain = not self.is_parallel and not self.workspace_bytes
        self._spare: list[tuple[int, Array]] = []

    @property
    def emitted(self) -> Emitted:
        """The LLVM IR; a kernel from the cache emits it when it is asked for."""
        return self._code.emitted

    def run(self, addresses: Sequence[Any]) -> None:
        """Run on the addresses of all parameters."""
        if self.is_plain:
            self.function(*addresses, None, None)
            return
        hands = threads.thread_count() if self.is_parallel else 1
        size = self.workspace_bytes + hands * self.thread_bytes
        if not size:
            self.function(*addresses, None, threads.team(hands))
            return
        try:  # a workspace that no other call is using
            held, space = self._spare.pop()
        except IndexError:
            held = -1
        if held < size:
            held, space = size, np.empty(size + ALIGN, np.uint8)
        start = -(-address_of(space) // ALIGN) * ALIGN
        self.function(*addresses, start, threads.team(hands))
        self._spare.append((held, space))


def iterations(s: Stmt) -> float:
    """A bound on the Stores that `s` executes."""
    match s:
        case Seq():
            return sum(map(iterations, s.stmts))
        case For():
            extent = s.extent.value if isinstance(s.extent, Const) else math.inf
            body = iterations(s.body)
            return extent * body if extent and body else 0
        case If():
            return iterations(s.body) + (0 if s.orelse is None else iterations(s.orelse))
        case Alloc() | Intrinsic():
            return iterations(s.body)
    return 1


class CpuKernel:
    """A compiled Func.

    `kernel(a, b, c)` writes the outputs in place, and so does `kernel(a, b, out=c)`, which also
    returns them; `c = kernel(a, b)` allocates and returns them, a tuple when there are several.

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
        self.compiled = Compiled(func, self.inplace)
        self._signature = Signature(func.params, func.outputs, self.inplace)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Run.

        Args:
            out: the outputs, when only inputs are passed: an array, or one of each output.

        Raises:
            ExpressionError: an argument has the wrong shape, dtype or kind, or overlaps an output.
        """
        addresses = self._signature.addresses(arrays) if out is None else None
        if addresses is not None:
            self.compiled.run(addresses)
            return None
        ready = self._signature.prepare(arrays, out)
        self.compiled.run(ready.addresses)
        return ready.finish()

    def bind(self, *arrays: Any, out: Any = None) -> Callable[[], Any]:
        """The call on these arrays with the checks done now; for repeated calls.

        Outputs that were left out are allocated once: every call returns the same arrays.
        """
        ready = self._signature.prepare(arrays, out)
        compiled, finish = self.compiled, ready.finish
        pairs = zip(ready.arrays, ready.given, strict=True)
        copies = [(copy, array) for copy, array in pairs if copy is not array]
        addresses = [ctypes.c_void_p(address) for address in ready.addresses]
        if ready.result is None and not copies:
            call: Any = (
                functools.partial(compiled.function, *addresses, None, None)
                if compiled.is_plain
                else functools.partial(compiled.run, addresses)
            )
            call.owners = (compiled, ready)  # kept alive
            return cast(Callable[[], Any], call)

        def bound() -> Any:
            for copy, array in copies:
                copy[...] = array
            compiled.run(addresses)
            return finish()

        return bound

    def time(self, *arrays: Any, seconds: float = 0.1) -> Cost:
        """The measured time of one run on these arrays.

        Args:
            seconds: how long to measure, about.

        Returns:
            The best of seven batches, with the best and the median as the interval.
        """
        from akg_py.cost_types import Cost

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
        from akg_py.codegen.numba_source import source_of

        return source_of(self.func)

    @property
    def llvm(self) -> str:
        """The LLVM IR."""
        return self.compiled.emitted.text

    @property
    def assembly(self) -> str:
        """The machine code, for reading."""
        return objects.assembly_of(self.compiled.emitted.text)

    @functools.cached_property
    def jit(self) -> Any:
        """A function that numba code can call with one array per parameter.

        It checks dtypes, layouts and shapes, but not whether arrays overlap.
        """
        from akg_py.codegen.numba_host import jit_of

        return jit_of(self)

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in self.func.params)
        return f"<CpuKernel {self.func.name}({params})>"
