"""Completion for the CPU: element-wise producers inline, the outermost loop parallel.

Innermost loops are put into vector lanes by the code generator itself.
"""

from __future__ import annotations

from akg_py.autoschedule.cpu.contraction import tile_reduction
from akg_py.autoschedule.cpu.rows import schedule_rows
from akg_py.ir.expr import Load, walk
from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState


def complete_cpu(s: Schedule, untouched: bool) -> None:
    """Append what an untouched schedule lacks; a schedule with steps stays as it is."""
    if not untouched:
        return
    schedule_rows(s)
    for name in reversed([stage.name for stage in s.stages]):
        stage = s.state.stage(name)
        if (
            stage.attach is not None
            or stage.is_output
            or stage.op.reduce_axis
            or len(stage.outputs) > 1
        ):
            continue
        consumers = s.state.consumers(stage)
        if len(consumers) == 1 and _reads_once(consumers[0], stage):
            s[name].compute_inline()
    for name in [stage.name for stage in s.stages]:
        stage = s.state.stage(name)
        if stage.attach is None and not any(
            x.attached_to and x.attached_to[0] == name for x in s.state.stages
        ):
            _schedule_root(s, stage)


def _reads_once(consumer: StageState, producer: StageState) -> bool:
    """Whether inlining computes nothing twice."""
    loads = [
        n
        for e in consumer.op.body
        for n in walk(e)
        if isinstance(n, Load) and n.source in producer.outputs
    ]
    if len(loads) != 1 or (consumer.op.reduce_axis and len(consumer.op.axis) > 1):
        return False
    return len({id(i) for i in loads[0].indices}) == len(consumer.op.axis) + len(
        consumer.op.reduce_axis
    )


def _schedule_root(s: Schedule, stage: StageState) -> None:
    data, reduce = stage.op.axis, stage.op.reduce_axis
    if len(data) >= 2 and reduce and data[-1].extent >= 16:
        tile_reduction(s, stage)
    elif len(data) > 1 and data[0].extent > 1:
        s[stage.name].parallel(data[0])
