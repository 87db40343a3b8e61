"""Executes a Program in random orders that its flags allow: the oracle of the checks."""

from __future__ import annotations

import numpy as np

from akg_py.ascend import isa
from akg_py.ascend.trace import OPERANDS, PIPE, run_rows, trace
from akg_py.errors import InternalError


class Illegal(Exception):
    """An order ended in a deadlock, a flag set twice, or a flag left over."""


def random_order(rows: np.ndarray, rng: np.random.Generator, greedy: bool) -> np.ndarray:
    """A legal order of a core's rows.

    Pipes run in order and meet at flags; the scalar pipe blocks issue.
    """
    pipes: dict[int, list[int]] = {p: [] for p in range(len(isa.PIPES))}
    ops, of = rows[:, 0].tolist(), rows[:, PIPE].tolist()
    flag = rows[:, OPERANDS].tolist()
    full: set[int] = set()
    issued, order = 0, []
    heads = dict.fromkeys(pipes, 0)
    priority = rng.permutation(len(isa.PIPES)).tolist()
    while len(order) < len(rows):
        scalar_pending = heads[0] < len(pipes[0])
        while issued < len(rows) and not scalar_pending:
            pipes[of[issued]].append(issued)
            scalar_pending = of[issued] == 0
            issued += 1
        ready = []
        for p, queue in pipes.items():
            if heads[p] < len(queue):
                row = queue[heads[p]]
                if ops[row] != isa.WAIT or flag[row] in full:
                    ready.append(p)
        if not ready:
            raise Illegal("deadlock")
        p = min(ready, key=priority.index) if greedy else ready[int(rng.integers(len(ready)))]
        row = pipes[p][heads[p]]
        heads[p] += 1
        if ops[row] == isa.SET:
            if flag[row] in full:
                raise Illegal("set twice")
            full.add(flag[row])
        elif ops[row] == isa.WAIT:
            full.discard(flag[row])
        order.append(row)
    if full:
        raise Illegal("left over")
    return np.array(order)


def harmful(program, arrays, expected, rng, orders=60) -> str:
    """Why a Program is wrong in program order or in some legal order of each core, or ""."""
    for attempt in range(orders):
        got = [a.copy() for a in arrays]
        for t, a in zip(program.tensors, got, strict=True):
            if t.role != "input":
                a.reshape(-1).view(np.uint8).fill(0xFF)
        try:
            for index, phase in enumerate(program.phases):
                for core in range(phase.cores):
                    rows = trace(program, index, core)
                    run_rows(program, rows[random_order(rows, rng, attempt % 3 != 0)], got)
        except (Illegal, InternalError) as error:
            return str(error)
        for t, a, want in zip(program.tensors, got, expected, strict=True):
            if t.role == "output" and not np.array_equal(a, want, equal_nan=True):
                return f"order {attempt} changes {t.name}"
    return ""
