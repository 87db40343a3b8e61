"""Primitives that rewrite the graph (cache_read, cache_write, rfactor), as functions of state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from akg_py.errors import ScheduleError
from akg_py.ir.expr import Combiner, Expr, Load, Reduce, binary, const, logical, substitute
from akg_py.te.stage import (
    Fuse,
    Relation,
    ScheduleState,
    Singleton,
    Split,
    StageState,
    redirect,
    unique_name,
)
from akg_py.te.tensor import ComputeOp, IterVar, Tensor, make_axis


def _make(
    name: str,
    axis: tuple[IterVar, ...],
    reduce_axis: tuple[IterVar, ...],
    body: tuple[Expr, ...],
    like: ComputeOp | None,
) -> ComputeOp:
    """A ComputeOp for a derived stage (its body was checked when the user wrote it)."""
    op = ComputeOp(
        name, axis, reduce_axis, body, like.place if like else None, like.tag if like else ""
    )
    for i, e in enumerate(body):
        op.outputs.append(
            Tensor(op, i, name if len(body) == 1 else f"{name}.v{i}", op.shape, e.dtype)
        )
    return op


def _unique_stage(state: ScheduleState, name: str) -> str:
    taken = {s.name for s in state.stages} | {op.name for op in state.inputs}
    return unique_name(name, taken)


def cache_read(
    state: ScheduleState, source: Tensor, label: str, scope: str, readers: Sequence[str]
) -> tuple[ScheduleState, Tensor]:
    """Insert a copy stage of `source` for `readers`."""
    if not readers:
        raise ScheduleError(
            f"cache_read of {label}: no readers given", hint='s.cache_read(A, "UB", [C])'
        )
    for name in readers:
        if source not in state.stage(name).reads():
            read = ", ".join(t.name for t in state.stage(name).reads()) or "nothing"
            raise ScheduleError(
                f"cache_read of {label}: {name} doesn't read it",
                hint=f"it reads {read}",
            )
    name = _unique_stage(state, f"{label}.{scope}")
    axis = tuple(make_axis(f"ax{n}", extent) for n, extent in enumerate(source.shape))
    producer = state.producer(source)
    op = _make(name, axis, (), (Load(source, axis, source.dtype),), None)
    op = replace(op, place=producer.op.place if producer else getattr(source.op, "place", None))
    copy = op.outputs[0]
    new = StageState(name, (copy,), op, axis, scope=scope)
    first = next(s.name for s in state.stages if s.name in readers)
    state = (
        state.with_inserted(new, before=first)
        if producer is None
        else state.with_inserted(new, after=producer.name)
    )
    for reader in readers:
        stage = state.stage(reader)
        body = tuple(redirect(e, {source: copy}) for e in stage.op.body)
        state = state.with_stage(replace(stage, op=replace(stage.op, body=body)))
    return state, copy


def cache_write(
    state: ScheduleState, stage: StageState, scope: str
) -> tuple[ScheduleState, tuple[Tensor, ...]]:
    """Move the computation of `stage` to a new stage; `stage` becomes a copy of it."""
    op = stage.op
    name = _unique_stage(state, f"{stage.name}.{scope}")
    axis = tuple(make_axis(f"{a.name}.c", a.extent) for a in op.axis)
    to_fresh: dict[IterVar, Expr] = dict(zip(op.axis, axis, strict=True))
    body = tuple(substitute(e, to_fresh) for e in op.body)
    new_op = _make(name, axis, op.reduce_axis, body, op)
    data, moved, mixed = _partition(stage)
    if mixed is not None:
        raise ScheduleError(
            f"{stage.name}: can't cache_write: {mixed.name} fuses data and reduce axes",
            hint="cache_write first, then fuse",
        )
    reduce_leaves = [a for a in stage.leaves if a.is_reduce]
    last_data = max((n for n, a in enumerate(stage.leaves) if not a.is_reduce), default=0)
    outer = tuple(a for a in reduce_leaves if stage.leaves.index(a) < last_data)
    inner = tuple(a for a in reduce_leaves if a not in outer)
    cache = StageState(
        name,
        tuple(new_op.outputs),
        new_op,
        outer + axis + inner,
        moved,
        {a: m for a, m in stage.marks.items() if a.is_reduce},
        scope=scope,
    )
    copies = tuple(Load(t, op.axis, t.dtype) for t in new_op.outputs)
    copy_op = ComputeOp(op.name, op.axis, (), copies, op.place, op.tag, op.attrs, op.outputs)
    copy = replace(
        stage,
        op=copy_op,
        leaves=tuple(a for a in stage.leaves if not a.is_reduce),
        relations=data,
        marks={a: m for a, m in stage.marks.items() if not a.is_reduce},
    )
    state = state.with_stage(copy).with_inserted(cache, before=stage.name)
    stages = []
    for s in state.stages:  # what was attached at a reduce loop of the stage follows that loop
        if s.attached_to and s.attached_to[0] == stage.name and s.attached_to[1].is_reduce:
            s = replace(s, attach=(name, s.attached_to[1]))
        stages.append(s)
    return replace(state, stages=tuple(stages)), cache.outputs


def _partition(
    stage: StageState,
) -> tuple[tuple[Relation, ...], tuple[Relation, ...], IterVar | None]:
    """Relations of data axes, of reduce axes, and an axis that mixes them (or None)."""
    data: list[Relation] = []
    reduce: list[Relation] = []
    for r in stage.relations:
        match r:
            case Split():
                (reduce if r.parent.is_reduce else data).append(r)
            case Fuse():
                if r.outer.is_reduce != r.inner.is_reduce:
                    return (), (), r.fused
                (reduce if r.fused.is_reduce else data).append(r)
            case Singleton():
                data.append(r)
    return tuple(data), tuple(reduce), None


def root_values(
    stage: StageState, leaf_values: dict[IterVar, Expr]
) -> tuple[dict[IterVar, Expr], list[Expr]]:
    """Values of all axes in terms of the leaves, and the conditions under which they are in range.

    Static extents only (as `rfactor` needs); lowering has its own version over regions.
    """
    values: dict[IterVar, Expr] = dict(leaf_values)
    conditions: list[Expr] = []
    for r in reversed(stage.relations):
        match r:
            case Split():
                chunk = r.inner.extent
                values[r.parent] = values[r.outer] * chunk + values[r.inner] + r.parent.lo
                if r.outer.extent * chunk != r.parent.extent:
                    conditions.append(
                        binary("<", values[r.parent] - r.parent.lo, const(r.parent.extent))
                    )
            case Fuse():
                values[r.outer] = values[r.fused] // r.inner.extent + r.outer.lo
                values[r.inner] = values[r.fused] % r.inner.extent + r.inner.lo
    return values, conditions


def rfactor(
    state: ScheduleState, stage: StageState, leaf: IterVar, factor_axis: int
) -> tuple[ScheduleState, tuple[Tensor, ...]]:
    """Factor the reduce loop `leaf` of `stage` out into a data axis of a new stage."""
    op = stage.op
    if not leaf.is_reduce:
        reduce_names = ", ".join(a.name for a in stage.leaves if a.is_reduce)
        raise ScheduleError(
            f"{stage.name}: can't rfactor {leaf.name}: it is no reduce axis",
            hint=f"rfactor {reduce_names}"
            if reduce_names
            else "only a reduction has loops to factor",
        )
    if stage.is_inline:
        raise ScheduleError(
            f"{stage.name}: can't rfactor an inlined stage", hint="compute_root it first"
        )
    data, reduce_relations, mixed = _partition(stage)
    if mixed is not None:
        raise ScheduleError(
            f"{stage.name}: can't rfactor: {mixed.name} fuses data and reduce axes",
            hint="rfactor first, then fuse",
        )
    rank = len(op.axis) + 1
    position = factor_axis + rank if factor_axis < 0 else factor_axis
    if not 0 <= position < rank:
        raise ScheduleError(
            f"{stage.name}: factor_axis {factor_axis} is out of range for {rank} dimensions",
            hint=f"-{rank} .. {rank - 1}",
        )
    factored = make_axis(leaf.name, leaf.extent)
    spatial = tuple(make_axis(f"{a.name}.r", a.extent) for a in op.axis)
    axis = (*spatial[:position], factored, *spatial[position:])
    others = {
        a: make_axis(a.name, a.extent, "reduce", a.lo)
        for a in stage.leaves
        if a.is_reduce and a is not leaf
    }
    values, conditions = root_values(
        replace(stage, relations=reduce_relations), {leaf: factored, **others}
    )
    mapping: dict[IterVar, Expr] = {a: values[a] for a in op.reduce_axis}
    mapping.update(zip(op.axis, spatial, strict=True))
    # without a split the leaf is a root axis and may begin above 0
    if leaf in op.reduce_axis:
        mapping[leaf] = factored + leaf.lo
    reduces = [e for e in op.body if isinstance(e, Reduce)]
    where = reduces[0].where
    condition = None if where is None else substitute(where, mapping)
    for c in conditions:
        condition = c if condition is None else logical("&&", condition, c)
    sources = tuple(substitute(e, mapping) for e in reduces[0].sources)
    combiner: Combiner = reduces[0].combiner
    inner_axes = tuple(others.values())
    name = _unique_stage(state, f"{stage.name}.rf")
    body: tuple[Expr, ...]
    if inner_axes:
        body = tuple(
            Reduce(combiner, sources, inner_axes, condition, None, i, r.dtype)
            for i, r in enumerate(reduces)
        )
    elif condition is None:
        body = sources
    else:
        from akg_py.ir.expr import select

        body = tuple(
            select(condition, s, i, True) for s, i in zip(sources, combiner.identity, strict=True)
        )
    rf_op = _make(name, axis, inner_axes, body, op)
    rf = StageState(name, tuple(rf_op.outputs), rf_op, axis + inner_axes, scope=stage.scope)
    final = make_axis(f"{leaf.name}.v", leaf.extent, "reduce")
    index = (*op.axis[:position], final, *op.axis[position:])
    loads = tuple(Load(t, index, t.dtype) for t in rf.outputs)
    final_body = tuple(
        Reduce(combiner, loads, (final,), None, reduces[0].init, i, r.dtype)
        for i, r in enumerate(reduces)
    )
    new_op = ComputeOp(
        op.name, op.axis, (final,), final_body, op.place, op.tag, op.attrs, op.outputs
    )
    new = replace(
        stage,
        op=new_op,
        relations=data,
        leaves=(*(a for a in stage.leaves if not a.is_reduce), final),
        marks={a: m for a, m in stage.marks.items() if not a.is_reduce},
    )
    state = state.with_stage(new).with_inserted(rf, before=stage.name)
    successor = {leaf: factored, **others}
    stages = []
    for s in state.stages:  # what was attached at a reduce loop feeds the new stage now
        if s.attached_to and s.attached_to[0] == stage.name and s.attached_to[1] in successor:
            s = replace(s, attach=(name, successor[s.attached_to[1]]))
        stages.append(s)
    return replace(state, stages=tuple(stages)), rf.outputs
