"""Placement and tiling of vector stages: whole rows (or runs of elements) in UB, dealt to vector cores."""

from __future__ import annotations

from akg_py import dtypes
from akg_py.ascend.device import Device
from akg_py.autoschedule.contraction import match_contraction
from akg_py.ir.expr import Call, Expr, Load, Reduce, children, free_vars, walk
from akg_py.te.schedule import Schedule
from akg_py.te.stage import Fuse, ScheduleState, StageState
from akg_py.te.tensor import IterVar, PlaceholderOp, Tensor

TILE_BYTES = 32 * 1024  # of one input: enough for full bandwidth, small enough to overlap


def fuse_vector_stages(s: Schedule) -> None:
    """Compute producers inside their consumers: inline cheap element-wise ones, attach the rest.

    Marks only which root stage each belongs to (`compute_inline`, or left to `stage_vector`).
    """
    for name in reversed([stage.name for stage in s.stages]):
        state = s.state
        stage = state.stage(name)
        if stage.is_output or stage.attach is not None or match_contraction(state, stage) or _feeds_cube(state, stage):
            continue
        consumers = state.consumers(stage)
        if stage.op.reduce_axis or len(stage.outputs) > 1:
            continue
        same_points = all(_reads_pointwise(c, stage) for c in consumers)
        cheap = not any(isinstance(n, (Call, Reduce)) for e in stage.op.body for n in walk(e))
        if len(consumers) == 1 and same_points and not consumers[0].op.reduce_axis or (cheap and same_points):
            s[name].compute_inline()


def _feeds_cube(state: ScheduleState, stage: StageState) -> bool:
    return any(match_contraction(state, c) for c in state.consumers(stage))


def _reads_pointwise(consumer: StageState, producer: StageState) -> bool:
    """Whether the consumer reads the producer once per point, at plain axes."""
    for e in consumer.op.body:
        for n in walk(e):
            if isinstance(n, Load) and n.source in producer.outputs and not all(isinstance(i, IterVar) for i in n.indices):
                return False
    return True


def stage_vector(s: Schedule, stage: StageState, device: Device) -> None:
    """Tile a root stage for vector cores, attach its private producers, stage its operands, bind it."""
    name = stage.name
    if match_contraction(s.state, stage) is None and _holds_cube(s, name):
        return
    touched = bool(stage.relations) or bool(stage.marks) or stage.leaves != stage.op.axis + stage.op.reduce_axis
    if touched or _has_attached(s.state, name):
        _keep_sums_on_chip(s, name)
        return _bind_outermost(s, name)
    group = _private_producers(s.state, stage)
    data = stage.op.axis
    if not data or any(a.extent == 0 for a in data):
        return
    rows = data[:-1] if len(data) > 1 else ()
    flat = _is_flat(s.state, stage, group)
    members = [s.state.stage(g) for g in group] + [stage]
    per_element = _bytes_per_element(s.state, members)
    budget = int(device.capacity_bytes("UB") * 0.9)
    cores = device.cores("aiv")
    if not flat and per_element * _row_width(members) > budget and len(stage.outputs) == 1:
        return _stage_long_rows(s, stage, group, budget)
    result = s[name]
    if stage.is_output:
        cache = s.cache_write(list(stage.outputs) if len(stage.outputs) > 1 else stage.outputs[0], "UB")
        caches = cache if isinstance(cache, list) else [cache]
        s[caches[0]].double_buffer()
        compute = s[caches[0]].name
    else:
        compute = ""
    axes = [a for a in s.state.stage(name).leaves if not a.is_reduce]
    width = _row_width(members)
    row = result.fuse(*axes[:-1]) if len(axes) > 2 else axes[0] if rows else None
    count = row.extent if row is not None else 1
    fit = min(budget // per_element, _tile_elements(s, members))
    if flat:
        fit = min(fit, -(-count * width // cores))
    tile_rows = min(fit // max(width, 1), -(-count // cores))
    if row is not None and (tile_rows >= 1 or (not flat and budget // per_element >= width)):
        attach, _ = result.split(row, factor=max(tile_rows, 1))
    else:
        attach, _ = result.split(axes[-1], factor=max(-(-fit // 64) * 64, 64))
    for g in (*reversed(group), *([compute] if compute else ())):
        s[g].compute_at(result, attach)
        s[g].set_scope("UB")
    if compute:
        members = [s.state.stage(g) for g in group] + [s.state.stage(compute)]
    else:
        members = [s.state.stage(g) for g in group] + [s.state.stage(name)]
    _stage_inputs(s, members, name, attach)
    result.bind(attach if len(_outer(s, name, attach)) == 1 else result.fuse(*_outer(s, name, attach)), "blockIdx.x")
    return None


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
    axes = [a for a in s.state.stage(name).leaves if not a.is_reduce]
    row = out.fuse(*axes[:-1]) if len(axes) > 2 else axes[0]
    last = row
    if not reduces and len(axes) > 1:
        last, _ = out.split(axes[-1], factor=chunk)
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


def _outer(s: Schedule, name: str, attach: IterVar) -> tuple[IterVar, ...]:
    leaves = s.state.stage(name).leaves
    return leaves[: leaves.index(attach) + 1]


def _holds_cube(s: Schedule, name: str) -> bool:
    """Whether a stage in L0C is computed inside `name`: then it is the copy out of the cube."""
    return any(x.attached_to and x.attached_to[0] == name and x.scope == "L0C" for x in s.state.stages)


def _has_attached(state: ScheduleState, name: str) -> bool:
    return any(x.attached_to and x.attached_to[0] == name for x in state.stages)


def _keep_sums_on_chip(s: Schedule, name: str) -> None:
    """Let a reduction that the user scheduled accumulate in UB, not in GM."""
    stage = s.state.stage(name)
    first = next((n for n, a in enumerate(stage.leaves) if a.is_reduce), 0)
    mixes = any(isinstance(r, Fuse) and r.outer.is_reduce != r.inner.is_reduce for r in stage.relations)
    inner = [a for a in stage.leaves[first:] if not a.is_reduce]  # these loops move to the copy out of UB
    if first == 0 or mixes or any(x.attached_to and x.attached_to[1] in inner for x in s.state.stages):
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
    """Root stages that only `stage` needs (directly or through each other) and that are not the cube's."""
    group: list[StageState] = [stage]
    changed = True
    while changed:
        changed = False
        for candidate in state.stages:
            if candidate in group or candidate.is_output or candidate.attach is not None:
                continue
            if candidate.scope not in ("",) or match_contraction(state, candidate) or candidate.relations or candidate.marks:
                continue
            consumers = [c for c in state.consumers(candidate) if not c.is_inline] + [
                c for i in state.consumers(candidate) if i.is_inline for c in _through_inline(state, i)
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
            if not (len(e.indices) == len(member.op.axis) and all(i is a for i, a in zip(e.indices, member.op.axis, strict=True))):
                return False
            return producer is None or not producer.is_inline or _is_pointwise(state, producer)
        if isinstance(e, IterVar):
            return False
        return all(map(visit, children(e)))

    return all(map(visit, member.op.body))


def _row_width(members: list[StageState]) -> int:
    """Elements of the widest row that any member computes or reduces over."""
    width = 1
    for m in members:
        own = m.op.axis[-1].extent if m.op.axis else 1
        for a in m.op.reduce_axis:
            width = max(width, a.extent * (1 if m.op.axis and _reduces_rows(m) else own))
        width = max(width, own)
    return width


def _reduces_rows(m: StageState) -> bool:
    return bool(m.op.reduce_axis)


def _bytes_per_element(state: ScheduleState, members: list[StageState]) -> int:
    """Upper estimate of UB bytes per element of a row: stages, operands twice, temporaries."""
    total, deepest = 0, 0
    tensors: dict[Tensor, None] = {}
    for m in members:
        bodies = [_inlined_body(state, e) for e in m.op.body]
        total += sum(max(dtypes.size_bytes(t.dtype), 2) for t in m.outputs) * (1 if m.op.reduce_axis else 2)
        deepest = max(deepest, sum(sum(not _is_leaf(n) for n in walk(e)) for e in bodies))
        for e in bodies:
            tensors.update((n.source, None) for n in walk(e) if isinstance(n, Load) and isinstance(n.source, Tensor))
    inputs = [t for t in tensors if isinstance(t.op, PlaceholderOp) or state.producer(t) not in members]
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


def _tile_elements(s: Schedule, members: list[StageState]) -> int:
    widest = max(dtypes.size_bytes(t.dtype) for m in members for t in m.outputs)
    return max(TILE_BYTES // widest, 64)


def _stage_inputs(s: Schedule, members: list[StageState], name: str, attach: IterVar) -> None:
    """Double-buffered copies of the tensors in GM that the group reads by rows; others are read once."""
    readers: dict[Tensor, list[str]] = {}
    for m in members:
        for t in m.reads():
            producer = s.state.producer(t)
            in_gm = producer is None or (producer.attach is None and producer.scope in ("", "global", "workspace"))
            if in_gm and m.name != name:
                readers.setdefault(t, []).append(m.name)
    for t, users in readers.items():
        if t.ndim == 0 or not all(_varies(s, u, t) for u in users):
            continue
        copy = s.cache_read(t, "UB", users)
        s[copy].compute_at(s[name], attach)
        s[copy].double_buffer()


def _varies(s: Schedule, reader: str, t: Tensor) -> bool:
    """Whether what `reader` needs of `t` depends on the row."""
    stage = s.state.stage(reader)
    lead = set(stage.op.axis[:-1]) or set(stage.op.axis)
    for e in stage.op.body:
        for n in walk(e):
            if isinstance(n, Load) and n.source is t and any(v in lead for i in n.indices for v in free_vars(i)):
                return True
    return False
