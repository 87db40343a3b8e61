"""Loop IR to LLVM IR: one module per Func.

The C entry is `void name(T0* p0, ..., workspace, parallel)`.

`workspace` holds intermediates that are too large for the stack, 64-byte aligned. `parallel` is
null, or points to `{run, ...}`, where `run(parallel, body, context, n, workspace, bytes)` calls
`body(context, begin, end, workspace of the thread)` over pieces of 0 .. n-1. Passes that
bring the loop IR into form run here; statements and loops are emitted in `loops`, expressions in
`values`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from akg_py.codegen.dot_form import full_groups, mix_signs
from akg_py.codegen.guards import unguard_whole_steps
from akg_py.codegen.joins import drop_unit_loops
from akg_py.codegen.llvm import Builder, Module
from akg_py.codegen.loops import Loops
from akg_py.codegen.streams import plan_streams
from akg_py.codegen.target import Processor, host
from akg_py.codegen.threads_ir import MAIN_BYTES, THREAD_BYTES
from akg_py.codegen.widen import widen_copies, widen_products
from akg_py.errors import InternalError
from akg_py.ir.stmt import Buffer, Func
from akg_py.records import dataclass


@dataclass(frozen=True)
class Emitted:
    """A module, and what its caller has to provide."""

    name: str
    text: str
    workspace_bytes: int
    thread_bytes: int
    is_parallel: bool


def emit_func(
    func: Func, inplace: Mapping[Buffer, Buffer] | None = None, processor: Processor | None = None
) -> Emitted:
    """The LLVM IR of `func`.

    Args:
        inplace: output -> input that may be the same array.
        processor: what to generate for; the host by default.
    """
    if func.level != "loops":
        raise InternalError(f"code for a Func at level {func.level}")
    processor = processor or host()
    module = Module(processor)
    name = re.sub(r"\W", "_", func.name) or "kernel"
    alias = {id(out): id(given) for out, given in (inplace or {}).items()}
    shared = set(alias) | set(alias.values())
    func = replace(func, body=drop_unit_loops(func.body))
    func = unguard_whole_steps(func)
    func = widen_copies(widen_products(func))
    if processor.has_vnni:
        func = mix_signs(func, alias)
    func = full_groups(func)
    builder = Builder(module)
    emitter = Loops(builder, processor, name, alias)
    params = []
    for n, buffer in enumerate(func.params):
        emitter.pointers[id(buffer)] = f"%p{n}"
        params.append(f"ptr {'' if id(buffer) in shared else 'noalias '}%p{n}")
    emitter.streams = plan_streams(func, alias, processor)
    emitter.statement(func.body)
    emitter.finish()
    params += ["ptr noalias %workspace", "ptr %parallel"]
    body = builder.body().replace(MAIN_BYTES, str(emitter.memory.peak))
    body = body.replace(THREAD_BYTES, str(emitter.thread_peak))
    module.functions.insert(
        0,
        f"define void @{name}({', '.join(params)}) #0 {{\n{body}\n}}",
    )
    return Emitted(
        name,
        module.text(),
        emitter.memory.peak,
        emitter.thread_peak,
        emitter.has_parallel,
    )
