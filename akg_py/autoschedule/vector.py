"""Placement and tiling of vector stages.

Whole rows, or runs of elements, go into UB and are dealt to the vector cores.
"""

from __future__ import annotations

from akg_py import dtypes
from akg_py.ascend.device import Device
from akg_py.autoschedule.contraction import match_contraction
from akg_py.ir.expr import Expr, Load, children, free_vars, walk
from akg_py.te.schedule import Schedule
from akg_py.te.stage import Fuse, ScheduleState, StageState
from akg_py.te.tensor import IterVar, PlaceholderOp, Tensor

SMALL_TILE_BYTES = 8 * 1024  # below this a copy does not reach full bandwidth


def fuse_vector_stages(s: Schedule) -> None:
    """Inline element-wise stages into their only consumer; `stage_vector` attaches the others."""
    for name in reversed([stage.name for stage in s.stages]):
        state = s.state
        stage = state.stage(name)
        if (
            stage.is_output
            or stage.attach is not None
            or match_contraction(state, stage)
            or _feeds_cube(state, stage)
        ):
            continue
        consumers = state.consumers(stage)
        if stage.op.reduce_axis or len(stage.outputs) > 1:
            continue
        if (
            len(consumers) == 1
            and _reads_pointwise(consumers[0], stage)
            and not consumers[0].op.reduce_axis
        ):
            s[name].compute_inline()


def _feeds_cube(state: ScheduleState, stage: StageState) -> bool:
    return any(match_contraction(state, c) for c in state.consumers(stage))


def _reads_pointwise(consumer: StageState, producer: StageState) -> bool:
    """Whether the consumer reads the producer once per point, at plain axes."""
    for e in consumer.op.body:
        for n in walk(e):
            if (
                isinstance(n, Load)
                and n.source in producer.outputs
                and not all(isinstance(i, IterVar) for i in n.indices)
            ):
                return False
    return True


def stage_vector(s: Schedule, stage: StageState, device: Device) -> None:
    """Tile a root stage for vector cores, attach private producers, stage operands, bind it."""
    name = stage.name
    if match_contraction(s.state, stage) is None and _holds_cube(s, name):
        return
    touched = (
        bool(stage.relations)
        or bool(stage.marks)
        or stage.leaves != stage.op.axis + stage.op.reduce_axis
    )
    if touched or _has_attached(s.state, name):
        _keep_sums_on_chip(s, name)
        return _bind_outermost(s, name)
    if any(a.extent == 0 for a in stage.op.axis):
        return
    group = _private_producers(s.state, stage)
    members = [s.state.stage(g) for g in group] + [stage]
    per_element = _bytes_per_element(s.state, members)
    budget = int(device.capacity_bytes("UB") * 0.9)
    lead = _lead_axes(stage)
    width = max(_row_width(m, len(lead)) for m in members)
    if (
        not _is_flat(s.state, stage, group)
        and per_element * width > budget
        and len(stage.outputs) == 1
    ):
        return _stage_long_rows(s, stage, group, budget)
    if not stage.op.axis:
        return
    result = s[name]
    compute = name
    if stage.is_output:
        cache = s.cache_write(
            list(stage.outputs) if len(stage.outputs) > 1 else stage.outputs[0], "UB"
        )
        cache = cache[0] if isinstance(cache, list) else cache
        s[cache].double_buffer()
        compute = s[cache].name
    cores, fit = device.cores("aiv"), budget // per_element
    row = result.fuse(*lead) if len(lead) > 1 else lead[0] if lead else None
    if (
        row is not None
        and width <= fit
        and (row.extent >= cores or not _is_flat(s.state, stage, group))
    ):
        core, share = result.split(row, nparts=min(cores, row.extent))
        tile, _ = result.split(share, factor=_tile_rows(share.extent, width, fit, members))
    else:  # few long rows: the columns of each are dealt to the cores
        chunk = max(
            -(-min(fit, -(-width * (row.extent if row is not None else 1) // cores)) // 64) * 64, 64
        )
        tile, _ = result.split(stage.op.axis[-1], factor=chunk)
        core = result.fuse(row, tile) if row is not None else tile
        tile = core
    for g in (*reversed(group), *([compute] if compute != name else ())):
        s[g].compute_at(result, tile)
        s[g].set_scope("UB")
    _stage_inputs(s, [*group, *([compute] if compute != name else ())], name, core, tile)
    result.bind(core, "blockIdx.x")
    return None


def _lead_axes(stage: StageState) -> tuple[IterVar, ...]:
    """The axes that count rows: all but the last, or all of a stage that reduces its rows."""
    return stage.op.axis if stage.op.reduce_axis else stage.op.axis[:-1]


def _row_width(m: StageState, lead: int) -> int:
    """Elements that a member computes or reduces over for one row."""
    width = 1
    for a in (*m.op.axis[lead:], *m.op.reduce_axis):
        width *= a.extent
    return width


def _tile_rows(share: int, width: int, fit: int, members: list[StageState]) -> int:
    """Rows of one tile: as many as fit, but four tiles a core where each is still worth a copy."""
    widest = max(dtypes.size_bytes(t.dtype) for m in members for t in m.outputs)
    worth = -(-SMALL_TILE_BYTES // max(width * widest, 1))
    return max(min(fit // max(width, 1), max(-(-share // 4), worth), share), 1)


def _stage_long_rows(s: Schedule, stage: StageState, group: list[str], budget: int) -> None:
    """Rows that don't fit: one row a block, every pass over it in chunks of columns.

    Element-wise producers are computed again in each pass; reductions walk their axis in chunks.
    """
    name = stage.name
    reductions = [g for g in group if s.state.stage(g).op.reduce_axis]
    for g in group:
        if g not in reductions and len(s.state.stage(g).outputs) == 1:
            s[g].compute_inline()
    members = [s.state.stage(g) for g in reductions] + [stage]
    chunk = max(budget // (2 * _bytes_per_element(s.state, members)) // 64 * 64, 64)
    out = s[name]
    reduces = bool(stage.op.reduce_axis)
    cache = s.cache_write(stage.outputs[0], "UB") if stage.is_output else None
    lead = _lead_axes(stage)
    row = out.fuse(*lead) if len(lead) != 1 else lead[0]
    last = row
    if not reduces:
        last, _ = out.split(stage.op.axis[-1], factor=chunk)
    for g in reductions:
        s[g].set_scope("UB")
        s[g].compute_at(out, row)
    if cache is not None:
        s[cache].compute_at(out, last)
        if not reduces:
            s[cache].double_buffer()
    computing = s[cache].name if cache is not None else name
    for g in (*reductions, computing):
        at = s[g]
        loops = [a for a in at.leaf_iter_vars if a.is_reduce]
        inner = row if g != computing else last
        home = out
        if loops:
            inner, _ = at.split(loops[-1], factor=chunk)
            data = [a for a in at.leaf_iter_vars if not a.is_reduce]
            rest = [a for a in at.leaf_iter_vars if a.is_reduce and a is not inner]
            at.reorder(inner, *data, *rest)
            home = at
        for t in s.state.stage(g).reads():
            producer = s.state.producer(t)
            if t.ndim and (producer is None or (producer.attach is None and producer.scope == "")):
                copy = s.cache_read(t, "UB", [g])
                s[copy].compute_at(home, inner)
                s[copy].double_buffer()
    out.bind(row, "blockIdx.x")


def _holds_cube(s: Schedule, name: str) -> bool:
    """Whether a stage in L0C is computed inside `name`: then it is the copy out of the cube."""
    return any(
        x.attached_to and x.attached_to[0] == name and x.scope == "L0C" for x in s.state.stages
    )


def _has_attached(state: ScheduleState, name: str) -> bool:
    return any(x.attached_to and x.attached_to[0] == name for x in state.stages)


def _keep_sums_on_chip(s: Schedule, name: str) -> None:
    """Let a reduction that the user scheduled accumulate in UB, not in GM."""
    stage = s.state.stage(name)
    first = next((n for n, a in enumerate(stage.leaves) if a.is_reduce), 0)
    mixes = any(
        isinstance(r, Fuse) and r.outer.is_reduce != r.inner.is_reduce for r in stage.relations
    )
    inner = [
        a for a in stage.leaves[first:] if not a.is_reduce
    ]  # these loops move to the copy out of UB
    if (
        first == 0
        or mixes
        or any(x.attached_to and x.attached_to[1] in inner for x in s.state.stages)
    ):
        return
    outputs = list(stage.outputs)
    cache = s.cache_write(outputs if len(outputs) > 1 else outputs[0], "UB")
    acc = s[cache[0] if isinstance(cache, list) else cache]
    acc.compute_at(s[name], stage.leaves[first - 1])


def _bind_outermost(s: Schedule, name: str) -> None:
    """Give a stage that the user scheduled its core axis: its outermost data loop."""
    state = s.state.stage(name)
    if any(m.kind in ("core", "parallel") for m in state.marks.values()) or not state.leaves:
        return
    first = state.leaves[0]
    if not first.is_reduce and state.mark(first).kind == "serial":
        s[name].bind(first, "blockIdx.x")


def _private_producers(state: ScheduleState, stage: StageState) -> list[str]:
    """Root stages, not the cube's, that only `stage` needs, directly or through each other."""
    group: list[StageState] = [stage]
    changed = True
    while changed:
        changed = False
        for candidate in state.stages:
            if candidate in group or candidate.is_output or candidate.attach is not None:
                continue
            if (
                candidate.scope not in ("",)
                or match_contraction(state, candidate)
                or candidate.relations
                or candidate.marks
            ):
                continue
            consumers = [c for c in state.consumers(candidate) if not c.is_inline] + [
                c
                for i in state.consumers(candidate)
                if i.is_inline
                for c in _through_inline(state, i)
            ]
            if consumers and all(any(c.name == g.name for g in group) for c in consumers):
                if _row_compatible(state, candidate, stage):
                    group.append(candidate)
                    changed = True
    names = {g.name for g in group[1:]}
    return [x.name for x in state.stages if x.name in names]


def _through_inline(state: ScheduleState, stage: StageState) -> list[StageState]:
    result: list[StageState] = []
    for c in state.consumers(stage):
        result += _through_inline(state, c) if c.is_inline else [c]
    return result


def _row_compatible(state: ScheduleState, producer: StageState, root: StageState) -> bool:
    """Whether a tile of rows of `root` needs a tile of rows of `producer`: same leading extents."""
    lead = tuple(a.extent for a in root.op.axis[:-1]) or tuple(a.extent for a in root.op.axis)
    own = tuple(a.extent for a in producer.op.axis)
    return own[: len(lead)] == lead


def _is_flat(state: ScheduleState, stage: StageState, group: list[str]) -> bool:
    """Whether everything is element-wise over one shape, so that all axes can be one run."""
    shape = tuple(a.extent for a in stage.op.axis)
    for member in (stage, *(state.stage(g) for g in group)):
        if member.op.reduce_axis or tuple(a.extent for a in member.op.axis) != shape:
            return False
        if not _is_pointwise(state, member):
            return False
    return True


def _is_pointwise(state: ScheduleState, member: StageState) -> bool:
    def visit(e: Expr) -> bool:
        if isinstance(e, Load):
            producer = state.producer(e.source) if isinstance(e.source, Tensor) else None
            if not (
                len(e.indices) == len(member.op.axis)
                and all(i is a for i, a in zip(e.indices, member.op.axis, strict=True))
            ):
                return False
            return producer is None or not producer.is_inline or _is_pointwise(state, producer)
        if isinstance(e, IterVar):
            return False
        return all(map(visit, children(e)))

    return all(map(visit, member.op.body))


def _bytes_per_element(state: ScheduleState, members: list[StageState]) -> int:
    """Upper estimate of UB bytes per element of a row: stages, operands twice, temporaries."""
    total, deepest = 0, 0
    tensors: dict[Tensor, None] = {}
    for m in members:
        bodies = [_inlined_body(state, e) for e in m.op.body]
        total += sum(max(dtypes.size_bytes(t.dtype), 2) for t in m.outputs) * (
            1 if m.op.reduce_axis else 2
        )
        deepest = max(deepest, sum(sum(not _is_leaf(n) for n in walk(e)) for e in bodies))
        for e in bodies:
            tensors.update(
                (n.source, None)
                for n in walk(e)
                if isinstance(n, Load) and isinstance(n.source, Tensor)
            )
    inputs = [
        t for t in tensors if isinstance(t.op, PlaceholderOp) or state.producer(t) not in members
    ]
    total += sum(2 * dtypes.size_bytes(t.dtype) for t in inputs)
    return total + 4 * min(deepest, 6) + 4


def _is_leaf(e: Expr) -> bool:
    return not children(e) or isinstance(e, Load)


def _inlined_body(state: ScheduleState, e: Expr) -> Expr:
    """`e` with the bodies of inlined stages in place (for counting only)."""
    from akg_py.ir.expr import rebuild

    def visit(x: Expr) -> Expr:
        if isinstance(x, Load) and isinstance(x.source, Tensor):
            producer = state.producer(x.source)
            if producer is not None and producer.is_inline:
                return visit(producer.op.body[0])
        return rebuild(x, visit) if not isinstance(x, Load) else x

    return visit(e)


def _stage_inputs(s: Schedule, members: list[str], name: str, core: IterVar, tile: IterVar) -> None:
    """Copies in UB of the GM tensors that the group reads: by tile, or once a core if shared."""
    readers: dict[Tensor, list[str]] = {}
    todo = list(members)
    for m in todo:
        for t in s.state.stage(m).reads():
            producer = s.state.producer(t)
            if producer is None or (
                producer.attach is None and producer.scope in ("", "global", "workspace")
            ):
                readers.setdefault(t, []).append(m)
            elif producer.is_inline and producer.name not in todo:
                seen_by = _through_inline(s.state, producer)
                if all(u.name in members for u in seen_by):  # else others would read the copy too
                    todo.append(producer.name)
    for t, users in readers.items():
        if t.ndim == 0:
            continue
        by_tile = any(_varies(s, u, t) for u in users)
        copy = s.cache_read(t, "UB", users)
        s[copy].compute_at(s[name], tile if by_tile else core)
        if by_tile:
            s[copy].double_buffer()


def _varies(s: Schedule, reader: str, t: Tensor) -> bool:
    """Whether what `reader` needs of `t` depends on the row."""
    stage = s.state.stage(reader)
    lead = set(stage.op.axis[: max(len(stage.op.axis) - 1, 1)])
    for e in stage.op.body:
        for n in walk(e):
            if (
                isinstance(n, Load)
                and n.source is t
                and any(v in lead for i in n.indices for v in free_vars(i))
            ):
                return True
    return False
