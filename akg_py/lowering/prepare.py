"""What happens to a schedule before its stages are placed: checks, wide accumulators, inlining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from akg_py import dtypes
from akg_py.errors import ScheduleError
from akg_py.ir.expr import Expr, Load, Reduce, rebuild, substitute
from akg_py.te.schedule import Schedule
from akg_py.te.stage import ScheduleState, StageState
from akg_py.te.tensor import IterVar, Tensor

WIDENED = ("sum", "prod")  # standard reductions that accumulate 16-bit floats in float32


def check_args(schedule: Schedule, args: Sequence[Tensor]) -> None:
    """Refuse arguments that are not every input and output of the schedule, each once.

    Raises:
        ScheduleError: one is missing, given twice, or has no part in the schedule.
    """
    for t in args:
        if not isinstance(t, Tensor):
            raise ScheduleError(f"arguments are tensors, not {t!r}", hint="lower(s, [A, B, C])")
    if len(set(args)) != len(args):
        raise ScheduleError("an argument is given twice", hint="list each input and output once")
    needed = [op.outputs[0] for op in schedule.state.inputs] + list(schedule.outputs)
    missing = [t.name for t in needed if t not in args]
    if missing:
        raise ScheduleError(
            f"missing arguments: {', '.join(missing)}", hint="list every input and every output"
        )
    extra = [t.name for t in args if t not in needed]
    if extra:
        raise ScheduleError(
            f"{', '.join(extra)} is neither an input nor an output of this schedule",
            hint="create_schedule([C.op, ...]) makes an intermediate an output too",
        )


def is_narrow(stage: StageState) -> bool:
    """Whether a stage sums in a wider dtype than it has."""
    e = stage.op.body[0]
    return (
        isinstance(e, Reduce)
        and e.combiner.name in WIDENED
        and dtypes.accumulator(e.dtype) != e.dtype
        and dtypes.is_float(e.dtype)
    )


def cache_narrow_outputs(schedule: Schedule) -> Schedule:
    """Give an output that accumulates in a wider dtype a cache to accumulate in."""
    narrow = [s for s in schedule.state.stages if s.is_output and is_narrow(s)]
    if not narrow:
        return schedule
    schedule = schedule.copy()
    for stage in narrow:
        first_reduce = next(n for n, a in enumerate(stage.leaves) if a.is_reduce)
        outside = [a for a in stage.leaves[:first_reduce] if not a.is_reduce]
        cache = schedule.cache_write(stage.outputs[0], "local")
        if outside:
            schedule[cache].compute_at(stage.name, outside[-1].name)
    return schedule


def inline_stages(state: ScheduleState) -> ScheduleState:
    """Replace reads of inlined stages by their expressions."""
    bodies: dict[Tensor, tuple[tuple[IterVar, ...], Expr]] = {}

    def visit(e: Expr) -> Expr:
        e = rebuild(e, visit)
        if isinstance(e, Load) and e.source in bodies:
            axis, body = bodies[e.source]
            return substitute(body, dict(zip(axis, e.indices, strict=True)))
        return e

    stages = []
    for s in state.stages:
        if bodies:
            op = s.op
            body = tuple(visit(e) for e in op.body)
            s = _with_body(s, body)
        if s.is_inline:
            bodies[s.outputs[0]] = (s.op.axis, s.op.body[0])
        else:
            stages.append(s)
    return ScheduleState(tuple(stages), state.inputs)


def _with_body(stage: StageState, body: tuple[Expr, ...]) -> StageState:
    return replace(stage, op=replace(stage.op, body=body))
