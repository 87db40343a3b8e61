"""Random faults in a Program: lost flags, moved addresses, swapped slots, wrong sizes, trips."""

from __future__ import annotations

import dataclasses

import numpy as np

from akg_py.ascend.isa import INSTRUCTIONS
from akg_py.ascend.program import Instruction, Node, Program, Repeat, SetFlag, WaitFlag, walk
from akg_py.ir.expr import maximum, substitute

KINDS = (
    "drop flag",
    "drop both",
    "wrong event",
    "shift address",
    "swap slot",
    "size",
    "trips",
    "swap rows",
    "stride",
)


def rewrite(nodes: tuple[Node, ...], change) -> tuple[Node, ...]:
    """The tree with each node replaced by what change(node) gives (a tuple of nodes)."""
    out: list[Node] = []
    for node in nodes:
        for new in change(node):
            if isinstance(new, Repeat) and new is node:
                new = dataclasses.replace(node, body=rewrite(node.body, change))
            out.append(new)
    return tuple(out)


def with_body(program: Program, body: tuple[Node, ...]) -> Program:
    phase = dataclasses.replace(program.phases[0], body=body)
    return Program(program.name, program.device, program.tensors, (phase,))


def mutate(program: Program, kind: str, rng: np.random.Generator) -> tuple[Program, str] | None:
    """A mutant of the first phase, with what was changed; None if nothing could be."""
    phase = program.phases[0]
    nodes = list(walk(phase.body))
    flags = [n for n in nodes if isinstance(n, (SetFlag, WaitFlag))]
    instructions = [n for n in nodes if isinstance(n, Instruction)]
    repeats = [n for n in nodes if isinstance(n, Repeat)]
    pick = lambda items: items[int(rng.integers(len(items)))]  # noqa: E731
    target: Node
    if kind == "drop flag":
        target = pick(flags)
        return with_body(
            program, rewrite(phase.body, lambda n: () if n is target else (n,))
        ), f"{kind} {target}"
    if kind == "drop both":
        flag = pick(flags).flag
        gone = lambda n: isinstance(n, (SetFlag, WaitFlag)) and n.flag == flag  # noqa: E731
        return with_body(
            program, rewrite(phase.body, lambda n: () if gone(n) else (n,))
        ), f"{kind} {flag}"
    if kind == "wrong event":
        target = pick(flags)
        events = next(f.events for f in phase.flags if f.first <= target.flag < f.first + f.events)
        if events < 2:
            return None
        replaced: Node = dataclasses.replace(target, event=(target.event + 1) % events)
    elif kind == "trips":
        target = pick(repeats)
        step = int(rng.choice([-1, 1]))
        replaced = dataclasses.replace(target, extent=maximum(target.extent + step, 0))
    elif kind == "swap rows":
        parents = [phase.body, *(r.body for r in repeats)]
        body = pick([b for b in parents if len(b) > 1])
        i = int(rng.integers(len(body) - 1))
        first, second = body[i], body[i + 1]
        change = lambda n: (second,) if n is first else (first,) if n is second else (n,)  # noqa: E731
        out = rewrite(phase.body, change)
        return with_body(program, out), f"{kind} {type(first).__name__} {type(second).__name__}"
    else:
        target = pick(instructions)
        spec = INSTRUCTIONS[target.op]
        roles = {
            "shift address": ("dst", "src", "inout"),
            "swap slot": ("dst", "src", "inout"),
            "size": ("size",),
            "stride": ("stride",),
        }
        columns = [i for i, o in enumerate(spec.operands) if o.role in roles[kind]]
        if not columns:
            return None
        i = pick(columns)
        operands = list(target.operands)
        if kind == "swap slot":
            counters = {c: c + 1 for r in repeats for c in r.counters}
            operands[i] = substitute(operands[i], counters)
        elif kind == "shift address":
            operands[i] = operands[i] + int(
                rng.choice([-512, -64, -32, 2, 4, 16, 32, 64, 512, 1024, 4096])
            )
        elif kind == "size":
            operands[i] = maximum(operands[i] + int(rng.choice([-16, -1, 1, 16])), 0)
        else:
            operands[i] = maximum(operands[i] + int(rng.choice([-32, 32, 64])), 0)
        replaced = Instruction(target.op, tuple(operands), target.pipe, target.origin)
        kind = f"{kind} {spec.op} {spec.operands[i].name}"
    body = rewrite(phase.body, lambda n: (replaced,) if n is target else (n,))
    return with_body(program, body), f"{kind} {target!r}"[:200]
