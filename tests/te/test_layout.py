"""transform_layout: where elements lie changes, values never do; what is no layout is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import akg_py as akg
from akg_py import te
from akg_py.errors import ScheduleError
from akg_py.ir.expr import const
from akg_py.ir.interpret import interpret
from akg_py.te.layout import indices_of, read_layout, shape_of, text_of
from akg_py.te.tensor import make_axis

AXES = (make_axis("i", 10), make_axis("j", 100))
LAYOUTS: dict[str, tuple[Callable[..., object], tuple[int, ...]]] = {
    "i, j -> j // 64, i, j % 64": (lambda i, j: (j // 64, i, j % 64), (2, 10, 64)),
    "i, j -> j, i": (lambda i, j: (j, i), (100, 10)),
    "i, j -> i // 4, j // 16, i % 4, j % 16": (
        lambda i, j: (i // 4, j // 16, i % 4, j % 16),
        (3, 7, 4, 16),
    ),
    "i, j -> j // 64, i // 4, j % 64, i % 4": (
        lambda i, j: (j // 64, i // 4, j % 64, i % 4),
        (2, 3, 64, 4),
    ),
    "i, j -> i, j // 32, j // 4 % 8, j % 4": (
        lambda i, j: (i, j // 32, j // 4 % 8, j % 4),
        (10, 4, 8, 4),
    ),
}


@pytest.mark.parametrize("text", LAYOUTS)
def test_text_and_function_say_the_same(text: str) -> None:
    function, shape = LAYOUTS[text]
    layout = read_layout(function, AXES)
    assert layout == read_layout(text, AXES)
    assert text_of(layout, AXES) == text
    assert shape_of(layout, (10, 100)) == shape


@pytest.mark.parametrize("text", LAYOUTS)
def test_every_element_has_a_place_of_its_own(text: str) -> None:
    layout = read_layout(text, AXES)
    shape = shape_of(layout, (10, 100))
    places = set()
    for i in range(10):
        for j in range(100):
            place = tuple(int(e.value) for e in indices_of(layout, (const(i), const(j))))  # type: ignore[attr-defined]
            assert all(0 <= p < n for p, n in zip(place, shape, strict=True))
            places.add(place)
    assert len(places) == 1000


@pytest.mark.parametrize(
    "wrong",
    [
        "i, j -> i",  # j has no place
        "i, j -> i, j // 64",  # 64 elements in one place
        "i, j -> i, j % 64",
        "i, j -> i, j // 64, j % 32",
        "i, j -> i, j, j % 64",
        "i, j -> i, j // 64 % 2, j % 64",  # what lies beyond 128 has no place
        "i, j -> i + 1, j",
        "i -> i",
        "i, j",
        "i, j -> ",
        "i, j -> i, j // 0, j % 1",
        "i, j -> i, j, k",
        3,
        lambda i, j: (i, j * 2),
        lambda i, j: i,
    ],
)
def test_what_is_no_layout_is_refused(wrong: object) -> None:
    A = te.placeholder((10, 100), name="A")
    C = te.compute((10, 100), lambda i, j: A[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "local", [C])
    before = str(s.trace)
    with pytest.raises(ScheduleError) as error:
        s[copy].transform_layout(wrong)  # type: ignore[arg-type]
    assert error.value.hint and "test_layout.py" in str(error.value.where)
    assert str(s.trace) == before


def test_outputs_and_padded_rows_keep_their_layout() -> None:
    A = te.placeholder((10, 100), name="A")
    C = te.compute((10, 100), lambda i, j: A[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    with pytest.raises(ScheduleError, match="layout of an output"):
        s[C].transform_layout(lambda i, j: (j, i))
    copy = s.cache_read(A, "local", [C])
    s[copy].storage_align("ax0", 16, 8)
    with pytest.raises(ScheduleError, match="padded rows"):
        s[copy].transform_layout(lambda i, j: (j, i))


def packed(text: str, attached: bool) -> tuple[te.Schedule, list[te.Tensor]]:
    A = te.placeholder((10, 100), name="A")
    B = te.placeholder((100, 33), name="B")
    k = te.reduce_axis((0, 100), name="k")
    C = te.compute((10, 33), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    outer, _ = s[C].split("j", factor=8)
    s[C].reorder(outer, "i")
    copy = s.cache_read(A, "local", [C])
    s[copy].transform_layout(text)
    if attached:
        ko, _ = s[C].split("k", factor=48)
        s[C].reorder(ko, "i")
        s[copy].compute_at(s[C], ko)
    return s, [A, B, C]


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("text", LAYOUTS)
def test_values_stay(text: str, attached: bool) -> None:
    s, args = packed(text, attached)
    replayed = te.create_schedule(args[-1].op)
    replayed.apply(te.Trace.parse(str(s.trace)))
    assert replayed.trace == s.trace
    rng = np.random.default_rng(0)
    a = rng.integers(-8, 9, (10, 100)).astype("float32")
    b = rng.integers(-8, 9, (100, 33)).astype("float32")
    func = akg.lower(s, args)
    c = np.full((10, 33), np.nan, "float32")
    interpret(func, a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    np.testing.assert_array_equal(akg.build(replayed, args, target="cpu")(a, b), a @ b)
