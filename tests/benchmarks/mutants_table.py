"""Mutants of right Programs: how many are harmful, and who sees them.

    python tests/benchmarks/mutants_table.py [COUNT]      writes results/mutants.md

COUNT mutants of each of four Programs (default 500): matmul and layer_norm, written by hand and
compiled from their schedules. A mutant that neither checks nor values see must give right values
in 60 random orders that its flags allow (`tests/ascend/adversary.py`), else it counts as missed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ascend"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from adversary import harmful
from mutants import KINDS, mutate
from programs import layer_norm, matmul

from akg_py import build, ops, te
from akg_py.ascend import values
from akg_py.ascend.check import check
from akg_py.errors import InternalError


def compiled(op: str, **attrs: object) -> Any:
    """The Program of an operator as schedule completion builds it."""
    declared = ops.declare(op, **attrs)
    s = te.create_schedule([t.op for t in declared.outputs])
    return build(s, [*declared.inputs, *declared.outputs], target="ascend910b3").program


PROGRAMS = {
    "matmul, by hand": lambda: matmul(
        72, 40, 80, "float16", "float32", tile=(32, 32, 32, 16), cores=2, l0c_copies=2
    ),
    "layer_norm, by hand": lambda: layer_norm(22, 77, tile=4, cores=2),
    "matmul, compiled": lambda: compiled("matmul", m=70, n=72, k=200, dtype="float16"),
    "layer_norm, compiled": lambda: compiled("layer_norm", shape=(50, 77), dtype="float32"),
}


def arrays_for(name: str, program: Any, rng: np.random.Generator) -> list[Any]:
    arrays = []
    for t in program.tensors:
        whole = "matmul" in name
        data = rng.integers(-4, 5, t.shape) if whole else rng.standard_normal(t.shape)
        arrays.append(data.astype(t.dtype) if t.role == "input" else np.zeros(t.shape, t.dtype))
    return arrays


def judge(name: str, count: int) -> dict[str, Counter[str]]:
    """By kind: mutants, seen by checks, by values, by either, and missed."""
    program, rng = PROGRAMS[name](), np.random.default_rng(11)
    arrays = arrays_for(name, program, rng)
    expected = [a.copy() for a in arrays]
    values.execute(program, expected, threads=1, poison=True)
    table: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    drawn = 0
    while drawn < count:
        kind = KINDS[drawn % len(KINDS)]
        mutant = mutate(program, kind, rng)
        while mutant is None:
            kind = KINDS[int(rng.integers(len(KINDS)))]
            mutant = mutate(program, kind, rng)
        drawn += 1
        got = [a.copy() for a in arrays]
        try:
            values.execute(mutant[0], got, threads=1, poison=True)
            by_values = any(
                not np.array_equal(a, b, equal_nan=True) for a, b in zip(got, expected, strict=True)
            )
        except InternalError:
            by_values = True
        by_checks = bool(check(mutant[0]))
        row = table[kind]
        row["mutants"] += 1
        row["checks"] += by_checks
        row["values"] += by_values
        row["either"] += by_checks or by_values
        if not (by_checks or by_values) and harmful(mutant[0], arrays, expected, rng):
            row["missed"] += 1
            print("missed:", name, mutant[1], flush=True)
    return table


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    columns = ("mutants", "checks", "values", "either", "missed")
    lines = [
        "# Mutants of right Programs",
        "",
        f"Command: `python tests/benchmarks/mutants_table.py {count}`. `missed`: seen by neither "
        "checks nor values, but",
        "wrong in one of 60 random orders that the flags allow. The others that neither sees "
        "are harmless.",
    ]
    for name in PROGRAMS:
        table = judge(name, count)
        lines += ["", f"## {name}", "", f"| kind | {' | '.join(columns)} |", "|---" * 6 + "|"]
        lines += [
            f"| {kind} | {' | '.join(str(row[c]) for c in columns)} |"
            for kind, row in table.items()
        ]
        total = sum(table.values(), Counter())
        lines.append(f"| **all** | {' | '.join(str(total[c]) for c in columns)} |")
        print(name, dict(total), flush=True)
    path = Path(__file__).resolve().parents[2] / "results" / "mutants.md"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
