"""Short sums of products as dot instructions: four int8 to int32, two bfloat16 to float32.

In: a loop inside lanes, of at most a group's extent, that adds `cast(a) * cast(b)` to one element,
where each operand's group lies in adjacent elements: one 4-byte word for all lanes, or one word a
lane. Out: an instruction of the processor (`vpdpbusd`, `vdpbf16ps`, `vpmaddwd`), or shifts and
multiplies on the words, which are exact as well. Integer sums wrap, so their order is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.folds import accumulated, multiply_add, only_store
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import Val, constant
from akg_py.codegen.strides import flat_index, lane_stride, size_of, stride_along
from akg_py.codegen.target import GROUPS
from akg_py.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    bounds,
    free_vars,
    linear_combination,
    loads,
)
from akg_py.ir.stmt import Buffer, For, Store, buffer_of
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

WORD_BYTES = 4
LEAST_LANES = 4  # of an instruction


@dataclass(frozen=True)
class Group:
    """The elements of one operand: where the first one is, and whether lanes have their own."""

    buffer: Buffer
    where: Linear

    @property
    def is_signed(self) -> bool:
        return self.buffer.dtype == "int8"

    @property
    def per_lane(self) -> bool:
        return self.where.lane != 0


def group_loads(s: For, alias: dict[int, int]) -> tuple[Store, Load, Load] | None:
    """The store of a loop over groups and the two loads it multiplies, whatever their strides."""
    store, condition = only_store(s.body)
    if store is None or condition is not None or len(store.buffers) != 1:
        return None
    product = accumulated(store, alias)
    if not isinstance(product, Binary) or product.op != "*" or store.values[0].op != "+":  # type: ignore[attr-defined]
        return None
    if any(s.var in free_vars(e) for e in store.indices):
        return None
    pair = []
    for side in (product.a, product.b):
        if not isinstance(side, Cast) or not isinstance(side.a, Load):
            return None
        known = GROUPS.get(side.a.dtype)
        if known is None or known[1] != store.buffers[0].dtype or side.dtype != known[1]:
            return None
        if not 0 < bounds(s.extent)[1] <= known[0]:
            return None
        if stride_along(buffer_of(side.a), side.a.indices, s.var) != 1:
            return None
        pair.append(side.a)
    if GROUPS[pair[0].dtype][0] != GROUPS[pair[1].dtype][0]:
        return None
    return store, pair[0], pair[1]


def emit_dot(loops: Loops, s: For) -> bool:
    """Emit `s`, which stands inside lanes, as dots over words; False leaves it to the caller."""
    found = group_loads(s, loops.alias)
    if found is None:
        return False
    store, *pair = found
    size = GROUPS[pair[0].dtype][0]
    groups = []
    for load in pair:
        group = _group(loops, s, load, size)
        if group is None:
            return False
        groups.append(group)
    if loops.guarded or not any(group.per_lane for group in groups):
        return False
    count: int | Val | None = loops.constant_extent(s)
    if count is None:
        if bounds(s.extent)[0] < 1:  # with nothing to add, the element may not even exist
            return False
        count = loops.b.cast("trunc", loops.extent_value(s), "i32")
    buffer = store.buffers[0]
    where = loops.position(buffer, store.indices)
    held = loops.registers.get(id(buffer))
    old = held.read(loops, where) if held else loops.read(buffer, where)
    old = loops.b.splat(old, loops.lanes)
    words = [_word(loops, group, size, count) for group in groups]
    if old.lanes < LEAST_LANES:
        old, *words = (_repeated(loops, v) for v in (old, *words))
    width = min(loops.processor.vector_bytes // WORD_BYTES, old.lanes)
    parts = []
    for at in range(0, old.lanes, width):
        taken = [_part(loops, v, at, width) for v in (old, *words)]
        if buffer.dtype == "int32":
            parts.append(_int_dot(loops, taken[0], groups, taken[1:]))
        else:
            parts.append(_bfloat_dot(loops, taken[0], taken[1:], count))
    new = _joined(loops, parts)
    if loops.lanes < LEAST_LANES:
        new = loops.b.shuffle(new, list(range(loops.lanes)))
    if held:
        held.write(loops, where, new)
    else:
        loops.write(buffer, where, new)
    return True


# ---------------------------------------------------------------- copies into groups


def group_store(s: For, alias: dict[int, int]) -> tuple[Store, int] | None:
    """The store of a loop that fills a group with values of its own; and the group's size."""
    store, condition = only_store(s.body)
    if store is None or condition is not None or len(store.buffers) != 1:
        return None
    buffer = store.buffers[0]
    size = WORD_BYTES // dtypes.size_bytes(buffer.dtype)
    flat = flat_index(buffer, store.indices)
    if size not in (2, 4) or not 0 < bounds(s.extent)[1] <= size or flat is None:
        return None
    root = alias.get(id(buffer), id(buffer))
    if any(alias.get(id(x.source), id(x.source)) == root for x in loads(store.values[0])):
        return None
    return (store, size) if lane_stride(flat, s.var) == 1 else None


def emit_group_store(loops: Loops, s: For) -> bool:
    """Emit `s`, which stands inside lanes, with one word a lane; False leaves it to the caller."""
    found, count = group_store(s, loops.alias), loops.constant_extent(s)
    if found is None or count is None or loops.guarded:
        return False
    (store, size), b = found, loops.b
    buffer = store.buffers[0]
    flat = flat_index(buffer, store.indices)
    assert flat is not None
    where = _first(loops, s, flat)
    if where is None or where.lane != size or not _is_aligned(buffer, flat - s.var, size):
        return False
    word = _copied_word(loops, s, store) if count == size else None
    if word is None:
        word = constant(0, "i32")
        for n in range(count):
            loops.env[s.var] = Linear(const=n)
            raw = arithmetic.store_form(b, loops.stored_value(store, 0), buffer.dtype)
            part = b.bin("shl", b.cast("zext", raw, "i32"), constant(32 // size * n, "i32"))
            word = b.bin("or", word, part)
        del loops.env[s.var]
    loops.write_words(buffer, where, b.splat(word, loops.lanes))
    return True


def _copied_word(loops: Loops, s: For, store: Store) -> Val | None:
    """The word of a group that is copied from a group, perhaps with 128 added to each byte."""
    value, dtype, flips = store.values[0], store.buffers[0].dtype, False
    size = WORD_BYTES // dtypes.size_bytes(dtype)
    match value:
        case Binary(op="+", a=Cast(a=inner), b=Const(value=128 | -128)) if size == 4:
            value, dtype, flips = inner, inner.dtype, True
    if not isinstance(value, Load) or value.dtype != dtype or dtype not in GROUPS:
        return None
    buffer = buffer_of(value)
    flat = flat_index(buffer, value.indices)
    if flat is None or lane_stride(flat, s.var) != 1 or id(buffer) in loops.registers:
        return None
    where = _first(loops, s, flat)
    if where is None:
        return None
    word = loops.read_words(buffer, where, size)
    return loops.b.bin("xor", word, constant(0x80808080, "i32")) if flips else word


# ---------------------------------------------------------------- words


def _group(loops: Loops, s: For, load: Load, size: int) -> Group | None:
    buffer = buffer_of(load)
    flat = flat_index(buffer, load.indices)
    if flat is None or id(buffer) in loops.registers:
        return None
    where = _first(loops, s, flat)
    if where is None or where.lane not in (0, size):
        return None
    if where.lane and not _is_aligned(buffer, flat - s.var, size):
        return None
    return Group(buffer, where)


def _first(loops: Loops, s: For, flat: Expr) -> Linear | None:
    """Where a group begins, if the lanes are evenly apart."""
    where = loops.linear(flat - s.var)
    return where if where.extra is None and not where.steps else None


def _is_aligned(buffer: Buffer, first: Expr, size: int) -> bool:
    """Whether words never cross the end of the buffer, even where a group has fewer elements."""
    terms, const = linear_combination(first)
    return not any(n % size for n in (const, size_of(buffer), *terms.values()))


def _word(loops: Loops, group: Group, size: int, count: int | Val) -> Val:
    """The group as `i32`; elements of a uniform group beyond `count` are zero."""
    b = loops.b
    if group.per_lane:
        return loops.read_words(group.buffer, group.where, size)
    if count == size:
        return loops.read_words(group.buffer, group.where, size)
    bits = 32 // size
    word = constant(0, "i32")
    for n in range(size):
        if isinstance(count, int):
            if n >= count:
                break
            where, some = Linear(group.where.terms, group.where.const + n), None
        else:
            some = b.compare("sgt", count, constant(n, "i32"))
            step = b.select(some, constant(n, "i64"), constant(0, "i64"))
            where = Linear({**group.where.terms, step.ref: 1}, group.where.const)
        raw = loops.read(group.buffer, where)
        part = b.bin("shl", b.cast("zext", raw, "i32"), constant(bits * n, "i32"))
        if some is not None:
            part = b.select(some, part, constant(0, "i32"))
        word = b.bin("or", word, part)
    return word


def _repeated(loops: Loops, v: Val) -> Val:
    """Lanes again and again until there are as many as an instruction takes."""
    return v if v.lanes == 1 else loops.b.shuffle(v, [n % v.lanes for n in range(LEAST_LANES)])


def _part(loops: Loops, v: Val, at: int, width: int) -> Val:
    """Lanes `at` to `at + width`; what all lanes share stays one value."""
    return v if v.lanes in (1, width) else loops.b.shuffle(v, list(range(at, at + width)))


def _joined(loops: Loops, parts: list[Val]) -> Val:
    """Vectors one after the other; their number is a power of two."""
    while len(parts) > 1:
        lanes = 2 * parts[0].lanes
        order = ", ".join(f"i32 {i}" for i in range(lanes))
        parts = [
            loops.b.op(
                f"shufflevector {x.typed}, {y.typed}, <{lanes} x i32> <{order}>", x.elem, lanes
            )
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


# ---------------------------------------------------------------- int8


def _int_dot(loops: Loops, old: Val, groups: list[Group], words: list[Val]) -> Val:
    """`old` plus the four products of each lane; elements that don't count are zero on one side."""
    b, lanes, cpu = loops.b, old.lanes, loops.processor
    x, y = words
    if cpu.has_vnni and lanes in _BITS and groups[0].is_signed != groups[1].is_signed:
        unsigned, signed = (y, x) if groups[0].is_signed else (x, y)
        name = f"llvm.x86.avx512.vpdpbusd.{_BITS[lanes]}"
        pair = (_as_vector(loops, unsigned, lanes, "i8"), _as_vector(loops, signed, lanes, "i8"))
        return b.call(name, "i32", lanes, old, *pair)
    if lanes in cpu.pair_lanes:
        # elements 0 and 2 of each word as int16, then 1 and 3: sums of two products can't overflow
        name = _PAIR_SUMS[lanes]
        for odd in (False, True):
            halves = [
                _as_vector(loops, _every_other(loops, word, group, odd), lanes, "i16")
                for group, word in zip(groups, words, strict=True)
            ]
            old = b.bin("add", old, b.call(name, "i32", lanes, *halves))
        return old
    for n in range(4):
        a, c = (_byte(loops, w, g, n) for g, w in zip(groups, words, strict=True))
        old = b.bin("add", old, b.bin("mul", a, c))
    return old


_BITS = {4: 128, 8: 256, 16: 512}  # lanes of int32 -> bits of a vector
_PAIR_SUMS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}


def _as_vector(loops: Loops, word: Val, lanes: int, elem: str) -> Val:
    """Words seen as vectors of their elements."""
    size = 4 if elem == "i8" else 2
    word = loops.b.splat(word, lanes)
    return loops.b.op(f"bitcast {word.typed} to <{lanes * size} x {elem}>", elem, lanes * size)


def _every_other(loops: Loops, word: Val, group: Group, odd: bool) -> Val:
    """Bytes 0 and 2 (or 1 and 3) of words as the int16 halves of words."""
    b = loops.b
    halves = b.op(f"bitcast {word.typed} to <{2 * word.lanes} x i16>", "i16", 2 * word.lanes)
    eight = constant(8, "i16")
    if not odd:
        halves = b.bin("shl", halves, eight)
    halves = b.bin("ashr" if group.is_signed else "lshr", halves, eight)
    return b.op(f"bitcast {halves.typed} to {word.type}", "i32", word.lanes)


def _byte(loops: Loops, word: Val, group: Group, n: int) -> Val:
    b = loops.b
    top = b.bin("shl", word, constant(24 - 8 * n, "i32"))
    return b.bin("ashr" if group.is_signed else "lshr", top, constant(24, "i32"))


# ---------------------------------------------------------------- bfloat16


def _bfloat_dot(loops: Loops, old: Val, words: list[Val], count: int | Val) -> Val:
    b, lanes, cpu = loops.b, old.lanes, loops.processor
    if cpu.has_bf16 and lanes in _BITS and count == 2:
        pair = (_as_vector(loops, word, lanes, "bfloat") for word in words)
        return b.call(f"llvm.x86.avx512bf16.dpbf16ps.{_BITS[lanes]}", "float", lanes, old, *pair)
    for n in range(2):
        if isinstance(count, int) and n >= count:
            break
        x, y = (_half_word(loops, word, n) for word in words)
        new = multiply_add(loops, x, y, old)
        if not isinstance(count, int):
            new = b.select(b.compare("sgt", count, constant(n, "i32")), new, old)
        old = new
    return old


def _half_word(loops: Loops, word: Val, n: int) -> Val:
    """One bfloat16 of each word as float32."""
    b = loops.b
    if n == 0:
        bits = b.bin("shl", word, constant(16, "i32"))
    else:
        bits = b.bin("and", word, constant(0xFFFF0000, "i32"))
    return b.cast("bitcast", bits, "float")
