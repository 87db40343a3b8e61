"""The compiler from end to end: `lower` and `build`, one line per pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from akg_py.errors import ExpressionError, ScheduleError
from akg_py.ir.stmt import Buffer, Func
from akg_py.ir.verify import verify
from akg_py.lowering import lower_schedule
from akg_py.target import Target, find_target
from akg_py.te.schedule import Schedule
from akg_py.te.tensor import Tensor

if TYPE_CHECKING:
    from akg_py.ascend.kernel import AscendKernel
    from akg_py.codegen.host import CpuKernel

AUTO = ("full", "complete", False)


def lower(schedule: Schedule, args: Sequence[Tensor], name: str = "main") -> Func:
    """Loop IR of a schedule exactly as it stands.

    Args:
        args: every input and every output, in the order of the kernel's parameters.

    Raises:
        ScheduleError: the schedule contradicts itself, or `args` lack a tensor.
    """
    _check_schedule(schedule, "lower")
    func = lower_schedule(schedule, args, name)
    verify(func, "lower")
    return func


def complete(schedule: Schedule, target: str | Target) -> Schedule:
    """A copy of `schedule` with the steps that `target` needs and it lacks (marked `auto`)."""
    _check_schedule(schedule, "complete")
    from akg_py.autoschedule import complete_schedule

    return complete_schedule(schedule, find_target(target))


def build(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: str | Target = "cpu",
    *,
    auto: str | bool = "complete",
    name: str = "main",
    inplace: Mapping[Tensor, Tensor] | None = None,
) -> CpuKernel | AscendKernel:
    """Compile a schedule for a target.

    Args:
        args: every input and every output, in the order of the kernel's parameters.
        auto: "complete" appends what the target needs (an untouched schedule gets everything),
            "full" decides also which stages are computed together, False builds exactly what is
            there.
        inplace: output -> input that may be passed the same array.

    Returns:
        A kernel: call it with arrays; `.time()`, `.schedule`, `.func`, `.source`.

    Raises:
        ScheduleError, CapacityError, UnsupportedError: with the user's line and a hint.
    """
    part = find_target(target)
    if auto not in AUTO:
        raise ScheduleError(f"auto={auto!r}", hint=f"use one of {', '.join(map(repr, AUTO))}")
    _check_schedule(schedule, "build")
    if inplace is not None and not isinstance(inplace, Mapping):
        raise ExpressionError(f"inplace is {inplace!r}", hint="inplace={output: input}")
    done = (
        schedule if auto is False else _completed(schedule, part, str(auto))
    )  # staging, scopes, core axis
    func = lower_schedule(done, args, name, late_init=part.family == "cpu")  # loops and regions
    verify(func, "lower")
    aliases = _aliases(func, args, inplace or {})
    if part.family == "cpu":
        from akg_py.codegen.fusion import fuse_loops
        from akg_py.codegen.host import CpuKernel

        func = fuse_loops(func, aliases)  # neighbours that share operands
        return CpuKernel(func, schedule=done, inplace=aliases)  # vector code through LLVM
    from akg_py.ascend.device import load_device
    from akg_py.ascend.kernel import AscendKernel

    return AscendKernel(
        func, load_device(part.name), schedule=done, inplace=aliases
    )  # select, plan, sync


def _check_schedule(schedule: object, what: str) -> None:
    if not isinstance(schedule, Schedule):
        raise ScheduleError(
            f"{what} takes a schedule, not {schedule!r}", hint="te.create_schedule(C.op)"
        )


def _completed(schedule: Schedule, target: Target, auto: str) -> Schedule:
    from akg_py.autoschedule import complete_schedule

    return complete_schedule(schedule, target, auto)


def _aliases(
    func: Func, args: Sequence[Tensor], inplace: Mapping[Tensor, Tensor]
) -> dict[Buffer, Buffer]:
    by_tensor = dict(zip(args, func.params, strict=True))
    for output, source in inplace.items():
        for t in (output, source):
            if t not in by_tensor:
                raise ExpressionError(
                    f"inplace names {t!r}, which is no argument", hint="inplace={output: input}"
                )
        if output.shape != source.shape or output.dtype != source.dtype:
            raise ExpressionError(
                f"{output.name} can't take the place of {source.name}: shapes or dtypes differ",
                hint="name an input of the same shape and dtype",
            )
    return {by_tensor[o]: by_tensor[i] for o, i in inplace.items()}


__all__ = ["build", "complete", "lower"]
