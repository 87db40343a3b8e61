"""Loop IR in the form that dot instructions want: full groups, and uint8 times int8.

In: a Func; out: one of equal meaning. `full_groups` splits off the last iteration of a loop over
groups when it may have fewer elements. `mix_signs` is for processors whose dot takes one unsigned
and one signed operand: of two int8 operands, the packed one is stored with 128 added, as uint8,
and the result starts from -128 times the sum of the other one, computed once per row. All of it in
integers that wrap, hence exact.
"""

from __future__ import annotations

from dataclasses import replace

from akg_py.codegen.dots import group_loads, group_store
from akg_py.codegen.strides import flat_index, lane_stride
from akg_py.codegen.target import GROUPS
from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    binary,
    bounds,
    cast,
    const,
    free_vars,
    is_index,
    is_zero,
    linear_combination,
    loads,
    maximum,
    rebuild,
    same,
    substitute,
)
from akg_py.ir.stmt import (
    Alloc,
    Buffer,
    For,
    Func,
    If,
    Seq,
    Stmt,
    Store,
    buffer_of,
    rebuild_stmt,
    seq,
    sub_exprs,
    sub_stmts,
    substitute_stmt,
    walk_stmts,
)
from akg_py.records import dataclass

# ---------------------------------------------------------------- full groups


def full_groups(func: Func) -> Func:
    """`func` with constant extents of the loops over groups, and a rest of its own."""
    return replace(func, body=_split(func.body))


def _split(s: Stmt) -> Stmt:
    s = rebuild_stmt(s, _split, lambda e: e)
    if not isinstance(s, For) or (isinstance(s.extent, Const) and int(s.extent.value) == 0):
        return s
    group = _perfect_nest(s)[-1]
    size = _group_size(group)
    if group is s or size is None:
        return s
    total = _elements(s, group, size)
    if total is None or isinstance(group.extent, Const):
        return s
    whole = replace(s, extent=total // size, body=_with_extent(s.body, group, const(size)))
    rest_count = total % size
    if _is_multiple(total, size) or (isinstance(rest_count, Const) and rest_count.value == 0):
        return whole
    last = _with_extent(s.body, group, maximum(rest_count, 1))
    rest = substitute_stmt(last, {s.var: total // size})
    if not isinstance(rest_count, Const):
        rest = If(rest_count > 0, rest, origin=s.origin)
    return seq(whole, rest)


def _group_size(s: For) -> int | None:
    """Elements of a full group, if `s` runs over the elements of one."""
    read, written = group_loads(s, {}), group_store(s, {})
    if read is not None:
        return GROUPS[read[1].dtype][0]
    return None if written is None else written[1]


def _perfect_nest(s: For) -> list[For]:
    """`s` and the loops below it that have nothing beside them."""
    nest = [s]
    while isinstance(nest[-1].body, For):
        nest.append(nest[-1].body)
    return nest


def _elements(outer: For, group: For, size: int) -> Expr | None:
    """How many elements both loops run over: the group is `min(size, total - size * outer)`."""
    if isinstance(group.extent, Const):
        return outer.extent * size if int(group.extent.value) == size else None
    e = group.extent
    if not isinstance(e, Binary) or e.op != "min":
        return None
    full, left = (e.a, e.b) if isinstance(e.a, Const) else (e.b, e.a)
    if not isinstance(full, Const) or int(full.value) != size:
        return None
    total = left + outer.var * size
    if outer.var in free_vars(total) or not same(outer.extent, (total + (size - 1)) // size):
        return None
    return total


def _with_extent(s: Stmt, group: For, extent: Expr) -> Stmt:
    if s is group:
        return replace(group, extent=extent)
    return rebuild_stmt(s, lambda inner: _with_extent(inner, group, extent), lambda e: e)


def _is_multiple(e: Expr, size: int) -> bool:
    """Whether `e` is surely a multiple of `size`."""
    if isinstance(e, Binary) and e.op in ("min", "max"):
        return _is_multiple(e.a, size) and _is_multiple(e.b, size)
    terms, constant = linear_combination(e)
    return constant % size == 0 and all(c % size == 0 for c in terms.values())


# ---------------------------------------------------------------- uint8 times int8

_FLIPPED = {"int8": "uint8", "uint8": "int8"}
_OFFSET = {"int8": 128, "uint8": -128}  # from an element to its flipped value
_MOST_SUMS = 1 << 20


@dataclass(frozen=True)
class _Dot:
    """A loop over groups of two operands of one dtype, and where it stands.

    Attributes:
        path: the statements around it and itself, outermost first.
        reduce: position in `path` of the outermost loop of the perfect nest that sums.
        packed: the operand to store flipped.
        other: the operand to sum up.
    """

    path: tuple[Stmt, ...]
    reduce: int
    store: Store
    packed: Load
    other: Load

    @property
    def nest(self) -> list[For]:
        return [s for s in self.path[self.reduce :] if isinstance(s, For)]

    @property
    def data(self) -> list[For]:
        """The loops of the nest that the result moves with."""
        return [f for f in self.nest if any(f.var in free_vars(e) for e in self.store.indices)]


def mix_signs(func: Func, alias: dict[int, int] | None = None) -> Func:
    """`func` with dots of two int8 turned into uint8 and int8, and those of two uint8 likewise.

    Args:
        alias: id of an output -> id of the input that may be the same array.
    """
    while True:
        dots = _one_packed_buffer(func)
        if not dots:
            return func
        func = replace(func, body=_Flip(dots, alias or {}).of(func.body))


def _one_packed_buffer(func: Func) -> list[_Dot]:
    """All readers of a packed buffer, if each of them is a dot that wants it flipped."""
    packed = {id(s.buffer) for s in walk_stmts(func.body) if isinstance(s, Alloc)}
    reads: dict[int, int] = {}
    for s in walk_stmts(func.body):
        if isinstance(s, Store) and len(s.buffers) > 1:
            packed -= {id(b) for b in s.buffers}
        for e in sub_exprs(s):
            for load in loads(e):
                reads[id(load.source)] = reads.get(id(load.source), 0) + 1
    found: dict[int, list[_Dot]] = {}
    for dot in _dots(func.body, (), packed):
        found.setdefault(id(dot.packed.source), []).append(dot)
    return next((dots for key, dots in found.items() if len(dots) == reads[key]), [])


def _dots(s: Stmt, path: tuple[Stmt, ...], packed: set[int]) -> list[_Dot]:
    path = (*path, s)
    if isinstance(s, For):
        found = group_loads(s, {})
        if found is not None:
            dot = _dot(path, s, *found, packed)
            return [dot] if dot is not None else []
    return [dot for inner in sub_stmts(s) for dot in _dots(inner, path, packed)]


def _dot(
    path: tuple[Stmt, ...], group: For, store: Store, a: Load, b: Load, packed: set[int]
) -> _Dot | None:
    if a.dtype != b.dtype or a.dtype not in _FLIPPED:
        return None
    around = {s.var for s in path if isinstance(s, For)}
    for own, other in ((b, a), (a, b)):
        if id(own.source) not in packed or own.source is other.source:
            continue
        flat = flat_index(buffer_of(own), own.indices)
        assert flat is not None
        lanes = {v for v in around if lane_stride(flat, v) == GROUPS[own.dtype][0]}
        lanes -= set().union(*(free_vars(e) for e in other.indices))
        stored = set().union(*(free_vars(e) for e in store.indices))
        if lanes.isdisjoint(stored):
            continue
        dot = _Dot(path, _reduce_position(path, stored), store, own, other)
        data = {f.var for f in dot.data}
        summed = {f.var for f in dot.nest} - data
        extents = [(f.var in data, free_vars(f.extent)) for f in dot.nest]
        if all(used.isdisjoint(summed if is_data else data) for is_data, used in extents):
            return dot
    return None


def _reduce_position(path: tuple[Stmt, ...], stored: set[Var]) -> int:
    """Where the innermost run of loops starts that sum and have only data loops below them."""
    at = len(path) - 1
    found = at
    while at > 0 and isinstance(path[at - 1], For):
        at -= 1
        loop = path[at]
        assert isinstance(loop, For)
        if loop.var not in stored:
            found = at
        elif found < len(path) - 1:
            break
    return found


class _Flip:
    """Rewrites a body for the dots of one packed buffer."""

    def __init__(self, dots: list[_Dot], alias: dict[int, int]) -> None:
        self.old = buffer_of(dots[0].packed)
        self.new = replace(self.old, dtype=_FLIPPED[self.old.dtype])
        self.offset = _OFFSET[self.old.dtype]
        self.alias = alias
        self.before: dict[int, list[Stmt]] = {}
        self.allocs: dict[int, list[Buffer]] = {}
        self.instead: dict[int, Stmt] = {}
        for n, dot in enumerate(dots):
            self._add_sums(dot, n)

    def of(self, s: Stmt) -> Stmt:
        """`s` rewritten."""
        if id(s) in self.instead:
            return self.instead[id(s)]
        match s:
            case Alloc() if s.buffer is self.old:
                new: Stmt = Alloc(self.new, self.of(s.body), s.origin)
            case Store() if s.buffers[0] is self.old:
                dtype = self.new.dtype
                value = binary("+", cast(dtype, s.values[0]), const(self.offset, dtype))
                new = replace(s, buffers=(self.new,), values=(value,))
            case _:
                new = rebuild_stmt(s, self.of, self._expr)
        new = seq(*self.before.get(id(s), ()), new)
        for buffer in self.allocs.get(id(s), ()):
            new = Alloc(buffer, new)
        return new

    def _expr(self, e: Expr) -> Expr:
        if isinstance(e, Load) and e.source is self.old:
            return Load(self.new, e.indices, self.new.dtype)
        return rebuild(e, self._expr)

    def _add_sums(self, dot: _Dot, number: int) -> None:
        """Plan the sums of `other` and the statement that takes them off the result."""
        at, outer = self._place(dot)
        rows = outer + [f for f in dot.data if _moves(dot.other, f.var)]
        buffer = dot.store.buffers[0]
        sums = Buffer(
            f"{dot.other.source.name}.sums{number or ''}",
            tuple(bounds(f.extent)[1] for f in rows),
            buffer.dtype,
            "local",
        )
        self.before.setdefault(id(dot.path[at]), []).append(_sum_rows(dot, rows, sums))
        self.allocs.setdefault(id(dot.path[at]), []).append(sums)
        taken = binary("*", Load(sums, tuple(f.var for f in rows), sums.dtype), const(-self.offset))
        zero = _zeroes(dot) if at < dot.reduce else None
        if isinstance(zero, For):
            self.instead[id(zero)] = _start(dot, taken)
            return
        start = _start(dot, binary("+", Load(buffer, dot.store.indices, buffer.dtype), taken))
        if isinstance(zero, If):
            self.instead[id(zero)] = replace(zero, body=_start(dot, taken), orelse=start)
        else:
            self.before.setdefault(id(dot.path[dot.reduce]), []).append(start)

    def _place(self, dot: _Dot) -> tuple[int, list[For]]:
        """Where to sum: outside of loops that repeat the sums; and the loops left around them."""
        best, outer = dot.reduce, []
        passed: list[For] = []
        data = {f.var for f in dot.data}
        summed = [f for f in dot.nest if f.var not in data or _moves(dot.other, f.var)]
        used = [*dot.other.indices, *(f.extent for f in summed)]
        root = self._root(dot.other.source)
        for at in range(dot.reduce - 1, -1, -1):
            s = dot.path[at]
            if isinstance(s, For):
                if self._writes(s.body, root):
                    break
                if any(s.var in free_vars(e) for e in used):
                    passed = [s, *passed]
                    used.append(s.extent)
                    if _static_size(passed) > _MOST_SUMS:
                        break
                else:
                    best, outer = at, passed
            elif isinstance(s, Seq):
                before = s.stmts[: next(n for n, x in enumerate(s.stmts) if x is dot.path[at + 1])]
                if best == at + 1 and not any(self._writes(x, root) for x in before):
                    best = at
            elif not isinstance(s, Alloc) or s.buffer is dot.other.source:
                break
        return best, outer

    def _writes(self, s: Stmt, root: int) -> bool:
        return any(
            self._root(b) == root for x in walk_stmts(s) if isinstance(x, Store) for b in x.buffers
        )

    def _root(self, buffer: object) -> int:
        return self.alias.get(id(buffer), id(buffer))


def _zeroes(dot: _Dot) -> Stmt | None:
    """The statement just before the sum that clears what it adds to, perhaps under a condition."""
    around = dot.path[dot.reduce - 1]
    if not isinstance(around, Seq):
        return None
    at = next(n for n, s in enumerate(around.stmts) if s is dot.path[dot.reduce])
    found = around.stmts[at - 1] if at else None
    nest = found.body if isinstance(found, If) and found.orelse is None else found
    if not isinstance(nest, For):
        return None
    loops = _perfect_nest(nest)
    clear = loops[-1].body
    if not isinstance(clear, Store) or clear.buffers != dot.store.buffers:
        return None
    if len(loops) != len(dot.data) or not is_zero(clear.values[0]):
        return None
    mapping: dict[Var, Expr] = {f.var: g.var for f, g in zip(loops, dot.data, strict=True)}
    alike = all(same(f.extent, g.extent) for f, g in zip(loops, dot.data, strict=True))
    indices = tuple(substitute(e, mapping) for e in clear.indices)
    return found if alike and all(map(same, indices, dot.store.indices)) else None


def _start(dot: _Dot, value: Expr) -> Stmt:
    """What the sum adds to becomes `value`."""
    body: Stmt = replace(dot.store, values=(value,))
    for f in reversed(dot.data):
        body = replace(f, body=body)
    return _renamed(body)


def _moves(load: Load, var: Var) -> bool:
    return any(var in free_vars(e) for e in load.indices)


def _static_size(loops: list[For]) -> int:
    size = 1
    for f in loops:
        size *= max(bounds(f.extent)[1], 1)
    return size


def _sum_rows(dot: _Dot, rows: list[For], sums: Buffer) -> Stmt:
    """`sums[rows] = ` the sum of `other` over the loops that `dot` sums over."""
    at = tuple(f.var for f in rows)
    clear = Store((sums,), at, (const(0, sums.dtype),), dot.store.origin)
    data = {f.var for f in dot.data}
    reduce, value = _joined([f for f in dot.nest if f.var not in data], dot.other)
    added = binary("+", Load(sums, at, sums.dtype), cast(sums.dtype, value))
    body: Stmt = Store((sums,), at, (added,), dot.store.origin)
    for f in reversed(reduce):
        body = replace(f, body=body, kind="serial")
    body = seq(clear, body)
    for f in reversed(rows):
        body = replace(f, body=body, kind="serial")
    return _renamed(body)


def _joined(reduce: list[For], load: Load) -> tuple[list[For], Load]:
    """The loops over groups and their elements as one, where the elements lie in a row."""
    if len(reduce) < 2:
        return reduce, load
    *rest, outer, group = reduce
    size = GROUPS[load.dtype][0]
    total = _elements(outer, group, size)
    if total is None:
        return reduce, load
    one = Var(f"{outer.var.name}.all", outer.var.dtype, 0, max(bounds(total)[1] - 1, 0))
    indices = []
    for e in load.indices:
        if is_index(e):
            terms, _ = linear_combination(e)
            if terms.get(outer.var, 0) != size * terms.get(group.var, 0):
                return reduce, load
            e = substitute(e - outer.var * terms.get(outer.var, 0), {group.var: one})
        if outer.var in free_vars(e) or group.var in free_vars(e):
            return reduce, load
        indices.append(e)
    return [*rest, replace(group, var=one, extent=total)], replace(load, indices=tuple(indices))


def _renamed(s: Stmt) -> Stmt:
    """`s` with loop variables of its own."""
    if isinstance(s, For):
        var = Var(s.var.name, s.var.dtype, s.var.lo, s.var.hi)
        return replace(s, var=var, body=_renamed(substitute_stmt(s.body, {s.var: var})))
    return rebuild_stmt(s, _renamed, lambda e: e)
