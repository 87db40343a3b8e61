"""Object code of LLVM IR: compiled once, kept on disk, loaded in half a millisecond.

In: a key and how to make the code, or IR text; out: addresses of functions, and the facts that were
kept beside the object. The key of a text is the digest of it, EMITTER_VERSION, LLVM and the
processor; `cache` keeps the bytes. Nothing here imports numba.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from akg_py.codegen.cache import read_entry, write_entry
from akg_py.codegen.target import host
from akg_py.errors import InternalError

EMITTER_VERSION = 3  # of what becomes of a text: raise it when passes or options change
#: functions of the C library that generated code may call
_LIBRARY = [
    "sin",
    "cos",
    "tan",
    "fmod",
    "fmodf",
    "fma",
    "fmaf",
    "floorf",
    "ceilf",
    "truncf",
    "roundevenf",
    "floor",
    "ceil",
    "trunc",
    "roundeven",
    "memset",
    "memcpy",
    "memmove",
]
_lock = threading.Lock()
_loaded: weakref.WeakValueDictionary[str, Loaded] = weakref.WeakValueDictionary()


class Loaded:
    """Machine code in this process; it stays for as long as the object does.

    Attributes:
        facts: what its maker kept beside it.
        from_cache: whether it was on disk.
    """

    def __init__(self, engine: Any, facts: dict[str, Any], from_cache: bool) -> None:
        self.engine = engine
        self.facts = facts
        self.from_cache = from_cache

    def keep_forever(self) -> None:
        """Never free the code, not even while the interpreter ends; look up addresses before."""
        self.engine.detach()

    def address(self, name: str) -> int:
        found = int(self.engine.get_function_address(name))
        if not found:
            raise InternalError(f"the object has no function {name}")
        return found


def llvm_version() -> str:
    """What compiles: its version, and that of the way it is used."""
    import llvmlite

    return f"{EMITTER_VERSION} {llvmlite.__version__}"


def digest_of(text: str) -> str:
    """The key of IR text for this processor."""
    cpu = host()
    parts = (text, llvm_version(), cpu.name, cpu.features)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(text: str) -> Loaded:
    """The machine code of `text`, from memory, from disk, or compiled now."""
    return load_as(digest_of(text), lambda: ({}, text))


def load_as(
    digest: str,
    make: Callable[[], tuple[dict[str, Any], str]],
    is_current: Callable[[], bool] = lambda: True,
) -> Loaded:
    """The machine code under a key: from memory, from disk, or made now.

    Args:
        make: gives facts to keep, as JSON data, and IR text to compile.
        is_current: whether what was made belongs under the key, asked before it is written.
    """
    with _lock:
        found = _loaded.get(digest)
        if found is None:
            data = read_entry(digest)
            from_cache = data is not None
            if data is None:
                data = _entry(*make())
                if is_current():
                    write_entry(digest, data)
            head, _, code = data.partition(b"\n")
            found = _loaded[digest] = Loaded(_link(code), json.loads(head), from_cache)
    return found


def compile_entry(digest: str, facts: dict[str, Any], text: str) -> int:
    """Compile IR text into the cache, under a key; for other processes.

    Returns:
        The bytes of the entry.
    """
    data = _entry(facts, text)
    write_entry(digest, data)
    return len(data)


def _entry(facts: dict[str, Any], text: str) -> bytes:
    return json.dumps(facts).encode() + b"\n" + compile_object(text)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def forget() -> None:
    """Drop the in-memory table; code that kernels hold stays."""
    with _lock:
        _loaded.clear()


# ---------------------------------------------------------------- LLVM


def _c_function(name: str) -> int | None:
    """The address of a function of the C library; Python itself links it."""
    library = ctypes.CDLL(None) if sys.platform != "win32" else ctypes.cdll.msvcrt
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


@functools.cache
def prepare() -> Any:
    """llvmlite's binding, ready to compile for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in _LIBRARY:
        address = _c_function(name)
        if address:
            llvm.add_symbol(name, address)
    return llvm


def _machine(llvm: Any) -> Any:
    cpu = host()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu.name, features=cpu.features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )


def optimise(text: str, machine: Any) -> Any:
    """The parsed module after LLVM's O2 pipeline: O3 takes a third longer for the same speed."""
    llvm = prepare()
    try:
        module = llvm.parse_assembly(text)
        module.triple = llvm.get_process_triple()
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the code: {error}\n{text}") from error
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_interleaving = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(text: str) -> bytes:
    """Object bytes of IR text."""
    machine = _machine(prepare())
    return bytes(machine.emit_object(optimise(text, machine)))


def assembly_of(text: str) -> str:
    """What the processor runs, for reading."""
    machine = _machine(prepare())
    return str(machine.emit_assembly(optimise(text, machine)))


def _link(code: bytes) -> Any:
    llvm = prepare()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
