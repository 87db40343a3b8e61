"""Vector code of one nest: expressions become operations over tiles, reductions become folds.

Each node of the expression is one operation whose result is a temporary tile over the loops that the
node depends on; the last one writes the destination. GM operands pass through staging tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from akg_py import dtypes
from akg_py.ascend import instructions as ins
from akg_py.ascend.lanes import Axis, emit_lanes, emit_scalar, make_axes, merge_axes, plan_lanes, strip
from akg_py.ascend.legalize import expand_math
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import BLOCK, SPREAD, Loop, Node, Tile, TileRef, depends_on, element_address, is_multiple, make_tile
from akg_py.errors import UnsupportedError
from akg_py.ir.expr import (
    COMPARISONS, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, children, const, free_vars, is_index, rebuild,
    same, walk,
)  # fmt: skip
from akg_py.ir.stmt import Buffer, For, Origin, Store

GM_SCOPES = ("global", "workspace", "local")
_BINARY = {"+": "VADD", "-": "VSUB", "*": "VMUL", "/": "VDIV", "min": "VMIN", "max": "VMAX"}
_WITH_SCALAR = {"+": "VADDS", "*": "VMULS", "min": "VMINS", "max": "VMAXS", "/": "VDIVS"}
_SCALAR_FIRST = {"+": "VADDS", "*": "VMULS", "min": "VMINS", "max": "VMAXS", "-": "VRSUBS", "/": "VRDIVS"}
_COMPARE = {"<": "VCMPLT", "<=": "VCMPLE", ">": "VCMPGT", ">=": "VCMPGE", "==": "VCMPEQ", "!=": "VCMPNE"}
_CALLS = {
    "exp": "VEXP", "log": "VLN", "sqrt": "VSQRT", "rsqrt": "VRSQRT", "abs": "VABS", "floor": "VFLOOR", "ceil": "VCEIL",
    "round": "VROUND", "trunc": "VTRUNC",
}  # fmt: skip
_CROSS = {"+": "VCADD", "max": "VCMAX", "min": "VCMIN"}
_LANE_DTYPES = ("float32", "float16", "int32")
_STORED = (*_LANE_DTYPES, "bfloat16", "int8", "uint8", "bool")


class VectorSelector:
    """Selects one nest; see `select`."""

    def __init__(
        self, tiles: dict[int, Tile], loop: Loop, phase_tiles: list[Tile], scalar_stages: dict[str, Origin]
    ) -> None:
        self.tiles = tiles
        self.loop = loop
        self.phase_tiles = phase_tiles
        self.scalar_stages = scalar_stages
        self.nodes: list[Node] = []  # what was selected
        self.out = self.nodes  # where the next instruction goes
        self.origin: Origin | None = None
        self.pinned: Var | None = None
        self.on_scalar = False  # inside element-by-element code everything stays on one pipe
        self.known: dict[Expr, TileRef | Const] = {}  # values computed so far, reusable in this place
        self.vars: dict[int, tuple[Expr, frozenset[Var]]] = {}

    # ------------------------------------------------------------ a nest

    def select(self, loops: Sequence[For], store: Store, init: Store | None) -> list[Node]:
        """Instructions for `loops` around `store`; `init` stores what a reduction starts from."""
        self.origin = store.origin
        self.pinned = next((f.var for f in loops if f.kind == "vector"), None)
        axes = make_axes(loops)
        for b in store.buffers:
            if b.dtype not in _STORED:
                raise self._unsupported(f"the vector unit has no {b.dtype}", "cast to float32, float16 or int32")
        index_vars = {v for i in store.indices for v in free_vars(i)}
        data = [a for a in axes if a.var in index_vars]
        reduce = [a for a in axes if a.var not in index_vars]
        body = self._outside(data)
        if not any(self._reads(v, b) for v in store.values for b in store.buffers):
            self.out = body
            self._element_wise([a for a in axes if a not in self._governing(data)], store)
            return self.nodes
        data = [a for a in data if a not in self._governing(data)]
        by_parts = len(store.buffers) == 1 and self._reduction_parts(store) is not None
        ragged = self._governing(reduce)
        self.out = body
        if ragged and init is not None:
            self._element_wise(data, init)
            init = None
        self.out = self._outside(reduce, body)
        reduce = [a for a in reduce if a not in ragged]
        if by_parts:
            self._reduction(store, init, data, reduce)
        else:
            self._element_by_element(store, init, data, reduce)
        return self.nodes

    @staticmethod
    def _governing(axes: list[Axis]) -> list[Axis]:
        """Axes that the extent of another one depends on: they stay loops around the rest."""
        return [a for a in axes if any(depends_on(b.extent, a.var) for b in axes if b is not a)]

    def _outside(self, axes: list[Axis], body: list[Node] | None = None) -> list[Node]:
        """Emit the governing axes as loops; the body to go on in."""
        body = self.nodes if body is None else body
        for a in self._governing(axes):
            loop = Loop(a.var, a.extent, origin=self.origin)
            body.append(loop)
            body = loop.body
        return body

    @staticmethod
    def _reads(e: Expr, buffer: Buffer) -> bool:
        return any(isinstance(n, Load) and n.source is buffer for n in walk(e))

    def _unsupported(self, problem: str, hint: str) -> UnsupportedError:
        stage = self.origin.stage if self.origin else "?"
        return UnsupportedError(f"{stage}: {problem}", where=self.origin.place if self.origin else None, hint=hint)

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

    def _copy_through(self, axes: list[Axis], buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> bool:
        """A store of a plain UB tile to GM needs no staging."""
        if isinstance(value, Load) and isinstance(value.source, Buffer) and value.source.scope == "UB":
            self._copy_gm(axes, self._ref(value.source, value.indices), self._ref(buffer, indices), to_gm=True)
            return True
        return False

    def _assign(self, dst: TileRef, value: Expr, axes: list[Axis]) -> None:
        """dst = value, the last operation writing in place."""
        used = [a for a in axes if dst.stride(a.var) != 0]
        if isinstance(value, Load) and isinstance(value.source, Buffer) and value.source.scope in GM_SCOPES and (
            value.source.dtype == dst.dtype
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

    def _convert_into(self, dst: TileRef, src: TileRef, axes: list[Axis]) -> None:
        if dst.dtype == src.dtype:
            self._op("VCOPY", dst.dtype, [dst, src], axes)
        else:
            self._op("VCONV", f"{src.dtype}_{dst.dtype}", [dst, src], axes)

    # ------------------------------------------------------------ tiles

    def _staging(self, axes: list[Axis], gm: TileRef) -> TileRef:
        """A tile to copy `gm` from or to: where its last axis has gaps in GM, each element has a block."""
        affine = all(gm.stride(a.var) is not None for a in axes)
        dense = not axes or (affine and gm.stride(axes[-1].var) == dtypes.size_bytes(gm.dtype))
        if dense:
            return self._temp(axes, gm.dtype, staging=True)
        element = Axis(Var("element", "int32", 0, 0), const(1), 1)
        padded = self._temp([*axes, element], gm.dtype, staging=True)
        return TileRef(padded.tile, strip(padded.address, [element]), gm.dtype)

    def _temp(self, axes: list[Axis], dtype: str, staging: bool = False) -> TileRef:
        """A fresh tile over `axes`, row-major with rows padded to 32 bytes."""
        name = f"{self.origin.stage if self.origin else 'tmp'}.{'stage' if staging else 't'}{len(self.loop.tiles)}"
        buffer = Buffer(name, tuple(max(a.size, 1) for a in axes), dtype, "UB")
        tile = make_tile(buffer, origin=self.origin)
        tile.loop = self.loop
        self.loop.tiles.append(tile)
        return TileRef(tile, element_address(tile, tuple(a.var for a in axes)), dtype)

    def _ref(self, buffer: Buffer, indices: tuple[Expr, ...]) -> TileRef:
        tile = self.tiles[id(buffer)]
        return TileRef(tile, element_address(tile, indices), buffer.dtype)

    def _load(self, load: Load, axes: list[Axis]) -> TileRef:
        buffer = load.source
        assert isinstance(buffer, Buffer)
        for i in load.indices:
            if not is_index(i):
                raise self._unsupported(f"the index {i} of {buffer.name} depends on data", "gathers are not supported yet")
        ref = self._ref(buffer, load.indices)
        if buffer.scope not in GM_SCOPES:
            return ref
        used = [a for a in axes if depends_on(ref.address, a.var)]
        staged = self._staging(used, ref)
        self._copy_gm(used, staged, ref, to_gm=False)
        return staged

    def _copy_gm(self, axes: list[Axis], ub: TileRef, gm: TileRef, to_gm: bool) -> None:
        """Copy between UB and GM: rows of contiguous bytes, other axes as loops.

        Rows in UB begin at 32 bytes; those that don't go through a tile whose rows do.
        """
        es = dtypes.size_bytes(gm.dtype)
        if not self._rows_aligned(axes, ub, gm):
            bounce = self._staging([a for a in axes if gm.stride(a.var) != 0], gm)
            if to_gm:
                self._op("VCOPY", ub.dtype, [bounce, ub], axes)
                return self._copy_gm(axes, bounce, gm, to_gm)
            self._copy_gm(axes, bounce, gm, to_gm)
            return self._op("VCOPY", ub.dtype, [ub, bounce], axes)
        live = [a for a in axes if not (a.is_static and a.size == 1)]
        out = self.out
        strides = []
        for ref in (ub, gm):
            own: dict[Var, int] = {}
            for a in live:
                step = ref.stride(a.var)
                own[a.var] = -1 if step is None else step
            strides.append(own)
        affine = all(v >= 0 for s in strides for v in s.values())
        if affine:
            starts = [strip(r.address, axes) for r in (ub, gm)]
            live = merge_axes(live, strides)
            row = next((a for a in reversed(live) if all(s[a.var] == es for s in strides)), None)
            others = [a for a in live if a is not row]
            block = max((a for a in others if all(s[a.var] > 0 for s in strides)), key=lambda a: a.size, default=None)
            loops = [a for a in others if a is not block]
        else:
            starts = [r.address for r in (ub, gm)]
            row, block, loops = None, None, live
        for a in loops:
            loop = Loop(a.var if not affine else Var(a.var.name, "int32", 0, a.size - 1), a.extent, origin=self.origin)
            if affine:
                starts = [e + loop.var * s[a.var] for e, s in zip(starts, strides, strict=True)]
            out.append(loop)
            out = loop.body
        size = row.extent * es if row is not None else const(es)
        rows = block.extent if block is not None else const(1)
        pitch = [s[block.var] if block is not None else es for s in strides]
        if to_gm:
            out.append(ins.copy(starts[1], starts[0], rows, size, pitch[1], pitch[0], "MTE3", self.origin))
        else:
            out.append(ins.copy(starts[0], starts[1], rows, size, pitch[0], pitch[1], "MTE2", self.origin))
        return None

    def _rows_aligned(self, axes: list[Axis], ub: TileRef, gm: TileRef) -> bool:
        """Whether every row of contiguous bytes begins at a block of UB."""
        es = dtypes.size_bytes(gm.dtype)
        live = [a for a in axes if not (a.is_static and a.size == 1)]
        strides = [{a.var: r.stride(a.var) or 0 for a in live} for r in (ub, gm)]
        if any(r.stride(a.var) is None for a in live for r in (ub, gm)):
            return is_multiple(ub.address, BLOCK)
        live = merge_axes(live, strides)
        row = next((a for a in reversed(live) if all(s[a.var] == es for s in strides)), None)
        return is_multiple(strip(ub.address, axes), BLOCK) and all(
            strides[0][a.var] % BLOCK == 0 for a in live if a is not row
        )

    # ------------------------------------------------------------ operations

    def _op(self, name: str, dtype: str, refs: list[TileRef], axes: list[Axis], scalar: int = 0) -> None:
        """Emit one operation; refs are destination and sources, `scalar` the bits of an immediate."""

        def make(addresses: list[Expr], lanes: Expr, repeats: Expr, rep: list[Expr], blk: list[int]) -> Instruction:
            def padded(items: Sequence[Expr | int], default: Expr | int) -> tuple[Expr | int, Expr | int, Expr | int]:
                full = [*items, default, default][:3]
                return full[0], full[1], full[2]

            operands = [*addresses, const(scalar), const(0)][:3] if len(addresses) < 3 else addresses
            if len(addresses) == 1:
                operands = [addresses[0], const(0), const(scalar)]
            return ins.vector(
                name, dtype, operands[0], operands[1], operands[2], lanes=lanes, repeats=repeats,
                rep=padded(rep, 0), blk=padded(blk, BLOCK), origin=self.origin,
            )  # fmt: skip

        plan = None if self.on_scalar else plan_lanes(refs, axes, self.pinned)
        if plan is not None and plan.lane is not None:
            widened = [self._spread(r, plan.lane, axes) if self._needs_spread(r, plan.lane) else r for r in refs[1:]]
            if any(w is not r for w, r in zip(widened, refs[1:], strict=True)):
                refs = [refs[0], *widened]
                plan = plan_lanes(refs, axes, plan.lane.var)
        if plan is None:
            if self.origin is not None:
                self.scalar_stages[self.origin.stage] = self.origin
            emit_scalar(refs, axes, make, self.out, self.origin)
        else:
            emit_lanes(plan, refs, make, self.out, self.origin)

    @staticmethod
    def _needs_spread(ref: TileRef, lane: Axis) -> bool:
        """Whether the source is one element per row, to be repeated over the lanes."""
        return ref.stride(lane.var) == 0 and not ref.is_spread

    def _spread(self, ref: TileRef, lane: Axis, axes: list[Axis]) -> TileRef:
        """Put each element of `ref` into a 32 B block of its own, to be read with block stride 0."""
        used = [a for a in axes if ref.stride(a.var) != 0]
        es = dtypes.size_bytes(ref.dtype)
        buffer = Buffer(
            f"{self.origin.stage if self.origin else 'tmp'}.{len(self.loop.tiles)}{SPREAD}",
            (*(max(a.size, 1) for a in used), BLOCK // es), ref.dtype, "UB",
        )  # fmt: skip
        tile = make_tile(buffer, origin=self.origin)
        tile.loop = self.loop
        self.loop.tiles.append(tile)
        spread = TileRef(tile, element_address(tile, (*(a.var for a in used), const(0))), ref.dtype)
        row = used[-1] if used and ref.stride(used[-1].var) == es else None
        loops = [a for a in used if a is not row]
        start_src, start_dst = (strip(r.address, [row] if row else []) for r in (ref, spread))
        aligned = is_multiple(strip(ref.address, used), BLOCK) and all((ref.stride(a.var) or 0) % BLOCK == 0 for a in loops)
        if not aligned:
            element = Axis(Var("block", "int32", 0, BLOCK // es - 1), const(BLOCK // es), BLOCK // es)
            dst = TileRef(tile, spread.address + element.var * es, ref.dtype)
            self._op("VCOPY", ref.dtype, [dst, ref], [*used, element])
            return spread
        out = self.out
        for a in loops:
            loop = Loop(a.var, a.extent, origin=self.origin)
            out.append(loop)
            out = loop.body
        out.append(ins.brcb(start_dst, start_src, row.extent if row else 1, ref.dtype, self.origin))
        return spread

    def _fill(self, dst: TileRef, value: Const, axes: list[Axis]) -> None:
        if dst.dtype not in _LANE_DTYPES:
            wide = "float16" if dst.dtype in ("bool", "int8", "uint8") else "float32"
            temp = self._temp(axes, wide)
            self._fill(temp, const(float(value.value), wide), axes)
            return self._convert_into(dst, temp, axes)
        return self._op("VDUP", dst.dtype, [dst], axes, ins.immediate(float(value.value), dst.dtype)
                        if dtypes.is_float(dst.dtype) else ins.immediate(int(value.value), dst.dtype))  # fmt: skip

    # ------------------------------------------------------------ expressions

    def _value(self, e: Expr, axes: list[Axis], dst: TileRef | None = None) -> TileRef | Const:
        """Compute `e` over the axes it depends on; into `dst` if that fits, else into a temporary.

        Equal expressions are computed once.
        """
        if isinstance(e, Const):
            return e
        if e in self.known:
            return self.known[e]
        result = self._compute(e, axes, dst)
        if result is not dst:
            self.known[e] = result
        return result

    def _free_vars(self, e: Expr) -> frozenset[Var]:
        """free_vars, once per node: expansions of math functions share nodes."""
        found = self.vars.get(id(e))
        if found is None:
            own = frozenset({e}) if isinstance(e, Var) else frozenset().union(*map(self._free_vars, children(e)))
            found = self.vars[id(e)] = (e, own)
        return found[1]

    def _compute(self, e: Expr, axes: list[Axis], dst: TileRef | None) -> TileRef | Const:
        variables = self._free_vars(e)
        used = [a for a in axes if a.var in variables]

        def target(dtype: str) -> TileRef:
            if dst is not None and dst.dtype == dtype and len(used) == len([a for a in axes if dst.stride(a.var) != 0]):
                return dst
            return self._temp(used, dtype)

        if is_index(e):
            return self._index_value(e, used)
        match e:
            case Load():
                return self._load(e, axes)
            case Cast():
                return self._cast(e, axes, used, target)
            case Call():
                return self._call(e, axes, used, target, dst)
            case Unary(op="!"):
                a = self._tensor(self._mask(e.a, axes), used)
                out = target(a.dtype)
                self._op("VRSUBS", a.dtype, [out, a], used, _bits(1, a.dtype))
                return out
            case Unary():
                a = self._lanes(e.a, axes, used)
                out = target(a.dtype)
                self._op("VNEG", a.dtype, [out, a], used)
                return out
            case Binary():
                return self._binary(e, axes, used, target)
            case Select():
                return self._select(e, axes, used, dst)
        raise self._unsupported(f"no vector code for {e}", "rewrite the expression")

    def _work_dtype(self, dtype: str) -> str:
        """The dtype that lanes compute `dtype` in."""
        if dtype in _LANE_DTYPES:
            return dtype
        if dtype == "bfloat16":
            return "float32"
        raise self._unsupported(f"the vector unit does not compute in {dtype}", "cast to float32, float16 or int32 first")

    def _lanes(self, e: Expr, axes: list[Axis], used: list[Axis]) -> TileRef:
        """`e` as a tile in the dtype that lanes compute it in."""
        return self._as(self._value(e, axes), self._work_dtype(e.dtype), used, e)

    def _operand(self, e: Expr, axes: list[Axis], used: list[Axis]) -> TileRef | Const:
        return e if isinstance(e, Const) else self._lanes(e, axes, used)

    def _as(self, value: TileRef | Const, dtype: str, used: list[Axis], e: Expr | None = None) -> TileRef:
        if isinstance(value, Const):
            return self._constant(value, dtype)
        if value.dtype == dtype:
            return value
        own = [a for a in used if value.stride(a.var) != 0]
        out = self._temp(own, dtype)
        self._convert_into(out, value, own)
        return out

    def _constant(self, value: Const, dtype: str) -> TileRef:
        """A constant as a tile of one element (read with stride 0)."""
        out = self._temp([], dtype)
        self._fill(out, const(value.value, dtype), [])
        return out

    def _tensor(self, value: TileRef | Const, used: list[Axis]) -> TileRef:
        return self._constant(value, "float32") if isinstance(value, Const) else value

    def _index_value(self, e: Expr, used: list[Axis]) -> TileRef:
        """Values of an index expression, written by the scalar pipe."""
        out = self._temp(used, "int32")
        body = self.out
        for a in used:
            loop = Loop(a.var, a.extent, origin=self.origin)
            body.append(loop)
            body = loop.body
        made = ins.vector("VDUP", "int32", out.address, 0, e, lanes=1, pipe="S", origin=self.origin)
        body.append(made)
        if self.origin is not None and used:
            self.scalar_stages[self.origin.stage] = self.origin
        return out

    def _cast(self, e: Cast, axes: list[Axis], used: list[Axis], target) -> TileRef | Const:  # type: ignore[no-untyped-def]
        inner = self._value(e.a, axes)
        if isinstance(inner, Const):
            return const(inner.value, e.dtype)
        if e.dtype not in _STORED:
            raise self._unsupported(f"the vector unit has no {e.dtype}", "cast to float32, float16 or int32")
        if e.a.dtype == "bool" and inner.dtype != "bool":
            if inner.dtype == e.dtype:
                return inner
        elif e.dtype == "bfloat16" and inner.dtype == "bfloat16":
            return inner
        if inner.dtype == e.dtype:
            return inner
        if e.dtype == "bool":
            zero = Binary("!=", e.a, const(0, e.a.dtype), "bool")
            return self._binary(zero, axes, used, target)
        out = target(e.dtype)
        self._op("VCONV", f"{inner.dtype}_{e.dtype}", [out, inner], used)
        return out

    def _call(self, e: Call, axes: list[Axis], used: list[Axis], target, dst: TileRef | None) -> TileRef | Const:  # type: ignore[no-untyped-def]
        if e.name in ("isnan",):
            return self._value(Binary("!=", e.args[0], e.args[0], "bool"), axes, dst)
        if e.name not in _CALLS:
            expanded = expand_math(e)
            if expanded is None:
                raise self._unsupported(f"the vector unit has no {e.name}", f"it has {', '.join(sorted(_CALLS))} and tanh, erf, sigmoid")
            return self._value(expanded, axes, dst)
        a = self._lanes(e.args[0], axes, used)
        out = target(a.dtype)
        self._op(_CALLS[e.name], a.dtype, [out, a], used)
        return out

    def _binary(self, e: Binary, axes: list[Axis], used: list[Axis], target) -> TileRef | Const:  # type: ignore[no-untyped-def]
        if e.op in ("&&", "||"):
            a, b = self._mask(e.a, axes), self._mask(e.b, axes)
            first, second = self._tensor(a, used), self._tensor(b, used)
            second = self._as(second, first.dtype, used)
            out = target(first.dtype)
            self._op("VMUL" if e.op == "&&" else "VMAX", first.dtype, [out, first, second], used)
            return out
        if e.op in COMPARISONS:
            a, b = self._operand(e.a, axes, used), self._operand(e.b, axes, used)
            dtype = a.dtype if isinstance(a, TileRef) else b.dtype
            first, second = self._as(a, dtype, used), self._as(b, dtype, used)
            out = target(dtype)
            self._op(_COMPARE[e.op], dtype, [out, first, second], used)
            return out
        if e.op in ("//", "%"):
            raise self._unsupported(f"the vector unit has no {e.op} of {e.dtype}", "divide floats and floor the quotient")
        if e.op == "pow":
            expanded = expand_math(e)
            if expanded is None:
                raise self._unsupported(f"no vector code for {e}", "use a constant exponent")
            return self._value(expanded, axes)
        a, b = self._operand(e.a, axes, used), self._operand(e.b, axes, used)
        dtype = self._work_dtype(e.dtype)
        if isinstance(b, Const) and isinstance(a, TileRef):
            out = target(dtype)
            if e.op == "-":
                self._op("VADDS", dtype, [out, a], used, _bits(-b.value, dtype))
            else:
                self._op(_WITH_SCALAR[e.op], dtype, [out, a], used, _bits(b.value, dtype))
            return out
        if isinstance(a, Const) and isinstance(b, TileRef):
            out = target(dtype)
            self._op(_SCALAR_FIRST[e.op], dtype, [out, b], used, _bits(a.value, dtype))
            return out
        first, second = self._as(a, dtype, used), self._as(b, dtype, used)
        out = target(dtype)
        self._op(_BINARY[e.op], dtype, [out, first, second], used)
        return out

    def _mask(self, e: Expr, axes: list[Axis]) -> TileRef | Const:
        """A condition as lanes of 0 and 1."""
        value = self._value(e, axes)
        if isinstance(value, TileRef) and value.dtype not in _LANE_DTYPES:
            return self._as(value, "float16", [a for a in axes if depends_on(e, a.var)])
        return value

    def _select(self, e: Select, axes: list[Axis], used: list[Axis], dst: TileRef | None) -> TileRef:
        guarded = e.guards and is_condition_of_indices(e.condition) and any(
            isinstance(n, Load) for side in (e.a, e.b) for n in walk(side)
        )
        dtype = self._work_dtype(e.dtype) if e.dtype != "bool" else "float16"
        if guarded:
            return self._guarded(e, dtype, used)
        mask = self._as(self._mask(e.condition, axes), dtype, used)
        a = self._as(self._value(e.a, axes), dtype, used)
        b = self._value(e.b, axes)
        out = self._temp(used, dtype)
        if isinstance(b, Const):
            self._fill(out, b, used)
        else:
            self._op("VCOPY", dtype, [out, self._as(b, dtype, used)], used)
        self._op("VSEL", dtype, [out, mask, a], used)
        return out

    def _guarded(self, e: Select, dtype: str, used: list[Axis]) -> TileRef:
        """Element by element, so that the side not taken is never read."""
        from akg_py.ascend.select import trips_of

        out = self._temp(used, dtype)
        body, saved = self.out, self.out
        for a in used:
            loop = Loop(a.var, a.extent, origin=self.origin)
            body.append(loop)
            body = loop.body
        yes = Loop(Var("if", "int32", 0, 0), trips_of(e.condition), origin=self.origin)
        no = Loop(Var("else", "int32", 0, 0), const(1) - trips_of(e.condition), origin=self.origin)
        for branch, value in ((yes, e.a), (no, e.b)):
            body.append(branch)
            self.out, known = branch.body, self.known
            self.known = {}  # what a branch computes is undefined outside of it
            on_scalar, self.on_scalar = self.on_scalar, True
            self._assign_scalar(out, value)
            self.known, self.on_scalar = known, on_scalar
        self.out = saved
        if self.origin is not None:
            self.scalar_stages[self.origin.stage] = self.origin
        return out

    def _assign_scalar(self, dst: TileRef, value: Expr) -> None:
        """One element: dst = value, with every operation on single elements."""
        result = self._value(value, [])
        if isinstance(result, Const):
            self._fill(dst, result, [])
        else:
            self._convert_into(dst, result, [])

    # ------------------------------------------------------------ reductions

    @staticmethod
    def _reduction_parts(store: Store) -> tuple[str, Expr] | None:
        """(operator, source) of `buffer[i] = buffer[i] op source`."""
        value, buffer = store.values[0], store.buffers[0]
        if isinstance(value, Binary) and value.op in ("+", "*", "max", "min"):
            for acc, source in ((value.a, value.b), (value.b, value.a)):
                own = isinstance(acc, Load) and acc.source is buffer and all(map(same, acc.indices, store.indices))
                if own and not VectorSelector._reads(source, buffer):
                    return value.op, source
        return None

    def _reduction(self, store: Store, init: Store | None, data: list[Axis], reduce: list[Axis]) -> None:
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
            raise self._unsupported(f"the vector unit does not accumulate in {buffer.dtype}", "accumulate in float32 or int32")
        if init is not None:
            self._assign(dst, init.values[0], data)
        if all(a.size > 0 for a in (*data, *reduce)):
            value = self._as(self._value(source, [*data, *reduce]), work, [*data, *reduce])
            self._fold(op, dst, value, data, reduce)
        if in_gm:
            self._copy_gm(data, dst, gm, to_gm=True)

    def _fold(self, op: str, dst: TileRef, value: TileRef, data: list[Axis], reduce: list[Axis]) -> None:
        """dst = dst op (value over the reduce axes)."""
        es = dtypes.size_bytes(value.dtype)
        lane = next((a for a in reversed(reduce) if value.stride(a.var) == es), None)
        rows_aligned = lane is not None and is_multiple(strip(value.address, [*data, *reduce]), BLOCK) and all(
            (value.stride(a.var) or 0) % BLOCK == 0 for a in (*data, *reduce) if a is not lane
        )
        if lane is None or op not in _CROSS or not rows_aligned:
            return self._accumulate(op, dst, value, data, reduce)
        others = [a for a in reduce if a is not lane]
        per_repeat = 256 // es
        width = min(lane.size, per_repeat)
        if lane.size > per_repeat or others:
            width_axis = Axis(Var("lane", "int32", 0, per_repeat - 1), const(per_repeat), per_repeat)
            acc = self._temp([*data, width_axis], value.dtype)
            self._fill(acc, const(_identity(op, value.dtype), value.dtype), [*data, width_axis])
            body, saved = self.out, self.out
            for a in others:
                loop = Loop(a.var, a.extent, origin=self.origin)
                body.append(loop)
                body = loop.body
            self.out = body
            self._accumulate_chunks(op, acc, value, data, lane, width_axis)
            self.out = saved
            value, lane, width = TileRef(acc.tile, acc.address, acc.dtype), width_axis, per_repeat
        part = self._temp(data, value.dtype)
        self._cross(_CROSS[op], part, value, data, lane)
        self._op(_BINARY[op], dst.dtype, [dst, dst, part], data)
        del width
        return None

    def _accumulate_chunks(self, op: str, acc: TileRef, value: TileRef, data: list[Axis], lane: Axis, width: Axis) -> None:
        """acc[.., lane % width] = acc op value, one chunk of lanes after the other."""
        n = -(-lane.size // width.size)
        if lane.is_static and lane.size % width.size == 0:
            chunk = Loop(Var("chunk", "int32", 0, n - 1), const(n), origin=self.origin)
            tail: Axis | None = None
            whole = width
        else:
            chunk = Loop(Var("chunk", "int32", 0, n - 1), lane.extent // width.size, origin=self.origin)
            rest = lane.extent - lane.extent // width.size * width.size
            tail = Axis(width.var, rest, width.size)
            whole = width
        es = dtypes.size_bytes(value.dtype)
        start = strip(value.address, [lane])
        saved = self.out
        saved.append(chunk)
        self.out = chunk.body
        part = TileRef(value.tile, start + chunk.var * (width.size * es) + width.var * es, value.dtype)
        self._op(_BINARY[op], acc.dtype, [acc, acc, part], [*data, whole])
        self.out = saved
        if tail is not None:
            begin = lane.extent // width.size * (width.size * es)
            part = TileRef(value.tile, start + begin + width.var * es, value.dtype)
            if not (isinstance(tail.extent, Const) and tail.extent.value == 0):
                self._op(_BINARY[op], acc.dtype, [acc, acc, part], [*data, tail])

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
            addresses = [e + loop.var * (r.stride(a.var) or 0) for e, r in zip(addresses, (dst, value), strict=True)]
            out.append(loop)
            out = loop.body
        repeats: Expr = const(1)
        steps = [0, 0]
        if row is not None:
            steps = [r.stride(row.var) or 0 for r in (dst, value)]
            from akg_py.ascend.lanes import MAX_REPEATS, _chunk

            out, addresses, repeats = _chunk(
                row.extent, row.size, MAX_REPEATS, addresses, [s * MAX_REPEATS for s in steps], out, self.origin, "rows"
            )
        out.append(
            ins.vector(
                name, value.dtype, addresses[0], addresses[1], 0, lanes=lane.extent, repeats=repeats,
                rep=(steps[0], steps[1], 0), origin=self.origin,
            )  # fmt: skip
        )

    def _accumulate(self, op: str, dst: TileRef, value: TileRef, data: list[Axis], reduce: list[Axis]) -> None:
        """dst = dst op value, one step of the reduce axes after the other."""
        body, saved = self.out, self.out
        for a in reduce:
            loop = Loop(a.var, a.extent, origin=self.origin)
            body.append(loop)
            body = loop.body
        self.out = body
        self._op(_BINARY[op], dst.dtype, [dst, dst, value], data)
        self.out = saved

    def _element_by_element(self, store: Store, init: Store | None, data: list[Axis], reduce: list[Axis]) -> None:
        """Any reduction: every element and step by itself on the scalar pipe (tuples, own combiners)."""
        if self.origin is not None:
            self.scalar_stages[self.origin.stage] = self.origin
        in_gm = [b.scope in GM_SCOPES for b in store.buffers]
        targets, staged = [], {}
        for b, gm in zip(store.buffers, in_gm, strict=True):
            ref = self._ref(b, store.indices)
            target = self._staging(data, ref) if gm else ref
            targets.append(target)
            if gm:
                inner = tuple(a.var for a in data) + (const(0),) * (len(target.tile.buffer.shape) - len(data))
                staged[id(b)] = Load(target.tile.buffer, inner, b.dtype)
                self.tiles[id(target.tile.buffer)] = target.tile
                if init is None:
                    self._copy_gm(data, target, self._ref(b, store.indices), to_gm=False)
        if init is not None:
            for t, v in zip(targets, init.values, strict=True):
                self._assign(t, v, data)
        body, saved = self.out, self.out
        for a in (*data, *reduce):
            loop = Loop(a.var, a.extent, origin=self.origin)
            body.append(loop)
            body = loop.body
        self.out, self.known, self.on_scalar = body, {}, True
        values = [self._value(_reading(v, staged), []) for v in store.values]
        kept = [self._constant(v, t.dtype) if isinstance(v, Const) else self._kept(v) for v, t in zip(values, targets, strict=True)]
        for t, v in zip(targets, kept, strict=True):
            self._convert_into(t, v, [])
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


def _bits(value: float | int | bool, dtype: str) -> int:
    return ins.immediate(float(value) if dtypes.is_float(dtype) else int(value), dtype)


def _identity(op: str, dtype: str) -> float | int:
    if op == "+":
        return 0
    return dtypes.lowest(dtype) if op == "max" else dtypes.highest(dtype)


def is_condition_of_indices(e: Expr) -> bool:
    """Whether a condition depends on loops only, not on data."""
    return not any(isinstance(n, Load) for n in walk(e))
