"""Kernels over rows: softmax, norms and their kind, a row at a time.

In: an untouched schedule. Out: every stage that only one root stage needs, and needs row by row,
is computed inside the root's loop over rows, so that a row stays in the first cache from its load
to its store. Cheap element-wise stages are inlined instead of stored. Short rows are taken a few at
a time, one stage after the other: joining the lanes of one row's sum then doesn't keep the next one
waiting. So are rows that fill that cache together with what all of them need, gamma and beta; their
last pass runs in blocks of columns, so that this comes from the second cache once.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.autoschedule.cpu.stages import is_untouched
from akg_py.codegen.target import data_cache_bytes, host
from akg_py.ir.expr import Binary, Call, Expr, Load, Reduce, children, loads
from akg_py.records import dataclass
from akg_py.te.schedule import Schedule
from akg_py.te.stage import ScheduleState, StageState
from akg_py.te.tensor import Tensor

PARALLEL_POINTS = 1 << 18  # elements below which waking a thread costs more than it saves
CHEAP_OPERATIONS = 4  # of an element-wise stage: computing it again beats a store and a load
SHARED_COLUMNS = 512  # that rows taken at once pass by
SHORT_VECTORS = 10, 25  # of a row: fewer are left to the processor, which looks that far ahead
SHORT_ROWS = 4  # at once
LONG_SHARE = 4  # of the first cache: from there on rows pass by what they share together
LONGEST_SHARE = 8  # of the second cache: more rows, the next ones and what they share don't fit


@dataclass(frozen=True, slots=True)
class RowChoice:
    """What may be tuned.

    Attributes:
        tile_rows: rows that are taken at once; 0 for what their length suggests.
        inlined_operations: element-wise stages of at most so many operations are computed again
            where they are read, others once into a row of their own.
    """

    tile_rows: int = 0
    inlined_operations: int = CHEAP_OPERATIONS


def schedule_rows(s: Schedule, choice: RowChoice | None = None) -> None:
    """Place every group of stages that work on the same rows."""
    choice = choice or RowChoice()
    for name in reversed([stage.name for stage in s.stages]):
        root = s.state.stage(name)
        if not is_untouched(root):
            continue
        rank = len(root.op.axis) - (not root.op.reduce_axis)
        group = _row_group(s.state, root, rank) if rank > 0 else []
        if any(s.state.stage(member).op.reduce_axis for member in group):
            _place(s, root, group, rank, choice)


def _row_group(state: ScheduleState, root: StageState, rank: int) -> list[str]:
    """Stages that only `root` needs, in its own row: the same values of the first `rank` axes."""
    group = {root.name: root}
    for stage in reversed(state.stages):
        if stage.is_output or not is_untouched(stage) or stage.name in group:
            continue
        shape = tuple(a.extent for a in stage.op.axis)
        is_row = shape[:rank] == tuple(a.extent for a in root.op.axis[:rank])
        if not is_row or (stage.op.reduce_axis and len(shape) != rank):
            continue
        consumers = state.consumers(stage)
        if consumers and all(c.name in group and _reads_own_row(c, stage, rank) for c in consumers):
            group[stage.name] = stage
    del group[root.name]
    return [stage.name for stage in state.stages if stage.name in group]


def _reads_own_row(consumer: StageState, producer: StageState, rank: int) -> bool:
    return all(
        all(i is a for i, a in zip(load.indices, consumer.op.axis[:rank], strict=False))
        for e in consumer.op.body
        for load in loads(e)
        if load.source in producer.outputs
    )


def _place(s: Schedule, root: StageState, group: list[str], rank: int, choice: RowChoice) -> None:
    rows = root.op.axis[:rank]
    row = dealt = s[root.name].fuse(*rows) if rank > 1 else rows[0]
    tile_rows = choice.tile_rows or _rows_at_once(root, rank)
    if tile_rows > 1:
        dealt, row = s[root.name].split(row, factor=tile_rows)
        if _is_long(root, rank) and _has_shared(root, rank):
            block, column = s[root.name].split(root.op.axis[-1], factor=SHARED_COLUMNS)
            s[root.name].reorder(dealt, block, row, column)
        row = dealt
    points = math.prod(a.extent for a in root.op.axis)
    for name in reversed(group):
        stage = s.state.stage(name)
        points += math.prod(a.extent for a in (*stage.op.axis, *stage.op.reduce_axis))
    if points >= PARALLEL_POINTS and dealt.extent > 1:
        s[root.name].parallel(dealt)
    costs: dict[Tensor, int] = {}  # of inlined stages, in operations
    for name in group:
        stage = s.state.stage(name)
        cost = sum(_operations(e, costs) for e in stage.op.body)
        if not stage.op.reduce_axis and len(stage.outputs) == 1:
            uses = _uses(s.state, stage)
            if len(stage.op.axis) > rank and (cost <= choice.inlined_operations or uses == 1):
                costs[stage.outputs[0]] = cost
                s[name].compute_inline()
    for name in reversed(group):
        if not s.state.stage(name).is_inline:
            s[name].compute_at(root.name, row)


def _row_bytes(root: StageState, rank: int) -> int:
    """Bytes of a row of what the last stage writes, of its widest result."""
    points = math.prod(a.extent for a in root.op.axis[rank:])
    return points * max(dtypes.size_bytes(t.dtype) for t in root.outputs)


def _rows_at_once(root: StageState, rank: int) -> int:
    size, first = _row_bytes(root, rank), data_cache_bytes(1)
    vectors, rest = divmod(size, host().vector_bytes)
    rows = math.prod(a.extent for a in root.op.axis[:rank])
    if SHORT_VECTORS[0] <= vectors < SHORT_VECTORS[1] and not rest and rows >= SHORT_ROWS:
        return SHORT_ROWS
    if not _has_shared(root, rank) or size > data_cache_bytes(2) // LONGEST_SHARE:
        return 1
    return 4 if size > first else 2 if _is_long(root, rank) else 1


def _is_long(root: StageState, rank: int) -> bool:
    """Whether a row takes so much of the first cache that what it is scaled by falls out of it."""
    return _row_bytes(root, rank) * LONG_SHARE >= data_cache_bytes(1)


def _has_shared(root: StageState, rank: int) -> bool:
    """Whether the last stage has one axis beside the rows, and reads the same in every row."""
    if len(root.op.axis) != rank + 1 or root.op.reduce_axis:
        return False
    column = root.op.axis[-1:]
    return any(load.indices == column for e in root.op.body for load in loads(e))


def _uses(state: ScheduleState, stage: StageState) -> int:
    """How often an element of `stage` is read."""
    return sum(
        load.source in stage.outputs
        for c in state.consumers(stage)
        for e in c.op.body
        for load in loads(e)
    )


def _operations(e: Expr, inlined: dict[Tensor, int]) -> int:
    """Arithmetic in `e`; a function or a division counts as ten."""
    if isinstance(e, Load):
        return inlined.get(e.source, 0) if isinstance(e.source, Tensor) else 0
    own = 10 if isinstance(e, Call) or (isinstance(e, Binary) and e.op in ("/", "%", "//")) else 1
    parts = e.sources if isinstance(e, Reduce) else children(e)
    return (own if children(e) else 0) + sum(_operations(x, inlined) for x in parts)
