"""Innermost loops that combine into one element: several vector accumulators, in a fixed order.

The order depends on the extent and the processor's vector width, never on threads. Only loops
whose loads are contiguous or constant over the loop are taken; a product that is summed becomes a
fused multiply-add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.indices import Linear, flat_index, lane_stride
from akg_py.codegen.llvm import Val, constant, constant_lanes
from akg_py.codegen.values import stays_inside
from akg_py.ir.expr import Binary, Expr, Load, bounds, free_vars, is_index, loads, same
from akg_py.ir.stmt import For, If, Intrinsic, Seq, Stmt, Store, buffer_of

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

ACCUMULATORS = 4


def emit_reduction(loops: Loops, s: For) -> bool:
    """Emit `s` as a reduction over lanes if it is one; False leaves it to the caller."""
    store, condition = only_store(s.body)
    if store is None or len(store.buffers) != 1 or not all(map(is_index, store.indices)):
        return False
    operand = accumulated(store, loops.alias)
    if operand is None or any(s.var in free_vars(e) for e in store.indices):
        return False
    dtype = store.buffers[0].dtype
    op = store.values[0].op  # type: ignore[attr-defined]
    if dtype in ("float16", "bfloat16", "bool") or op not in ("+", "max", "min"):
        return False
    for load in (*loads(operand), *(loads(condition) if condition is not None else ())):
        flat = flat_index(buffer_of(load), load.indices)
        if flat is None or lane_stride(flat, s.var) not in (0, 1):
            return False
    if condition is not None:
        # the element is touched even if the condition never holds, so it must surely exist
        if not stays_inside(store.buffers[0], store.indices):
            return False
        roots = {loops.alias.get(id(x.source), id(x.source)) for x in loads(condition)}
        if loops.alias.get(id(store.buffers[0]), id(store.buffers[0])) in roots:
            return False
    extent = loops.constant_extent(s)
    width = loops.lane_count(s)
    if width < 2 or (extent or bounds(s.extent)[1]) < 2 * width:
        return False
    if extent is None:  # with nothing to add, the element may not even exist
        total = loops.extent_value(s)
        some, after = loops.b.block("some"), loops.b.block("none")
        loops.b.branch(loops.b.compare("sgt", total, constant(0, "i64")), some, after)
        loops.b.at = some
        _emit(loops, s, store, operand, condition, width, total)
        loops.b.jump(after)
        loops.b.at = after
    else:
        _emit(loops, s, store, operand, condition, width, constant(extent, "i64"))
    return True


def _emit(
    loops: Loops,
    s: For,
    store: Store,
    operand: Expr,
    condition: Expr | None,
    width: int,
    total: Val,
) -> None:
    buffer, dtype = store.buffers[0], store.buffers[0].dtype
    op = store.values[0].op  # type: ignore[attr-defined]
    extent = None if total.ref.startswith("%") else int(total.ref)
    start = arithmetic.literal(_identity(op, dtype), dtype)
    elem = start.elem
    slots = [loops.b.alloca(f"<{width} x {elem}>", 64) for _ in range(ACCUMULATORS)]
    for slot in slots:
        loops.b.emit(f"store <{width} x {elem}> {loops.b.splat(start, width).ref}, ptr {slot}")

    def step(where: Linear, slot: str, mask: Val | None) -> None:
        loops.lanes, loops.mask = width, mask
        loops.env[s.var] = Linear(where.terms, where.const, 1)
        old = loops.b.op(f"load <{width} x {elem}>, ptr {slot}", elem, width)
        if condition is not None:
            holds = loops.b.splat(loops.value(condition), width)
            mask = loops.mask = loops.b.both(mask, holds)
            loops.guarded = True
        new = combine(loops, op, old, operand, dtype)
        if mask is not None:
            new = loops.b.select(mask, new, old)
        loops.guarded = False
        loops.b.emit(f"store {loops.b.splat(new, width).typed}, ptr {slot}")
        del loops.env[s.var]
        loops.lanes, loops.mask = 1, None

    stride = ACCUMULATORS * width
    many = (
        loops.b.bin("and", total, constant(-stride, "i64"))
        if extent is None
        else constant(extent // stride * stride, "i64")
    )

    def main(i: Linear) -> None:
        for n, slot in enumerate(slots):
            step(Linear(i.terms, n * width), slot, None)

    loops.counted(many, stride, main, [])
    rest = loops.b.bin("sub", total, many)
    numbers = constant_lanes(list(range(width)), "i64")

    def tail(i: Linear) -> None:
        left = loops.b.bin("sub", rest, loops.materialise(i))
        mask = loops.b.compare("slt", numbers, left)
        at = (
            Linear({**i.terms, many.ref: 1})
            if many.ref.startswith("%")
            else Linear(i.terms, int(many.ref))
        )
        step(at, slots[0], mask)

    if extent is None or extent % stride:
        loops.counted(rest, width, tail, [])
    parts = [loops.b.op(f"load <{width} x {elem}>, ptr {slot}", elem, width) for slot in slots]
    while len(parts) > 1:
        parts = [_join(loops, op, parts[i], parts[i + 1], dtype) for i in range(0, len(parts), 2)]
    result = parts[0]
    while result.lanes > 1:
        half = result.lanes // 2
        low = loops.b.shuffle(result, list(range(half)))
        high = loops.b.shuffle(result, list(range(half, 2 * half)))
        if half == 1:
            low, high = loops.b.lane(low_vector(low), 0), loops.b.lane(low_vector(high), 0)
        result = _join(loops, op, low, high, dtype)
    where = loops.position(buffer, store.indices)
    held = loops.registers.get(id(buffer))
    old = held.read(loops, where) if held else loops.read(buffer, where)
    final = arithmetic.store_form(
        loops.b, _join(loops, op, arithmetic.load_form(loops.b, old, dtype), result, dtype), dtype
    )
    if held:
        held.write(loops, where, final)
    else:
        loops.write(buffer, where, final)


def low_vector(v: Val) -> Val:
    """A shuffle of one lane is still a vector to LLVM."""
    return _OneLane(v.ref, v.elem)


class _OneLane(Val):
    @property
    def type(self) -> str:
        return f"<1 x {self.elem}>"


def accumulated(store: Store, alias: dict[int, int]) -> Expr | None:
    """`x` of `B[i] = B[i] op x`, where `x` doesn't read B."""
    value, buffer = store.values[0], store.buffers[0]
    if (
        not isinstance(value, Binary)
        or value.dtype != buffer.dtype
        or value.op not in ("+", "max", "min")
    ):
        return None
    root = alias.get(id(buffer), id(buffer))
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if (
            isinstance(own, Load)
            and buffer_of(own) is buffer
            and all(map(same, own.indices, store.indices))
        ):
            if all(alias.get(id(x.source), id(x.source)) != root for x in loads(other)):
                return other
    return None


def combine(loops: Loops, op: str, old: Val, operand: Expr, dtype: str) -> Val:
    """`old op operand`; a product is fused where the processor can."""
    fuses = op == "+" and dtype in ("float32", "float64")
    if fuses and isinstance(operand, Binary) and operand.op == "*":
        return multiply_add(loops, loops.value(operand.a), loops.value(operand.b), old)
    return _join(loops, op, old, loops.value(operand), dtype)


def multiply_add(loops: Loops, x: Val, y: Val, old: Val) -> Val:
    """`x * y + old` of floats, rounded once where the processor can."""
    if loops.processor.has_fma:
        return loops.b.intrinsic("fma", x, y, old)
    return loops.b.bin("fadd", old, loops.b.bin("fmul", x, y))


def _join(loops: Loops, op: str, x: Val, y: Val, dtype: str) -> Val:
    return arithmetic.binary(loops.b, op, x, y, dtype)


def _identity(op: str, dtype: str) -> float | int:
    if op == "+":
        return -0.0 if dtypes.is_float(dtype) else 0
    return dtypes.lowest(dtype) if op == "max" else dtypes.highest(dtype)


def only_store(s: Stmt) -> tuple[Store | None, Expr | None]:
    """The store that a body consists of, and the condition it stands under."""
    condition: Expr | None = None
    while True:
        match s:
            case Intrinsic():
                s = s.body
            case Seq(stmts=(only,)):
                s = only
            case If(orelse=None) if condition is None and s.condition.dtype == "bool":
                condition, s = s.condition, s.body
            case Store():
                return s, condition
            case _:
                return None, None
