"""Calls of kernels: arguments, their errors, in-place outputs, the object cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from akg_py.codegen import objects
from akg_py.codegen.arguments import prepare
from akg_py.codegen.host import CpuKernel, compile_func
from akg_py.errors import ExpressionError
from akg_py.ir.stmt import Func, Store
from tests.codegen.funcs import at, axis, buffer, func, loop, put

ROOT = Path(__file__).parents[2]


def add(shape: tuple[int, int] = (6, 10), dtype: str = "float32", name: str = "add") -> Func:
    A, B, C = (buffer(n, shape, dtype) for n in "ABC")
    i, j = axis("i", shape[0]), axis("j", shape[1])
    body = put(C, (i, j), at(A, i, j) + at(B, i, j))
    return func([A, B, C], [C], loop(i, shape[0], loop(j, shape[1], body), "parallel"), name)


@pytest.fixture
def data() -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((6, 10)).astype(np.float32) for _ in range(3))


def test_outputs_in_place_or_returned(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, c = data
    kernel = CpuKernel(add())
    assert kernel(a, b, c) is None
    np.testing.assert_array_equal(c, a + b)
    np.testing.assert_array_equal(kernel(a, b), a + b)
    bound = kernel.bind(a, b, c)
    a[:] = 1
    bound()
    np.testing.assert_array_equal(c, 1 + b)
    assert "add" in repr(kernel)


def test_several_outputs_are_a_tuple() -> None:
    A, B, C = (buffer(n, (5,)) for n in "ABC")
    i = axis("i", 5)
    f = func([A, B, C], [C, B], loop(i, 5, Store((B, C), (i,), (at(A, i) + 1.0, at(A, i) + 2.0))))
    a = np.arange(5, dtype=np.float32)
    c, b = CpuKernel(f)(a)
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, a + 2)


def test_views_are_copied_in_and_back(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data
    kernel = CpuKernel(add())
    wide = np.zeros((6, 20), np.float32)
    kernel(np.asfortranarray(a), b[::-1], wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], a + b[::-1])
    assert not wide[:, 1::2].any()
    raw = np.zeros(6 * 10 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(6, 10)
    raw[...] = a
    assert not raw.flags.aligned
    np.testing.assert_array_equal(kernel(raw, b), a + b)
    turned = a.T.copy().T
    for given in ((turned, b, wide[:, ::2]), (turned, b)):
        bound = kernel.bind(*given)
        for step in range(2):
            turned[...] = a + step
            result = bound()
            np.testing.assert_array_equal(wide[:, ::2] if result is None else result, turned + b)


def test_subclasses_and_foreign_arrays(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data

    class Mine(np.ndarray[Any, Any]):
        pass

    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return b

    np.testing.assert_array_equal(CpuKernel(add())(a.view(Mine), Foreign()), a + b)


def expect(message: str, hint: str, *arrays: Any, kernel: CpuKernel | None = None) -> None:
    with pytest.raises(ExpressionError) as caught:
        (kernel or CpuKernel(add()))(*arrays)
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert "test_host.py" in str(caught.value.where)


def test_argument_errors(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, c = data
    expect("takes 3 arrays (A, B, C) or its 2 inputs (A, B), not 1", "outputs", a)
    expect("not 4", "outputs", a, b, c, c)
    expect(
        "B needs float32[6, 10], not float64[6, 10]",
        "B.astype('float32')",
        a,
        b.astype(np.float64),
        c,
    )
    expect("A needs float32[6, 10], not float32[10, 6]", "one shape", a.T, b, c)
    expect(
        "C needs float32[6, 10], not float32[6, 11]",
        "one shape",
        a,
        b,
        np.zeros((6, 11), np.float32),
    )
    expect("A needs an array float32[6, 10], not list", "numpy array", a.tolist(), b, c)
    expect("C needs an array float32[6, 10], not list", "leave the outputs out", a, b, c.tolist())
    expect("A needs an array float32[6, 10], not NoneType", "numpy array", None, b)
    frozen = c.copy()
    frozen.flags.writeable = False
    expect("the output C is read-only", "copy", a, b, frozen)
    expect("the output C overlaps the argument A", "inplace", c, b, c)
    long = np.zeros((7, 10), np.float32)
    expect("the output C overlaps the argument B", "inplace", a, long[1:], long[:-1])
    expect("A needs float32[6, 10], not >f4", "astype", a.astype(">f4"), b, c)


def test_interleaved_views_do_not_overlap(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, _, _ = data
    both = np.zeros((6, 20), np.float32)
    both[:, ::2] = 3
    CpuKernel(add())(a, both[:, ::2], both[:, 1::2])
    np.testing.assert_array_equal(both[:, 1::2], a + 3)


def test_declared_in_place(data: tuple[np.ndarray[Any, Any], ...]) -> None:
    a, b, _ = data
    f = add()
    kernel = CpuKernel(f, inplace={f.params[2]: f.params[0]})
    expected = a + b
    kernel(a, b, a)
    np.testing.assert_array_equal(a, expected)
    expect("the output C overlaps the argument A", "inplace", a, b, a[::-1], kernel=kernel)
    expect("the output C overlaps the argument B", "inplace", a, b, b, kernel=kernel)


def test_zero_sized_arrays() -> None:
    f = add((0, 10))
    empty = np.zeros((0, 10), np.float32)
    assert CpuKernel(f)(empty, empty).shape == (0, 10)
    CpuKernel(f)(empty, empty, empty)


def test_prepare_is_plain() -> None:
    f = add((2, 2), "bfloat16")
    a = np.ones((2, 2), ml_dtypes.bfloat16)
    ready = prepare(f.params, f.outputs, [a, a])
    assert ready.arrays[0] is a and ready.arrays[2].dtype == a.dtype
    with pytest.raises(ExpressionError, match="A needs bfloat16"):
        prepare(f.params, f.outputs, [np.ones((2, 2), np.float16), a])


# ---------------------------------------------------------------- cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AKG_PY_CACHE", str(tmp_path))
    objects.forget()
    return tmp_path


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.o"))


def test_cache_is_filled_and_used(folder: Path) -> None:
    f = add(name="cached")
    assert not compile_func(f).loaded.from_cache
    assert len(entries(folder)) == 1
    objects.forget()
    assert compile_func(f).loaded.from_cache
    first = compile_func(f)
    assert first.loaded is compile_func(f).loaded


@pytest.mark.parametrize("damage", [b"", b"akg1", b"garbage" * 100, None])
def test_damaged_entry_is_compiled_again(folder: Path, damage: bytes | None) -> None:
    f = add(name="damaged")
    compile_func(f)
    (path,) = entries(folder)
    good = path.read_bytes()
    path.write_bytes(good[:-20] + bytes(20) if damage is None else damage)
    objects.forget()
    kernel = CpuKernel(f)
    assert not kernel.compiled.loaded.from_cache
    a = np.ones((6, 10), np.float32)
    np.testing.assert_array_equal(kernel(a, a), a + a)
    assert path.read_bytes() == good


def test_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("AKG_PY_CACHE", str(blocked))
    objects.forget()
    a = np.ones((6, 10), np.float32)
    np.testing.assert_array_equal(CpuKernel(add(name="blocked"))(a, a), a + a)


PROGRAM = """
import sys
import numpy as np
from tests.codegen.test_host import add
from akg_py.codegen.host import CpuKernel
kernel = CpuKernel(add(name="shared"))
a = np.ones((6, 10), np.float32)
assert (kernel(a, a) == 2).all()
assert "numba" not in sys.modules
print(kernel.compiled.loaded.from_cache)
"""


def test_two_processes_share_the_cache(folder: Path) -> None:
    environment = {**os.environ, "AKG_PY_CACHE": str(folder), "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen(run, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        process.communicate()
        assert process.returncode == 0
    assert len(entries(folder)) == 2  # the kernel and the thread pool
    assert not list(folder.rglob(".new-*"))
    third = subprocess.run(
        run, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert third.stdout.strip() == "True"


def test_kernel_text() -> None:
    kernel = CpuKernel(add())
    assert "define void @add(" in kernel.llvm
    assert "ret" in kernel.assembly
    cost = kernel.time(*[np.ones((6, 10), np.float32)] * 2, seconds=0.01)
    assert cost.source == "measured" and 0 < cost.interval[0] <= cost.interval[1]
