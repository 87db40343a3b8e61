"""A kernel inside numba code: the emitter's module becomes part of the caller's library.

In: a CpuKernel; out: an `@njit` function over its parameters, which users call from their own
numba code. The LLVM IR is the one of the default path, linked in by an intrinsic, so both compute
the same bits. Arrays are checked for dtype, layout and shape; parallel loops run on the pool of
`threads`, from any number of threads at once. 16-bit floats are passed as `uint16` views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from akg_py.codegen import objects, threads
from akg_py.codegen.allocator import ALIGN
from akg_py.codegen.linking import link
from akg_py.errors import UnsupportedError

if TYPE_CHECKING:
    from akg_py.codegen.host import CpuKernel


def jit_of(kernel: CpuKernel) -> Any:
    """The kernel as a numba function with one array per parameter."""
    import numba
    import numpy as np
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    emitted = kernel.compiled.emitted
    digest = objects.digest_of(emitted.text)
    symbol = f"akg_{digest[:24]}_{emitted.name}"
    text = emitted.text.replace(f"@{emitted.name}(", f"@{symbol}(")
    params = kernel.func.params
    wanted = [_numba_type(p.dtype) for p in params]
    has_team = emitted.is_parallel and _add_pool()

    @intrinsic
    def hands(typingctx: Any) -> Any:
        """Threads of a parallel loop, at the time of the call."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            from llvmlite import ir

            count = ir.IntType(64)
            if not has_team:
                return ir.Constant(count, 1)
            return builder.load(_external(builder.module, count, "akg_py_hands"))

        return types.int64(), generate

    @intrinsic
    def invoke(typingctx: Any, arrays: Any, hands: Any) -> Any:
        """Call the kernel; the last array is its workspace."""
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

            link(context, symbol, text)
            pointer = cgutils.voidptr_t
            kinds = signature.args[0]
            values = cgutils.unpack_tuple(builder, args[0], len(kinds))  # type: ignore[no-untyped-call]
            data = [
                builder.bitcast(context.make_array(kind)(context, builder, v).data, pointer)
                for kind, v in zip(kinds, values, strict=True)
            ]
            word = ir.IntType(64)
            start = builder.add(builder.ptrtoint(data[-1], word), word(ALIGN - 1))
            data[-1] = builder.inttoptr(builder.and_(start, word(-ALIGN)), pointer)
            team = ir.Constant(pointer, None)
            if has_team:  # {run, hands}, see `threads_runtime`
                slots = cgutils.alloca_once(builder, word, 2)  # type: ignore[no-untyped-call]
                run = _external(builder.module, ir.IntType(8), "akg_py_run")
                builder.store(builder.ptrtoint(run, word), builder.gep(slots, [word(0)]))
                builder.store(args[1], builder.gep(slots, [word(1)]))
                team = builder.bitcast(slots, pointer)
            signature_ir = ir.FunctionType(ir.VoidType(), [pointer] * (len(data) + 1))
            function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, signature_ir, symbol
            )
            builder.call(function, [*data, team])
            return context.get_dummy_value()

        return types.void(arrays, hands), generate

    names = [f"a{n}" for n in range(len(params))]
    space = f"{emitted.workspace_bytes + ALIGN} + n * {emitted.thread_bytes}"
    lines = [f"def {emitted.name}({', '.join(names)}):"]
    for name, p in zip(names, params, strict=True):
        lines.append(f"    if {name}.shape != {tuple(p.shape)!r}:")
        lines.append(f"        raise ValueError('{p.name} needs the shape {tuple(p.shape)!r}')")
    lines.append("    n = hands()")
    lines.append(f"    invoke(({', '.join(names)}, np.empty({space}, np.uint8)), n)")
    namespace: dict[str, Any] = {
        "hands": hands,
        "invoke": invoke,
        "np": np,
        "__name__": __name__,  # numba imports it when it loads a caller from its own cache
    }
    exec(compile("\n".join(lines) + "\n", f"<{emitted.name}>", "exec"), namespace)
    return numba.njit(namespace[emitted.name])


def _add_pool() -> bool:
    """Make the thread pool known to code that numba links; False where there is none."""
    import llvmlite.binding as llvm

    pool = threads.pool()
    for name, address in pool.symbols.items() if pool else ():
        llvm.add_symbol(name, address)
    return pool is not None


def _external(module: Any, kind: Any, name: str) -> Any:
    """A variable of the pool in a module of numba's."""
    from llvmlite import ir

    if name not in module.globals:
        ir.GlobalVariable(module, kind, name)
    return module.globals[name]


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
