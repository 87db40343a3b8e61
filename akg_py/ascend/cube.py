"""Selection for the cube: tiles into L1 and L0, the contraction, the way out of L0C.

The initialising store of an accumulator becomes MMAD's init flag: it holds in the first iteration
of all reduce loops since the initialisation.
"""

from __future__ import annotations

from akg_py.ascend import instructions as ins
from akg_py.ascend.nest import Nest
from akg_py.ascend.tiles import Loop, Node, Tile, depends_on, element_address, is_multiple
from akg_py.errors import UnsupportedError
from akg_py.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    const,
    free_vars,
    is_zero,
    linear_combination,
)
from akg_py.ir.stmt import GLOBAL, Buffer, For, Func, Store, buffer_of, walk_stmts
from akg_py.records import dataclass


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Rows and columns in GM: loop variables and loops of both, address and pitch in bytes."""

    variables: tuple[Var | None, Var | None]
    loops: list[For]
    address: Expr
    rows: Expr
    columns: Expr
    pitch: int


class CubeSelector:
    """Selects nests whose operands lie in the cube's memories.

    Attributes:
        tiles: tile of each buffer, by its id.
        loops: the loops around the nest, outermost first.
        transposed: ids of operands in L0 that are stored the other way.
        pending_init: accumulator -> number of loops around its initialisation.
        products: ids of accumulators that the cube writes.
    """

    def __init__(self, func: Func) -> None:
        self.tiles: dict[int, Tile] = {}
        self.loops: list[Loop] = []
        self.transposed = stored_transposed(func)
        self.pending_init: dict[int, int] = {}
        self.products: set[int] = set()

    def _unsupported(self, store: Store, problem: str, hint: str) -> UnsupportedError:
        stage = store.origin.stage if store.origin else store.buffers[0].name
        place = store.origin.place if store.origin else None
        return UnsupportedError(f"{stage}: {problem}", where=place, hint=hint)

    def _peel(self, nest: Nest, out: list[Node], keep: list[For]) -> list[Node]:
        """Emit the loops that the instruction doesn't take; return the body to emit into."""
        for f in nest.loops:
            if not any(f is k for k in keep):
                loop = Loop(f.var, f.extent, origin=f.origin)
                out.append(loop)
                out = loop.body
        return out

    def _note_init(self, store: Store) -> None:
        value = store.values[0]
        if not is_zero(value):
            raise self._unsupported(
                store, f"the cube can't start from {value}", "add it after the product"
            )
        self.pending_init[id(store.buffers[0])] = len(self.loops)

    def _contraction(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        c = self.tiles[id(store.buffers[0])]
        product = _product(store)
        if product is None:
            raise self._unsupported(
                store,
                f"no cube instruction computes {store.values[0]}",
                "L0C holds sums of products of an operand in L0A and one in L0B; other stages "
                "belong into UB",
            )
        a, b = product
        m_var, n_var = _last_vars(store.indices, nest)
        index_vars = {v for i in store.indices for v in free_vars(i)}
        k_vars = (free_vars_of(a) & free_vars_of(b)) - index_vars
        k_loop = next((f for f in reversed(nest.loops) if f.var in k_vars), None)
        m_loop = next((f for f in nest.loops if f.var is m_var), None)
        n_loop = next((f for f in nest.loops if f.var is n_var), None)
        if not _moves(a, m_var, n_var) or not _moves(b, n_var, m_var):
            raise self._unsupported(
                store,
                f"no cube instruction computes {store.values[0]}",
                "rows of the result move the operand in L0A only, columns the one in L0B only",
            )
        if k_loop is None or not is_zero(k_loop.extent):
            self.products.add(id(store.buffers[0]))
        keep = [f for f in (m_loop, n_loop, k_loop) if f is not None]
        peeled = [f for f in nest.loops if not any(f is x for x in keep)]
        out = self._peel(nest, out, keep)
        since = self.pending_init.get(id(store.buffers[0]), 0)
        reduce_vars: Expr = const(0)
        for loop in self.loops[since:]:
            reduce_vars = reduce_vars + loop.var
        for f in peeled:
            if not any(depends_on(i, f.var) for i in store.indices):
                reduce_vars = reduce_vars + f.var
        init = (
            Binary("==", reduce_vars, const(0), "bool")
            if not isinstance(reduce_vars, Const)
            else const(1)
        )
        dtype = a.source.dtype
        own = tuple(f.var for f in keep)
        out.append(
            ins.mmad(
                self._fractal_address(c, store.indices, (m_var, n_var)),
                self._operand_address(self.tiles[id(a.source)], a.indices, own),
                self._operand_address(self.tiles[id(b.source)], b.indices, own),
                m_loop.extent if m_loop else 1,
                n_loop.extent if n_loop else 1,
                k_loop.extent if k_loop else 1,
                init,
                dtype,
                c_col_stride=c.column_stride,
                origin=store.origin,
            )
        )

    def _operand_address(
        self, tile: Tile, indices: tuple[Expr, ...], loop_vars: tuple[Var | None, ...]
    ) -> Expr:
        """Address of an operand in L0, which is loaded and used as a whole."""
        for index in indices[-2:]:
            start = _without(index, loop_vars)
            if not is_zero(start):
                raise UnsupportedError(
                    f"{tile.buffer.name}: a part of a tile in {tile.buffer.scope}, from {start}",
                    where=tile.origin.place if tile.origin else None,
                    hint="load and use operands in L0 whole: attach them where the cube's loops "
                    "begin",
                )
        e: Expr = tile.base
        for index, stride in zip(indices[:-2], tile.strides, strict=True):
            e = e + index * stride
        return e

    def _fractal_address(
        self, tile: Tile, indices: tuple[Expr, ...], loop_vars: tuple[Var | None, ...]
    ) -> Expr:
        """Address of the first fractal: `indices` at the start of the loops."""
        start = [const(0)] * (2 - len(indices)) + [_without(i, loop_vars) for i in indices]
        e: Expr = tile.base
        for index, stride in zip(start[:-2], tile.strides, strict=True):
            e = e + index * stride
        row, col = start[-2:]
        c0 = 16 if tile.buffer.scope == "L0C" else tile.columns
        for what, index, unit in (("row", row, 16), ("column", col, c0)):
            if not is_multiple(index, unit):
                raise UnsupportedError(
                    f"{tile.buffer.name}: {what} {index} of a tile in {tile.buffer.scope} "
                    f"is not a multiple of {unit}",
                    where=tile.origin.place if tile.origin else None,
                    hint=f"split that axis by a multiple of {unit}",
                )
        return e + row * (64 if tile.buffer.scope == "L0C" else 32) + col // c0 * tile.column_stride

    def _matrix_in_gm(
        self, nest: Nest, indices: tuple[Expr, ...], tile: Tile, tensor: Tile, at: tuple[Expr, ...]
    ) -> _Matrix:
        """What `nest` copies between `tile[indices]` on chip and `tensor[at]` in GM."""
        r_var, c_var = _last_vars(indices, nest)
        address = element_address(tensor, at)
        terms, _ = linear_combination(address)
        if c_var is not None and terms.get(c_var) != tensor.element_bytes:
            raise self._unsupported(
                nest.store,
                f"rows of an {tile.buffer.scope} tile must be contiguous in GM",
                "keep the order of the axes",
            )
        loops = {f.var: f for f in nest.loops}
        return _Matrix(
            variables=(r_var, c_var),
            loops=[loops[v] for v in (r_var, c_var) if v is not None],
            address=_without(address, (r_var, c_var)),
            rows=loops[r_var].extent if r_var is not None else const(1),
            columns=loops[c_var].extent if c_var is not None else const(1),
            pitch=(terms.get(r_var, 0) if r_var is not None else 0) or tensor.element_bytes,
        )

    def _load_l1(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        source = _plain_copy(store)
        if source is None or source.source.scope not in (GLOBAL, "workspace"):  # type: ignore[attr-defined]
            raise self._unsupported(
                store, "L1 takes copies of tensors in GM only", "cache_read the tensor to L1"
            )
        dst, src = self.tiles[id(store.buffers[0])], self.tiles[id(source.source)]
        matrix = self._matrix_in_gm(nest, store.indices, dst, src, source.indices)
        self._peel(nest, out, matrix.loops).append(
            ins.nd2nz(
                self._fractal_address(dst, store.indices, matrix.variables),
                matrix.address,
                matrix.rows,
                matrix.columns,
                matrix.pitch,
                dst.column_stride,
                store.buffers[0].dtype,
                origin=store.origin,
            )
        )

    def _load_operand(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        scope = store.buffers[0].scope
        source = _plain_copy(store)
        if source is None or source.source.scope != "L1":  # type: ignore[attr-defined]
            raise self._unsupported(
                store,
                f"{scope} takes copies of tiles in L1 only",
                f"cache_read to L1, then to {scope}",
            )
        dst, src = self.tiles[id(store.buffers[0])], self.tiles[id(source.source)]
        r_var, c_var = _last_vars(store.indices, nest)
        loops = {f.var: f for f in nest.loops}
        keep = [loops[v] for v in (r_var, c_var) if v is not None]
        out = self._peel(nest, out, keep)
        rows = loops[r_var].extent if r_var is not None else const(1)
        cols = loops[c_var].extent if c_var is not None else const(1)
        src_address = self._fractal_address(src, source.indices, (r_var, c_var))
        dst_address = self._operand_address(dst, store.indices, (r_var, c_var))
        transposed = id(store.buffers[0]) in self.transposed
        load = ins.load_a if scope == "L0A" else ins.load_b
        first, second = (cols, rows) if transposed else (rows, cols)
        out.append(
            load(
                dst_address,
                src_address,
                first,
                second,
                src.column_stride,
                store.buffers[0].dtype,
                transposed=transposed,
                origin=store.origin,
            )
        )

    def _fix(self, nest: Nest, out: list[Node]) -> None:
        store = nest.store
        value, relu = store.values[0], False
        while True:
            if isinstance(value, Cast):
                value = value.a
            elif isinstance(value, Binary) and value.op == "max" and is_zero(value.b):
                value, relu = value.a, True
            else:
                break
        target = store.buffers[0]
        if not isinstance(value, Load) or target.scope not in (GLOBAL, "workspace"):
            raise self._unsupported(
                store,
                f"the way out of L0C can't compute {store.values[0]}",
                "a cast and a relu may stand there; compute the rest in a stage of its own, on "
                "the vector cores",
            )
        if id(value.source) not in self.products:
            raise self._unsupported(
                store,
                f"no product is written to {value.source.name} in L0C",
                "leave a product over an empty axis unscheduled: the vector unit writes its zeros",
            )
        src, dst = self.tiles[id(value.source)], self.tiles[id(target)]
        matrix = self._matrix_in_gm(nest, value.indices, src, dst, store.indices)
        self._peel(nest, out, matrix.loops).append(
            ins.fix(
                matrix.address,
                self._fractal_address(src, value.indices, matrix.variables),
                matrix.rows,
                matrix.columns,
                matrix.pitch,
                src.column_stride,
                target.dtype,
                relu,
                origin=store.origin,
            )
        )


def _plain_copy(store: Store) -> Load | None:
    value = store.values[0]
    return (
        value
        if len(store.values) == 1 and isinstance(value, Load) and isinstance(value.source, Buffer)
        else None
    )


def _moves(load: Load, moving: Var | None, fixed: Var | None) -> bool:
    """Whether an operand is indexed by `moving` and not by `fixed`."""
    used = free_vars_of(load)
    return (moving is None or moving in used) and (fixed is None or fixed not in used)


def free_vars_of(load: Load) -> set[Var]:
    return {v for i in load.indices for v in free_vars(i)}


def _last_vars(indices: tuple[Expr, ...], nest: Nest) -> tuple[Var | None, Var | None]:
    """Loop variables that move the last two axes by one (None where the axis is one index)."""
    loops = {f.var for f in nest.loops}
    found: list[Var | None] = []
    for e in (const(0), const(0), *indices)[-2:]:
        terms, _ = linear_combination(e)
        units = [a for a, c in terms.items() if isinstance(a, Var) and c == 1 and a in loops]
        found.append(units[-1] if units else None)
    return found[0], found[1]


def _without(e: Expr, variables: tuple[Var | None, ...]) -> Expr:
    for v in variables:
        if v is not None:
            terms, _ = linear_combination(e)
            e = e - v * terms.get(v, 0)
    return e


def _product(store: Store) -> tuple[Load, Load] | None:
    """(operand in L0A, operand in L0B) of `C += A * B`."""
    value = store.values[0]
    if not (isinstance(value, Binary) and value.op == "+"):
        return None
    for acc, term in ((value.a, value.b), (value.b, value.a)):
        while isinstance(term, Cast):
            term = term.a
        if (
            isinstance(acc, Load)
            and acc.source is store.buffers[0]
            and isinstance(term, Binary)
            and term.op == "*"
        ):
            by_scope: dict[str, Load] = {}
            for side in (term.a, term.b):
                while isinstance(side, Cast):
                    side = side.a
                if isinstance(side, Load):
                    by_scope[buffer_of(side).scope] = side
            if set(by_scope) == {"L0A", "L0B"}:
                return by_scope["L0A"], by_scope["L0B"]
    return None


def stored_transposed(func: Func) -> set[int]:
    """L0 operands whose last axis is not the one the cube wants last (k in L0A, n in L0B)."""
    transposed = set()
    for s in walk_stmts(func.body):
        if isinstance(s, Store) and s.buffers[0].scope == "L0C":
            operands = _product(s)
            if operands is None:
                continue
            outer = {v for i in s.indices for v in free_vars(i)}
            for load, wants_outer_last in zip(operands, (False, True), strict=True):
                last_is_outer = bool(free_vars(load.indices[-1]) & outer) if load.indices else False
                first_is_outer = bool(len(load.indices) > 1 and free_vars(load.indices[-2]) & outer)
                if wants_outer_last and first_is_outer and not last_is_outer:
                    transposed.add(id(load.source))
                if not wants_outer_last and last_is_outer and not first_is_outer:
                    transposed.add(id(load.source))
    return transposed
