"""Arrays that kernels return: alignment, recycled memory, never shared by living arrays."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from akg_py import build, te
from akg_py.codegen import allocator
from akg_py.codegen.addresses import _by_interface, _by_layout, address_of
from akg_py.codegen.allocator import LARGE_BYTES, empty

F32 = np.dtype(np.float32)
LARGE = (LARGE_BYTES // 4,)


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Any:
    fresh = allocator._Spare()
    monkeypatch.setattr(allocator, "_spare", fresh)
    return fresh


def kept(spare: Any) -> int:
    return sum(map(len, spare.blocks))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (7, 5), (1000, 1000), LARGE])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16, np.float64])
def test_shape_dtype_alignment(shape: tuple[int, ...], dtype: Any) -> None:
    a = empty(shape, np.dtype(dtype))
    assert a.shape == shape and a.dtype == dtype
    assert a.flags.c_contiguous and a.flags.writeable and a.flags.aligned
    assert address_of(a) % 64 == 0
    a[...] = 1


def page_offsets(*offsets: int) -> list[Any]:
    """Large arrays that start there in their pages."""
    pages = [np.zeros(LARGE_BYTES + 2 * 4096, np.uint8) for _ in offsets]
    starts = [-address_of(p) % 4096 + offset for p, offset in zip(pages, offsets, strict=True)]
    return [p[at : at + LARGE_BYTES] for p, at in zip(pages, starts, strict=True)]


@pytest.mark.parametrize("first", range(0, 4096, 240))
@pytest.mark.parametrize("second", [0, 16, 2000, 3600])
def test_stores_stay_clear_of_the_next_loads(first: int, second: int) -> None:
    """For up to 1 KB after it, addresses like an input's are those of loads that come soon."""
    inputs = page_offsets(first, second)
    a = empty(LARGE, F32, [*inputs, np.zeros(16, F32), [1.0], None])
    assert address_of(a) % 64 == 0
    a[:] = 1
    for x in inputs:
        assert (address_of(a) - address_of(x) - 1) % 4096 >= 1024


def test_arrays_start_with_their_pages_where_inputs_allow_it() -> None:
    for x in page_offsets(0, 16, 2000):
        assert address_of(empty(LARGE, F32, [x])) % 4096 == 0
    (x,) = page_offsets(3600)
    assert address_of(empty(LARGE, F32, [x])) % 4096 != 0
    assert address_of(empty(LARGE, F32, [x[1:]])) % 4096 == 0, "small inputs stay in the cache"


def test_calls_place_their_outputs_for_their_inputs() -> None:
    X = te.placeholder(LARGE, name="X")
    double = build(te.create_schedule((Y := X + X).op), [X, Y], target="cpu")
    x = page_offsets(3600)[0].view(F32)
    x[:] = 1
    y = double(x)
    assert (y == 2).all()
    assert (address_of(y) - address_of(x) - 1) % 4096 >= 1024


def test_addresses() -> None:
    base = np.zeros((4, 6), ml_dtypes.bfloat16)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for a in (base, base[1:, 2:], base[::-1], frozen, np.zeros((0, 3)), np.zeros(())):
        assert address_of(a) == _by_interface(a) == _by_layout(a)


def test_memory_comes_back_when_the_last_view_is_gone(spare: Any) -> None:
    a = empty(LARGE, F32)
    a[:] = 5
    place = address_of(a)
    view = memoryview(a[7:].view(np.int32).reshape(-1)[::2])
    del a
    other = empty(LARGE, F32)
    assert address_of(other) != place and not spare.blocks
    other[:] = 6
    assert np.asarray(view).view(np.float32)[0] == 5
    del view
    assert kept(spare) >= LARGE_BYTES
    assert address_of(empty((LARGE_BYTES // 4 - 100,), F32)) != place  # too small to be kept
    again = empty(LARGE, F32)
    assert address_of(again) == place


def test_much_larger_blocks_are_not_used(spare: Any) -> None:
    a = empty((LARGE_BYTES,), F32)
    del a
    assert len(spare.blocks) == 1
    b = empty(LARGE, F32)
    assert len(spare.blocks) == 1
    del b
    assert len(spare.blocks) == 2


def test_what_is_kept_is_bounded(spare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator._spare, "most_bytes", 8 << 20)
    arrays = [empty((n << 18,), F32) for n in (1, 2, 3, 4, 9)]
    while arrays:
        arrays.pop()
        assert kept(spare) <= 8 << 20
    assert kept(spare) > 4 << 20
    assert not spare.leases


def test_living_arrays_never_share_memory(spare: Any) -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        living: list[tuple[np.ndarray[Any, Any], float]] = []
        for step in range(150):
            if living and choose.random() < 0.55:
                a, value = living.pop(choose.randrange(len(living)))
                if a[0] != value or a[-1] != value or a[len(a) // 2] != value:
                    wrong.append(f"{seed} {step}")
                if choose.random() < 0.3:
                    cycle: list[Any] = [a]
                    cycle.append(cycle)  # freed by the collector, at any moment
            else:
                a, value = empty((choose.choice((1, 1, 2, 3)) << 18,), F32), seed * 1000.0 + step
                a[0] = a[-1] = a[len(a) // 2] = value
                living.append((a[choose.randrange(2) :], value))
                living[-1][0][0] = value
            if choose.random() < 0.05:
                gc.collect()

    crew = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_its_own_memory() -> None:
    a = empty(LARGE, F32)
    b = empty(LARGE, F32)
    a[:] = 1
    del b
    with allocator._spare.lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads
        child = os.fork()
        if child == 0:
            b = empty(LARGE, F32)
            a[:] = b[:] = 2
            del b
            os._exit(0 if (a == 2).all() and address_of(empty(LARGE, F32)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (a == 1).all()


def test_an_array_may_outlive_the_module() -> None:
    """When the interpreter ends, names of modules are gone before what other modules hold."""
    code = (
        "import numpy as np\n"
        "from akg_py.codegen import allocator\n"
        "allocator.kept = allocator.empty((1 << 20,), np.dtype('float32'))\n"
        "allocator.function = lambda: allocator\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
