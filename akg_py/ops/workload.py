"""Workloads: the canonical form of a te graph, whose digest is the key of tuning databases.

The canonical text has one line per tensor, producers first, with names replaced by numbers:
renaming a tensor or an axis changes nothing, a shape, a dtype or the order of an addition does. A
workload that came from an operator also knows its short text, such as
`matmul:m=1024,n=2048,k=512,dtype=float16`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import field

from akg_py.errors import ExpressionError
from akg_py.ir.expr import Combiner, Const, Expr, Load, Reduce, Var, rebuild
from akg_py.ops.registry import Attrs, Declared, Operator, declare, get, operators, parse_text
from akg_py.records import dataclass
from akg_py.te.tensor import ComputeOp, PlaceholderOp, Tensor, graph_order

_STANDARD = ("sum", "prod", "max", "min")


@dataclass(slots=True, eq=False)
class _Name:
    """Stands for a tensor in canonical text."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Workload:
    """What is to be computed, without how.

    Attributes:
        text: short text; op text where an operator declares it, else `graph:` and the digest.
        graph: canonical text of the te graph.
        inputs, outputs: its tensors; arguments of the kernel are inputs, then outputs.
        op, attrs: the operator that declares it, or "" and {}.
    """

    text: str
    graph: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    op: str = ""
    attrs: Attrs = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Key of the workload: equal for graphs that differ in names only."""
        return hashlib.sha256(self.graph.encode()).hexdigest()[:16]

    @property
    def args(self) -> list[Tensor]:
        return [*self.inputs, *self.outputs]

    @property
    def operator(self) -> Operator | None:
        return get(self.op) if self.op else None

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def parse(text: str) -> Workload:
        """The workload of text such as `softmax:shape=4096x1024,dtype=float16`.

        Raises:
            SpaceError, ExpressionError: not a workload; the message says which part is wrong.
        """
        op, attrs = parse_text(text)
        return Workload.of_declared(declare(op.name, **attrs))

    @staticmethod
    def of_declared(declared: Declared) -> Workload:
        """The workload of an operator that is declared already."""
        graph = canonical_text(declared.inputs, declared.outputs)
        return Workload(
            declared.text, graph, declared.inputs, declared.outputs, declared.op, declared.attrs
        )

    @staticmethod
    def of(what: Workload | Declared | Tensor | Sequence[Tensor] | str) -> Workload:
        """The workload of an output tensor (or several), of a declared operator, or of text.

        A graph that equals what a known operator declares gets that operator's text.
        """
        if isinstance(what, Workload):
            return what
        if isinstance(what, str):
            return Workload.parse(what)
        if isinstance(what, Declared):
            return Workload.of_declared(what)
        outputs = tuple(what) if isinstance(what, (list, tuple)) else (what,)
        if not outputs or not all(isinstance(t, Tensor) for t in outputs):
            raise ExpressionError(
                f"{what!r} is no workload",
                hint="give an output tensor, or text such as add:shape=8x8",
            )
        return _of_outputs(outputs)


def _of_outputs(outputs: tuple[Tensor, ...]) -> Workload:
    inputs = tuple(op.outputs[0] for op in graph_order(outputs) if isinstance(op, PlaceholderOp))
    graph = canonical_text(inputs, outputs)
    for op in operators():
        for attrs in _guess(op, inputs, outputs):
            try:
                declared = declare(op.name, **attrs)
            except ExpressionError:
                continue
            if canonical_text(declared.inputs, declared.outputs) == graph:
                return Workload(declared.text, graph, inputs, outputs, op.name, declared.attrs)
    digest = hashlib.sha256(graph.encode()).hexdigest()[:16]
    return Workload(f"graph:{digest}", graph, inputs, outputs)


def _guess(op: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> list[Attrs]:
    """A cheap guess of attributes with which `op` would declare a graph of these arguments."""
    if not inputs or not outputs:
        return []
    kinds = {a.name: a.kind for a in op.attributes}
    out = outputs[0]
    if {"m", "n", "k"} <= kinds.keys():
        if len(inputs) != 2 or out.ndim != (3 if "b" in kinds else 2):
            return []
        batch = {"b": out.shape[0]} if "b" in kinds else {}
        return [
            {
                **batch,
                "m": out.shape[-2],
                "n": out.shape[-1],
                "k": inputs[0].shape[-1],
                "dtype": inputs[0].dtype,
            }
            | ({} if out.dtype == inputs[0].dtype else {"out_dtype": out.dtype})
        ]
    noted = getattr(out.op, "attrs", {})  # by the operator's function: numbers can't be seen
    if "kh" in kinds and kinds.keys() >= noted.keys() and "kh" in noted:
        return [dict(noted)]
    if "shape" in kinds and out.ndim == 2 and "dtype" in kinds:
        base = {"shape": out.shape, "dtype": inputs[0].dtype} | {
            k: v for k, v in noted.items() if k in kinds
        }
        choices = [(a.name, c) for a in op.attributes if a.name not in base for c in a.choices]
        return [base, *({**base, name: c} for name, c in choices)]
    return []


def canonical_text(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """The graph, one line per operation, names replaced by numbers."""
    tensors: dict[Tensor, str] = {}
    lines = []
    for t in inputs:
        tensors[t] = f"t{len(tensors)}"
        lines.append(f"{tensors[t]} = input {t.dtype}{list(t.shape)}")
    for op in graph_order(outputs):
        if not isinstance(op, ComputeOp):
            if op.outputs[0] not in tensors:
                raise ExpressionError(
                    f"{op.name} is read but isn't among the arguments",
                    hint="list every placeholder among the inputs",
                )
            continue
        names: dict[Var, str] = {a: f"i{n}" for n, a in enumerate(op.axis)}
        names |= {a: f"r{n}" for n, a in enumerate(op.reduce_axis)}
        bodies = [_format(e, names, tensors) for e in op.body]
        shown = []
        for t in op.outputs:
            tensors[t] = f"t{len(tensors)}"
            shown.append(f"{tensors[t]} {t.dtype}{list(t.shape)}")
        lines.append(f"{', '.join(shown)} = {'; '.join(bodies)}")
    lines.append(f"return {', '.join(tensors[t] for t in outputs)}")
    return "\n".join(lines)


def _format(e: Expr, names: dict[Var, str], tensors: dict[Tensor, str]) -> str:
    fresh = {v: Var(name, v.dtype, v.lo, v.hi) for v, name in names.items()}

    def rename(node: Expr) -> Expr:
        if isinstance(node, Var):
            return fresh.get(node, node)
        if isinstance(node, Const):
            return node
        if isinstance(node, Load):
            name = _Name(tensors[node.source], node.dtype)  # type: ignore[index]
            return Load(name, tuple(map(rename, node.indices)), node.dtype)
        return rebuild(node, rename)

    if not isinstance(e, Reduce):
        return str(rename(e))
    sources = ", ".join(str(rename(s)) for s in e.sources)
    axes = ", ".join(f"{names[a]} in {a.lo}..{a.lo + a.extent}" for a in e.axes)
    where = f" where {rename(e.where)}" if e.where is not None else ""
    init = f" init {', '.join(str(rename(i)) for i in e.init)}" if e.init else ""
    return f"{_format_combiner(e.combiner)}[{e.index}]({sources}) over {axes}{where}{init}"


def _format_combiner(c: Combiner) -> str:
    if c.name in _STANDARD and len(c.lhs) == 1:
        return c.name
    fresh: dict[Var, Expr] = {v: Var(f"x{n}", v.dtype) for n, v in enumerate(c.lhs)}
    fresh |= {v: Var(f"y{n}", v.dtype) for n, v in enumerate(c.rhs)}
    from akg_py.ir.expr import substitute

    results = ", ".join(str(substitute(r, fresh)) for r in c.result)
    return f"combine({results} from {', '.join(map(str, c.identity))})"
