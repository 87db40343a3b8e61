"""What users get wrong: each mistake raises its kind of error, at the user's line, with a hint."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest

from akg_py import te
from akg_py.errors import AkgError, ExpressionError, ScheduleError, UnsupportedError
from akg_py.lowering import lower_schedule


def matrix(dtype: str = "float32", name: str = "A") -> te.Tensor:
    return te.placeholder((16, 8), dtype, name=name)


A = matrix()
I32 = matrix("int32", "I")
k = te.reduce_axis((0, 8), name="k")
k2 = te.reduce_axis((0, 7), name="k2")
total = te.comm_reducer(lambda x, y: x + y, lambda d: te.const(0, d), name="total")
pair = te.comm_reducer(
    lambda x, y: (x[0] + y[0], x[1] * y[1]),
    lambda a, b: (te.const(0, a), te.const(1, b)),
    name="pair",
)

DECLARE: dict[str, Callable[[], object]] = {
    "too few lambda arguments": lambda: te.compute((16, 16), lambda i: A[i, 0]),
    "too many lambda arguments": lambda: te.compute((16,), lambda i, j: A[i, j]),
    "no lambda argument": lambda: te.compute((16,), lambda: te.const(1.0)),
    "keyword arguments": lambda: te.compute((16,), lambda i, **kw: A[i, 0]),
    "default argument": lambda: te.compute((16,), lambda i, j=0: A[i, j]),
    "keyword-only argument": lambda: te.compute((16,), lambda *, i: A[i, 0]),
    "negative extent": lambda: te.placeholder((4, -1), name="X"),
    "float extent": lambda: te.placeholder((4.0,), name="X"),
    "bool extent": lambda: te.placeholder((True,), name="X"),
    "unknown dtype": lambda: te.placeholder((4,), "float17", name="X"),
    "function gives nothing": lambda: te.compute((16,), lambda i: None),
    "function gives an empty tuple": lambda: te.compute((16,), lambda i: ()),
    "too few indices in a call": lambda: A(te.const(0)),
    "too many indices": lambda: te.compute((16,), lambda i: A[i, 0, 0]),
    "too few indices": lambda: te.compute((16,), lambda i: A[i] + 1.0),
    "slice as an index": lambda: te.compute((16,), lambda i: A[i, :]),
    "float index": lambda: te.compute((16,), lambda i: A[i.astype("float32"), 0]),
    "index out of range": lambda: te.compute((16,), lambda i: A[i + 4096, 0]),
    "negative index": lambda: te.compute((16,), lambda i: A[i - 1, 0]),
    "constant index out of range": lambda: te.compute((16,), lambda i: A[i, 8]),
    "python if": lambda: te.compute((16,), lambda i: A[i, 0] if i > 3 else A[0, 0]),
    "python and": lambda: te.compute((16,), lambda i: te.Select(i > 1 and i < 5, A[i, 0], A[0, 0])),
    "python not": lambda: te.compute((16,), lambda i: te.Select(not (i > 1), A[i, 0], A[0, 0])),
    "chained comparison": lambda: te.compute((16,), lambda i: te.Select(0 < i < 5, A[i, 0], 0.0)),
    "range over an axis": lambda: te.compute((16,), lambda i: next(A[j, 0] for j in range(i))),
    "integer division": lambda: te.compute((16,), lambda i: A[i / 2, 0]),
    "integer division of elements": lambda: te.compute((16,), lambda i: I32[i, 0] / I32[i, 1]),
    "division by zero": lambda: te.compute((16,), lambda i: A[i // 0, 0]),
    "remainder by zero": lambda: te.compute((16,), lambda i: A[i % 0, 0]),
    "exp of integers": lambda: te.compute((16,), lambda i: te.exp(I32[i, 0])),
    "sqrt of an index": lambda: te.compute((16,), lambda i: te.sqrt(i)),
    "exp of a tensor": lambda: te.exp(A),
    "exp of a bool": lambda: te.compute((16,), lambda i: te.exp(A[i, 0] > 0.0)),
    "exp of two": lambda: te.exp(te.const(1.0), te.const(2.0)),
    "arithmetic of bools": lambda: te.compute((16,), lambda i: (A[i, 0] > 0.0) + (A[i, 1] > 0.0)),
    "minus a bool": lambda: te.compute((16,), lambda i: -(A[i, 0] > 0.0)),
    "not of a float": lambda: te.compute((16,), lambda i: te.logical_not(A[i, 0])),
    "and of floats": lambda: te.compute((16,), lambda i: te.Select(te.all(A[i, 0]), 1.0, 0.0)),
    "condition is a float": lambda: te.compute((16,), lambda i: te.Select(A[i, 0], 1.0, 0.0)),
    "choice by an integer": lambda: te.compute(
        (16,), lambda i: te.if_then_else(I32[i, 0], 1.0, 0.0)
    ),
    "a string": lambda: te.compute((16,), lambda i: A[i, 0] + "one"),
    "a numpy array": lambda: te.compute((16,), lambda i: A[i, 0] + np.zeros(3)),
    "a tensor in an expression": lambda: te.compute((16,), lambda i: A[i, 0] + A),
    "iterate over a tensor": lambda: list(A),
    "truth of a tensor": lambda: bool(A),
    "shapes don't broadcast": lambda: A + te.placeholder((3,), name="X"),
    "a constant too large": lambda: te.compute((16,), lambda i: matrix("uint8")[i, 0] + 300),
    "a negative unsigned constant": lambda: te.const(-1, "uint8"),
    "a large int8 constant": lambda: te.const(128, "int8"),
    "sum without axis": lambda: te.compute((16,), lambda i: te.sum(A[i, 0])),
    "sum over a number": lambda: te.compute((16,), lambda i: te.sum(A[i, 0], axis=1)),
    "sum over a data axis": lambda: te.compute((16, 8), lambda i, j: te.sum(A[i, j], axis=j)),
    "sum over one axis twice": lambda: te.compute((16,), lambda i: te.sum(A[i, k], axis=[k, k])),
    "sum over nothing": lambda: te.compute((16,), lambda i: te.sum(A[i, 0], axis=[])),
    "sum of bools": lambda: te.compute((16,), lambda i: te.sum(A[i, k] > 0.0, axis=k)),
    "sum of a tensor": lambda: te.compute((16,), lambda i: te.sum(A, axis=k)),
    "reduction in an expression": lambda: te.compute(
        (16,), lambda i: te.sum(A[i, k], axis=k) + 1.0
    ),
    "reduction in a choice": lambda: te.compute(
        (16,), lambda i: te.Select(i > 0, te.sum(A[i, k], axis=k), 0.0)
    ),
    "reduction of a reduction": lambda: te.compute(
        (1,), lambda i: te.sum(te.sum(A[i, k], axis=k), axis=k2)
    ),
    "tuple of reduction and element": lambda: te.compute(
        (16,), lambda i: (te.sum(A[i, k], axis=k), A[i, 0])
    ),
    "tuple over different axes": lambda: te.compute(
        (16,), lambda i: (te.sum(A[i, k], axis=k), te.sum(A[i, k2], axis=k2))
    ),
    "tuple of different sources": lambda: te.compute(
        (16,), lambda i: (te.sum(A[i, k], axis=k), te.sum(A[i, k] * 2.0, axis=k))
    ),
    "parts of two reductions": lambda: te.compute(
        (16,),
        lambda i: (pair((A[i, k], A[i, k]), axis=k)[0], pair((A[i, k] * 2.0, A[i, k]), axis=k)[1]),
    ),
    "component left out": lambda: te.compute((16,), lambda i: pair((A[i, k], A[i, k]), axis=k)[1]),
    "where is no bool": lambda: te.compute((16,), lambda i: te.sum(A[i, k], axis=k, where=A[i, k])),
    "reduce axis backwards": lambda: te.reduce_axis((5, 2)),
    "reduce axis of three": lambda: te.reduce_axis((0, 1, 2)),
    "reduce axis of a float": lambda: te.reduce_axis((0, 2.5)),
    "reduce axis outside of its reduction": lambda: te.compute((16,), lambda i: A[i, k]),
    "axis of another tensor": lambda: te.compute(
        (16,), lambda i: A[te.compute((16,), lambda q: A[q, 0]).op.axis[0], 0]
    ),
    "combiner gives too many": lambda: te.comm_reducer(
        lambda x, y: (x, y), lambda d: te.const(0, d)
    )(A[0, k], axis=k),
    "identity gives too few": lambda: te.comm_reducer(
        lambda x, y: (x[0], y[1]), lambda a, b: (te.const(0, a),)
    )((A[0, k], A[0, k]), axis=k),
    "init gives too few": lambda: pair((A[0, k], A[0, k]), axis=k, init=(0.0,)),
    "combiner that does not commute": lambda: te.comm_reducer(
        lambda x, y: x - y, lambda d: te.const(0, d), name="minus"
    )(A[0, k], axis=k),
    "combiner that does not associate": lambda: te.comm_reducer(
        lambda x, y: (x + y) * 0.5, lambda d: te.const(0, d), name="mean"
    )(A[0, k], axis=k),
    "identity that is not neutral": lambda: te.comm_reducer(
        lambda x, y: x * y, lambda d: te.const(0, d), name="product"
    )(A[0, k], axis=k),
    "schedule of an expression": lambda: te.create_schedule(A[0, 0]),
    "schedule of a placeholder": lambda: te.create_schedule(A.op),
    "intrinsic of a tensor": lambda: te.decl_tensor_intrin(A),  # type: ignore[arg-type]
}
UNSUPPORTED: dict[str, Callable[[], object]] = {
    "scalar variable": lambda: te.compute((8,), lambda i: A[i, 0] + te.var("x")),
    "symbolic extent": lambda: te.placeholder((te.var("n"), 4), name="X"),
    "data-dependent reduce axis": lambda: te.compute(
        (8,), lambda i: te.sum(A[i, k], axis=te.reduce_axis((0, i)))
    ),
}
# mistakes about what create_schedule takes are the schedule's
_SCHEDULE_KIND = {"schedule of an expression", "schedule of a placeholder"}


def check(mistake: Callable[[], object], kind: type[AkgError]) -> AkgError:
    with pytest.raises(AkgError) as caught:
        mistake()
    error = caught.value
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    assert error.where is not None and getattr(error.where, "file", "") == __file__, str(error)
    assert error.hint, f"no hint: {error}"
    assert "\n" not in error.hint and error.message[0] != " "
    return error


@pytest.mark.parametrize("name", DECLARE)
def test_declaration(name: str) -> None:
    check(DECLARE[name], ScheduleError if name in _SCHEDULE_KIND else ExpressionError)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_not_supported(name: str) -> None:
    check(UNSUPPORTED[name], UnsupportedError)


class Case:
    """A schedule of B (element-wise), C (a matrix product), D (its end)."""

    def __init__(self) -> None:
        A = te.placeholder((16, 8), name="A")
        W = te.placeholder((8, 12), name="W")
        k = te.reduce_axis((0, 8), name="k")
        B = te.compute((16, 8), lambda i, j: A[i, j] + 1.0, name="B")
        C = te.compute((16, 12), lambda i, j: te.sum(B[i, k] * W[k, j], axis=k), name="C")
        D = te.compute((16, 12), lambda i, j: C[i, j] * 2.0, name="D")
        self.A, self.W, self.B, self.C, self.D = A, W, B, C, D
        self.s = te.create_schedule(D.op)
        self.b, self.c, self.d = self.s[B], self.s[C], self.s[D]
        self.k = k
        self.i, self.j = D.op.axis

    def lower(self) -> object:
        return lower_schedule(self.s, [self.A, self.W, self.D])


def attach_each_other(t: Case) -> None:
    t.c.compute_at(t.d, t.j)
    t.d.compute_at(t.c, t.C.op.axis[0])


def vectorize_fused(t: Case) -> None:
    f = t.c.fuse(t.C.op.axis[1], t.k)
    t.c.vectorize(f)


def split_twice(t: Case) -> None:
    t.d.split(t.i, 4)
    t.d.split(t.i, 2)


def fuse_apart(t: Case) -> None:
    xo, _ = t.d.split(t.i, 4)
    t.d.fuse(xo, t.j)


def inline_with_guest(t: Case) -> None:
    t.s.cache_write(t.D, "UB")
    t.b.compute_at(t.c, t.C.op.axis[0])
    x = t.s["D.UB"]
    t.c.compute_at(x, x.leaf_iter_vars[0])
    x.compute_inline()


SCHEDULE: dict[str, Callable[[Case], object]] = {
    "split by zero": lambda t: t.d.split(t.i, 0),
    "split by a negative factor": lambda t: t.d.split(t.i, factor=-4),
    "split by a float": lambda t: t.d.split(t.i, factor=2.0),  # type: ignore[arg-type]
    "split without a factor": lambda t: t.d.split(t.i),
    "split by factor and nparts": lambda t: t.d.split(t.i, factor=2, nparts=2),
    "split an axis again": split_twice,
    "split an axis of another stage": lambda t: t.d.split(t.C.op.axis[0], 4),
    "split a reduce axis of another stage": lambda t: t.d.split(t.k, 4),
    "split what is no axis": lambda t: t.d.split(3, 4),  # type: ignore[arg-type]
    "split by an unknown name": lambda t: t.d.split("nope", 4),
    "tile one axis twice": lambda t: t.d.tile(t.i, t.i, 4, 4),
    "tile by zero": lambda t: t.d.tile(t.i, t.j, 4, 0),
    "fuse loops apart": fuse_apart,
    "fuse in the wrong order": lambda t: t.d.fuse(t.j, t.i),
    "fuse one axis twice": lambda t: t.d.fuse(t.i, t.i),
    "reorder one axis twice": lambda t: t.d.reorder(t.i, t.i),
    "reorder a foreign axis": lambda t: t.d.reorder(t.i, t.k),
    "vectorize a reduce axis": lambda t: t.c.vectorize(t.k),
    "vectorize data fused with reduce": vectorize_fused,
    "parallel on a reduce axis": lambda t: t.c.parallel(t.k),
    "bind a reduce axis": lambda t: t.c.bind(t.k, te.thread_axis("blockIdx.x")),
    "bind to an axis": lambda t: t.d.bind(t.i, t.j),  # type: ignore[arg-type]
    "bind to an unknown thread": lambda t: t.d.bind(t.i, "warp"),
    "unknown thread axis": lambda t: te.thread_axis("gridIdx.q"),
    "pipeline in zero stages": lambda t: t.d.pipeline(t.i, 0),
    "double buffer an output": lambda t: t.d.double_buffer(),
    "output into a memory": lambda t: t.d.set_scope("UB"),
    "align by zero": lambda t: t.c.storage_align(t.C.op.axis[0], 0),
    "align by a foreign axis": lambda t: t.c.storage_align(t.k, 8),
    "compute an output at": lambda t: t.d.compute_at(t.c, t.C.op.axis[0]),
    "compute at itself": lambda t: t.c.compute_at(t.c, t.C.op.axis[0]),
    "compute at each other": attach_each_other,
    "compute at a stage that doesn't use it": lambda t: t.c.compute_at(t.b, t.B.op.axis[0]),
    "compute at a foreign axis": lambda t: t.c.compute_at(t.d, t.k),
    "compute at a stage of another schedule": lambda t: t.c.compute_at(Case().d, t.j),
    "compute at an inlined stage": lambda t: (
        t.s.cache_read(t.C, "UB", [t.D]),
        t.s["C.UB"].compute_inline(),
        t.c.compute_at("C.UB", "ax0"),
    ),
    "inline a stage that hosts another": inline_with_guest,
    "inline a reduction": lambda t: t.c.compute_inline(),
    "inline an output": lambda t: t.d.compute_inline(),
    "inline an input": lambda t: t.s[t.A].compute_inline(),
    "stage of a stranger": lambda t: t.s[Case().C],
    "stage by an unknown name": lambda t: t.s["nope"],
    "cache_read for a stage that doesn't read it": lambda t: t.s.cache_read(t.A, "UB", [t.D]),
    "cache_read without readers": lambda t: t.s.cache_read(t.A, "UB", []),
    "cache_read of a stranger": lambda t: t.s.cache_read(Case().A, "UB", [t.B]),
    "cache_read of an unknown name": lambda t: t.s.cache_read("nope", "UB", [t.B]),
    "cache_write of an input": lambda t: t.s.cache_write(t.A, "UB"),
    "cache_write of data fused with reduce": lambda t: (
        t.c.fuse(t.C.op.axis[1], t.k),
        t.s.cache_write(t.C, "UB"),
    ),
    "rfactor a data axis": lambda t: t.s.rfactor(t.C, t.C.op.axis[0]),
    "rfactor out of range": lambda t: t.s.rfactor(t.C, t.k, factor_axis=4),
    "rfactor below range": lambda t: t.s.rfactor(t.C, t.k, factor_axis=-4),
    "rfactor no reduction": lambda t: t.s.rfactor(t.D, t.i),
    "tensorize by an unknown intrinsic": lambda t: t.d.tensorize(t.i, "no such"),
    "apply text that is no trace": lambda t: t.s.apply(
        te.Trace.parse('s["D"].split("i", factor=0)')
    ),
}


@pytest.mark.parametrize("name", SCHEDULE)
def test_schedule(name: str) -> None:
    check(lambda: SCHEDULE[name](Case()), ScheduleError)


def two_outside(t: Case) -> None:
    extra = te.compute((16, 12), lambda i, j: t.D[i, j] + t.C[i, j], name="extra")
    s = te.create_schedule(extra.op)
    s[t.C].compute_at(s[t.D], t.i)
    lower_schedule(s, [t.A, t.W, extra])


def test_late_errors_point_at_the_step() -> None:
    error = check(lambda: two_outside(Case()), ScheduleError)
    line = inspect.getsourcelines(two_outside)[1] + 3
    assert getattr(error.where, "line", 0) == line  # the compute_at


LOWER: dict[str, Callable[[Case], object]] = {
    "used outside of the loop": two_outside,
    "argument missing": lambda t: lower_schedule(t.s, [t.A, t.D]),
    "output missing": lambda t: lower_schedule(t.s, [t.A, t.W]),
    "argument twice": lambda t: lower_schedule(t.s, [t.A, t.A, t.W, t.D]),
    "an intermediate as argument": lambda t: lower_schedule(t.s, [t.A, t.W, t.C, t.D]),
    "an expression as argument": lambda t: lower_schedule(t.s, [t.A, t.W, t.D, t.i]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("name", LOWER)
def test_lowering(name: str) -> None:
    check(lambda: LOWER[name](Case()), ScheduleError)


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1",
        "s.explode()",
        's["D"].cache_read("A")',
        "s[0].split()",
        "import os",
        "s[",
        's["D"].split(i)',
    ],
)
def test_trace_that_does_not_parse(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        te.Trace.parse(text)
    assert "trace" in str(caught.value.where)


def test_error_in_a_replayed_step_names_it() -> None:
    trace = te.Trace.parse('s["D"].split("i", factor=4)\ns["D"].split("i", factor=2)')
    with pytest.raises(ScheduleError) as caught:
        Case().s.apply(trace)
    assert 'step 2 of the trace: s["D"].split("i", factor=2)' in "".join(caught.value.__notes__)


@pytest.mark.parametrize("name", SCHEDULE)
def test_a_failed_primitive_changes_nothing(name: str) -> None:
    t = Case()
    seen: list[tuple[object, str]] = []
    schedule = t.s
    commit = schedule._commit
    before = (schedule.state, str(schedule))

    def record(*args: object, **kwargs: object) -> None:
        commit(*args, **kwargs)  # type: ignore[arg-type]
        seen.append((schedule.state, str(schedule)))

    schedule._commit = record  # type: ignore[method-assign]
    with pytest.raises(ScheduleError):
        SCHEDULE[name](t)
    # some cases prepare: the last step that succeeded stands; tile is one primitive of three steps
    state, text = seen[-1] if seen and not name.startswith("tile") else before
    assert schedule.state is state and str(schedule) == text
