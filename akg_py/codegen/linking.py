"""LLVM text inside numba code: a module of the emitter becomes part of the library that calls it.

In: text that defines a function; out: numba code that calls it, which LLVM inlines where that pays.
numba keeps the linked code in its own cache together with the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akg_py.codegen import objects
from akg_py.codegen.llvm import Builder, Module, Val
from akg_py.codegen.target import host

_libraries: dict[tuple[str, int], Any] = {}


def link(context: Any, symbol: str, text: str) -> None:
    """Make `symbol`, which `text` defines, known to the function that is being compiled."""
    import llvmlite.binding as llvm

    objects.prepare()  # makes the C library's functions known
    codegen = context.codegen()
    key = (symbol, id(codegen))
    if key not in _libraries:
        library = codegen.create_library(symbol)
        module = llvm.parse_assembly(text)
        module.triple = llvm.get_process_triple()
        module.data_layout = str(codegen.target_data)
        module.verify()
        library.add_llvm_module(module)
        library.finalize()
        _libraries[key] = library
    context.active_code_library.add_linking_library(_libraries[key])


def emitted(symbol: str, make: Callable[..., None], attributes: str = "") -> Callable[..., Any]:
    """What a numba intrinsic returns for a function of int64 arguments whose body `make` emits.

    `make(b, *arguments)` is called once, when the function is first compiled.
    """
    from llvmlite import ir
    from numba.core import cgutils, types

    def signature(*arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            module = Module(host())
            define(module, symbol, make, len(args), attributes)
            link(context, symbol, module.text())
            word = ir.IntType(64)
            kind = ir.FunctionType(ir.VoidType(), [word] * len(args))
            function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, kind, symbol
            )
            builder.call(function, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * len(arguments)), generate

    return signature


def define(
    module: Module, symbol: str, make: Callable[..., None], count: int, attributes: str = ""
) -> None:
    """Add `void symbol(i64, ...)` with the body that `make(b, *arguments)` emits."""
    b = Builder(module)
    arguments = [Val(f"%a{n}", "i64") for n in range(count)]
    make(b, *arguments)
    b.at.end = "ret void"
    params = ", ".join(a.typed for a in arguments)
    module.functions.append(f"define void @{symbol}({params}) {attributes} #0 {{\n{b.body()}\n}}")
