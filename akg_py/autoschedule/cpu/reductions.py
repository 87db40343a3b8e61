"""Reductions that read each element once: sums, maxima, argmax along rows, columns or everything.

In: a stage at the root of an untouched schedule, one of whose operands has all its axes. Out: loops
in the order in which that operand lies in memory, neighbouring axes as one. With too few results to
deal out, chunks of the reduction become a stage of their own (rfactor); how many depends on the
shape alone, so the result doesn't depend on the number of threads.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.autoschedule.cpu.stages import hosts, is_untouched
from akg_py.ir.expr import Load, Reduce, loads
from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState
from akg_py.te.tensor import IterVar, Tensor

PARALLEL_POINTS = 1 << 19  # elements below which waking a thread costs more than it saves
PARALLEL_ROWS = 16  # results that are enough for any number of threads
MIN_CHUNKS, MAX_CHUNKS = 8, 64
CHUNK_ROWS = 16  # rows that a chunk has at least
# a run of results is written for each chunk and read once more: beyond a few, chunks have more rows
FEW_CHUNKS, CHUNK_RUNS = 16, 256
WIDE = 1 << 16  # results that are dealt out themselves, not chunks of the reduction
CACHE_BYTES = 6 << 10  # of a run of results; with longer ones several rows are taken at once
ROWS_AT_ONCE = 8


def schedule_reductions(s: Schedule) -> None:
    """Schedule every stage that is such a reduction."""
    for name in [stage.name for stage in s.stages]:
        stage = s.state.stage(name)
        if _is_free(s, stage):
            found = _find_stream(stage)
            if found is not None:
                _inline_producers(s, name)
                _Nest(s, name, *found).schedule()


def _is_free(s: Schedule, stage: StageState) -> bool:
    """Whether no one has scheduled `stage`, nor computes anything in its loops."""
    return is_untouched(stage) and stage.name not in hosts(s)


def _find_stream(stage: StageState) -> tuple[list[IterVar], int] | None:
    """The axes in the order in which the largest operand has them, and its bytes an element."""
    first, axes = stage.op.body[0], (*stage.op.axis, *stage.op.reduce_axis)
    if not isinstance(first, Reduce) or first.where is not None or not all(a.extent for a in axes):
        return None
    for load in _operands(stage):
        order = [i for i in load.indices if isinstance(i, IterVar) and i in axes]
        missing = [a for a in axes if a not in order]
        if len(order) == len(set(order)) and all(a.extent == 1 for a in missing):
            single = [a for a in order if a.extent == 1]
            order = missing + single + [a for a in order if a.extent > 1]
            return order, dtypes.size_bytes(load.dtype)
    return None


def _operands(stage: StageState) -> list[Load]:
    first = stage.op.body[0]
    assert isinstance(first, Reduce)
    return [load for e in first.sources for load in loads(e)]


def _inline_producers(s: Schedule, name: str) -> None:
    """Compute an element-wise producer where its element is read, if that is once."""
    stage = s.state.stage(name)
    axes = {a for a in (*stage.op.axis, *stage.op.reduce_axis) if a.extent > 1}
    for load in _operands(stage):
        producer = next((p for p in s.state.stages if load.source in p.outputs), None)
        if producer is None or producer.is_output or producer.op.reduce_axis:
            continue
        if not _is_free(s, producer) or len(producer.outputs) > 1:
            continue
        is_alone = [c.name for c in s.state.consumers(producer)] == [name]
        if is_alone and axes <= {i for i in load.indices if isinstance(i, IterVar)}:
            s[producer.name].compute_inline()


class _Nest:
    """The loops of one reduction: outer data axes, reduce axes, inner data axes.

    Attributes:
        outer, inner: root axes; `inner` is the run along which the operand is contiguous, if its
            last axis is a data axis.
        reduce: loops, the last of which may be several axes fused.
    """

    def __init__(self, s: Schedule, name: str, order: list[IterVar], item_bytes: int) -> None:
        self.s, self.name, self.item_bytes = s, name, item_bytes
        self.points = math.prod(a.extent for a in order)
        run = self._inner_run(order)
        self.inner = [] if order[-1].is_reduce else run
        self.outer = [a for a in order if not a.is_reduce and a not in self.inner]
        self.reduce = [a for a in order if a.is_reduce]
        self._reorder()
        if not self.inner:
            self.reduce = [*self.reduce[: -len(run)], self._fuse(run)]

    def schedule(self) -> None:
        is_parallel = self.points >= PARALLEL_POINTS
        is_wide = bool(self.inner) and math.prod(a.extent for a in self.inner) >= WIDE
        is_short = math.prod(a.extent for a in self.outer) < PARALLEL_ROWS
        if is_parallel and is_short and not is_wide:
            self._make_chunks()
        dealt = self._fuse(self.outer) if self.outer else None
        if self.inner:
            lanes = self._fuse(self.inner)
            if is_parallel and (dealt is None or is_wide):
                dealt, lanes = self.s[self.name].split(lanes, nparts=PARALLEL_ROWS)
                self.s[self.name].reorder(dealt, *self.reduce, lanes)
            self._shape_columns(lanes)
        if is_parallel and dealt is not None:
            self.s[self.name].parallel(dealt)

    def _inner_run(self, order: list[IterVar]) -> list[IterVar]:
        """The last axes of `order` that are all data or all reduced, and together one run."""
        run = order[-1:]
        for axis in reversed(order[:-1]):
            if axis.is_reduce != run[0].is_reduce or not self._is_run([axis, *run]):
                break
            run.insert(0, axis)
        return run

    def _is_run(self, run: list[IterVar]) -> bool:
        """Whether every operand has all of `run` side by side and last, or none of it."""
        for load in _operands(self.s.state.stage(self.name)):
            assert isinstance(load.source, Tensor)
            counted = [i for i, n in zip(load.indices, load.source.shape, strict=True) if n > 1]
            tail = counted[-len(run) :]
            alike = len(tail) == len(run) and all(i is a for i, a in zip(tail, run, strict=True))
            if not alike and any(i is a for i in counted for a in run):
                return False
        return True

    def _reorder(self) -> None:
        axes = [*self.outer, *self.reduce, *self.inner]
        if list(self.s.state.stage(self.name).leaves) != axes:
            self.s[self.name].reorder(*axes)

    def _fuse(self, axes: list[IterVar]) -> IterVar:
        return axes[0] if len(axes) == 1 else self.s[self.name].fuse(*axes)

    def _make_chunks(self) -> None:
        """Reduce in chunks, each a row of a new stage; the old one combines them."""
        old, first = self.s.state.stage(self.name), self.reduce[0]
        limit = min(MAX_CHUNKS, first.extent // CHUNK_ROWS)
        if self.inner:
            limit = min(limit, max(first.extent // CHUNK_RUNS, FEW_CHUNKS))
        chunks = next((n for n in range(limit, MIN_CHUNKS - 1, -1) if first.extent % n == 0), 0)
        if not chunks or _rounds(old):
            return
        chunk, _ = self.s[self.name].split(first, nparts=chunks)
        factored = self.s.rfactor(old.outputs[0], chunk)
        left = self.s.state.stage(self.name)
        if self.inner:
            self.s[self.name].reorder(*left.op.reduce_axis, *left.op.axis)
            self.s[self.name].vectorize(left.op.axis[-1])
        self.name = self.s[factored[0] if isinstance(factored, list) else factored].name
        new = self.s.state.stage(self.name).op
        renamed = dict(zip(old.op.axis, new.axis[1:], strict=True))
        self.outer = [new.axis[0], *(renamed[a] for a in self.outer)]
        self.inner = [renamed[a] for a in self.inner]
        self.reduce = list(new.reduce_axis)
        self._reorder()

    def _shape_columns(self, lanes: IterVar) -> None:
        """Short runs of results stay in registers; long ones are visited for several rows."""
        stage, last = self.s[self.name], self.reduce[-1]
        if lanes.extent * self.item_bytes > CACHE_BYTES and last.extent >= 2 * ROWS_AT_ONCE:
            rows, row = stage.split(last, factor=ROWS_AT_ONCE)
            stage.reorder(rows, lanes, row)
        stage.vectorize(lanes)


def _rounds(stage: StageState) -> bool:
    """Whether partial results would be rounded to a dtype narrower than they are summed in."""
    return any(
        e.combiner.name in ("sum", "prod") and dtypes.accumulator(e.dtype) != e.dtype
        for e in stage.op.body
        if isinstance(e, Reduce)
    )
