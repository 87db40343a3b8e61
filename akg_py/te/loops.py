"""Loop primitives as functions from state to state: split, fuse, reorder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from akg_py.te.stage import Fuse, ScheduleState, Singleton, Split, StageState, unique_name
from akg_py.te.tensor import IterVar, make_axis


def _fresh(stage: StageState, name: str) -> str:
    return unique_name(name, stage.axis_names())


def _replace_leaves(
    leaves: tuple[IterVar, ...], old: Sequence[IterVar], new: Sequence[IterVar]
) -> tuple[IterVar, ...]:
    at = leaves.index(old[0]) if old else 0
    return leaves[:at] + tuple(new) + leaves[at + len(old) :]


def _move_attachments(
    state: ScheduleState, stage: str, old: Sequence[IterVar], new: IterVar
) -> ScheduleState:
    """Stages attached at a loop that was split or fused follow it to its successor."""
    stages = tuple(
        replace(s, attach=(stage, new))
        if s.attached_to and s.attached_to[0] == stage and s.attached_to[1] in old
        else s
        for s in state.stages
    )
    return replace(state, stages=stages)


def split_axis(
    state: ScheduleState, stage: StageState, axis: IterVar, factor: int | None, nparts: int | None
) -> tuple[ScheduleState, IterVar, IterVar]:
    """Split `axis` of `stage`; extents of the new axes are tightened to the axis."""
    n = axis.extent
    if factor is not None:
        inner_extent = min(factor, n) if n else factor
        outer_extent = -(-n // inner_extent)
    else:
        assert nparts is not None
        outer_extent = min(nparts, n) if n else nparts
        inner_extent = -(-n // outer_extent)
    outer = make_axis(_fresh(stage, f"{axis.name}.outer"), outer_extent, axis.kind)
    inner = make_axis(_fresh(stage, f"{axis.name}.inner"), inner_extent, axis.kind)
    new = replace(
        stage,
        leaves=_replace_leaves(stage.leaves, [axis], [outer, inner]),
        relations=(*stage.relations, Split(axis, outer, inner, factor, nparts)),
    )
    return _move_attachments(state.with_stage(new), stage.name, [axis], inner), outer, inner


def fuse_axes(
    state: ScheduleState, stage: StageState, axes: Sequence[IterVar]
) -> tuple[ScheduleState, IterVar]:
    """Fuse neighbouring leaves, left to right; none give an axis of extent 1, outermost."""
    if not axes:
        single = make_axis(_fresh(stage, "singleton"), 1)
        new = replace(
            stage, leaves=(single, *stage.leaves), relations=(*stage.relations, Singleton(single))
        )
        return state.with_stage(new), single
    fused = axes[0]
    for inner in axes[1:]:
        kind = "reduce" if fused.is_reduce or inner.is_reduce else "spatial"
        merged = make_axis(
            _fresh(stage, f"{fused.name}.{inner.name}.fused"), fused.extent * inner.extent, kind
        )
        stage = replace(
            stage,
            leaves=_replace_leaves(stage.leaves, [fused, inner], [merged]),
            relations=(*stage.relations, Fuse(fused, inner, merged)),
        )
        state = _move_attachments(state.with_stage(stage), stage.name, [fused, inner], merged)
        fused = merged
    return state, fused


def reorder_axes(stage: StageState, axes: Sequence[IterVar]) -> StageState:
    """The named leaves permuted among the places they hold."""
    places = sorted(stage.leaves.index(a) for a in axes)
    leaves = list(stage.leaves)
    for place, axis in zip(places, axes, strict=True):
        leaves[place] = axis
    return replace(stage, leaves=tuple(leaves))
