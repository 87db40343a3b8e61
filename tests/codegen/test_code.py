"""The key of a Func's code, code that isn't emitted again, and compiling in other processes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akg_py.codegen import code as code_module
from akg_py.codegen import fingerprint, objects, target
from akg_py.codegen.code import Code, compile_all
from akg_py.codegen.host import CpuKernel
from akg_py.ir.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var, const
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Origin, Seq, Stmt, Store
from akg_py.tuning.executor import WorkerPool
from tests.codegen.funcs import at, axis, buffer, func, loop, put
from tests.codegen.test_host import add

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AKG_PY_CACHE", str(tmp_path))
    objects.forget()
    return tmp_path


def key(f: Func, *aliases: tuple[Buffer, Buffer]) -> str:
    return Code(f, dict(aliases)).digest


A, B = buffer("A", (4,)), buffer("B", (4,))
I = axis("i", 4)  # noqa: E741


def of(value: Expr | None = None, **changes: Any) -> Func:
    body = put(B, (I,), at(A, I) if value is None else value)
    return func([A, B], [B], replace(loop(I, 4, body), **changes), "f")


def around(make: Any) -> Func:
    return func([A, B], [B], make(loop(I, 4, put(B, (I,), at(A, I)))), "f")


T, U = buffer("T", (4,)), buffer("T", (4,))
NAN = [struct.unpack(">d", bytes.fromhex(h))[0] for h in ("7ff8000000000000", "fff8000000000001")]
DIFFERENT: list[Func] = [
    of(),
    of(kind="vector"),
    of(extent=const(3)),
    of(pragmas=(("unroll", 4),)),
    of(const(1.0, "float32")),
    of(const(0.0, "float32")),
    of(const(-0.0, "float32")),
    of(Const(1, "float32")),
    of(Const(True, "float32")),
    *(of(Const(n, "float32")) for n in NAN),
    of(at(A, 3 - I)),
    of(at(A, I) + at(B, I)),
    of(at(A, I) + at(A, I)),
    of(at(A, I) - at(A, I)),
    of(Unary("-", at(A, I))),
    of(Call("exp", (at(A, I),), "float32")),
    of(Call("log", (at(A, I),), "float32")),
    of(Cast(Cast(at(A, I), "int32"), "float32")),
    of(Select(I < 2, at(A, I), at(B, I), "float32")),
    of(Select(I < 2, at(A, I), at(B, I), "float32", True)),
    replace(of(), name="other"),
    replace(of(), outputs=(A, B)),
    replace(of(), params=(B, A)),
    around(lambda s: Seq((s, s))),
    around(lambda s: If(I < 3, s)),
    around(lambda s: If(I < 3, s, s)),
    around(lambda s: Intrinsic("copy", s)),
    around(lambda s: Alloc(T, s)),
    around(lambda s: Alloc(replace(T, scope="UB"), s)),
    around(lambda s: Alloc(replace(T, copies=2), s)),
    around(lambda s: Alloc(replace(T, align=(0, 8, 1)), s)),
    around(lambda s: Alloc(replace(T, shape=(5,)), s)),
    around(lambda s: Alloc(replace(T, dtype="int32"), s)),
    around(lambda s: Alloc(T, Alloc(U, Seq((s, put(T, (const(0),), const(1.0))))))),
    around(lambda s: Alloc(T, Alloc(U, Seq((s, put(U, (const(0),), const(1.0))))))),
    func(
        [A, B], [B], For(Var("i", "int32", 0, 7), const(4), "serial", put(B, (I,), at(A, I))), "f"
    ),
]


def test_everything_that_differs_has_a_key_of_its_own() -> None:
    keys = [key(f) for f in DIFFERENT]
    assert len(set(keys)) == len(keys)
    f = of()
    assert len({key(f), key(f, (B, A)), key(f, (A, B))}) == 3


def test_equal_funcs_have_equal_keys() -> None:
    assert key(add()) == key(add())

    def with_origin(s: Stmt, step: str) -> Func:
        return replace(of(), body=replace(s, origin=Origin("B", step)))

    assert key(with_origin(of().body, "one")) == key(with_origin(of().body, "two"))


def test_the_key_covers_the_processor_llvm_and_the_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = {key(of())}
    for change in ({"registers": 7}, {"features": "+none"}, {"has_fma": False}):
        other = replace(target.host(), **change)
        with monkeypatch.context() as patch:
            patch.setattr(target, "host", lambda other=other: other)
            keys.add(key(of()))
    with monkeypatch.context() as patch:
        patch.setattr(objects, "EMITTER_VERSION", -1)
        keys.add(key(of()))
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "SOURCES", "other")
        keys.add(key(of()))
    assert len(keys) == 6
    found = fingerprint.digest_sources()
    assert found == fingerprint.SOURCES == fingerprint.digest_sources()
    monkeypatch.setattr(fingerprint, "_PACKAGE", tmp_path)
    assert len({found, fingerprint.digest_sources(), fingerprint.digest_sources()}) == 3


def test_the_digest_covers_all_that_emission_imports() -> None:
    program = "import sys, akg_py.codegen.emitter; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    ours = {name.split(".")[1] for name in done.stdout.split() if name.startswith("akg_py.")}
    assert ours - {"schedules", "search_spaces"} <= {"codegen", "ir", "dtypes", "records", "errors"}


def test_a_node_without_text_is_emitted(folder: Path) -> None:
    class Odd(float):
        pass

    f = of(Binary("+", at(A, I), Const(Odd(2.0), "float32"), "float32"))
    a = np.ones(4, np.float32)
    np.testing.assert_array_equal(CpuKernel(f)(a), a + 2)
    objects.forget()
    assert CpuKernel(f).compiled.loaded.from_cache


def test_a_cached_kernel_is_not_emitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = CpuKernel(add(name="known")).llvm
    objects.forget()
    with monkeypatch.context() as patch:
        patch.setattr("akg_py.codegen.emitter.emit_func", None)
        kernel = CpuKernel(add(name="known"))
        a = np.ones((6, 10), np.float32)
        np.testing.assert_array_equal(kernel(a, a), a + a)
    assert kernel.llvm == text


def test_code_of_edited_sources_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module, "SOURCES", "as they were")
    a = np.ones((6, 10), np.float32)
    np.testing.assert_array_equal(CpuKernel(add(name="edited"))(a, a), a + a)
    objects.forget()
    assert not CpuKernel(add(name="edited")).compiled.loaded.from_cache
    assert compile_all([add(name="edited")], Inline()) == []


class Inline(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_compiling_in_worker_processes(folder: Path) -> None:
    funcs = [add((6, n), name="ahead") for n in (3, 4, 5)]
    with WorkerPool(2) as pool:
        jobs = compile_all(funcs, pool)
        assert len(jobs) == 3 and all(job.result() > 100 for job in jobs)
        assert compile_all(funcs, pool) == []
    for f in funcs:
        a = np.ones(f.params[0].shape, np.float32)
        kernel = CpuKernel(f)
        assert kernel.compiled.loaded.from_cache
        np.testing.assert_array_equal(kernel(a, a), a + a)
    assert [job.result() > 100 for job in compile_all([add(name="here")], Inline())] == [True]
    assert CpuKernel(add(name="here")).compiled.loaded.from_cache


def test_stores_of_several_values_count() -> None:
    one = Store((A, B), (I,), (at(A, I), at(B, I)))
    two = Store((B, A), (I,), (at(A, I), at(B, I)))
    keys = {key(func([A, B], [A, B], loop(I, 4, s), "f")) for s in (one, two)}
    assert len(keys) == 2
