"""The two numba forms of a kernel: readable source, and a function for numba code of users."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from akg_py import dtypes
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.numba_source import function_of
from akg_py.codegen.threads import threads
from akg_py.ir.expr import Call, Select, Unary, binary, cast, const, logical
from akg_py.ir.interpret import interpret
from akg_py.ir.stmt import Alloc, Func, If, Seq
from tests.codegen.funcs import assert_same, at, axis, buffer, func, loop, put, random_array
from tests.codegen.test_loops import argmax_store, matmul

ROOT = Path(__file__).parents[2]
PLAIN = ["float32", "float64", "int32", "int8", "uint16", "bool"]
NARROW = ("float16", "bfloat16")


def views(arrays: list[np.ndarray[Any, Any]], f: Func) -> list[np.ndarray[Any, Any]]:
    return [
        a.view(np.uint16) if p.dtype in NARROW else a for a, p in zip(arrays, f.params, strict=True)
    ]


def check_source(f: Func) -> None:
    rng = np.random.default_rng(0)
    given = [random_array(rng, p) for p in f.params]
    expected = [a.copy() for a in given]
    interpret(f, *expected)
    function_of(f)(*views(given, f))
    for p, a, e in zip(f.params, given, expected, strict=True):
        assert_same(a, e, p.name)


def mixed(dtype: str) -> Func:
    A, B, C = (buffer(n, (5, 9), dtype) for n in "ABC")
    i, j = axis("i.outer", 5), axis("lambda", 9)
    if dtype == "bool":
        value = logical("||", at(A, i, j), Unary("!", at(B, i, j)))
    else:
        value = binary("max", at(A, i, j) * 3 - at(B, i, j), binary("//", at(A, i, j), at(B, i, j)))
        value = value + binary("%", at(A, i, j), at(B, i, j)) + cast(dtype, (i * 2 - j) // 3)
        value = Select(at(A, i, j) < at(B, i, j), value, Unary("-", at(B, i, j)), dtype, True)
    body = If(i + j < 9, put(C, (i, j), value), put(C, (4 - i, j), const(1, dtype)))
    return func([A, B, C], [C], loop(i, 5, loop(j, 9, body, "vector"), "parallel"))


@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW])
def test_source_runs(dtype: str) -> None:
    check_source(mixed(dtype))


def test_source_of_larger_nests() -> None:
    check_source(matmul(7, 19, 5, 4, 8, "float16", "float32"))
    check_source(argmax_store("serial"))
    A, B, T = buffer("A", (30,)), buffer("B", (30,)), buffer("T", (30,))
    i, j = axis("i", 30), axis("i", 30)
    body = Alloc(
        T,
        Seq(
            (
                loop(i, 30, put(T, (i,), Call("floor", (at(A, i) / 3.0,), "float32"))),
                loop(j, 30, put(B, (j,), at(T, 29 - j))),
            )
        ),
    )
    check_source(func([A, B], [B], body))


@pytest.mark.parametrize(
    "name", ["exp", "erf", "sigmoid", "atan", "rsqrt", "isnan", "round", "tanh"]
)
def test_source_of_calls(name: str) -> None:
    A = buffer("A", (30,))
    C = buffer("C", (30,), "bool" if name.startswith("is") else "float32")
    i = axis("i", 30)
    f = func([A, C], [C], loop(i, 30, put(C, (i,), Call(name, (at(A, i),), C.dtype))))
    a = np.linspace(0.1, 4, 30, dtype=np.float32)
    c, e = np.zeros(30, C.dtype), np.zeros(30, C.dtype)
    interpret(f, a, e)
    function_of(f)(a, c)
    np.testing.assert_allclose(c, e, rtol=1e-6)


def test_source_reads_well() -> None:
    A, C = buffer("A", (4, 8)), buffer("C", (4, 8))
    i, j = axis("i", 4), axis("j", 8)
    text = CpuKernel(
        func(
            [A, C],
            [C],
            loop(i, 4, loop(j, 8, put(C, (i, j), at(A, i, j) * 2.0), "vector"), "parallel"),
            "twice",
        )
    ).source
    assert text.endswith('''
@njit
def twice(A, C):
    """Writes C.

    A: float32[4, 8]
    C: float32[4, 8]
    """
    for i in prange(4):
        for j in range(8):  # vector
            C[i, j] = np.float32(A[i, j] * np.float32(2.0))
''')


def test_jit_computes_the_same_bits() -> None:
    f = matmul(13, 37, 20, 6, 16, outer="parallel")
    kernel = CpuKernel(f)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(p.shape).astype(np.float32) for p in f.params[:2])
    inner = kernel.jit

    @numba.njit  # type: ignore[misc]
    def user(a: Any, b: Any) -> Any:
        c = np.empty((13, 37), np.float32)
        inner(a, b, c)
        inner(a, b, c)
        return c * 2

    np.testing.assert_array_equal(user(a, b), kernel(a, b) * 2)
    with pytest.raises(ValueError, match="needs the shape"):
        inner(a[:5], b, np.empty((13, 37), np.float32))
    with pytest.raises(numba.TypingError, match="C-contiguous"):
        inner(np.asfortranarray(a), b, np.empty((13, 37), np.float32))
    assert kernel.jit is inner


@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW])
def test_jit_of_all_dtypes(dtype: str) -> None:
    f = mixed(dtype)
    kernel = CpuKernel(f)
    given = [random_array(np.random.default_rng(0), p) for p in f.params]
    expected = [a.copy() for a in given]
    kernel(*expected)
    kernel.jit(*views(given, f))
    for a, e in zip(given, expected, strict=True):
        assert_same(a, e)


def test_jit_with_math_and_workspace() -> None:
    n = 9000
    A, B, T = buffer("A", (n,)), buffer("B", (n,)), buffer("T", (n,))
    i, j = axis("i", n), axis("j", n)
    chain = Call("exp", (Call("tan", (at(A, i),), "float32"),), "float32")
    f = func(
        [A, B],
        [B],
        Alloc(
            T, Seq((loop(i, n, put(T, (i,), chain)), loop(j, n, put(B, (j,), at(T, n - 1 - j)))))
        ),
    )
    a = np.linspace(-1, 1, n, dtype=np.float32)
    out = np.empty(n, np.float32)
    kernel = CpuKernel(f)
    kernel.jit(a, out)
    np.testing.assert_array_equal(out, kernel(a))
    assert dtypes.is_float("float32")


def team(count: int = 24, length: int = 40) -> Func:
    """B[o] = reversed(A[o]) + 1 through a workspace of each thread."""
    A, B, T = buffer("A", (count, length)), buffer("B", (count, length)), buffer("T", (9000,))
    o, i, j = axis("o", count), axis("i", length), axis("j", length)
    first = loop(i, length, put(T, (i,), at(A, o, i) + 1.0))
    second = loop(j, length, put(B, (o, j), at(T, length - 1 - j)))
    return func([A, B], [B], loop(o, count, Alloc(T, Seq((first, second))), "parallel"))


def test_jit_runs_on_the_pool() -> None:
    kernel = CpuKernel(team())
    inner = kernel.jit

    @numba.njit(nogil=True)  # type: ignore[misc]
    def many(a: Any, out: Any) -> None:
        for n in range(len(a)):
            inner(a[n], out[n])

    @numba.njit(parallel=True)  # type: ignore[misc]
    def spread(a: Any, out: Any) -> None:
        for n in numba.prange(len(a)):
            inner(a[n], out[n])

    a = np.random.default_rng(0).standard_normal((30, 24, 40)).astype(np.float32)
    expected = a[:, :, ::-1] + np.float32(1)
    for hands in (1, 2, 3, 50):
        with threads(hands):
            for run in (many, spread):
                out = np.zeros_like(a)
                run(a, out)
                np.testing.assert_array_equal(out, expected)

    failures: list[int] = []

    def work(n: int) -> None:
        out = np.zeros_like(a)
        for _ in range(20):
            many(a + np.float32(n), out)
            if not np.array_equal(out, (a + np.float32(n))[:, :, ::-1] + np.float32(1)):
                failures.append(n)

    with threads(4):
        crew = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in crew:
            t.start()
        for t in crew:
            t.join()
    assert not failures


CACHED = """
import sys
import numba, numpy as np
from akg_py.codegen.host import CpuKernel
from akg_py.codegen.threads import threads
from tests.codegen.test_numba import team

inner = CpuKernel(team()).jit

@numba.njit(cache=True)
def user(a, out):
    inner(a, out)

if __name__ == "__main__":
    a = np.arange(24 * 40, dtype=np.float32).reshape(24, 40)
    for hands in (1, 3):
        out = np.zeros_like(a)
        with threads(hands):
            user(a, out)
        assert (out == a[:, ::-1] + 1).all()
    print(sum(user.stats.cache_hits.values()))
"""


def test_jit_in_functions_that_numba_caches(tmp_path: Path) -> None:
    """The pool is found by name: its address is another one in the next process."""
    script = tmp_path / "user.py"
    script.write_text(CACHED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    for hits in ("0", "1"):
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.strip()) == (0, hits), done.stderr


def test_numba_for_another_processor() -> None:
    """numba may be told to compile for less than this machine; the kernel keeps its own."""
    program = """
import numpy as np
from akg_py import build, te
A = te.placeholder((100,), name="A")
C = te.compute((100,), lambda i: te.exp(A[i]), name="C")
kernel = build(te.create_schedule(C.op), [A, C], target="cpu")
a, c = np.linspace(-3, 3, 100, dtype=np.float32), np.empty(100, np.float32)
kernel.jit(a, c)
assert np.array_equal(c, kernel(a))
"""
    env = os.environ | {"NUMBA_CPU_NAME": "generic", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
