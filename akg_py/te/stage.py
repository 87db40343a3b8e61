"""State of a schedule: frozen values, one per stage, that primitives replace and lowering reads.

A stage starts with its root axes; `relations` derive new axes from them, `leaves` is the order of
the loops.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from itertools import count

from akg_py.errors import Place
from akg_py.ir.expr import Expr, Load, rebuild
from akg_py.records import dataclass
from akg_py.te.layout import Layout
from akg_py.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor

INLINE = "inline"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """`parent` in chunks of `factor`, or in `nparts` chunks: outer counts, inner runs in one."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """`outer` and `inner` as one axis of the product of their extents."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(frozen=True, slots=True, eq=False)
class Singleton:
    """An axis of one iteration that nothing depends on."""

    axis: IterVar


Relation = Split | Fuse | Singleton


@dataclass(frozen=True, slots=True)
class LoopMark:
    """What was said of one loop."""

    kind: str = "serial"
    pragmas: tuple[tuple[str, object], ...] = ()
    pipeline: int = 1
    tensorize: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StageState:
    """One stage: what it computes, its loops, where it sits.

    Attributes:
        name: unique in the schedule.
        outputs: the tensors it stands for (keys of the schedule; they survive rewriting of `op`).
        op: what it computes now.
        attach: None (at the root), INLINE, or (stage name, axis).
        layout: the physical axes of the buffer, when they aren't the root axes.
        placed: the user's line that last said where or how often the result is stored.
    """

    name: str
    outputs: tuple[Tensor, ...]
    op: ComputeOp
    leaves: tuple[IterVar, ...]
    relations: tuple[Relation, ...] = ()
    marks: Mapping[IterVar, LoopMark] = field(default_factory=dict)
    attach: str | tuple[str, IterVar] | None = None
    scope: str = ""
    copies: int = 1
    align: tuple[int, int, int] | None = None
    layout: Layout | None = None
    is_output: bool = False
    placed: Place | None = None

    @property
    def attached_to(self) -> tuple[str, IterVar] | None:
        return self.attach if isinstance(self.attach, tuple) else None

    @property
    def is_inline(self) -> bool:
        return self.attach == INLINE

    def mark(self, axis: IterVar) -> LoopMark:
        return self.marks.get(axis) or LoopMark()

    def with_mark(self, axis: IterVar, mark: LoopMark) -> StageState:
        return replace(self, marks={**self.marks, axis: mark})

    def reads(self) -> tuple[Tensor, ...]:
        return self.op.input_tensors

    def axis_names(self) -> set[str]:
        """Names of all axes ever made in this stage."""
        names = {a.name for a in self.op.axis + self.op.reduce_axis + self.leaves}
        for r in self.relations:
            match r:
                case Split():
                    names |= {r.outer.name, r.inner.name}
                case Fuse():
                    names.add(r.fused.name)
                case Singleton():
                    names.add(r.axis.name)
        return names


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleState:
    """All stages, producers first, and the inputs."""

    stages: tuple[StageState, ...]
    inputs: tuple[PlaceholderOp, ...]

    def stage(self, name: str) -> StageState:
        return next(s for s in self.stages if s.name == name)

    def with_stage(self, new: StageState) -> ScheduleState:
        return replace(self, stages=tuple(new if s.name == new.name else s for s in self.stages))

    def with_inserted(
        self, new: StageState, before: str | None = None, after: str | None = None
    ) -> ScheduleState:
        at = [s.name for s in self.stages].index(before or after or "") + (after is not None)
        return replace(self, stages=(*self.stages[:at], new, *self.stages[at:]))

    def producer(self, tensor: Tensor) -> StageState | None:
        """The stage that stands for `tensor`; None for an input."""
        return next((s for s in self.stages if any(t is tensor for t in s.outputs)), None)

    def consumers(self, stage: StageState) -> tuple[StageState, ...]:
        """Stages that read an output of `stage`."""
        keys = set(stage.outputs)
        return tuple(s for s in self.stages if s is not stage and any(t in keys for t in s.reads()))


def unique_name(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of `name_1`, `name_2`, ... that is not `taken`."""
    if name not in taken:
        return name
    return next(new for n in count(1) if (new := f"{name}_{n}") not in taken)


def redirect(e: Expr, mapping: Mapping[Tensor, Tensor]) -> Expr:
    """`e` reading other tensors in place of some."""

    def visit(x: Expr) -> Expr:
        x = rebuild(x, visit)
        if isinstance(x, Load) and x.source in mapping:
            new = mapping[x.source]  # type: ignore[index]
            return Load(new, x.indices, new.dtype)
        return x

    return visit(e)
