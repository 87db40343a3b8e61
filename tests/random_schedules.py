"""Small graphs, random legal schedules of them, and the targets to run both on.

`random_schedule(graph, seed)` applies primitives at random and skips those that a schedule refuses,
so whatever comes out is legal and must not change a value. `run(target, ...)` gives the outputs of
one target: the interpreter of loop IR, or a compiled one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from akg_py import dtypes, te
from akg_py.errors import ScheduleError
from akg_py.ir.interpret import interpret
from akg_py.ir.verify import verify
from akg_py.lowering import lower_schedule
from akg_py.pipeline import build
from tests.comparison import Array, random_floats, small_integers


@dataclass(frozen=True)
class Graph:
    """A graph to schedule: its arguments in call order, and whether integers make it exact."""

    name: str
    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    exact: bool = True

    @property
    def args(self) -> list[te.Tensor]:
        return [*self.inputs, *self.outputs]

    def feeds(self, seed: int) -> list[Array]:
        """Small integers where the graph is exact on them, normal values elsewhere."""
        rng = np.random.default_rng(seed)
        make = small_integers if self.exact else random_floats
        return [make(t.shape, t.dtype, rng) for t in self.inputs]


def elementwise_chain() -> Graph:
    A = te.placeholder((7, 10), name="A")
    B = te.placeholder((7, 10), "int32", name="B")
    C = te.compute((7, 10), lambda i, j: A[i, j] * 2.0 + B[i, j].astype("float32"), name="C")
    D = te.compute((7, 10), lambda i, j: te.maximum(C[i, j], A[i, j]) - 1.0, name="D")
    E = te.compute((7, 10), lambda i, j: te.Select(D[i, j] > 0.0, C[i, j], D[i, j]), name="E")
    return Graph("elementwise_chain", (A, B), (E,))


def matmul(dtype: str = "float32", M: int = 9, N: int = 10, K: int = 7) -> Graph:
    A = te.placeholder((M, K), dtype, name="A")
    B = te.placeholder((K, N), dtype, name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return Graph("matmul", (A, B), (C,))


def empty_product() -> Graph:
    return matmul(K=0)


def matmul_bias_relu() -> Graph:
    M, N, K = 6, 9, 5
    A = te.placeholder((M, K), "float16", name="A")
    B = te.placeholder((N, K), "float16", name="B")
    bias = te.placeholder((N,), name="bias")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(
        (M, N),
        lambda i, j: te.sum(A[i, k].astype("float32") * B[j, k].astype("float32"), axis=k),
        name="C",
    )
    D = te.compute((M, N), lambda i, j: C[i, j] + bias[j], name="D")
    E = te.compute((M, N), lambda i, j: te.maximum(D[i, j], 0.0).astype("float16"), name="E")
    return Graph("matmul_bias_relu", (A, B, bias), (E,))


def softmax() -> Graph:
    M, N = 5, 9
    A = te.placeholder((M, N), name="A")
    k = te.reduce_axis((0, N), name="k")
    top = te.compute((M,), lambda i: te.max(A[i, k], axis=k), name="top")
    power = te.compute((M, N), lambda i, j: te.exp(A[i, j] - top[i]), name="power")
    r = te.reduce_axis((0, N), name="r")
    total = te.compute((M,), lambda i: te.sum(power[i, r], axis=r), name="total")
    C = te.compute((M, N), lambda i, j: power[i, j] / total[i], name="C")
    return Graph("softmax", (A,), (C,), exact=False)


def layer_norm() -> Graph:
    M, N = 4, 10
    A = te.placeholder((M, N), name="A")
    scale = te.placeholder((N,), name="scale")
    k = te.reduce_axis((0, N), name="k")
    mean = te.compute((M,), lambda i: te.sum(A[i, k], axis=k), name="sum")
    r = te.reduce_axis((0, N), name="r")
    centred = te.compute((M, N), lambda i, j: A[i, j] - mean[i] / float(N), name="centred")
    square = te.compute(
        (M,), lambda i: te.sum(centred[i, r] * centred[i, r], axis=r), name="square"
    )
    C = te.compute(
        (M, N),
        lambda i, j: centred[i, j] * te.rsqrt(square[i] / float(N) + 1e-5) * scale[j],
        name="C",
    )
    return Graph("layer_norm", (A, scale), (C,), exact=False)


def stencil() -> Graph:
    A = te.placeholder((10, 11), name="A")
    B = te.compute((10, 9), lambda i, j: A[i, j] + A[i, j + 1] + A[i, j + 2], name="B")
    C = te.compute((8, 9), lambda i, j: B[i, j] + B[i + 1, j] - B[i + 2, j], name="C")
    return Graph("stencil", (A,), (C,))


def padded_conv() -> Graph:
    n, channels, filters, width, stride = 11, 2, 3, 3, 2
    A = te.placeholder((channels, n), name="A")
    W = te.placeholder((filters, channels, width), name="W")
    P = te.compute(
        (channels, n + 2),
        lambda c, x: te.if_then_else(te.all(x >= 1, x < n + 1), A[c, x - 1], 0.0),
        name="P",
    )
    c = te.reduce_axis((0, channels), name="c")
    x = te.reduce_axis((0, width), name="x")
    out = (n + 2 - width) // stride + 1
    C = te.compute(
        (filters, out),
        lambda f, o: te.sum(P[c, o * stride + x] * W[f, c, x], axis=[c, x]),
        name="C",
    )
    D = te.compute((filters, out), lambda f, o: te.maximum(C[f, o], 0.0), name="D")
    return Graph("padded_conv", (A, W), (D,))


def argmax() -> Graph:
    A = te.placeholder((6, 13), name="A")
    B = te.compute((6, 13), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 13), name="k")

    def combine(x: Any, y: Any) -> Any:
        first = te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0]))
        return te.Select(first, x[0], y[0]), te.Select(first, x[1], y[1])

    reducer = te.comm_reducer(
        combine, lambda i, v: (te.const(1 << 30, i), te.min_value(v)), name="argmax"
    )
    index, value = te.compute(
        (6,), lambda i: reducer((k.astype("int32"), B[i, k]), axis=k), name="best"
    )
    return Graph("argmax", (A,), (index, value))


GRAPHS: tuple[Callable[[], Graph], ...] = (
    elementwise_chain,
    matmul,
    empty_product,
    matmul_bias_relu,
    softmax,
    layer_norm,
    stencil,
    padded_conv,
    argmax,
)

SCOPES = ("local", "UB", "L1", "global")


def random_schedule(graph: Graph, seed: int, steps: int = 24) -> te.Schedule:
    """A schedule of `graph` after `steps` random attempts; those that it refuses are skipped."""
    rng = np.random.default_rng(seed)
    s = te.create_schedule(list(graph.outputs))
    if seed % 2:
        return _tiled(s, graph, rng)
    for _ in range(int(rng.integers(1, steps + 1))):
        before = s.copy()
        try:
            attempt(s, rng)
            lower_schedule(s, graph.args)  # some rules are only checked here
        except ScheduleError:
            s = before
    return s


def _try(s: te.Schedule, graph: Graph, action: Callable[[], object]) -> te.Schedule:
    """Do `action` on `s`, or undo it when the schedule or lowering refuses."""
    before, trace = s._state, s._steps
    try:
        action()
        lower_schedule(s, graph.args)
    except ScheduleError:
        s._state, s._steps = before, trace
    return s


def _tiled(s: te.Schedule, graph: Graph, rng: np.random.Generator) -> te.Schedule:
    """Caches, then tiles, then everything attached deep, consumers first: as experts write."""
    for _ in range(int(rng.integers(0, 4))):
        stage = _pick(rng, s.stages)
        if rng.random() < 0.5:
            _try(
                s,
                graph,
                lambda stage=stage: s.cache_read(_pick(rng, stage.op.input_tensors), "UB", [stage]),
            )
        else:
            _try(s, graph, lambda stage=stage: s.cache_write(list(stage._state.outputs), "UB"))
    if rng.random() < 0.3:
        reducing = [st for st in s.stages if st.op.reduce_axis]
        if reducing:
            stage = _pick(rng, reducing)
            _try(s, graph, lambda: stage.split(_pick(rng, stage.op.reduce_axis), 3))
            leaves = [a for a in stage.leaf_iter_vars if a.is_reduce]
            _try(s, graph, lambda: s.rfactor(stage.op.output(0), _pick(rng, leaves)))
    for name in [st.name for st in reversed(s.stages)]:
        _place_and_tile(s, graph, s[name], rng)
    return s


def _place_and_tile(
    s: te.Schedule, graph: Graph, stage: te.Stage, rng: np.random.Generator
) -> None:
    def chance(share: float, action: Callable[[], object]) -> None:
        if rng.random() < share:
            _try(s, graph, action)

    def attach() -> None:
        user = s[_pick(rng, s.state.consumers(stage._state)).name]
        stage.compute_at(user, _pick(rng, user.leaf_iter_vars))

    def fuse() -> None:
        start = int(rng.integers(len(stage.leaf_iter_vars)))
        stage.fuse(*stage.leaf_iter_vars[start : start + 2])

    if not stage._state.is_output:
        chance(0.85, attach)
    for _ in range(2):
        chance(0.5, lambda: stage.split(_pick(rng, stage.leaf_iter_vars), int(rng.integers(2, 5))))
    chance(0.5, lambda: stage.reorder(*_shuffled(rng, stage.leaf_iter_vars)))
    chance(0.25, fuse)
    chance(0.5, lambda: stage.vectorize(stage.leaf_iter_vars[-1]))
    chance(0.2, stage.double_buffer)


def _shuffled(rng: np.random.Generator, items: Sequence[Any]) -> list[Any]:
    return [items[n] for n in rng.permutation(len(items))]


def _pick(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def attempt(s: te.Schedule, rng: np.random.Generator) -> None:
    """One primitive chosen at random; ScheduleError when `s` refuses it."""
    stage = _pick(rng, s.stages)
    leaves = stage.leaf_iter_vars
    kind = _pick(
        rng,
        (
            "split",
            "split",
            "nparts",
            "tile",
            "fuse",
            "reorder",
            "reorder",
            "vectorize",
            "unroll",
            "parallel",
            "bind",
            "compute_at",
            "compute_at",
            "compute_at",
            "inline",
            "root",
            "cache_read",
            "cache_write",
            "rfactor",
            "double_buffer",
            "pipeline",
            "set_scope",
            "pragma",
            "align",
            "layout",
        ),
    )
    axis = _pick(rng, leaves)
    match kind:
        case "split":
            stage.split(axis, factor=int(rng.integers(1, 6)))
        case "nparts":
            stage.split(axis, nparts=int(rng.integers(1, 6)))
        case "tile":
            stage.tile(axis, _pick(rng, leaves), int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        case "fuse":
            at = int(rng.integers(len(leaves)))
            stage.fuse(*leaves[at : at + 2])
        case "reorder":
            stage.reorder(*_shuffled(rng, leaves))
        case "vectorize" | "unroll" | "parallel":
            getattr(stage, kind)(axis)
        case "bind":
            stage.bind(axis, te.thread_axis("blockIdx.x"))
        case "compute_at":
            target = _pick(rng, s.stages)
            stage.compute_at(target, _pick(rng, target.leaf_iter_vars))
        case "inline":
            stage.compute_inline()
        case "root":
            stage.compute_root()
        case "cache_read":
            readable = list(stage.op.input_tensors)
            s.cache_read(_pick(rng, readable), _pick(rng, SCOPES), [stage])
        case "cache_write":
            s.cache_write(list(stage._state.outputs), _pick(rng, SCOPES))
        case "rfactor":
            s.rfactor(stage.op.output(0), axis, int(rng.integers(0, 2)))
        case "double_buffer":
            stage.double_buffer()
        case "pipeline":
            stage.pipeline(axis, int(rng.integers(1, 4)))
        case "set_scope":
            stage.set_scope(_pick(rng, SCOPES))
        case "pragma":
            stage.pragma(axis, "note", 1)
        case "align":
            stage.storage_align(_pick(rng, stage.op.axis), 8, 0)
        case "layout":
            stage.transform_layout(_random_layout(stage, rng))


def _random_layout(stage: te.Stage, rng: np.random.Generator) -> str:
    """Axes in any order, some of them in two digits."""
    names = [f"d{n}" for n in range(len(stage.op.axis))]
    digits = []
    for name in names:
        size = int(rng.integers(1, 9))
        digits += [f"{name} // {size}", f"{name} % {size}"] if size > 4 else [name]
    order = rng.permutation(len(digits))
    return f"{', '.join(names)} -> {', '.join(digits[n] for n in order)}"


# ---------------------------------------------------------------- targets


def run(target: str, s: te.Schedule, graph: Graph, feeds: Sequence[Array]) -> list[Array]:
    """The outputs of `graph` under schedule `s` on `target`; they start as garbage."""
    outputs = [np.full(t.shape, 77, dtypes.numpy_dtype(t.dtype)) for t in graph.outputs]
    if target == "interpret":
        func = lower_schedule(s, graph.args, late_init=bool(len(s.trace) % 2))
        verify(func, "lower_schedule")
        interpret(func, *feeds, *outputs)
        return outputs
    kernel = build(s, graph.args, target=target)
    kernel(*feeds, *outputs)
    return outputs
