"""Operations over tiles: what the code of a nest is made of.

`TileOperations` hands out temporary tiles, copies between GM and UB, and emits single vector
operations over the loops of a nest, with the padding, spreading and alignment that UB demands.
"""

from __future__ import annotations

from collections.abc import Sequence

from akg_py import dtypes
from akg_py.ascend import instructions as ins
from akg_py.ascend.lanes import Axis, emit_lanes, emit_scalar, merge_axes, plan_lanes, strip
from akg_py.ascend.program import Instruction
from akg_py.ascend.tiles import (
    BLOCK,
    SPREAD,
    Loop,
    Node,
    Tile,
    TileRef,
    depends_on,
    element_address,
    is_multiple,
    make_tile,
)
from akg_py.errors import UnsupportedError
from akg_py.ir.expr import Const, Expr, Load, Var, const, is_index
from akg_py.ir.stmt import Buffer, Origin

GM_SCOPES = ("global", "workspace", "local")
LANE_DTYPES = ("float32", "float16", "int32")
STORED_DTYPES = (*LANE_DTYPES, "bfloat16", "int8", "uint8", "bool")


class TileOperations:
    """State and primitives of one nest's selection.

    Attributes:
        tiles: tile of each buffer, by its id.
        loop: the loop whose body the nest stands in; temporaries live there.
        scalar_stages: filled with stages that run element operations on the scalar pipe.
        nodes: what was selected.
        out: where the next instruction goes.
    """

    def __init__(
        self, tiles: dict[int, Tile], loop: Loop, scalar_stages: dict[str, Origin]
    ) -> None:
        self.tiles = tiles
        self.loop = loop
        self.scalar_stages = scalar_stages
        self.nodes: list[Node] = []
        self.out = self.nodes
        self.origin: Origin | None = None
        self.pinned: Var | None = None
        self.on_scalar = False  # inside element-by-element code everything stays on one pipe

    def _unsupported(self, problem: str, hint: str) -> UnsupportedError:
        stage = self.origin.stage if self.origin else "?"
        return UnsupportedError(
            f"{stage}: {problem}", where=self.origin.place if self.origin else None, hint=hint
        )

    def _convert_into(self, dst: TileRef, src: TileRef, axes: list[Axis]) -> None:
        if dst.dtype == src.dtype:
            self._op("VCOPY", dst.dtype, [dst, src], axes)
        else:
            self._op("VCONV", f"{src.dtype}_{dst.dtype}", [dst, src], axes)

    # ------------------------------------------------------------ tiles

    def _staging(self, axes: list[Axis], gm: TileRef) -> TileRef:
        """A tile to copy `gm` from or to; with gaps in its last axis, a block for each element."""
        affine = all(gm.stride(a.var) is not None for a in axes)
        dense = not axes or (affine and gm.stride(axes[-1].var) == dtypes.size_bytes(gm.dtype))
        if dense:
            return self._temp(axes, gm.dtype, staging=True)
        element = Axis(Var("element", "int32", 0, 0), const(1), 1)
        padded = self._temp([*axes, element], gm.dtype, staging=True)
        return TileRef(padded.tile, strip(padded.address, [element]), gm.dtype)

    def _temp(self, axes: list[Axis], dtype: str, staging: bool = False) -> TileRef:
        """A fresh tile over `axes`, row-major with rows padded to 32 bytes."""
        stem = self.origin.stage if self.origin else "tmp"
        name = f"{stem}.{'stage' if staging else 't'}{len(self.loop.tiles)}"
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
                raise self._unsupported(
                    f"the index {i} of {buffer.name} depends on data",
                    "gathers are not supported yet",
                )
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
            block = max(
                (a for a in others if all(s[a.var] > 0 for s in strides)),
                key=lambda a: a.size,
                default=None,
            )
            loops = [a for a in others if a is not block]
        else:
            starts = [r.address for r in (ub, gm)]
            row, block, loops = None, None, live
        for a in loops:
            loop = Loop(
                a.var if not affine else Var(a.var.name, "int32", 0, a.size - 1),
                a.extent,
                origin=self.origin,
            )
            if affine:
                starts = [e + loop.var * s[a.var] for e, s in zip(starts, strides, strict=True)]
            out.append(loop)
            out = loop.body
        size = row.extent * es if row is not None else const(es)
        rows = block.extent if block is not None else const(1)
        pitch = [s[block.var] if block is not None else es for s in strides]
        if to_gm:
            out.append(
                ins.copy(starts[1], starts[0], rows, size, pitch[1], pitch[0], "MTE3", self.origin)
            )
        else:
            out.append(
                ins.copy(starts[0], starts[1], rows, size, pitch[0], pitch[1], "MTE2", self.origin)
            )
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

    def _op(
        self, name: str, dtype: str, refs: list[TileRef], axes: list[Axis], scalar: int = 0
    ) -> None:
        """Emit one operation; refs: destination and sources, `scalar`: the bits of an immediate."""

        def make(
            addresses: list[Expr], lanes: Expr, repeats: Expr, rep: list[Expr], blk: list[int]
        ) -> Instruction:
            def padded(
                items: Sequence[Expr | int], default: Expr | int
            ) -> tuple[Expr | int, Expr | int, Expr | int]:
                full = [*items, default, default][:3]
                return full[0], full[1], full[2]

            operands = (
                [*addresses, const(scalar), const(0)][:3] if len(addresses) < 3 else addresses
            )
            if len(addresses) == 1:
                operands = [addresses[0], const(0), const(scalar)]
            return ins.vector(
                name,
                dtype,
                operands[0],
                operands[1],
                operands[2],
                lanes=lanes,
                repeats=repeats,
                rep=padded(rep, 0),
                blk=padded(blk, BLOCK),
                origin=self.origin,
            )

        plan = None if self.on_scalar else plan_lanes(refs, axes, self.pinned)
        if plan is not None and plan.lane is not None:
            widened = [
                self._spread(r, plan.lane, axes) if self._needs_spread(r, plan.lane) else r
                for r in refs[1:]
            ]
            if any(w is not r for w, r in zip(widened, refs[1:], strict=True)):
                refs = [refs[0], *widened]
                plan = plan_lanes(refs, axes, plan.lane.var)
        if plan is None:
            self._note_scalar()
            emit_scalar(refs, axes, make, self.out, self.origin)
        else:
            emit_lanes(plan, refs, make, self.out, self.origin)

    @staticmethod
    def _needs_spread(ref: TileRef, lane: Axis) -> bool:
        """Whether the source is one element per row, to be repeated over the lanes."""
        return ref.stride(lane.var) == 0 and not ref.is_spread

    def _spread(self, ref: TileRef, lane: Axis, axes: list[Axis]) -> TileRef:
        """Put each element of `ref` into a 32 B block of its own, read with block stride 0."""
        used = [a for a in axes if ref.stride(a.var) != 0]
        es = dtypes.size_bytes(ref.dtype)
        buffer = Buffer(
            f"{self.origin.stage if self.origin else 'tmp'}.{len(self.loop.tiles)}{SPREAD}",
            (*(max(a.size, 1) for a in used), BLOCK // es),
            ref.dtype,
            "UB",
        )
        tile = make_tile(buffer, origin=self.origin)
        tile.loop = self.loop
        self.loop.tiles.append(tile)
        spread = TileRef(tile, element_address(tile, (*(a.var for a in used), const(0))), ref.dtype)
        row = used[-1] if used and ref.stride(used[-1].var) == es else None
        loops = [a for a in used if a is not row]
        start_src, start_dst = (strip(r.address, [row] if row else []) for r in (ref, spread))
        aligned = is_multiple(strip(ref.address, used), BLOCK) and all(
            (ref.stride(a.var) or 0) % BLOCK == 0 for a in loops
        )
        if not aligned:
            element = Axis(
                Var("block", "int32", 0, BLOCK // es - 1), const(BLOCK // es), BLOCK // es
            )
            dst = TileRef(tile, spread.address + element.var * es, ref.dtype)
            on_scalar, self.on_scalar = self.on_scalar, True
            self._op("VCOPY", ref.dtype, [dst, ref], [*used, element])
            self.on_scalar = on_scalar
            return spread
        out = self.out
        for a in loops:
            loop = Loop(a.var, a.extent, origin=self.origin)
            out.append(loop)
            out = loop.body
        out.append(ins.brcb(start_dst, start_src, row.extent if row else 1, ref.dtype, self.origin))
        return spread

    def _fill(self, dst: TileRef, value: Const, axes: list[Axis]) -> None:
        if dst.dtype not in LANE_DTYPES:
            wide = "float16" if dst.dtype in ("bool", "int8", "uint8") else "float32"
            temp = self._temp(axes, wide)
            self._fill(temp, const(float(value.value), wide), axes)
            return self._convert_into(dst, temp, axes)
        return self._op(
            "VDUP",
            dst.dtype,
            [dst],
            axes,
            ins.immediate(float(value.value), dst.dtype)
            if dtypes.is_float(dst.dtype)
            else ins.immediate(int(value.value), dst.dtype),
        )

    def _scalar_loops(self, axes: Sequence[Axis]) -> list[Node]:
        """Open a loop for every axis; the innermost body."""
        body = self.out
        for a in axes:
            loop = Loop(a.var, a.extent, origin=self.origin)
            body.append(loop)
            body = loop.body
        return body

    def _note_scalar(self) -> None:
        """Remember that this stage runs element operations on the scalar pipe."""
        if self.origin is not None:
            self.scalar_stages[self.origin.stage] = self.origin
