"""compute_at, compute_inline and compute_root, at every loop: values and sizes of regions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from akg_py import te
from akg_py.errors import ScheduleError
from akg_py.lowering import lower_schedule
from tests.lowering.differential import Chain, buffers, check, diamond

k5 = te.reduce_axis((0, 5), name="k")
READS: dict[str, tuple[tuple[int, int], tuple[int, int], Callable[..., Any]]] = {
    "same element": ((9, 10), (9, 10), lambda B, i, j: B[i, j] + 1.0),
    "row stencil": ((11, 10), (9, 10), lambda B, i, j: B[i, j] + B[i + 1, j] + B[i + 2, j]),
    "blur": (
        (11, 12),
        (9, 10),
        lambda B, i, j: B[i, j + 1] + B[i + 1, j] + B[i + 1, j + 1] + B[i + 2, j + 1],
    ),
    "stride": ((20, 31), (9, 10), lambda B, i, j: B[i * 2, j * 3 + 1]),
    "transposed": ((10, 9), (9, 10), lambda B, i, j: B[j, i] + 1.0),
    "reversed": ((9, 10), (9, 10), lambda B, i, j: B[8 - i, 9 - j]),
    "padded": (
        (7, 10),
        (9, 10),
        lambda B, i, j: te.if_then_else(te.all(i >= 1, i < 8), B[i - 1, j], 0.0),
    ),
    "broadcast": ((1, 10), (9, 10), lambda B, i, j: B[0, j]),
    "row and column": ((10, 10), (9, 10), lambda B, i, j: B[i, j] + B[j, i]),
    "blocks": ((3, 10), (9, 10), lambda B, i, j: B[i // 3, j] + B[i % 3, j]),
    "overlapping windows": ((9, 58), (9, 10), lambda B, i, j: B[i, j * 5] + B[i, i + j * 5]),
    "reduction": ((9, 14), (9, 10), lambda B, i, j: te.sum(B[i, j + k5], axis=k5)),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("tile", [None, (4, 3), (3, 4)])
def test_compute_at_every_loop(name: str, tile: tuple[int, int] | None) -> None:  # B111 to B117
    chain = Chain(*READS[name])
    depth = 0
    while True:
        s = chain.schedule()
        stage = s[chain.C]
        if tile is not None:
            stage.tile(chain.C.op.axis[0], chain.C.op.axis[1], *tile)
        leaves = stage.leaf_iter_vars
        if depth == len(leaves):
            break
        s[chain.B].compute_at(stage, leaves[depth])
        chain.check(s)
        s[chain.B].split(chain.B.op.axis[1], 4)
        s[chain.B].vectorize("j.inner")
        s[chain.B].double_buffer()
        chain.check(s)
        depth += 1


@pytest.mark.parametrize(
    ("name", "loop", "shape"),
    [
        ("same element", "i", (1, 10)),
        ("same element", "j", (1, 1)),
        ("row stencil", "i", (3, 10)),
        ("blur", "j", (3, 2)),
        ("stride", "j", (1, 1)),
        ("padded", "i", (1, 10)),
        ("broadcast", "i", (1, 10)),
        ("transposed", "i", (10, 1)),
        ("reduction", "j", (1, 5)),
    ],
)
def test_sizes_of_regions(name: str, loop: str, shape: tuple[int, int]) -> None:
    chain = Chain(*READS[name])
    s = chain.schedule()
    s[chain.B].compute_at(chain.C.name, loop)
    assert buffers(chain.check(s))["B"].shape == shape


def test_region_of_a_tile() -> None:  # B112
    chain = Chain((16, 16), (16, 16), lambda B, i, j: B[i, j])
    s = chain.schedule()
    _, yo, _, _ = s[chain.C].tile(*chain.C.op.axis, 8, 8)
    s[chain.B].compute_at(s[chain.C], yo)
    assert buffers(chain.check(s))["B"].shape == (8, 8)


def test_declared_shape_caps_the_region() -> None:  # B116
    chain = Chain(
        (8, 8),
        (10, 10),
        lambda B, i, j: te.if_then_else(te.all(i >= 1, i < 9, j >= 1, j < 9), B[i - 1, j - 1], 0.0),
    )
    s = chain.schedule()
    xo, _ = s[chain.C].split(chain.C.op.axis[0], 10)
    s[chain.B].compute_at(s[chain.C], xo)
    assert buffers(chain.check(s))["B"].shape == (8, 8)


def test_attach_follows_a_split() -> None:  # B118
    chain = Chain(*READS["row stencil"])
    s = chain.schedule()
    i = chain.C.op.axis[0]
    s[chain.B].compute_at(s[chain.C], i)
    _, inner = s[chain.C].split(i, 4)
    assert s.state.stage("B").attached_to == ("C", inner)
    chain.check(s)


def test_attach_at_a_fused_loop() -> None:  # B082
    for factor in (3, 4, 7):
        chain = Chain(*READS["blur"])
        s = chain.schedule()
        f = s[chain.C].fuse(*chain.C.op.axis)
        fo, _ = s[chain.C].split(f, factor)
        s[chain.B].compute_at(s[chain.C], fo)
        chain.check(s)


@pytest.mark.parametrize("levels", list(itertools.product((None, "i", "j"), repeat=3)))
def test_diamond(levels: Sequence[str | None]) -> None:
    A, B, L, R, D = diamond()
    s = te.create_schedule(D.op)
    for tensor, level in zip((L, R, B), levels, strict=True):
        if level is not None:
            s[tensor].compute_at(s[D], level)
    try:
        check(s, [A], [D])
    except ScheduleError as e:  # B is needed outside of the loop by a stage at the root
        assert levels[2] is not None and "outside of that loop" in str(e)
        assert (levels[0], levels[1]) != (levels[2], levels[2])


def test_attached_in_an_attached_stage() -> None:
    A, B, L, R, D = diamond()
    s = te.create_schedule(D.op)
    io, ii = s[D].split(D.op.axis[0], 4)
    for tensor in (L, R):
        s[tensor].compute_at(s[D], ii)
        s[tensor].split(tensor.op.axis[1], 3)
    s[B].compute_at(s[D], io)  # its users' regions move with ii
    func = check(s, [A], [D])
    assert buffers(func)["B"].shape == (4, 8)


def test_inlined_producers() -> None:
    A, B, L, R, D = diamond()
    s = te.create_schedule(D.op)
    for tensor in (B, L, R):
        s[tensor].compute_inline()
    assert not buffers(check(s, [A], [D]))


def test_compute_root_undoes() -> None:
    A, _B, L, R, D = diamond()
    s = te.create_schedule(D.op)
    before = str(lower_schedule(s, [A, D]))
    s[L].compute_inline()
    s[R].compute_at(s[D], D.op.axis[1])
    s[L].compute_root()
    s[R].compute_root()
    assert str(lower_schedule(s, [A, D])) == before
