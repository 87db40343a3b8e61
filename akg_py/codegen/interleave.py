"""Short loops inside lanes whose stores together fill memory: shuffles and whole stores.

In: a loop over 2 to 4 neighbours, such as the channels of an image, inside a loop over lanes that
steps by as many elements. Stored one by one, each would scatter its lanes; here all values are
computed first, woven together, and stored side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen.dependence import is_independent
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import Builder, Val
from akg_py.codegen.strides import stride_along
from akg_py.ir.stmt import For, Store

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

MAX_NEIGHBOURS = 4


def emit_interleaved(loops: Loops, s: For) -> bool:
    """Emit `s`, inside lanes, if it is such a loop; False leaves it to the caller."""
    count, store = loops.constant_extent(s), s.body
    if count is None or not 2 <= count <= MAX_NEIGHBOURS or loops.guarded:
        return False
    if not isinstance(store, Store) or len(store.buffers) > 1:
        return False
    buffer = store.buffers[0]
    if stride_along(buffer, store.indices, s.var) != 1 or id(buffer) in loops.registers:
        return False
    with loops.bound(s.var, Linear()):
        where = loops.position(buffer, store.indices)
    if where.lane != count or where.extra is not None or where.steps:
        return False
    if not is_independent(s, loops.alias):
        return False
    values = []
    for n in range(count):
        with loops.bound(s.var, Linear(const=n)):
            values.append(loops.b.splat(loops.stored_form(store, 0), loops.lanes))
    lanes, mask = loops.lanes, loops.mask
    size = dtypes.size_bytes(buffer.dtype)
    width = min(lanes, loops.processor.vector_bytes // size)  # shuffles of whole registers
    for start in range(0, lanes, width):
        own = list(range(start, start + width))
        parts = weave(loops.b, [loops.b.shuffle(v, own) for v in values])
        for n, part in enumerate(parts):
            if mask is not None:
                order = [start + k // count for k in range(n * width, (n + 1) * width)]
                loops.mask = loops.b.shuffle(loops.b.splat(mask, lanes), order)
            loops.lanes = width
            at = where.const + start * count + n * width
            loops.write(buffer, Linear(where.terms, at, 1), part)
            loops.lanes, loops.mask = lanes, mask
    return True


def weave(b: Builder, values: list[Val]) -> list[Val]:
    """Lane 0 of every value, then lane 1 of every value and so on, in vectors of the same width."""
    count, width = len(values), values[0].lanes
    parts = []
    for start in range(0, count * width, width):
        source = [divmod(k, count) for k in range(start, start + width)]
        part, order = values[0], [lane for lane, _ in source]
        for n, v in enumerate(values[1:], 1):
            order = [width + lane if of == n else order[k] for k, (lane, of) in enumerate(source)]
            part, order = b.shuffle(part, order, v), list(range(width))
        parts.append(part)
    return parts
