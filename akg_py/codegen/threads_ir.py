"""Parallel loops as LLVM IR: functions over a range, called through the host's pool.

In: a loop whose iterations are independent; out: a function that takes everything in scope as
arguments (so that `noalias` survives), and a call that hands it over in an array of 8-byte slots.
With a null `parallel` pointer the whole range runs at once; else it points to a team whose first
field is the function that runs a region (see `threads_runtime`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import Builder, Val
from akg_py.codegen.transpose import is_transpose
from akg_py.codegen.workspace import Workspace
from akg_py.ir.expr import Var, free_vars
from akg_py.ir.stmt import For, sub_exprs, substitute_stmt, walk_stmts

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

MAIN_BYTES, THREAD_BYTES = "MAIN_BYTES", "THREAD_BYTES"  # replaced once the function is known


def emit_parallel(loops: Loops, s: For) -> None:
    """Emit `s` to run on the host's threads."""
    b, module = loops.b, loops.b.module
    loops.has_parallel = True
    extent = loops.extent_value(s)
    refs = sorted({ref for v in _outer_vars(loops, s) for ref in loops.env[v].terms})
    names = {ref: f"%x{n}" for n, ref in enumerate(refs)}
    buffers = list(loops.pointers.items())
    function = f"{loops.name}.part{len(module.functions)}"

    inner = type(loops)(Builder(module), loops.processor, loops.name, loops.alias)
    inner.in_thread = True
    inner.streams = loops.streams
    inner.memory = Workspace(loops.memory.stack_bytes, 64 << 10)
    inner.pointers = {key: f"%p{n}" for n, (key, _) in enumerate(buffers)}
    for v in _outer_vars(loops, s):
        known = loops.env[v]
        inner.env[v] = Linear(
            {names[r]: c for r, c in known.terms.items()}, known.const, known.lane
        )
    inner.assumed = list(loops.assumed)
    length = inner.b.bin("sub", Val("%end", "i64"), Val("%begin", "i64"))
    alone_in_body = replace(s, kind="serial")
    if inner.takes_lanes(alone_in_body) or is_transpose(inner, alone_in_body):
        # lanes or tiles run over the thread's range: s.var is begin + step
        begin, count = Var(f"{s.var.name}.begin"), Var(f"{s.var.name}.count")
        step = Var(f"{s.var.name}.step", s.var.dtype, s.var.lo, s.var.hi)
        inner.env[begin] = Linear({"%begin": 1})
        inner.env[count] = Linear({length.ref: 1})
        kind = "vector" if inner.takes_lanes(alone_in_body) else "serial"
        inner.statement(For(step, count, kind, substitute_stmt(s.body, {s.var: begin + step})))
    else:
        inner.counted(length, 1, lambda i: inner.at(s, Linear({**i.terms, "%begin": 1})), [])
    inner.finish()
    loops.thread_peak = max(loops.thread_peak, inner.memory.peak)

    shared = set(loops.alias) | set(loops.alias.values())
    params = [
        f"ptr {'' if key in shared else 'noalias '}%p{n}" for n, (key, _) in enumerate(buffers)
    ]
    params += [f"i64 {x}" for x in names.values()]
    params += ["ptr noalias %workspace", "i64 %begin", "i64 %end"]
    module.functions.append(
        f"define internal void @{function}({', '.join(params)}) noinline #0 {{\n"
        f"{inner.b.body()}\n}}"
    )

    slots = [("ptr", ref) for _, ref in buffers] + [("i64", ref) for ref in refs]
    lines, arguments = [], []
    for n, (type_, _) in enumerate(slots):
        lines += [
            f"  %a{n} = getelementptr i64, ptr %context, i64 {n}",
            f"  %s{n} = load {type_}, ptr %a{n}",
        ]
        arguments.append(f"{type_} %s{n}")
    arguments += ["ptr %workspace", "i64 %begin", "i64 %end"]
    body = "\n".join([*lines, f"  call void @{function}({', '.join(arguments)})", "  ret void"])
    thunk = f"{function}.call"
    module.functions.append(
        f"define internal void @{thunk}(ptr %context, i64 %begin, i64 %end, ptr %workspace) #0 {{\n"
        f"{body}\n}}"
    )

    context = b.alloca(f"[{max(len(slots), 1)} x i64]", 8)
    for n, (type_, ref) in enumerate(slots):
        at = b.name()
        b.emit(f"{at} = getelementptr i64, ptr {context}, i64 {n}")
        b.emit(f"store {type_} {ref}, ptr {at}")
    alone, shared_run, after = b.block("alone"), b.block("shared"), b.block("joined")
    threads = b.name()
    b.emit(f"{threads} = getelementptr i8, ptr %workspace, i64 {MAIN_BYTES}")
    b.branch(b.op("icmp eq ptr %parallel, null", "i1"), alone, shared_run)
    b.at = alone
    b.emit(f"call void @{thunk}(ptr {context}, i64 0, i64 {extent.ref}, ptr {threads})")
    b.jump(after)
    b.at = shared_run
    run = b.name()
    b.emit(f"{run} = load ptr, ptr %parallel")
    b.emit(
        f"call void {run}(ptr %parallel, ptr @{thunk}, ptr {context}, i64 {extent.ref}, "
        f"ptr {threads}, i64 {THREAD_BYTES})"
    )
    b.jump(after)
    b.at = after


def _outer_vars(loops: Loops, s: For) -> list[Var]:
    used: set[Var] = set()
    for inner in walk_stmts(s):
        for e in sub_exprs(inner):
            used |= free_vars(e)
    return [v for v in loops.env if v in used]
