"""Numba functions on plain addresses: loads, stores, copies, and the compiled-function decorators.

Readers of a Program never see arrays inside their loops: numba would count references there, at a
tenth of the speed. They get integer addresses and go through the intrinsics of this file. Functions
are cached on disk under a stamp over all engine sources, because numba's own key ignores callees.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import caching, types
from numba.extending import intrinsic

from akg_py.codegen.cache import cache_dir, mark_used

_PACKAGE = Path(__file__).resolve().parent.parent
_EMITTER = (
    "arithmetic",
    "exponentials",
    "formulas",
    "functions",
    "linking",
    "llvm",
    "math",
    "memory",
    "polynomials",
    "remainder",
    "target",
    "trigonometry",
)
#: what decides the code of the engines: folders and files
ENGINE_SOURCES = (
    _PACKAGE / "ascend" / "readers",
    *(_PACKAGE / "codegen" / f"{name}.py" for name in _EMITTER),
    _PACKAGE / "ascend" / "isa.py",
    _PACKAGE / "dtypes.py",
    _PACKAGE / "records.py",
)

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


@functools.cache
def engine_stamp() -> str:
    """Digest of every source file that a cached reader depends on."""
    digest = hashlib.sha256(numba.__version__.encode())
    for place in ENGINE_SOURCES:
        for file in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


class _EngineLocator(caching.UserProvidedCacheLocator):
    """Cache in `cache_dir()`, keyed by `engine_stamp` instead of the file's own time.

    Nothing goes beside the sources: uninstalling leaves what pip doesn't know, and a folder left in
    site-packages hides an editable installation.
    """

    def __init__(self, py_func: Any, py_file: str) -> None:
        inherited: Any = super().__init__
        inherited(py_func, py_file)
        folder = cache_dir() / "readers" / engine_stamp()[:16]
        self._cache_path = str(folder)
        mark_used(folder)

    def get_source_stamp(self) -> str:
        return engine_stamp()

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        inherited: Any = super(caching.UserProvidedCacheLocator, cls).from_function
        return inherited(py_func, py_file) if Path(py_file).parent == ENGINE_SOURCES[0] else None


class _EngineUserLocator(caching.UserWideCacheLocator):
    """The same in numba's own cache directory, if that one can't be written."""

    def get_source_stamp(self) -> str:
        return engine_stamp()

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        inherited: Any = super().from_function
        return inherited(py_func, py_file) if Path(py_file).parent == ENGINE_SOURCES[0] else None


caching.CacheImpl._locator_classes[:0] = [_EngineLocator, _EngineUserLocator]


def compiled(function: Callable[..., Any]) -> Any:
    """An entry point: compiled once per installation, GIL-free."""
    return numba.njit(cache=True, nogil=True, error_model="numpy")(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A helper inside a reader: scalars in, scalars out, always inlined."""
    return numba.njit(forceinline=True, nogil=True, error_model="numpy")(function)


def called(function: Callable[..., Any]) -> Any:
    """A helper that stays a function of its own."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def entry(arguments: int) -> Any:
    """A C function of int64 arguments, compiled when defined and cached.

    Its `.address` is what `invoke` takes.
    """
    signature = types.void(*[types.int64] * arguments)
    return numba.cfunc(signature, cache=True, error_model="numpy")


def machine(function: Callable[..., Any]) -> Any:
    """numba's `intrinsic`: a function that is given as LLVM IR."""
    return intrinsic(function)


def pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    """The address as a pointer to `kind`."""
    return builder.inttoptr(address, kind.as_pointer())


def load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type, align: int = 1) -> ir.Value:
    """A load that claims no more than `align`."""
    value = builder.load(pointer(builder, address, kind))
    value.align = align
    return value


def store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, align: int = 1) -> None:
    """A store that claims no more than `align`."""
    builder.store(value, pointer(builder, address, value.type)).align = align


@machine
def ld(typingctx: Any, address: Any) -> Any:
    """The int64 at `address`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load(builder, args[0], I64, 8)

    return types.int64(types.int64), generate


@machine
def st(typingctx: Any, address: Any, value: Any) -> Any:
    """Store an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store(builder, args[1], args[0], 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@machine
def invoke(typingctx: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Call the C function at an address with five int64; its code is shared by all readers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 5)
        builder.call(pointer(builder, args[0], kind), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


@machine
def ldu(typingctx: Any, address: Any) -> Any:
    """The int64 at any `address`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load(builder, args[0], I64)

    return types.int64(types.int64), generate


@machine
def stu(typingctx: Any, address: Any, value: Any) -> Any:
    """Store an int64 at any address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store(builder, args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@machine
def ldf(typingctx: Any, address: Any) -> Any:
    """The float64 at `address`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load(builder, args[0], ir.DoubleType(), 8)

    return types.float64(types.int64), generate


@machine
def col(typingctx: Any, row: Any, column: Any) -> Any:
    """Column `column` (uint16) of the table row at address `row`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = builder.add(args[0], builder.shl(args[1], I64(1)))
        return builder.zext(load(builder, address, I16, 2), I64)

    return types.int64(types.int64, types.int64), generate


@machine
def ld8(typingctx: Any, address: Any) -> Any:
    """The byte at `address`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(load(builder, args[0], I8), I64)

    return types.int64(types.int64), generate


@machine
def st8(typingctx: Any, address: Any, value: Any) -> Any:
    """Store a byte."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store(builder, builder.trunc(args[1], I8), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@machine
def st16(typingctx: Any, address: Any, value: Any) -> Any:
    """Store two bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store(builder, builder.trunc(args[1], I16), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@machine
def move(typingctx: Any, dst: Any, src: Any, count: Any) -> Any:
    """Copy `count` bytes between regions that don't overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = I8.as_pointer()
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, I64])
        pointers = [builder.inttoptr(a, byte) for a in args[:2]]
        builder.call(memcpy, [*pointers, args[2], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _block_copy(name: str, size: int) -> Any:
    kind = ir.VectorType(I32, size // 4)

    @machine
    def copy(typingctx: Any, dst: Any, src: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            store(builder, load(builder, args[1], kind), args[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    copy.__doc__ = f"Copy {size} bytes."
    return copy


move32 = _block_copy("move32", 32)
move64 = _block_copy("move64", 64)


@machine
def udiv(typingctx: Any, a: Any, b: Any) -> Any:
    """Floor division; 32-bit and unsigned where both operands allow it, 0 for a zero divisor."""
    return types.int64(types.int64, types.int64), functools.partial(_divide, False)


@machine
def urem(typingctx: Any, a: Any, b: Any) -> Any:
    """Floor remainder, as `udiv`."""
    return types.int64(types.int64, types.int64), functools.partial(_divide, True)


def _divide(remainder: bool, context: Any, builder: Any, signature: Any, args: Any) -> Any:
    a, b = args
    slot = builder.alloca(I64)
    small = builder.icmp_unsigned("<", builder.or_(a, b), I64(1 << 32))
    small = builder.and_(small, builder.icmp_unsigned("!=", b, I64(0)))
    with builder.if_else(small) as (then, otherwise):
        with then:
            a32, b32 = builder.trunc(a, I32), builder.trunc(b, I32)
            value = builder.urem(a32, b32) if remainder else builder.udiv(a32, b32)
            builder.store(builder.zext(value, I64), slot)
        with otherwise:
            builder.store(I64(0), slot)
            with builder.if_then(builder.icmp_unsigned("!=", b, I64(0))):
                rest = builder.srem(a, b)
                wrong = builder.and_(
                    builder.icmp_signed("!=", rest, I64(0)),
                    builder.icmp_signed("<", builder.xor(rest, b), I64(0)),
                )
                if remainder:
                    builder.store(builder.select(wrong, builder.add(rest, b), rest), slot)
                else:
                    quotient = builder.sdiv(a, b)
                    builder.store(builder.sub(quotient, builder.zext(wrong, I64)), slot)
    return builder.load(slot)
