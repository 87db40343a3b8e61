"""Schedules: axes, handles, records. What a primitive leaves behind; values: see lowering."""

from __future__ import annotations

import json
import pickle
import threading

import pytest

from akg_py import te
from akg_py.errors import ScheduleError
from akg_py.lowering import lower_schedule


def graph(n: int = 16) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((n, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((n,), lambda i: B[i] + 1.0, name="C")
    return A, B, C


def test_stages_and_axes() -> None:
    A, B, C = graph()
    s = te.create_schedule(C.op)
    assert [stage.name for stage in s.stages] == ["B", "C"]
    assert s[B].leaf_iter_vars == B.op.axis + B.op.reduce_axis
    assert s["B"].op is B.op and s[B.op].name == "B"
    with pytest.raises(ScheduleError, match="inputs have none"):
        s[A]


def test_split_gives_outer_first() -> None:  # B060
    _A, _B, C = graph()
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=10)
    assert s[C].leaf_iter_vars == (outer, inner)
    assert (outer.name, inner.name, outer.extent, inner.extent) == ("i.outer", "i.inner", 2, 10)


def test_tile() -> None:  # B069
    X = te.placeholder((64, 96), name="X")
    Y = te.compute((64, 96), lambda i, j: X[i, j], name="Y")
    s = te.create_schedule(Y.op)
    extents = [a.extent for a in s[Y].tile(*Y.op.axis, 8, 32)]
    assert extents == [8, 3, 8, 32]
    assert [a.name for a in s[Y].leaf_iter_vars] == ["i.outer", "j.outer", "i.inner", "j.inner"]


def test_names_of_axes_stay_unique() -> None:
    _A, _B, C = graph()
    s = te.create_schedule(C.op)
    outer, _inner = s[C].split("i", 4)
    s[C].split(outer, 2)
    s[C].fuse("i.outer.outer", "i.outer.inner")
    s[C].split("i.outer.outer.i.outer.inner.fused", 2)
    names = [a.name for a in s[C].leaf_iter_vars]
    assert len(set(names)) == len(names)


def test_equal_names_of_stages_are_told_apart() -> None:
    X = te.placeholder((4,), name="X")
    Y = te.compute((4,), lambda i: X[i] + 1.0, name="Y")
    Z = te.compute((4,), lambda i: Y[i] + 1.0, name="Y")
    s = te.create_schedule(Z.op)
    assert [stage.name for stage in s.stages] == ["Y", "Y_1"]
    assert s[Z].name == "Y_1" and s.tensor_name(Y) == "Y"


def test_marks() -> None:  # B092, B093
    _A, _B, C = graph()
    s = te.create_schedule(C.op)
    outer, inner = s[C].split("i", 4)
    s[C].pragma(inner, "vectorize")
    s[C].pragma(outer, "unroll")
    s[C].pragma(outer, "depth", 3)
    state = s.state.stage("C")
    assert state.mark(inner).kind == "vector" and state.mark(outer).kind == "unroll"
    assert state.mark(outer).pragmas == (("depth", 3),)
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    assert s.state.stage("C").mark(outer).kind == "core"


def test_thread_axis_takes_tvms_arguments() -> None:
    for axis in (
        te.thread_axis("blockIdx.x"),
        te.thread_axis((0, 4), "blockIdx.x"),
        te.thread_axis(tag="blockIdx.x"),
    ):
        assert axis.tag == "blockIdx.x"


def test_listing() -> None:
    _A, B, C = graph()
    s = te.create_schedule(C.op)
    outer, inner = s[C].split("i", 4)
    s[B].compute_at(s[C], outer)
    s[B].set_scope("UB")
    s[B].double_buffer()
    s[C].vectorize(inner)
    assert str(s).splitlines()[:2] == [
        "B: i[16] k[8 reduce] in UB x 2 at C.i.outer",
        "C: i.outer[4] i.inner[4 vector] output",
    ]


def all_primitives() -> te.Schedule:
    A, B, C = graph()
    x = te.placeholder((4,), name="x")
    te.decl_tensor_intrin(te.compute((4,), lambda i: x[i] + 1.0).op, name="inc4")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "L1", [B])
    cache = s.cache_write(B, "L0C")
    ko, ki = s[cache].split(s[cache].op.reduce_axis[0], nparts=2)
    rf = s.rfactor(cache, ko, factor_axis=-1)
    outer, inner = s[C].split("i", factor=4)
    s[C].reorder(outer, inner)
    s[C].tensorize(inner, "inc4")
    s[B].compute_at(s[C], outer)
    s[B].fuse(B.op.axis[0])
    s[cache].compute_at(s[B], s[B].leaf_iter_vars[0])
    s[rf].compute_root()
    s[rf].set_scope("UB")
    s[rf].double_buffer()
    s[rf].storage_align(s[rf].op.axis[0], 16, 8)
    s[rf].unroll(ki.name)
    s[rf].parallel(s[rf].op.axis[0])
    s[copy].compute_inline()
    s[C].pipeline(outer, 2)
    s[C].pragma(outer, "note", "text")
    s[C].bind(outer, "blockIdx.x")
    s[cache].vectorize(s[cache].op.axis[0])
    return s


def test_every_primitive_is_recorded_and_replays() -> None:  # B176, B177
    s = all_primitives()
    used = {step.primitive for step in s.trace}
    assert used == {
        "split",
        "fuse",
        "reorder",
        "vectorize",
        "unroll",
        "parallel",
        "bind",
        "pragma",
        "pipeline",
        "tensorize",
        "compute_at",
        "compute_inline",
        "compute_root",
        "set_scope",
        "double_buffer",
        "storage_align",
        "cache_read",
        "cache_write",
        "rfactor",
    }
    texts = []
    for trace in (
        te.Trace.parse(str(s.trace)),
        te.Trace.from_json(json.loads(json.dumps(s.trace.to_json()))),
        pickle.loads(pickle.dumps(s.trace)),
    ):
        A, _B, C = graph()
        again = te.create_schedule(C.op)
        again.apply(trace)
        assert again.trace == s.trace
        texts.append(str(again) + str(lower_schedule(again, [A, C])))
    assert len(set(texts)) == 1 and texts[0].startswith(str(s))


def test_replay_on_another_size() -> None:
    s = all_primitives()
    _A, _B, C = graph(32)
    again = te.create_schedule(C.op)
    again.apply(s.trace)
    assert again[C].leaf_iter_vars[0].extent == 8


def test_steps_know_their_line_and_whether_they_are_automatic() -> None:
    _A, _B, C = graph()
    s = te.create_schedule(C.op)
    s[C].split("i", 4)
    s.auto = True
    s[C].vectorize("i.inner")
    first, second = s.trace
    assert first.place is not None and first.place.file == __file__ and not first.auto
    assert second.auto and str(s.trace).splitlines()[1].endswith("# auto")
    assert te.Trace.parse(str(s.trace)) == s.trace


def test_copies_do_not_share_steps() -> None:  # B130
    _A, _B, C = graph()
    s = te.create_schedule(C.op)
    t = s.copy()
    t[C].split("i", 4)
    assert len(s.trace) == 0 and s[C].leaf_iter_vars == C.op.axis


def test_threads_do_not_interfere() -> None:  # B178
    A, B, C = graph()
    texts: list[str] = []

    def work(factor: int) -> None:
        for _ in range(20):
            s = te.create_schedule(C.op)
            s[C].split("i", factor)
            s[B].compute_at(s[C], "i.outer")
            texts.append(f"{factor} {lower_schedule(s, [A, C])}")

    threads = [threading.Thread(target=work, args=(f,)) for f in (3, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(texts)) == 2


@pytest.mark.parametrize(
    "data",
    [
        [],
        "split",
        [["split"]],
        [["split", "C", ["i"], {"factor": 2}]],
        [["explode", "C", [], {}, 0]],
        [[1, 2, 3, 4, 5]],
        [[["split"], "C", [], {}, 0]],
        [None],
    ],
)
def test_json_that_is_no_trace(data: object) -> None:
    if data == []:
        assert len(te.Trace.from_json(data)) == 0  # type: ignore[arg-type]
        return
    with pytest.raises(ScheduleError):
        te.Trace.from_json(data)  # type: ignore[arg-type]


def test_text_with_quotes_survives() -> None:
    _A, _B, C = graph()
    s = te.create_schedule(C.op)
    s[C].pragma("i", 'say "so"', "back\\slash\nline")
    assert te.Trace.parse(str(s.trace)) == s.trace
