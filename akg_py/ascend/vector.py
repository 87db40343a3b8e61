"""Vector code of one nest: element-wise stores, reductions as folds, the rest by element.

GM operands pass through staging tiles. Reductions along lanes fold chunks into one repeat and
combine its lanes; reductions along other axes accumulate. What neither can do runs on the scalar
pipe in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from akg_py import dtypes
from akg_py.ascend import instructions as ins
from akg_py.ascend.expressions import BINARY, ExpressionSelector
from akg_py.ascend.lanes import MAX_REPEATS, REPEAT_BYTES, Axis, chunk_axis, make_axes, strip
from akg_py.ascend.operations import GM_SCOPES, STORED_DTYPES
from akg_py.ascend.tiles import BLOCK, Loop, Node, TileRef, depends_on, is_multiple
from akg_py.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    const,
    free_vars,
    is_zero,
    rebuild,
    same,
    walk,
)
from akg_py.ir.stmt import Buffer, For, Store

_CROSS = {"+": "VCADD", "max": "VCMAX", "min": "VCMIN"}


class VectorSelector(ExpressionSelector):
    """Selects one nest; see `select`."""

    def select(self, loops: Sequence[For], store: Store, init: Store | None) -> list[Node]:
        """Instructions for `loops` around `store`; `init` stores what a reduction starts from."""
        self.origin = store.origin
        self.pinned = next((f.var for f in loops if f.kind == "vector"), None)
        axes = make_axes(loops)
        for b in store.buffers:
            if b.dtype not in STORED_DTYPES:
                raise self._unsupported(
                    f"the vector unit has no {b.dtype}", "cast to float32, float16 or int32"
                )
        index_vars = {v for i in store.indices for v in free_vars(i)}
        ragged = self._governing(axes)
        if init is not None and ragged:  # data loops, then the start value, then the other loops
            data = [a for a in axes if a.var in index_vars]
            self.out = self._scalar_loops([a for a in ragged if a in data])
            self._element_wise([a for a in data if a not in ragged], init)
            init, ragged_left = None, [a for a in ragged if a not in data]
        else:
            ragged_left = ragged
        self.out = self._scalar_loops(ragged_left)
        axes = [a for a in axes if a not in ragged]
        if not any(self._reads(v, b) for v in store.values for b in store.buffers):
            self._element_wise(axes, store)
            return self.nodes
        data = [a for a in axes if a.var in index_vars]
        reduce = [a for a in axes if a.var not in index_vars]
        if len(store.buffers) == 1 and self._reduction_parts(store) is not None:
            self._reduction(store, init, data, reduce)
        else:
            self._element_by_element(store, init, data, reduce)
        return self.nodes

    @staticmethod
    def _governing(axes: list[Axis]) -> list[Axis]:
        """Axes that the extent of another one depends on: they stay loops around the rest."""
        return [a for a in axes if any(depends_on(b.extent, a.var) for b in axes if b is not a)]

    @staticmethod
    def _reads(e: Expr, buffer: Buffer) -> bool:
        return any(isinstance(n, Load) and n.source is buffer for n in walk(e))

    def _element_wise(self, axes: list[Axis], store: Store) -> None:
        for buffer, value in zip(store.buffers, store.values, strict=True):
            if buffer.scope in GM_SCOPES:
                copied = self._copy_through(axes, buffer, store.indices, value)
                if copied:
                    continue
                gm = self._ref(buffer, store.indices)
                target = self._staging([a for a in axes if self._index_uses(store.indices, a)], gm)
                self._assign(target, value, axes)
                self._copy_gm(axes, target, gm, to_gm=True)
            else:
                self._assign(self._ref(buffer, store.indices), value, axes)

    @staticmethod
    def _index_uses(indices: tuple[Expr, ...], axis: Axis) -> bool:
        return any(depends_on(i, axis.var) for i in indices)

    def _copy_through(
        self, axes: list[Axis], buffer: Buffer, indices: tuple[Expr, ...], value: Expr
    ) -> bool:
        """A store of a plain UB tile to GM needs no staging."""
        if (
            isinstance(value, Load)
            and isinstance(value.source, Buffer)
            and value.source.scope == "UB"
        ):
            self._copy_gm(
                axes, self._ref(value.source, value.indices), self._ref(buffer, indices), to_gm=True
            )
            return True
        return False

    def _assign(self, dst: TileRef, value: Expr, axes: list[Axis]) -> None:
        """dst = value, the last operation writing in place."""
        used = [a for a in axes if dst.stride(a.var) != 0]
        if (
            isinstance(value, Load)
            and isinstance(value.source, Buffer)
            and value.source.scope in GM_SCOPES
            and (value.source.dtype == dst.dtype)
        ):
            gm = self._ref(value.source, value.indices)
            if all(dst.stride(a.var) is not None and gm.stride(a.var) is not None for a in axes):
                return self._copy_gm(used, dst, gm, to_gm=False)
        result = self._value(value, axes, dst)
        if isinstance(result, Const):
            self._fill(dst, result, used)
        elif result is not dst:
            self._convert_into(dst, result, used)
        return None

    # ------------------------------------------------------------ reductions

    @staticmethod
    def _reduction_parts(store: Store) -> tuple[str, Expr] | None:
        """(operator, source) of `buffer[i] = buffer[i] op source`."""
        value, buffer = store.values[0], store.buffers[0]
        if isinstance(value, Binary) and value.op in ("+", "*", "max", "min"):
            for acc, source in ((value.a, value.b), (value.b, value.a)):
                own = (
                    isinstance(acc, Load)
                    and acc.source is buffer
                    and all(map(same, acc.indices, store.indices))
                )
                if own and not VectorSelector._reads(source, buffer):
                    return value.op, source
        return None

    def _reduction(
        self, store: Store, init: Store | None, data: list[Axis], reduce: list[Axis]
    ) -> None:
        parts = self._reduction_parts(store)
        assert parts is not None
        op, source = parts
        buffer = store.buffers[0]
        in_gm = buffer.scope in GM_SCOPES
        gm = self._ref(buffer, store.indices)
        dst = self._staging(data, gm) if in_gm else gm
        if in_gm and init is None:
            self._copy_gm(data, dst, gm, to_gm=False)
        work = self._work_dtype(buffer.dtype)
        if work != buffer.dtype:
            raise self._unsupported(
                f"the vector unit does not accumulate in {buffer.dtype}",
                "accumulate in float32 or int32",
            )
        if init is not None:
            self._assign(dst, init.values[0], data)
        if all(a.size > 0 for a in (*data, *reduce)):
            value = self._as(self._value(source, [*data, *reduce]), work, [*data, *reduce])
            self._fold(op, dst, value, data, reduce)
        if in_gm:
            self._copy_gm(data, dst, gm, to_gm=True)

    def _fold(
        self, op: str, dst: TileRef, value: TileRef, data: list[Axis], reduce: list[Axis]
    ) -> None:
        """dst = dst op (value over the reduce axes)."""
        es = dtypes.size_bytes(value.dtype)
        lane = next((a for a in reversed(reduce) if value.stride(a.var) == es), None)
        rows_aligned = (
            lane is not None
            and is_multiple(strip(value.address, [*data, *reduce]), BLOCK)
            and all(
                (value.stride(a.var) or 0) % BLOCK == 0 for a in (*data, *reduce) if a is not lane
            )
        )
        if lane is None or op not in _CROSS or not rows_aligned:
            return self._accumulate(op, dst, value, data, reduce)
        others = [a for a in reduce if a is not lane]
        per_repeat = REPEAT_BYTES // es
        if lane.size > per_repeat or others:
            width = Axis(Var("lane", "int32", 0, per_repeat - 1), const(per_repeat), per_repeat)
            acc = self._temp([*data, width], value.dtype)
            self._fill(acc, const(_identity(op, value.dtype), value.dtype), [*data, width])
            saved, self.out = self.out, self._scalar_loops(others)
            self._accumulate_chunks(op, acc, value, data, lane, width)
            self.out = saved
            value, lane = acc, width
        part = self._temp(data, value.dtype)
        self._cross(_CROSS[op], part, value, data, lane)
        self._op(BINARY[op], dst.dtype, [dst, dst, part], data)
        return None

    def _accumulate_chunks(
        self, op: str, acc: TileRef, value: TileRef, data: list[Axis], lane: Axis, width: Axis
    ) -> None:
        """acc[.., lane % width] = acc op value: whole chunks of lanes, then what is left."""
        chunks = lane.extent // width.size
        rest = lane.extent - chunks * width.size
        step = width.size * dtypes.size_bytes(value.dtype)
        start = strip(value.address, [lane]) + width.var * dtypes.size_bytes(value.dtype)
        loop = Loop(
            Var("chunk", "int32", 0, max(lane.size // width.size - 1, 0)),
            chunks,
            origin=self.origin,
        )
        self.out.append(loop)
        saved, self.out = self.out, loop.body
        part = TileRef(value.tile, start + loop.var * step, value.dtype)
        self._op(BINARY[op], acc.dtype, [acc, acc, part], [*data, width])
        self.out = saved
        if not is_zero(rest):
            part = TileRef(value.tile, start + chunks * step, value.dtype)
            tail = Axis(width.var, rest, width.size)
            self._op(BINARY[op], acc.dtype, [acc, acc, part], [*data, tail])

    def _cross(self, name: str, dst: TileRef, value: TileRef, data: list[Axis], lane: Axis) -> None:
        """dst[row] = combination of the lanes of each row, one repeat per row."""
        live = [a for a in data if not (a.is_static and a.size == 1)]
        row = max(live, key=lambda a: a.size, default=None)
        addresses = [strip(dst.address, data), strip(value.address, [*data, lane])]
        out = self.out
        for a in live:
            if a is row:
                continue
            loop = Loop(Var(a.var.name, "int32", 0, a.size - 1), a.extent, origin=self.origin)
            addresses = [
                e + loop.var * (r.stride(a.var) or 0)
                for e, r in zip(addresses, (dst, value), strict=True)
            ]
            out.append(loop)
            out = loop.body
        repeats: Expr = const(1)
        steps = [0, 0]
        if row is not None:
            steps = [r.stride(row.var) or 0 for r in (dst, value)]
            out, addresses, repeats = chunk_axis(
                row.extent,
                row.size,
                MAX_REPEATS,
                addresses,
                [s * MAX_REPEATS for s in steps],
                out,
                self.origin,
                "rows",
            )
        out.append(
            ins.vector(
                name,
                value.dtype,
                addresses[0],
                addresses[1],
                0,
                lanes=lane.extent,
                repeats=repeats,
                rep=(steps[0], steps[1], 0),
                origin=self.origin,
            )
        )

    def _accumulate(
        self, op: str, dst: TileRef, value: TileRef, data: list[Axis], reduce: list[Axis]
    ) -> None:
        """dst = dst op value, one step of the reduce axes after the other."""
        saved, self.out = self.out, self._scalar_loops(reduce)
        self._op(BINARY[op], dst.dtype, [dst, dst, value], data)
        self.out = saved

    def _element_by_element(
        self, store: Store, init: Store | None, data: list[Axis], reduce: list[Axis]
    ) -> None:
        """Any reduction (tuples, own combiners): each element and step on the scalar pipe."""
        self._note_scalar()
        in_gm = [b.scope in GM_SCOPES for b in store.buffers]
        targets, staged = [], {}
        for b, gm in zip(store.buffers, in_gm, strict=True):
            ref = self._ref(b, store.indices)
            target = self._staging(data, ref) if gm else ref
            targets.append(target)
            if gm:
                inner = tuple(a.var for a in data) + (const(0),) * (
                    len(target.tile.buffer.shape) - len(data)
                )
                staged[id(b)] = Load(target.tile.buffer, inner, b.dtype)
                self.tiles[id(target.tile.buffer)] = target.tile
                if init is None:
                    self._copy_gm(data, target, self._ref(b, store.indices), to_gm=False)
        if init is not None:
            for t, v in zip(targets, init.values, strict=True):
                self._assign(t, v, data)
        saved, self.out = self.out, self._scalar_loops([*data, *reduce])
        self.known, self.on_scalar = {}, True
        values = [self._value(_reading(v, staged), []) for v in store.values]
        kept = [
            self._constant(v, t.dtype) if isinstance(v, Const) else self._kept(v)
            for v, t in zip(values, targets, strict=True)
        ]
        for t, result in zip(targets, kept, strict=True):
            self._convert_into(t, result, [])
        self.out, self.on_scalar = saved, False
        for b, t, gm in zip(store.buffers, targets, in_gm, strict=True):
            if gm:
                self._copy_gm(data, t, self._ref(b, store.indices), to_gm=True)

    def _kept(self, value: TileRef) -> TileRef:
        """A copy of one element, so that storing one output doesn't change another's value."""
        out = self._temp([], value.dtype)
        self._op("VCOPY", value.dtype, [out, value], [])
        return out


def _reading(e: Expr, staged: dict[int, Load]) -> Expr:
    """`e` with loads of outputs in GM replaced by loads of their staging tiles."""

    def visit(x: Expr) -> Expr:
        if isinstance(x, Load) and id(x.source) in staged:
            return staged[id(x.source)]
        return rebuild(x, visit)

    return visit(e)


def _identity(op: str, dtype: str) -> float | int:
    if op == "+":
        return 0
    return dtypes.lowest(dtype) if op == "max" else dtypes.highest(dtype)
