"""A kernel inside numba code: the emitter's module becomes part of the caller's library.

In: a CpuKernel; out: an `@njit` function over its parameters, which users call from their own
numba code. The LLVM IR is the one of the default path, linked in by an intrinsic, so both compute
the same bits. Arrays are checked for dtype, layout and shape; parallel loops run in the calling
thread. 16-bit floats are passed as `uint16` views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from akg_py.codegen import objects
from akg_py.errors import UnsupportedError

if TYPE_CHECKING:
    from akg_py.codegen.host import CpuKernel

_libraries: dict[str, Any] = {}


def jit_of(kernel: CpuKernel) -> Any:
    """The kernel as a numba function with one array per parameter."""
    import numba
    import numpy as np
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    emitted = kernel.compiled.emitted
    digest = objects.digest_of(emitted.text)
    symbol = f"akg_{digest[:24]}_{emitted.name}"
    params = kernel.func.params
    wanted = [_numba_type(p.dtype) for p in params]

    @intrinsic
    def invoke(typingctx: Any, arrays: Any) -> Any:
        for p, array, dtype in zip(params, arrays, wanted, strict=False):
            if (
                not isinstance(array, types.Array)
                or array.dtype != dtype
                or array.ndim != len(p.shape)
            ):
                raise numba.errors.TypingError(
                    f"{p.name} needs a {dtype} array of {len(p.shape)} axes, not {array}"
                )
            if array.layout != "C":
                raise numba.errors.TypingError(f"{p.name} needs a C-contiguous array")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            from llvmlite import ir

            context.active_code_library.add_linking_library(
                _library(context, emitted.name, symbol, emitted.text, digest)
            )
            pointer = cgutils.voidptr_t
            kinds = signature.args[0]
            values = cgutils.unpack_tuple(builder, args[0], len(kinds))  # type: ignore[no-untyped-call]
            data = [
                builder.bitcast(context.make_array(kind)(context, builder, v).data, pointer)
                for kind, v in zip(kinds, values, strict=True)
            ]
            signature_ir = ir.FunctionType(ir.VoidType(), [pointer] * (len(data) + 1))
            function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, signature_ir, symbol
            )
            builder.call(function, [*data, ir.Constant(pointer, None)])
            return context.get_dummy_value()

        return types.void(arrays), generate

    names = [f"a{n}" for n in range(len(params))]
    space = emitted.workspace_bytes + emitted.thread_bytes
    lines = [f"def {emitted.name}({', '.join(names)}):"]
    for name, p in zip(names, params, strict=True):
        lines.append(f"    if {name}.shape != {tuple(p.shape)!r}:")
        lines.append(f"        raise ValueError('{p.name} needs the shape {tuple(p.shape)!r}')")
    lines.append(f"    invoke(({', '.join(names)}, np.empty({space}, np.uint8)))")
    namespace: dict[str, Any] = {"invoke": invoke, "np": np, "__name__": "akg_py.generated"}
    exec(compile("\n".join(lines) + "\n", f"<{emitted.name}>", "exec"), namespace)
    return numba.njit(namespace[emitted.name])


def _library(context: Any, name: str, symbol: str, text: str, digest: str) -> Any:
    import llvmlite.binding as llvm

    objects.load(text)  # makes the C library's functions known
    codegen = context.codegen()
    key = f"{digest}:{id(codegen)}"
    if key not in _libraries:
        library = codegen.create_library(symbol)
        module = llvm.parse_assembly(text.replace(f"@{name}(", f"@{symbol}("))
        module.triple = llvm.get_process_triple()
        module.data_layout = str(codegen.target_data)
        module.verify()
        library.add_llvm_module(module)
        library.finalize()
        _libraries[key] = library
    return _libraries[key]


def _numba_type(dtype: str) -> Any:
    from numba.core import types

    if dtype in ("float16", "bfloat16"):
        return types.uint16
    found = getattr(types, "boolean" if dtype == "bool" else dtype, None)
    if found is None:
        raise UnsupportedError(
            f"numba has no {dtype}", hint="call the kernel itself: it takes every dtype"
        )
    return found
