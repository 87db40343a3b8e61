"""Completion for the CPU: each kind of stage gets the loops that suit it.

In: an untouched schedule. Out: convolutions, kernels over rows, and other reductions are scheduled
first, with the stages they take along; then element-wise producers that are read once are inlined,
products tiled, and what is left runs in parallel over its outermost loops. The code generator puts
innermost loops into lanes by itself.
"""

from __future__ import annotations

from akg_py.autoschedule.cpu.contraction import cache_narrow_products, tile_product
from akg_py.autoschedule.cpu.conv import schedule_convolutions
from akg_py.autoschedule.cpu.dots import tile_dots
from akg_py.autoschedule.cpu.elementwise import nodes_with, schedule_elementwise
from akg_py.autoschedule.cpu.reductions import schedule_reductions
from akg_py.autoschedule.cpu.rows import schedule_rows
from akg_py.autoschedule.cpu.stages import hosts
from akg_py.ir.expr import Load, same, walk
from akg_py.te.schedule import Schedule
from akg_py.te.stage import ScheduleState, StageState

MAX_INLINED = 256  # nodes of an expression that is read several times
TILE_ROWS, TILE_COLUMNS = 6, 64  # of reductions that are no products


def complete_cpu(s: Schedule, untouched: bool) -> None:
    """Append what an untouched schedule lacks; a schedule with steps stays as it is."""
    if not untouched:
        return
    schedule_convolutions(s)
    schedule_rows(s)
    schedule_reductions(s)
    for name in reversed([stage.name for stage in s.stages]):
        stage = s.state.stage(name)
        if (
            stage.attach is not None
            or name in hosts(s)
            or stage.is_output
            or stage.relations
            or stage.op.reduce_axis
            or len(stage.outputs) > 1
        ):
            continue
        consumers = s.state.consumers(stage)
        if len(consumers) == 1 and _inlines(s.state, consumers[0], stage):
            s[name].compute_inline()
    cache_narrow_products(s)
    done: set[str] = set()
    for name in [stage.name for stage in s.stages]:
        if not s.state.stage(name).relations:
            done |= tile_dots(s, name) or tile_product(s, name)
    for name in [stage.name for stage in s.stages]:
        stage = s.state.stage(name)
        if (
            stage.attach is None
            and not stage.relations
            and not stage.marks
            and name not in done | hosts(s)
        ):
            _schedule_root(s, stage)


def _inlines(state: ScheduleState, consumer: StageState, producer: StageState) -> bool:
    """Whether inlining computes nothing twice: one element, read in place, per iteration."""
    found = [
        n
        for e in consumer.op.body
        for n in walk(e)
        if isinstance(n, Load) and n.source in producer.outputs
    ]
    first, *others = found
    if others and nodes_with(state, consumer, producer) > MAX_INLINED:
        return False
    if not all(all(map(same, first.indices, other.indices)) for other in others):
        return False
    if consumer.op.reduce_axis and len(consumer.op.axis) > 1:
        return False
    return len({id(i) for i in first.indices}) == len(consumer.op.axis) + len(
        consumer.op.reduce_axis
    )


def _schedule_root(s: Schedule, stage: StageState) -> None:
    data, reduce = stage.op.axis, stage.op.reduce_axis
    if len(data) >= 2 and reduce and data[-1].extent >= 16:
        _tile_reduction(s, stage)
    elif not reduce:
        schedule_elementwise(s, stage)
    elif len(data) > 1 and data[0].extent > 1:
        s[stage.name].parallel(data[0])


def _tile_reduction(s: Schedule, stage: StageState) -> None:
    """Tiles of the last two axes around the reduction, columns in lanes."""
    data, reduce = stage.op.axis, stage.op.reduce_axis
    i, j = data[-2:]
    io, jo, ii, ji = s[stage.name].tile(i, j, TILE_ROWS, TILE_COLUMNS)
    s[stage.name].reorder(io, jo, *reduce, ii, ji)
    s[stage.name].vectorize(ji)
    s[stage.name].parallel(data[0] if len(data) > 2 else io)
