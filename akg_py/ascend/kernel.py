"""A kernel on a simulated Ascend part.

Values come from the Program's table, times from the event engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.ascend import check, timing, values
from akg_py.ascend.check import Fault
from akg_py.ascend.device import Device
from akg_py.ascend.emit import emit_program
from akg_py.ascend.program import Program
from akg_py.ascend.select import select_instructions
from akg_py.codegen.arguments import Signature
from akg_py.cost_types import Cost
from akg_py.errors import ExpressionError, PerformanceWarning
from akg_py.ir.stmt import Buffer, Func


class AscendKernel:
    """A Program with its Func and schedule.

    `kernel(a, b, c)` writes the outputs in place; `c = kernel(a, b)` allocates and returns them.

    Attributes:
        func: the loop IR it was made from.
        program: the instructions; prints as an assembly listing.
        schedule: the completed schedule.
        scalar_stages: stages with element operations on the scalar pipe, which is slow.
    """

    def __init__(
        self,
        func: Func,
        device: Device,
        *,
        schedule: Any = None,
        inplace: Mapping[Buffer, Buffer] | None = None,
    ) -> None:
        self.func = func
        self.schedule = schedule
        self.inplace = dict(inplace or {})
        self._signature = Signature(func.params, func.outputs, inplace)
        selection = select_instructions(func)
        self.scalar_stages = tuple(selection.scalar_stages)
        if self.scalar_stages:
            places = ", ".join(map(str, selection.scalar_stages.values()))
            warnings.warn(
                f"{places}: element by element on the scalar pipe, about 100 times slower "
                "than in vector lanes; keep the last axis contiguous and its tiles multiples of "
                "32 bytes",
                PerformanceWarning,
                stacklevel=3,
            )
        self.program: Program = emit_program(func, selection, device)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Run on the modelled memories of the device.

        Args:
            out: the outputs, when only inputs are passed: an array, or one of each output.

        Raises:
            ExpressionError: an argument has the wrong shape, dtype or kind, or overlaps an output.
        """
        ready = self._signature.prepare(arrays, out)
        values.execute(self.program, [*ready.arrays, *self._workspaces()])
        return ready.finish()

    def bind(self, *arrays: Any, out: Any = None) -> Callable[[], Any]:
        """The call on these arrays, for repeated runs."""
        return lambda: self(*arrays, out=out)

    def _workspaces(self) -> list[np.ndarray[Any, Any]]:
        return [
            np.empty(t.shape, dtypes.numpy_dtype(t.dtype))
            for t in self.program.tensors
            if t.role == "workspace"
        ]

    def time(self, l2: str = "warm") -> Cost:
        """The simulated time of one launch.

        Args:
            l2: "warm" if the tensors are in L2 (back-to-back launches), "cold" if they come from
                HBM.
        """
        return timing.simulate(self.program, l2=_check_l2(l2))

    def profile(self, l2: str = "warm") -> Cost:
        """Like `time`, with the cycles of the critical path attributed to pipes."""
        return timing.simulate(self.program, l2=_check_l2(l2), attribute=True)

    def check(self, *arrays: Any) -> list[Fault]:
        """Run the checking mode: undefined reads, races, deadlocks, flags, bounds, alignment.

        Args:
            arrays: as in a call; then the program also runs on them, with poisoned memories.

        Returns:
            The faults, each with the instructions and their origins; empty if all is well.
        """
        if not arrays:
            return check.check(self.program)
        ready = self._signature.prepare(arrays)
        faults = check.check(self.program, [*ready.arrays, *self._workspaces()])
        ready.finish()
        return faults

    @property
    def source(self) -> str:
        """The Program as an assembly listing with the origin of each instruction."""
        return self.program.listing()

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in self.func.params)
        return f"<AscendKernel {self.func.name}({params}) on {self.program.device.name}>"


def _check_l2(l2: object) -> str:
    if isinstance(l2, str) and l2 in ("warm", "cold"):
        return l2
    given = repr(l2) if isinstance(l2, str) else type(l2).__name__
    raise ExpressionError(f"l2 is {given}", hint='"warm" or "cold"; simulated times need no arrays')
