"""The device model against silicon: fp16 products timed on a real 910B3.

    python tests/benchmarks/silicon_matmul.py [DATA]      writes results/silicon_matmul.md

DATA holds `measured_tilings.csv` and `measured_official.csv` (default: ../shared/silicon). Given
tilings are built through the shipped schedule with the measured fields; automatic tilings are not
known, so there the best of a short search stands in for CANN's choice. Nothing is fitted here.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import akg_py as akg
from akg_py.errors import AkgError
from akg_py.library import task

TARGET = "ascend910b3"
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
CANDIDATES = 12  # first of the closed form's ranking, simulated


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def given_config(r: dict[str, str]) -> dict[str, object] | None:
    """Knobs of the shipped schedule for a measured plain (BASE) tiling; None if it has none."""
    if (
        r["template"] != "BASE"
        or r["trans_a"] != "0"
        or r["trans_b"] != "0"
        or r["stepM"] != "1"
        or r["stepN"] != "1"
    ):
        return None
    step_a, step_b = int(r["stepKa"]), int(r["stepKb"])
    copies_a, copies_b = int(r["depthA1"]) // step_a, int(r["depthB1"]) // step_b
    if copies_a != copies_b or copies_a not in (1, 2) or r["dbL0A"] != r["dbL0B"]:
        return None
    return {
        "tile_m": int(r["baseM"]),
        "tile_n": int(r["baseN"]),
        "tile_k": int(r["baseK"]),
        "step_a": step_a,
        "step_b": step_b,
        "l1_copies": copies_a,
        "l0_copies": int(r["dbL0A"]),
        "l0c_copies": int(r["dbL0C"]),
        "order": "n",
    }


class Knobs(dict):  # type: ignore[type-arg]
    """A config outside of the shipped space: measured tilings use any multiple of 16."""

    __getattr__ = dict.__getitem__


def simulate(text: str, config: dict[str, object]) -> float:
    """Microseconds of the shipped schedule under any tiling."""
    job = task(text, TARGET)
    schedule = akg.create_schedule([t.op for t in job.workload.outputs])
    job.found.function(schedule, Knobs(config))
    return akg.build(schedule, job.workload.args, target=TARGET).time().microseconds


def tilings(data: Path) -> list[tuple[str, float, float]]:
    """(shape, simulated us, measured us) of usable plain rows that use all cores they can."""
    result = []
    for r in rows(data / "measured_tilings.csv"):
        config = given_config(r) if r["usable"] == "1" and r["dtype"] in DTYPES else None
        if config is None:
            continue
        m, n, k = int(r["m"]), int(r["n"]), int(r["k"])
        blocks = -(-m // int(r["baseM"])) * -(-n // int(r["baseN"]))
        if int(r["usedCoreNum"]) != min(blocks, 20):
            continue
        text = f"matmul:m={m},n={n},k={k},dtype={DTYPES[r['dtype']]}"
        try:
            result.append(
                (f"{m} x {n} x {k} {r['dtype']}", simulate(text, config), float(r["median_us"]))
            )
        except AkgError as e:
            print("skipped", text, str(e).splitlines()[0], file=sys.stderr)
    return result


def official(data: Path) -> list[tuple[str, float, float]]:
    """(shape, tuned us, measured us) of unflagged automatic tilings of MatMulV3."""
    result = []
    for r in rows(data / "measured_official.csv"):
        if r["kernel"] != "MatMulV3" or r["flag"] or r["trans_a"] != "0" or r["trans_b"] != "0":
            continue
        text = f"matmul:m={r['m']},n={r['n']},k={r['k']},dtype={DTYPES[r['dtype']]}"
        space = task(text, TARGET).space
        best = np.argsort(space.predict(), kind="stable")[:CANDIDATES]
        ours = min(simulate(text, dict(space.config_at(int(row)))) for row in best)
        result.append(
            (f"{r['m']} x {r['n']} x {r['k']} {r['dtype']}", ours, float(r["official_us"]))
        )
    return result


def errors(pairs: list[tuple[str, float, float]]) -> str:
    ratios = [abs(ours / real - 1) for _, ours, real in pairs]
    within = sum(r <= 0.2 for r in ratios) / len(ratios)
    quotient = statistics.median(ours / real for _, ours, real in pairs)
    return (
        f"{len(pairs)} rows: MAPE {statistics.mean(ratios):.1%}, "
        f"median error {statistics.median(ratios):.1%}, within 20 %: {within:.0%}, "
        f"median of simulated / measured {quotient:.2f}"
    )


def kendall(pairs: list[tuple[str, float, float]]) -> str:
    """Median tau over shapes, of pairs whose measured times differ by more than 3 % (the noise)."""
    shapes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for shape, ours, real in pairs:
        shapes[shape].append((ours, real))
    taus = []
    for items in shapes.values():
        order = [
            (a[0] - b[0]) * (a[1] - b[1])
            for i, a in enumerate(items)
            for b in items[:i]
            if abs(a[1] / b[1] - 1) > 0.03
        ]
        if len(order) >= 3:
            taus.append(sum((x > 0) - (x < 0) for x in order) / len(order))
    return (
        f"{len(taus)} shapes, median tau {statistics.median(taus):.2f}" if taus else "too few rows"
    )


def main() -> None:
    data = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared" / "silicon"
    )
    if not (data / "measured_tilings.csv").exists():
        sys.exit(f"no measurements in {data}")
    given, automatic = tilings(data), official(data)
    lines = [
        "# The device model against a real Ascend 910B3: matrix products",
        "",
        "Command: `python tests/benchmarks/silicon_matmul.py`. Times in us, L2 warm; data: "
        "`measured_tilings.csv`, `measured_official.csv`. Nothing is fitted in this table; the "
        "constants come from the device study.",
        "",
        f"* Given tilings (plain kernel, buffers as measured): {errors(given)}; "
        f"ranking: {kendall(given)}.",
        f"* Automatic tilings (unknown; the best of our {CANDIDATES} closed-form favourites "
        f"instead): {errors(automatic)}.",
        "",
        "The second line holds what a plain kernel cannot do: CANN splits long reductions over",
        "cores (K above about 8,000 with few blocks) and rewrites operands with odd rows first;",
        "neither is built yet.",
        "",
        "| product | tuned | measured | ratio |",
        "|---|---|---|---|",
        *(
            f"| {shape} | {ours:.1f} | {real:.1f} | {ours / real:.2f} |"
            for shape, ours, real in automatic
        ),
        "",
    ]
    print("\n".join(lines[4:6]))
    path = Path(__file__).parents[2] / "results" / "silicon_matmul.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
