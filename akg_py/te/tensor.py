"""Tensors and the operations that compute them: the pure half of the language.

A `ComputeOp` says what each element of its outputs is; nothing here says how it is computed. All
objects are immutable and remember the user's line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from akg_py import dtypes
from akg_py.errors import ExpressionError, Place, UnsupportedError, find_place
from akg_py.ir.expr import (
    INDEX,
    Binary,
    Const,
    Expr,
    ExprLike,
    Load,
    Reduce,
    Select,
    Var,
    as_expr,
    bounds,
    cast,
    children,
    const,
    free_vars,
    is_index,
    same,
    walk,
)
from akg_py.records import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(Var):
    """An axis: a Var over `[lo, lo + extent)`; kind: spatial, reduce or opaque (tensorized)."""

    extent: int = 0
    kind: str = "spatial"

    @property
    def is_reduce(self) -> bool:
        return self.kind == "reduce"

    def __repr__(self) -> str:
        return f"{self.name}[{self.extent}{' reduce' if self.is_reduce else ''}]"


def make_axis(name: str, extent: int, kind: str = "spatial", begin: int = 0) -> IterVar:
    """An axis of `extent` iterations from `begin`."""
    return IterVar(name, INDEX, begin, begin + max(extent - 1, 0), extent, kind)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlaceholderOp:
    """An input of the kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    place: Place | None
    outputs: list[Tensor] = field(default_factory=list)

    def output(self, index: int) -> Tensor:
        """The tensor number `index` that it makes."""
        return self.outputs[index]

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComputeOp:
    """Elements of outputs of one shape, as expressions over `axis` and `reduce_axis`."""

    name: str
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    place: Place | None
    tag: str = ""
    attrs: Mapping[str, object] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    _reads: list[tuple[Tensor, ...]] = field(default_factory=list, init=False)  # once computed

    def output(self, index: int) -> Tensor:
        """The tensor number `index` that it makes."""
        return self.outputs[index]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axis)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors read, in order of first use."""
        if not self._reads:
            self._reads.append(read_tensors(self.body))
        return self._reads[0]


Operation = PlaceholderOp | ComputeOp


def read_tensors(body: Sequence[Expr]) -> tuple[Tensor, ...]:
    """Tensors loaded in `body`, in order of first use."""
    found: dict[Tensor, None] = {}
    for e in body:
        for node in walk(e):
            if isinstance(node, Load) and isinstance(node.source, Tensor):
                found[node.source] = None
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor:
    """One output of an operation. `A[i, j]` is an element; `A + B` computes element-wise."""

    __array_ufunc__ = None  # numpy leaves `np.float32(2) * A` to us

    op: Operation
    value_index: int
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: object) -> Any:
        items = indices if isinstance(indices, tuple) else (indices,)
        return TensorSlice(self, ())[items]

    def __call__(self, *indices: ExprLike) -> Expr:
        if len(indices) != self.ndim:
            raise _too_few(self, len(indices))
        return TensorSlice(self, ())[indices] if indices else Load(self, (), self.dtype)

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{list(self.shape)})"

    def astype(self, dtype: object) -> Tensor:
        """This tensor converted to `dtype`, element-wise."""
        name = dtypes.check_dtype(dtype)
        result: Tensor = compute(
            self.shape, lambda *i: self(*i).astype(name), name=f"{self.name}_{name}"
        )
        return result

    def __add__(self, other: object) -> Any:
        return _elementwise("+", self, other)

    def __radd__(self, other: object) -> Any:
        return _elementwise("+", other, self)

    def __sub__(self, other: object) -> Any:
        return _elementwise("-", self, other)

    def __rsub__(self, other: object) -> Any:
        return _elementwise("-", other, self)

    def __mul__(self, other: object) -> Any:
        return _elementwise("*", self, other)

    def __rmul__(self, other: object) -> Any:
        return _elementwise("*", other, self)

    def __truediv__(self, other: object) -> Any:
        return _elementwise("/", self, other)

    def __rtruediv__(self, other: object) -> Any:
        return _elementwise("/", other, self)

    def __neg__(self) -> Any:
        return compute(self.shape, lambda *i: -self(*i), name=f"{self.name}_neg")

    def __bool__(self) -> bool:
        raise ExpressionError(
            f"tensor {self.name} has no truth value before the kernel runs",
            hint="use te.compute with te.Select",
        )

    def __iter__(self) -> Iterator[Any]:
        raise ExpressionError(
            f"can't iterate over tensor {self.name}", hint="use te.compute over its axes"
        )


@dataclass(frozen=True, slots=True, eq=False)
class TensorSlice:
    """A tensor with its first indices given, as in `A[i][j]`."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    def __getitem__(self, more: object) -> Any:
        t = self.tensor
        items = more if isinstance(more, tuple) else (more,)
        indices = self.indices + tuple(_check_index(t, i) for i in items)
        if len(indices) > t.ndim:
            raise ExpressionError(
                f"{t.name} has {t.ndim} dimensions {list(t.shape)}, {len(indices)} indices given",
                hint=f"use {t.name}[{', '.join('ijklmnop'[: t.ndim])}]",
            )
        return Load(t, indices, t.dtype) if len(indices) == t.ndim else TensorSlice(t, indices)

    def as_expr(self) -> Expr:
        raise _too_few(self.tensor, len(self.indices))

    def _refuse(self, other: object = None) -> Any:
        raise _too_few(self.tensor, len(self.indices))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _refuse
    )
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lt__ = __le__ = __gt__ = __ge__ = (
        __neg__
    ) = _refuse

    def astype(self, dtype: object) -> Expr:
        return self.as_expr()


def _too_few(tensor: Tensor, given: int) -> ExpressionError:
    return ExpressionError(
        f"{tensor.name} needs {tensor.ndim} indices, {given} given",
        hint=f"use {tensor.name}[{', '.join('ijklmnop'[: tensor.ndim])}]",
    )


def _check_index(tensor: Tensor, index: object) -> Expr:
    if isinstance(index, (slice, type(Ellipsis))):
        raise ExpressionError(
            f"{tensor.name}: slices are no indices", hint="te.compute over the axis you want"
        )
    e = as_expr(index)
    if not dtypes.is_int(e.dtype):
        raise ExpressionError(
            f"index {e} of {tensor.name} is {e.dtype}, not an integer", hint='use .astype("int32")'
        )
    return e


def check_shape(shape: object, what: str) -> tuple[int, ...]:
    """A shape as a tuple of non-negative ints."""
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    result = []
    for n in items:
        if isinstance(n, Const) and dtypes.is_int(n.dtype):
            n = n.value
        if isinstance(n, Expr):
            raise UnsupportedError(
                f"{what}: symbolic extent {n}", hint="give every extent as an integer"
            )
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise ExpressionError(
                f"{what}: extent {n!r} is not an integer",
                hint="give extents as ints, such as (128, 64)",
            )
        if n.__index__() < 0:
            raise ExpressionError(f"{what}: negative extent {n}", hint="extents are 0 or more")
        result.append(n.__index__())
    return tuple(result)


def placeholder(shape: object, dtype: object = "float32", name: str = "placeholder") -> Tensor:
    """Declare an input of `shape` (a tuple of ints, or one int) and `dtype`."""
    op = PlaceholderOp(
        name, check_shape(shape, name), dtypes.check_dtype(dtype or "float32"), find_place()
    )
    tensor = Tensor(op, 0, name, op.shape, op.dtype)
    op.outputs.append(tensor)
    return tensor


def reduce_axis(dom: object, name: str = "rv") -> IterVar:
    """An axis to reduce over; `dom` is (begin, end) or an extent."""
    pair = tuple(dom) if isinstance(dom, (tuple, list)) else (0, dom)
    if len(pair) != 2:
        raise ExpressionError(
            f"axis {name}: the domain is (begin, end), not {dom!r}", hint="te.reduce_axis((0, K))"
        )
    for end in pair:
        if isinstance(end, Expr) and not isinstance(end, Const):
            raise UnsupportedError(
                f"axis {name}: the domain depends on {end}",
                hint="give integers, and mask with where= of the reduction",
            )
    begin, end = (e.__index__() if hasattr(e, "__index__") else None for e in pair)
    if begin is None or end is None or end < begin:
        raise ExpressionError(
            f"axis {name}: the domain (begin, end) must be integers, begin <= end, not {dom!r}",
            hint="te.reduce_axis((0, K))",
        )
    return make_axis(name, end - begin, "reduce", begin)


def compute(
    shape: object,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, object] | None = None,
) -> Any:
    """Declare a tensor by a function from its indices to an element.

    Args:
        shape: extents, a tuple of ints or one int.
        fcompute: takes one argument per dimension; returns an expression, a reduction, or a tuple
            of them (then a tuple of tensors is returned).
        name: used in listings, traces and errors.
    """
    extents = check_shape(shape, name)
    if not callable(fcompute):
        raise ExpressionError(
            f"{name}: {fcompute!r} is no function of the indices",
            hint="te.compute(shape, lambda i, j: ...)",
        )
    names = _argument_names(fcompute, len(extents), name)
    axis = tuple(make_axis(n, extent) for n, extent in zip(names, extents, strict=True))
    result = fcompute(*axis)
    several = isinstance(result, (tuple, list))
    body = tuple(as_expr(r) for r in (result if several else (result,)))
    if not body:
        raise ExpressionError(
            f"{name}: the function returned no expression", hint="return one per output"
        )
    op = make_op(name, axis, body, find_place(), tag, attrs or {})
    return tuple(op.outputs) if several else op.outputs[0]


def make_op(
    name: str,
    axis: tuple[IterVar, ...],
    body: tuple[Expr, ...],
    place: Place | None,
    tag: str = "",
    attrs: Mapping[str, object] | None = None,
) -> ComputeOp:
    """Build a ComputeOp and its outputs after checking the body."""
    reduces = [e for e in body if isinstance(e, Reduce)]
    if reduces and len(reduces) != len(body):
        raise ExpressionError(
            f"{name}: either all outputs reduce or none", hint="compute them as two tensors"
        )
    for e in body:
        for inner in children(e):
            if any(isinstance(node, Reduce) for node in walk(inner)):
                raise ExpressionError(
                    f"{name}: a reduction stands inside another expression",
                    hint="reductions are only allowed at the top: compute it as a tensor of its "
                    "own",
                )
    first = reduces[0] if reduces else None
    if first is not None:
        _check_components(name, first, reduces)
    for e in body:
        _check_scope(name, e, axis)
    op = ComputeOp(
        name, axis, first.axes if first is not None else (), body, place, tag, attrs or {}
    )
    for e in body:
        _check_reads(name, e, guarded=False)
    for i, e in enumerate(body):
        label = name if len(body) == 1 else f"{name}.v{i}"
        op.outputs.append(Tensor(op, i, label, op.shape, e.dtype))
    return op


def _check_components(name: str, first: Reduce, parts: list[Reduce]) -> None:
    """The outputs are all components of one reduction, in order."""
    for other in parts[1:]:
        for what, a, b in (
            ("combiner", (first.combiner,), (other.combiner,)),
            ("axes", first.axes, other.axes),
            ("source", first.sources, other.sources),
            ("where", (first.where,), (other.where,)),
            ("init", first.init or (), other.init or ()),
        ):
            if len(a) != len(b) or not all(
                x is y or (isinstance(x, Expr) and isinstance(y, Expr) and same(x, y))
                for x, y in zip(a, b, strict=True)
            ):
                raise ExpressionError(
                    f"{name}: its outputs reduce differently: another {what}",
                    hint="return the components of one reduction (te.comm_reducer), or compute two "
                    "tensors",
                )
    returned = [e.index for e in parts]
    if returned != list(range(len(first.sources))):
        raise ExpressionError(
            f"{name}: it returns components {returned} of a reduction that has "
            f"{len(first.sources)}",
            hint="return all components, in order",
        )


def _check_scope(name: str, e: Expr, axis: tuple[IterVar, ...]) -> None:
    """Only the axes of the operation may occur, and reduce axes inside their reduction."""
    allowed = set(axis)
    inside = allowed | set(e.axes) if isinstance(e, Reduce) else allowed
    parts = [(x, inside) for x in children(e)] if isinstance(e, Reduce) else [(e, allowed)]
    if isinstance(e, Reduce) and e.init is not None:
        parts += [(x, allowed) for x in e.init]
    for part, known in parts:
        for v in free_vars(part) - known:
            if isinstance(v, IterVar):
                home = "reduction over it" if v.is_reduce else "tensor it belongs to"
                raise ExpressionError(
                    f"{name}: axis {v.name} is used outside of the {home}",
                    hint="use the arguments of the function, and reduce axes inside "
                    "te.sum(..., axis=)",
                )
            raise UnsupportedError(
                f"{name}: the scalar variable {v.name} has no value",
                hint=f"pass a scalar as a tensor: {v.name} = te.placeholder((), dtype), "
                f"read by {v.name}()",
            )


def _check_reads(name: str, e: Expr, guarded: bool) -> None:
    """Refuse reads that are out of range for some point and that nothing guards."""
    if isinstance(e, Select) and e.guards:
        _check_reads(name, e.condition, guarded)
        _check_reads(name, e.a, True)
        _check_reads(name, e.b, True)
        return
    if isinstance(e, Binary) and e.op in ("&&", "||"):
        _check_reads(name, e.a, guarded)
        _check_reads(name, e.b, True)
        return
    if isinstance(e, Reduce) and (e.where is not None or any(a.extent == 0 for a in e.axes)):
        guarded = True
    if isinstance(e, Load) and not guarded and isinstance(e.source, Tensor):
        for dim, (index, extent) in enumerate(zip(e.indices, e.source.shape, strict=True)):
            lo, hi = bounds(index) if is_index(index) else (0, 0)
            if (lo < 0 or hi >= extent) and extent > 0 and not _has_empty_axis(e):
                raise ExpressionError(
                    f"{name}: {e} reads index {lo if lo < 0 else hi} of dimension {dim}, "
                    f"which has extent {extent}",
                    hint="guard the read with te.if_then_else(condition, ..., value)",
                )
    for child in children(e):
        _check_reads(name, child, guarded)


def _has_empty_axis(e: Expr) -> bool:
    return any(isinstance(v, IterVar) and v.extent == 0 for v in walk(e))


def _argument_names(fcompute: Callable[..., Any], ndim: int, name: str) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    names: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            names += [f"i{n}" for n in range(len(names), ndim)]
        elif p.kind is p.KEYWORD_ONLY or p.kind is p.VAR_KEYWORD or p.default is not p.empty:
            raise ExpressionError(
                f"{name}: argument {p.name} of its function is not a plain positional one",
                hint="one plain argument per dimension, or *indices",
            )
        else:
            names.append(p.name)
    if not parameters and ndim:
        raise ExpressionError(
            f"{name}: its function takes no argument, its shape has {ndim} dimensions",
            hint="one argument per dimension, or *indices",
        )
    if len(names) != ndim:
        raise ExpressionError(
            f"{name}: its function takes {len(names)} arguments, its shape has {ndim} dimensions",
            hint="one argument per dimension, or *indices",
        )
    return names


def _elementwise(op: str, a: object, b: object) -> Any:
    from akg_py.ir.expr import lift

    tensors = [t for t in (a, b) if isinstance(t, Tensor)]
    if any(isinstance(t, TensorSlice) for t in (a, b)):
        raise ExpressionError(
            "an element-wise operation needs whole tensors or fully indexed elements",
            hint="use A + B, or A[i, j] + B[i, j]",
        )
    shape: tuple[int, ...] = ()
    for t in tensors:
        shape = broadcast_shapes(shape, t.shape)

    def element(operand: object, indices: tuple[IterVar, ...]) -> object:
        if not isinstance(operand, Tensor):
            return operand
        own = indices[len(indices) - operand.ndim :]
        return operand(
            *(
                const(0) if n == 1 and i.extent != 1 else i
                for i, n in zip(own, operand.shape, strict=True)
            )
        )

    names = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
    return compute(
        shape,
        lambda *i: lift(op, element(a, i), element(b, i)),
        name=f"{tensors[0].name}_{names[op]}",
    )


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """numpy's broadcasting of two shapes."""
    length = max(len(a), len(b))
    padded = [(1,) * (length - len(s)) + s for s in (a, b)]
    result = []
    for x, y in zip(*padded, strict=True):
        if x != y and 1 not in (x, y):
            raise ExpressionError(
                f"shapes {list(a)} and {list(b)} don't broadcast",
                hint="extents, from the last, are equal or 1",
            )
        result.append(y if x == 1 else x)
    return tuple(result)


def make_cast(dtype: object, value: object) -> Expr:
    """`value` converted to `dtype`."""
    return cast(dtypes.check_dtype(dtype), as_expr(value))


def graph_order(outputs: Sequence[Tensor]) -> list[Operation]:
    """All operations that `outputs` need, producers first."""
    order: dict[int, Operation] = {}
    visiting: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(outputs)]
    while visiting:
        op, done = visiting.pop()
        if id(op) in order:
            continue
        if done:
            order[id(op)] = op
            continue
        visiting.append((op, True))
        visiting.extend((t.op, False) for t in reversed(op.input_tensors) if id(t.op) not in order)
    return list(order.values())
