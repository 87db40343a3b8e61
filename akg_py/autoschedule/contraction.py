"""Staging of a matrix product on cube cores: L0C, L1, L0A, L0B, the k loops, the block axis."""

from __future__ import annotations

from akg_py import dtypes
from akg_py.ascend.device import Device
from akg_py.ir.expr import Binary, Cast, Const, Expr, Load, Reduce, is_zero
from akg_py.records import dataclass
from akg_py.te.schedule import Schedule
from akg_py.te.stage import Fuse, ScheduleState, Split, StageState
from akg_py.te.tensor import IterVar, Tensor

CUBE_DTYPES = ("float16", "bfloat16", "float32")
GM_SCOPES = ("", "global", "workspace")
UNIT = 16


@dataclass(frozen=True, slots=True)
class Contraction:
    """C[.., m, n] = sum over k of A * B; `a` and `b` are the operands."""

    stage: str
    a: Tensor
    b: Tensor
    m: IterVar
    n: IterVar
    k: IterVar
    dtype: str


def match_contraction(state: ScheduleState, stage: StageState) -> Contraction | None:
    """The contraction that a stage computes, if the cube can."""
    op = stage.op
    mixes = any(
        isinstance(r, Fuse) and r.outer.is_reduce != r.inner.is_reduce for r in stage.relations
    )
    if mixes or len(op.body) != 1 or len(op.axis) < 2 or len(op.reduce_axis) != 1:
        return None
    e = op.body[0]
    if (
        not isinstance(e, Reduce)
        or e.combiner.name != "sum"
        or e.where is not None
        or e.init is not None
    ):
        return None
    product = _strip(e.sources[0])
    if not (isinstance(product, Binary) and product.op == "*"):
        return None
    left, right = _strip(product.a), _strip(product.b)
    if not (isinstance(left, Load) and isinstance(right, Load)) or left.source is right.source:
        return None
    if (
        left.dtype != right.dtype
        or left.dtype not in CUBE_DTYPES
        or e.dtype not in ("float32", "float16", "bfloat16")
    ):
        return None
    (k,) = op.reduce_axis
    if k.extent == 0 or any(a.extent == 0 for a in op.axis) or k.lo != 0:
        return None
    m, n = op.axis[-2:]
    for a, b in ((left, right), (right, left)):
        if _plain(a, {m, k}, op.axis[:-2]) and _plain(b, {k, n}, op.axis[:-2]):
            source_a, source_b = a.source, b.source
            assert isinstance(source_a, Tensor) and isinstance(source_b, Tensor)
            return Contraction(stage.name, source_a, source_b, m, n, k, left.dtype)
    return None


def _strip(e: Expr) -> Expr:
    while isinstance(e, Cast) and dtypes.is_float(e.a.dtype):
        e = e.a
    return e


def _plain(load: Load, last_two: set[IterVar], batch: tuple[IterVar, ...]) -> bool:
    """Indexed by plain axes: the two given last, batch axes or constants before them."""
    if len(load.indices) < 2 or {id(i) for i in load.indices[-2:]} != {id(a) for a in last_two}:
        return False
    return all(isinstance(i, Const) or any(i is a for a in batch) for i in load.indices[:-2])


def can_stage(state: ScheduleState, c: Contraction) -> bool:
    """Whether staging is missing and possible: operands in GM or L1, reduction in a data loop."""
    producers = [p for p in (state.producer(c.a), state.producer(c.b)) if p is not None]
    if any(p.scope in ("L0A", "L0B") for p in producers):
        return False
    in_gm = all(p.scope == "L1" or (p.attach is None and p.scope in GM_SCOPES) for p in producers)
    stage = state.stage(c.stage)
    inner = [a for a in stage.leaves if a.is_reduce]
    first = stage.leaves.index(inner[0])
    out = state.stage(_out_stage(state, c))
    leaves_cube = (
        out.attach is None and out.scope in GM_SCOPES
    )  # L0C is read by the way out to GM only
    fractal = all(
        r.inner.extent % UNIT == 0 or r.outer.extent == 1
        for r in (*stage.relations, *out.relations)
        if isinstance(r, Split)
    )
    if not leaves_cube or not fractal:
        return False
    holds = any(
        x.attached_to and x.attached_to[0] == c.stage and not x.attached_to[1].is_reduce
        for x in state.stages
    )
    return in_gm and not holds and first > 0 and stage.scope in (*GM_SCOPES, "local", "L0C")


def stage_contraction(s: Schedule, c: Contraction, device: Device) -> None:
    """Append the staging of `c`: where it is computed, its buffers, its loops."""
    out = _out_stage(s.state, c)
    es = dtypes.size_bytes(c.dtype)
    attach, block_m, block_n = _given_block(s.state, c, out) or _block(s, out, device, es)
    acc = c.stage
    if acc == out:
        cache = s.cache_write(out, "L0C")
        acc = s[cache].name
    elif s.state.stage(acc).scope in ("", "global", "local"):
        s[acc].set_scope("L0C")
    if s.state.stage(acc).attach is None:
        s[acc].compute_at(s[out], attach)
    _stage_operands(s, c, acc, block_m, block_n, es, device)
    _bind_blocks(s, out, attach)


def _out_stage(state: ScheduleState, c: Contraction) -> str:
    """The stage that copies the result out of L0C: a consumer that only converts, or itself."""
    stage = state.stage(c.stage)
    consumers = state.consumers(stage)
    if len(consumers) == 1 and not stage.is_output and _only_converts(consumers[0], stage):
        return consumers[0].name
    return c.stage


def _only_converts(consumer: StageState, producer: StageState) -> bool:
    if len(consumer.op.body) != 1 or consumer.op.reduce_axis:
        return False
    e = consumer.op.body[0]
    while True:
        if isinstance(e, Cast) or (isinstance(e, Binary) and e.op == "max" and is_zero(e.b)):
            e = e.a
        else:
            break
    return (
        isinstance(e, Load)
        and e.source in producer.outputs
        and all(i is a for i, a in zip(e.indices, consumer.op.axis, strict=True))
    )


def _given_block(state: ScheduleState, c: Contraction, out: str) -> tuple[IterVar, int, int] | None:
    """The loop at which the user computes the product, and the block's size."""
    attached = state.stage(c.stage).attached_to
    if attached is None or attached[0] != out or c.stage == out:
        return None
    to = state.stage(out)
    inner = to.leaves[to.leaves.index(attached[1]) + 1 :]
    m, n = to.op.axis[-2:]
    return attached[1], _extent_inside(to, m, inner), _extent_inside(to, n, inner)


def _block(s: Schedule, out: str, device: Device, es: int) -> tuple[IterVar, int, int]:
    """The loop of `out` that holds one block, and the block's size; tiles untiled axes."""
    state = s.state.stage(out)
    m, n = state.op.axis[-2:]
    if not any(isinstance(r, Split) and r.parent in (m, n) for r in state.relations) and {
        m,
        n,
    } <= set(state.leaves):
        size_m, size_n = min(128, _round(m.extent)), min(256, _round(n.extent))
        cores = device.cores("aic")
        while -(-m.extent // size_m) * -(-n.extent // size_n) < cores and max(size_m, size_n) > 32:
            if size_n >= size_m and size_n > 32:
                size_n = _round(size_n // 2)
            else:
                size_m = _round(size_m // 2)
        _, block, _, _ = s[out].tile(m, n, size_m, size_n)
        return block, size_m, size_n
    capacity = device.capacity_bytes("L0C")
    leaves = s.state.stage(out).leaves
    first = next((n for n, a in enumerate(leaves) if a.is_reduce), len(leaves))
    tiles = [r.inner for r in state.relations if isinstance(r, Split) and r.parent in (m, n)]
    inside = [leaves.index(a) for a in tiles if a in leaves]
    if len(inside) == 2 and 0 < min(inside) < first:  # the user's own block, whether it fits or not
        block = leaves[min(inside) - 1]
        inner = leaves[min(inside) :]
        return block, _extent_inside(state, m, inner), _extent_inside(state, n, inner)
    for position, leaf in enumerate(leaves[:first]):
        inner = leaves[position + 1 :]
        block_m, block_n = _extent_inside(state, m, inner), _extent_inside(state, n, inner)
        if _round(block_m) * _round(block_n) * 4 <= capacity and min(UNIT, block_m, block_n) > 0:
            return leaf, block_m, block_n
    return leaves[first - 1], 1, 1


def _extent_inside(state: StageState, root: IterVar, inner: tuple[IterVar, ...]) -> int:
    """How much of a root axis the loops `inner` cover."""

    def visit(axis: IterVar) -> int:
        for r in state.relations:
            if isinstance(r, Split) and r.parent is axis:
                return (
                    visit(r.outer) * visit(r.inner)
                    if visit(r.outer) == 1
                    else r.inner.extent * visit(r.outer)
                )
        if axis in inner:
            return axis.extent
        return 1

    return min(visit(root), root.extent)


def _round(n: int) -> int:
    return max(-(-n // UNIT) * UNIT, UNIT)


def _stage_operands(
    s: Schedule, c: Contraction, acc: str, block_m: int, block_n: int, es: int, device: Device
) -> None:
    stage = s[acc]
    batch = stage.op.axis[:-2]
    k_loops = [a for a in stage.leaf_iter_vars if a.is_reduce]
    l0a, l0b, l1 = (device.capacity_bytes(m) for m in ("L0A", "L0B", "L1"))
    rows_m, rows_n = _round(block_m), _round(block_n)
    copies = 2
    limit = min(l0a // copies // (rows_m * es), l0b // copies // (rows_n * es))
    if limit < UNIT:
        copies = 1
        limit = min(l0a // (rows_m * es), l0b // (rows_n * es))
    limit = max(limit // UNIT * UNIT, UNIT)
    inner = k_loops[-1]
    if inner.extent > limit or len(k_loops) == 1:
        k1, inner = stage.split(inner, factor=min(limit, _round(inner.extent)))
        k_loops = [*k_loops[:-1], k1, inner]
    if len(k_loops) == 2:
        per_step = (rows_m + rows_n) * limit * es * 2
        ratio = max(min(l1 // per_step, k_loops[0].extent, 4), 1)
        if ratio > 1:
            outer, middle = stage.split(k_loops[0], factor=ratio)
            k_loops = [outer, middle, inner]
    loops = k_loops[:-1]
    data = [a for a in stage.leaf_iter_vars if not a.is_reduce and a not in batch]
    stage.reorder(*loops, *data, inner)
    for tensor, memory in ((c.a, "L0A"), (c.b, "L0B")):
        producer = s.state.producer(tensor)
        if producer is not None and producer.scope == "L1":
            staged = tensor
            if producer.attach is None:
                s[staged].compute_at(stage, loops[0])
        else:
            staged = s.cache_read(tensor, "L1", [acc])
            s[staged].compute_at(stage, loops[0])
            s[staged].double_buffer()
        l0 = s.cache_read(staged, memory, [acc])
        s[l0].compute_at(stage, loops[-1])
        if copies == 2:
            s[l0].double_buffer()


def _bind_blocks(s: Schedule, out: str, attach: IterVar) -> None:
    """Deal the blocks to the cores unless the user did."""
    state = s.state.stage(out)
    if state.attach is not None or any(
        m.kind in ("core", "parallel") for m in state.marks.values()
    ):
        return
    leaves = state.leaves
    outer = leaves[: leaves.index(attach) + 1]
    block = s[out].fuse(*outer) if len(outer) > 1 else outer[0]
    s[out].bind(block, "blockIdx.x")
