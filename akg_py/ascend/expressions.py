"""Expressions over the loops of a nest: each node one operation, equal nodes once."""

from __future__ import annotations

from collections.abc import Callable

from akg_py import dtypes
from akg_py.ascend import instructions as ins
from akg_py.ascend.lanes import Axis
from akg_py.ascend.legalize import expand_math
from akg_py.ascend.nest import trips_of
from akg_py.ascend.operations import LANE_DTYPES, STORED_DTYPES, TileOperations
from akg_py.ascend.tiles import Loop, Tile, TileRef, depends_on
from akg_py.ir.expr import (
    COMPARISONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    children,
    const,
    is_index,
    walk,
)
from akg_py.ir.stmt import Origin

BINARY = {"+": "VADD", "-": "VSUB", "*": "VMUL", "/": "VDIV", "min": "VMIN", "max": "VMAX"}
_WITH_SCALAR = {"+": "VADDS", "*": "VMULS", "min": "VMINS", "max": "VMAXS", "/": "VDIVS"}
_SCALAR_FIRST = {
    "+": "VADDS",
    "*": "VMULS",
    "min": "VMINS",
    "max": "VMAXS",
    "-": "VRSUBS",
    "/": "VRDIVS",
}
_COMPARE = {
    "<": "VCMPLT",
    "<=": "VCMPLE",
    ">": "VCMPGT",
    ">=": "VCMPGE",
    "==": "VCMPEQ",
    "!=": "VCMPNE",
}
_CALLS = {
    "exp": "VEXP",
    "log": "VLN",
    "sqrt": "VSQRT",
    "rsqrt": "VRSQRT",
    "abs": "VABS",
    "floor": "VFLOOR",
    "ceil": "VCEIL",
    "round": "VROUND",
    "trunc": "VTRUNC",
}

Target = Callable[[str], TileRef]  # a tile of a dtype for the result


class ExpressionSelector(TileOperations):
    """Computes expressions into tiles; see `_value`."""

    def __init__(
        self, tiles: dict[int, Tile], loop: Loop, scalar_stages: dict[str, Origin]
    ) -> None:
        super().__init__(tiles, loop, scalar_stages)
        self.known: dict[
            Expr, TileRef | Const
        ] = {}  # values computed so far, reusable in this place
        self.vars: dict[int, tuple[Expr, frozenset[Var]]] = {}

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
            own = (
                frozenset({e})
                if isinstance(e, Var)
                else frozenset().union(*map(self._free_vars, children(e)))
            )
            found = self.vars[id(e)] = (e, own)
        return found[1]

    def _compute(self, e: Expr, axes: list[Axis], dst: TileRef | None) -> TileRef | Const:
        variables = self._free_vars(e)
        used = [a for a in axes if a.var in variables]

        def target(dtype: str) -> TileRef:
            if (
                dst is not None
                and dst.dtype == dtype
                and len(used) == len([a for a in axes if dst.stride(a.var) != 0])
            ):
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
        if dtype in LANE_DTYPES:
            return dtype
        if dtype == "bfloat16":
            return "float32"
        raise self._unsupported(
            f"the vector unit does not compute in {dtype}",
            "cast to float32, float16 or int32 first",
        )

    def _lanes(self, e: Expr, axes: list[Axis], used: list[Axis]) -> TileRef:
        """`e` as a tile in the dtype that lanes compute it in."""
        return self._as(self._value(e, axes), self._work_dtype(e.dtype), used, e)

    def _operand(self, e: Expr, axes: list[Axis], used: list[Axis]) -> TileRef | Const:
        return e if isinstance(e, Const) else self._lanes(e, axes, used)

    def _as(
        self, value: TileRef | Const, dtype: str, used: list[Axis], e: Expr | None = None
    ) -> TileRef:
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
        made = ins.vector("VDUP", "int32", out.address, 0, e, lanes=1, pipe="S", origin=self.origin)
        self._scalar_loops(used).append(made)
        if used:
            self._note_scalar()
        return out

    def _cast(self, e: Cast, axes: list[Axis], used: list[Axis], target: Target) -> TileRef | Const:
        inner = self._value(e.a, axes)
        if isinstance(inner, Const):
            return const(inner.value, e.dtype)
        if e.dtype not in STORED_DTYPES:
            raise self._unsupported(
                f"the vector unit has no {e.dtype}", "cast to float32, float16 or int32"
            )
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

    def _call(
        self, e: Call, axes: list[Axis], used: list[Axis], target: Target, dst: TileRef | None
    ) -> TileRef | Const:
        if e.name in ("isnan",):
            return self._value(Binary("!=", e.args[0], e.args[0], "bool"), axes, dst)
        if e.name not in _CALLS:
            expanded = expand_math(e)
            if expanded is None:
                raise self._unsupported(
                    f"the vector unit has no {e.name}",
                    f"it has {', '.join(sorted(_CALLS))} and tanh, erf, sigmoid",
                )
            return self._value(expanded, axes, dst)
        a = self._lanes(e.args[0], axes, used)
        out = target(a.dtype)
        self._op(_CALLS[e.name], a.dtype, [out, a], used)
        return out

    def _binary(
        self, e: Binary, axes: list[Axis], used: list[Axis], target: Target
    ) -> TileRef | Const:
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
            raise self._unsupported(
                f"the vector unit has no {e.op} of {e.dtype}",
                "divide floats and floor the quotient",
            )
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
        self._op(BINARY[e.op], dtype, [out, first, second], used)
        return out

    def _mask(self, e: Expr, axes: list[Axis]) -> TileRef | Const:
        """A condition as lanes of 0 and 1."""
        value = self._value(e, axes)
        if isinstance(value, TileRef) and value.dtype not in LANE_DTYPES:
            return self._as(value, "float16", [a for a in axes if depends_on(e, a.var)])
        return value

    def _select(
        self, e: Select, axes: list[Axis], used: list[Axis], dst: TileRef | None
    ) -> TileRef:
        guarded = (
            e.guards
            and is_condition_of_indices(e.condition)
            and any(isinstance(n, Load) for side in (e.a, e.b) for n in walk(side))
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
        out = self._temp(used, dtype)
        saved, body = self.out, self._scalar_loops(used)
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
        self._note_scalar()
        return out

    def _assign_scalar(self, dst: TileRef, value: Expr) -> None:
        """One element: dst = value, with every operation on single elements."""
        result = self._value(value, [])
        if isinstance(result, Const):
            self._fill(dst, result, [])
        else:
            self._convert_into(dst, result, [])


def _bits(value: float | int | bool, dtype: str) -> int:
    return ins.immediate(float(value) if dtypes.is_float(dtype) else int(value), dtype)


def is_condition_of_indices(e: Expr) -> bool:
    """Whether a condition depends on loops only, not on data."""
    return not any(isinstance(n, Load) for n in walk(e))
