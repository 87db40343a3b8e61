"""A schedule becomes a Func: stages are placed consumers first, then emitted as loop nests.

In goes a `Schedule` and the argument tensors, out comes loop IR at level "loops". Placing a stage
finds the region its consumers need; tails become extents of the form `min(tile, size - start)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from akg_py import dtypes
from akg_py.errors import Place, ScheduleError
from akg_py.ir.expr import (
    INDEX,
    Affine,
    Binary,
    Cast,
    Combiner,
    Const,
    Expr,
    Load,
    Reduce,
    Var,
    binary,
    cast,
    ceildiv,
    const,
    free_vars,
    is_index,
    is_zero,
    minimum,
    rebuild,
    substitute,
)
from akg_py.ir.stmt import GLOBAL, Alloc, Buffer, For, Func, If, Intrinsic, Origin, Stmt, Store, seq
from akg_py.lowering.bounds import Domain, Range, clip, relax, union
from akg_py.lowering.prepare import (
    WIDENED,
    cache_narrow_outputs,
    check_args,
    inline_stages,
    is_narrow,
)
from akg_py.lowering.tensorize import check_tensorize
from akg_py.records import dataclass
from akg_py.te.layout import indices_of, shape_of
from akg_py.te.schedule import Schedule
from akg_py.te.stage import Fuse, LoopMark, ScheduleState, StageState
from akg_py.te.tensor import IterVar, PlaceholderOp, Tensor


def lower_schedule(
    schedule: Schedule, args: Sequence[Tensor], name: str = "main", *, late_init: bool = False
) -> Func:
    """Lower `schedule` to loop IR whose parameters are `args`, in order.

    Args:
        args: every input that the outputs need, and every output.
        late_init: initialise a reduction before its innermost reduce loops (around data loops, if
            there are such) instead of its outermost ones, in their first iterations.
    """
    check_args(schedule, args)
    schedule = cache_narrow_outputs(schedule)
    state = inline_stages(schedule.state)
    params = _make_params(state, args)
    attached_by = {
        step.stage: step.place for step in schedule.trace if step.primitive == "compute_at"
    }
    placed = _place(state, params, attached_by)
    body = _emit_roots(state, placed, params, late_init)
    outputs = tuple(params[t] for t in args if not isinstance(t.op, PlaceholderOp))
    return Func(name, tuple(params[t] for t in args), outputs, body)


# ---------------------------------------------------------------- placing


def _make_params(state: ScheduleState, args: Sequence[Tensor]) -> dict[Tensor, Buffer]:
    params: dict[Tensor, Buffer] = {}
    taken: set[str] = set()
    for t in args:
        name, n = t.name, 1
        while name in taken:
            name, n = f"{t.name}_{n}", n + 1
        taken.add(name)
        params[t] = Buffer(name, t.shape, t.dtype, GLOBAL)
    return params


@dataclass(slots=True)
class Placed:
    """A stage in its place: region, loops and storage.

    Attributes:
        start: first index of the region on each root axis.
        enclosing: the loop variables around its nest.
        loop_var: the variable of each leaf's loop.
        leaf: its value: the variable, or 0 for a loop of one iteration.
        loop_extent: extent of each leaf's loop, tightened to the region.
        residual: conditions that no loop extent expresses.
    """

    stage: StageState
    domain: Domain
    start: dict[IterVar, Expr]
    enclosing: frozenset[Var]
    loop_var: dict[IterVar, Var]
    leaf: dict[IterVar, Expr]
    loop_extent: dict[IterVar, Expr]
    residual: list[Expr]
    buffers: tuple[Buffer, ...]
    parent: Placed | None
    attached: dict[IterVar, list[Placed]] = field(default_factory=dict)

    def physical(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where in the buffer an element lies, given its indices from the buffer's start."""
        layout = self.stage.layout
        return indices if layout is None else indices_of(layout, indices)

    def root_values(self) -> dict[IterVar, Expr]:
        return {a: self.domain.value(a, self.leaf) + self.start[a] for a in self.start}


def _place(
    state: ScheduleState, params: dict[Tensor, Buffer], attached_by: dict[str, Place | None]
) -> dict[str, Placed]:
    placed: dict[str, Placed] = {}
    buffers: dict[Tensor, Buffer] = dict(params)
    for stage in reversed(state.stages):
        target = stage.attached_to
        parent = None if target is None else placed[target[0]]
        start: dict[IterVar, Expr] = {}
        extents: dict[IterVar, Expr] = {}
        for a in stage.op.reduce_axis:
            start[a], extents[a] = const(a.lo), const(a.extent)
        enclosing: frozenset[Var] = frozenset()
        if target is None or parent is None:
            for a in stage.op.axis:
                start[a], extents[a] = const(0), const(a.extent)
        else:
            enclosing = parent.enclosing | _outer_vars(parent, target[1])
            for a, r in zip(
                stage.op.axis, _region(state, stage, placed, enclosing, attached_by), strict=True
            ):
                start[a], extents[a] = r.lo, r.extent
        copies = _copies(stage, placed)
        new = _make_nest(stage, start, extents, enclosing, parent)
        shape = tuple(max(new.domain.static[a], 0) for a in stage.op.axis)
        if stage.layout is not None:
            shape = shape_of(stage.layout, shape)
        scope = stage.scope or (GLOBAL if parent is None else "local")
        own = []
        for t in stage.outputs:
            dtype = dtypes.accumulator(t.dtype) if is_narrow(stage) else t.dtype
            buffer = params.get(t) or Buffer(
                _buffer_name(stage, t), shape, dtype, scope, copies, stage.align
            )
            buffers[t] = buffer
            own.append(buffer)
        new.buffers = tuple(own)
        placed[stage.name] = new
        if parent is not None and target is not None:
            parent.attached.setdefault(target[1], []).insert(0, new)
    return placed


def _buffer_name(stage: StageState, tensor: Tensor) -> str:
    return stage.name if len(stage.outputs) == 1 else f"{stage.name}.v{tensor.value_index}"


def _outer_vars(parent: Placed, axis: IterVar) -> frozenset[Var]:
    """Loop variables of `parent` down to `axis`."""
    position = parent.stage.leaves.index(axis)
    return frozenset(parent.loop_var[a] for a in parent.stage.leaves[: position + 1])


def _copies(stage: StageState, placed: dict[str, Placed]) -> int:
    copies = stage.copies
    target = stage.attached_to
    while target is not None:
        parent = placed[target[0]].stage
        for leaf in parent.leaves[: parent.leaves.index(target[1]) + 1]:
            copies = max(copies, parent.mark(leaf).pipeline)
        target = parent.attached_to
    return copies


def _region(
    state: ScheduleState,
    stage: StageState,
    placed: dict[str, Placed],
    enclosing: frozenset[Var],
    attached_by: dict[str, Place | None],
) -> list[Range]:
    """What the consumers of `stage` read of it inside the loops `enclosing`."""
    shape = stage.outputs[0].shape
    loops: dict[Var, Expr] = {
        v: p.loop_extent[a] for p in placed.values() for a, v in p.loop_var.items()
    }
    regions: list[Range | None] = [None] * len(shape)
    for consumer in state.consumers(stage):
        user = placed[consumer.name]
        if not enclosing <= user.enclosing | set(user.loop_var.values()):
            where = stage.attached_to
            loop = f"{where[0]}.{where[1].name}" if where else "?.?"
            raise ScheduleError(
                f"{stage.name} is computed at {loop}, but "
                f"{consumer.name} uses it outside of that loop",
                where=attached_by.get(stage.name) or stage.op.place,
                hint=f"compute {consumer.name} at the same loop or inside it, or {stage.name} at a "
                "loop around both",
            )

        def outside(a: IterVar, user: Placed = user) -> Expr | None:
            value = user.leaf[a]
            return value if all(v in enclosing for v in free_vars(value)) else None

        ranges: dict[Var, Range] = {}
        for a, r in user.domain.ranges(outside).items():
            lo = _spread(r.lo + user.start[a], enclosing, loops)
            hi = lo if r.is_point else _spread(r.hi + user.start[a], enclosing, loops)
            if lo is None or hi is None:  # the whole axis
                lo = hi = Range(const(a.lo), const(a.lo + a.extent - 1))
            ranges[a] = lo if r.is_point else Range(lo.lo, hi.hi)
        for e in consumer.op.body:
            for load in _loads_of(e, stage.outputs):
                for d, index in enumerate(load.indices):
                    found = relax(index, ranges) if is_index(index) else None
                    r = clip(found, shape[d]) if found else Range(const(0), const(shape[d] - 1))
                    known = regions[d]
                    regions[d] = r if known is None else union(known, r)
    return [
        r if r is not None else Range(const(0), const(n - 1))
        for r, n in zip(regions, shape, strict=True)
    ]


def _spread(e: Expr, enclosing: frozenset[Var], loops: dict[Var, Expr]) -> Range | None:
    """Range of `e` while the loops that are not `enclosing` run; None if it can't be told."""
    inside = {v for v in free_vars(e) if v not in enclosing}
    if not inside:
        return Range(e, e)
    ranges: dict[Var, Range] = {}
    for v in inside:
        last = _spread(loops[v] - 1, enclosing, loops)
        ranges[v] = Range(const(0), last.hi if last is not None else const(v.hi))
    return relax(e, ranges)


def _loads_of(e: Expr, tensors: Sequence[Tensor]) -> list[Load]:
    from akg_py.ir.expr import loads

    return [load for load in loads(e) if any(load.source is t for t in tensors)]


def _make_nest(
    stage: StageState,
    start: dict[IterVar, Expr],
    extents: dict[IterVar, Expr],
    enclosing: frozenset[Var],
    parent: Placed | None,
) -> Placed:
    domain = Domain(stage, extents)
    loop_var: dict[IterVar, Var] = {}
    leaf: dict[IterVar, Expr] = {}
    loop_extent: dict[IterVar, Expr] = {}
    for a in stage.leaves:
        size = domain.static[a]
        loop_extent[a] = extents.get(a, const(size))
        loop_var[a] = Var(a.name, INDEX, 0, max(size - 1, 0))
        leaf[a] = loop_var[a]
    residual = []
    for value, bound in domain.guards(leaf):
        if not _fold_guard(stage, value, bound, leaf, loop_extent):
            residual.append(binary("<", value, bound))
    single: dict[Var, Expr] = {
        loop_var[a]: const(0)
        for a, e in loop_extent.items()
        if isinstance(e, Const) and e.value == 1
    }
    leaf = {a: single.get(v, v) for a, v in loop_var.items()}
    loop_extent = {a: substitute(e, single) for a, e in loop_extent.items()}
    residual = [substitute(e, single) for e in residual]
    return Placed(
        stage, domain, start, enclosing, loop_var, leaf, loop_extent, residual, (), parent
    )


def _fold_guard(
    stage: StageState,
    value: Expr,
    bound: Expr,
    leaf: dict[IterVar, Expr],
    loop_extent: dict[IterVar, Expr],
) -> bool:
    """Express `value < bound` by loop extents; False if that can't be done exactly."""
    position = {leaf[a]: n for n, a in enumerate(stage.leaves) if isinstance(leaf[a], Var)}

    def latest(e: Expr) -> int:
        return max((position[v] for v in free_vars(e) if v in position), default=-1)

    while (
        isinstance(value, Binary)
        and value.op == "//"
        and isinstance(value.b, Const)
        and value.b.value > 0
    ):
        bound = bound * value.b  # f // c < n  is  f < n * c
        value = value.a
    terms = value.terms if isinstance(value, Affine) else ((value, 1),)
    constant = value.const if isinstance(value, Affine) else 0
    order = sorted(terms, key=lambda t: latest(t[0]))
    last, _ = order[-1]
    if last not in position or any(coef < 0 for _, coef in terms):
        return False
    if len(order) > 1 and latest(order[-2][0]) == latest(last):
        return False
    earlier: Expr = const(constant)
    for atom, coef in order:
        if atom in position:
            axis = stage.leaves[position[atom]]
            loop_extent[axis] = minimum(loop_extent[axis], ceildiv(bound - earlier, coef))
        earlier = earlier + atom * coef
    return True


# ---------------------------------------------------------------- emitting


def _emit_roots(
    state: ScheduleState,
    placed: dict[str, Placed],
    params: dict[Tensor, Buffer],
    late_init: bool,
) -> Stmt:
    nests: list[Stmt] = []
    allocs: list[Buffer] = []
    emitter = _Emitter(placed, params, late_init)
    for stage in state.stages:
        p = placed[stage.name]
        if p.parent is None:
            nests.append(emitter.nest(p))
            if not stage.is_output:
                allocs += p.buffers
    body = seq(*nests)
    for buffer in reversed(allocs):
        body = Alloc(buffer, body)
    return body


class _Emitter:
    """Writes the loop nest of a placed stage with the stages attached inside it."""

    def __init__(
        self, placed: dict[str, Placed], params: dict[Tensor, Buffer], late_init: bool
    ) -> None:
        self.where: dict[Tensor, tuple[Placed, Buffer]] = {
            t: (p, b)
            for p in placed.values()
            for t, b in zip(p.stage.outputs, p.buffers, strict=True)
        }
        self.params = params
        self.late_init = late_init

    def nest(self, p: Placed) -> Stmt:
        """The loops of `p`, its attached stages, initialisation and update."""
        return self._loop(p, 0, self._init_depth(p.stage))

    def _init_depth(self, stage: StageState) -> int:
        """The reduce loop before which the result is initialised, as a position; -1 for none."""
        reduce = [n for n, a in enumerate(stage.leaves) if a.is_reduce]
        if not reduce:
            return -1
        fuses_data = any(
            isinstance(r, Fuse) and r.outer.is_reduce != r.inner.is_reduce for r in stage.relations
        )
        if not self.late_init or fuses_data or any(a.extent == 0 for a in stage.op.reduce_axis):
            return reduce[0]
        starts = [n for n in reduce if n - 1 not in reduce]
        # not between the data loops of a tile and a short reduce loop inside of it
        tiled = [n for n in starts if any(not a.is_reduce for a in stage.leaves[n:])]
        return (tiled or starts)[-1]

    def _origin(self, p: Placed, axis: IterVar | None = None) -> Origin:
        mark = p.stage.mark(axis) if axis is not None else None
        return Origin(
            p.stage.name,
            axis.name if axis is not None else "",
            (mark and mark.place) or p.stage.op.place,
        )

    def _loop(self, p: Placed, depth: int, init_depth: int) -> Stmt:
        stage = p.stage
        if depth == len(stage.leaves):
            return self._guarded(p, self._update(p), p.leaf)
        axis = stage.leaves[depth]
        if depth == init_depth:
            return seq(self._initialise(p, depth), self._loop(p, depth, -1))
        body = self._loop(p, depth + 1, init_depth)
        attached = p.attached.get(axis, [])
        if attached:
            body = seq(*(self.nest(a) for a in attached), body)
            for a in reversed(attached):
                for buffer in reversed(a.buffers):
                    place = a.stage.placed or a.stage.op.place
                    body = Alloc(buffer, body, Origin(a.stage.name, "", place))
        loop = self._for(p, axis, p.loop_var[axis], p.loop_extent[axis], stage.mark(axis), body)
        mark = stage.mark(axis)
        if mark.tensorize:
            check_tensorize(
                stage, axis, mark.tensorize, {a: p.loop_extent[a] for a in stage.leaves}, mark.place
            )
            return Intrinsic(mark.tensorize, loop, self._origin(p, axis))
        return loop

    def _for(
        self, p: Placed, axis: IterVar, var: Var, extent: Expr, mark: LoopMark, body: Stmt
    ) -> Stmt:
        return For(var, extent, mark.kind, body, self._origin(p, axis), mark.pragmas)

    def _guarded(self, p: Placed, body: Stmt, leaf: dict[IterVar, Expr]) -> Stmt:
        for condition in p.residual:
            mapping = {p.leaf[a]: leaf[a] for a in leaf if p.leaf[a] is not leaf[a]}
            renamed = substitute(condition, mapping)
            if not any(v in free_vars(renamed) for v in self._missing(p, leaf)):
                body = If(renamed, body, None, self._origin(p))
        return body

    @staticmethod
    def _missing(p: Placed, leaf: dict[IterVar, Expr]) -> list[Var]:
        return [v for a, v in p.leaf.items() if a not in leaf and isinstance(v, Var)]

    def _initialise(self, p: Placed, depth: int) -> Stmt:
        """Store the identity (or init) for the data loops inside the first reduce loop."""
        stage = p.stage
        inner = [a for a in stage.leaves[depth:] if not a.is_reduce]
        fused = [x for a in stage.leaves[depth:] if a.is_reduce for x in p.domain.data_sides(a)]
        inner += dict.fromkeys(fused)  # data axes fused with reduce axes run on their own here
        fresh = {a: Var(f"{a.name}.init", INDEX, 0, max(p.domain.static[a] - 1, 0)) for a in inner}
        leaf: dict[IterVar, Expr] = {a: v for a, v in p.leaf.items() if not a.is_reduce}
        leaf.update(fresh)
        first = stage.op.body[0]
        assert isinstance(first, Reduce)
        combiner = _widened(first.combiner, p.buffers)
        roots = {a: p.domain.value(a, leaf) + p.start[a] for a in stage.op.axis}
        if first.init is not None:
            values = tuple(self._rewrite(e, roots) for e in first.init)
        else:
            values = combiner.identity
        stored = tuple(cast(b.dtype, v) for b, v in zip(p.buffers, values, strict=True))
        body: Stmt = Store(p.buffers, self._indices(p, leaf), stored, self._origin(p))
        if fused:
            for value, bound in p.domain.guards(leaf, data_only=True):
                body = If(binary("<", value, bound), body, None, self._origin(p))
        else:
            body = self._guarded(p, body, leaf)
        rename: dict[Expr, Expr] = {p.leaf[a]: fresh[a] for a in inner if a in p.leaf}
        reduce_vars = {p.leaf[a] for a in stage.leaves if a.is_reduce}
        for a in reversed(inner):
            extent: Expr = const(p.domain.static[a])
            if not fused:
                extent = substitute(p.loop_extent[a], rename)
                if free_vars(extent) & reduce_vars:
                    extent = const(p.domain.static[a])
            mark = stage.mark(a)
            kind = mark.kind if mark.kind in ("vector", "unroll", "parallel", "core") else "serial"
            body = For(fresh[a], extent, kind, body, self._origin(p, a))
        for a in stage.leaves[:depth]:
            if a.is_reduce and isinstance(p.leaf[a], Var):
                body = If(binary("==", p.leaf[a], const(0)), body, None, self._origin(p, a))
        return body

    def _indices(self, p: Placed, leaf: dict[IterVar, Expr]) -> tuple[Expr, ...]:
        """Where in its buffer the stage stores: tensors at the index, regions from their start."""
        whole = p.parent is None
        return p.physical(
            tuple(p.domain.value(a, leaf) + (p.start[a] if whole else 0) for a in p.stage.op.axis)
        )

    def _update(self, p: Placed) -> Stmt:
        body = p.stage.op.body
        roots = p.root_values()
        indices = self._indices(p, p.leaf)
        first = body[0]
        if not isinstance(first, Reduce):
            values = tuple(
                cast(b.dtype, self._rewrite(e, roots)) for b, e in zip(p.buffers, body, strict=True)
            )
            return Store(p.buffers, indices, values, self._origin(p))
        combiner = _widened(first.combiner, p.buffers)
        old = tuple(Load(b, indices, b.dtype) for b in p.buffers)
        new = tuple(
            cast(b.dtype, self._rewrite(s, roots))
            for b, s in zip(p.buffers, first.sources, strict=True)
        )
        combined = combiner(old, new)
        store: Stmt = Store(p.buffers, indices, combined, self._origin(p))
        if first.where is not None:
            store = If(self._rewrite(first.where, roots), store, None, self._origin(p))
        return store

    def _rewrite(self, e: Expr, roots: dict[IterVar, Expr]) -> Expr:
        """`e` of the language as loop IR: axes become loops, tensors buffers."""
        if isinstance(e, IterVar):
            return roots[e]
        if isinstance(e, Const):
            return e
        if isinstance(e, Load) and isinstance(e.source, Tensor):
            indices = tuple(self._rewrite(i, roots) for i in e.indices)
            if e.source not in self.where:
                return Load(self.params[e.source], indices, e.dtype)
            producer, buffer = self.where[e.source]
            if producer.parent is not None:
                starts = [producer.start[a] for a in producer.stage.op.axis]
                indices = tuple(
                    i if is_zero(s) else i - s for i, s in zip(indices, starts, strict=True)
                )
            load = Load(buffer, producer.physical(indices), buffer.dtype)
            return load if buffer.dtype == e.dtype else Cast(load, e.dtype)
        return rebuild(e, lambda x: self._rewrite(x, roots))


def _widened(combiner: Combiner, buffers: tuple[Buffer, ...]) -> Combiner:
    """The same standard reduction for a buffer that accumulates in a wider dtype."""
    dtype = buffers[0].dtype
    if combiner.name not in WIDENED or len(buffers) > 1 or combiner.lhs[0].dtype == dtype:
        return combiner
    lhs, rhs = Var("x", dtype), Var("y", dtype)
    operator = {"sum": "+", "prod": "*"}[combiner.name]
    return Combiner(
        combiner.name,
        (lhs,),
        (rhs,),
        (binary(operator, lhs, rhs),),
        (cast(dtype, combiner.identity[0]),),
    )
