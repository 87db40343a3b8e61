"""The worked example of Ascend tutorials: one fp16 product, untuned to tuned, on a 910B3.

    python tests/benchmarks/worked_example.py        writes results/worked_example.md

Share of peak counts the true flops (2 M N K) against 20 cores x 8192 flop/cycle x 1.8 GHz, once
over the time inside the cores and once with the launch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import akg_py as akg
from akg_py.cost_types import Cost
from akg_py.library import task

TARGET = "ascend910b3"
PEAK = 20 * 8192 * 1.8e9  # flop/s; ascend-hardware notes, section 1.2 (confirmed by counters)
SHAPES = ((1024, 2048, 512), (4096, 4096, 4096), (1000, 3000, 520))  # m, n, k
TRIALS = 200
NAIVE = {
    "tile_m": 128,
    "tile_n": 128,
    "tile_k": 64,
    "step_a": 1,
    "step_b": 1,
    "l1_copies": 1,
    "l0_copies": 1,
    "l0c_copies": 1,
}
STEPS = (
    ("naive tiles, one buffer each", {}),
    ("+ double buffers in L1, L0A, L0B", {"l1_copies": 2, "l0_copies": 2}),
    (
        "+ three-stage pipeline",
        {"l1_copies": 2, "l0_copies": 2, "l0c_copies": 2, "step_a": 2, "step_b": 2},
    ),
)


def core_seconds(cost: Cost) -> float:
    """Time of the phases, without launch and barriers."""
    return sum(p.seconds for p in cost.phases)


def row(name: str, text: str, config: dict[str, object], flops: float) -> str:
    job = task(text, TARGET)
    kernel = akg.build(job.apply({**job.default, **config}), job.workload.args, target=TARGET)
    cost = kernel.profile()
    core = core_seconds(cost)
    parts = sorted(cost.phases[0].critical.items(), key=lambda item: -item[1])[:3]
    total = sum(cost.phases[0].critical.values())
    path = ", ".join(f"{pipe} {cycles / total:.0%}" for pipe, cycles in parts)
    tiles = f"{config.get('tile_m')} x {config.get('tile_n')} x {config.get('tile_k')}"
    return (
        f"| {name} | {tiles} | {core * 1e6:.1f} | {flops / core / PEAK:.0%} "
        f"| {cost.microseconds:.1f} | {flops / cost.seconds / PEAK:.0%} | {path} |"
    )


def main() -> None:
    lines = [
        "# fp16 matrix product on a simulated Ascend 910B3, untuned to tuned",
        "",
        "Command: `python tests/benchmarks/worked_example.py` "
        f"({TRIALS} trials a shape, seed 0, L2 warm). Times in us; `core` is the time inside the "
        "cores, `launch` adds the launch of 5.7 us.",
    ]
    for m, n, k in SHAPES:
        text = f"matmul:m={m},n={n},k={k},dtype=float16"
        flops = 2.0 * m * n * k
        lines += ["", f"## M={m}, N={n}, K={k}", ""]
        lines += [
            "| schedule | tile m x n x k | core us | of peak | with launch | of peak "
            "| critical path |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, change in STEPS:
            lines.append(row(name, text, {**NAIVE, **change}, flops))
        record = akg.tune(text, target=TARGET, trials=TRIALS, database=None)
        lines.append(row("tuned", text, dict(record.config), flops))
        print("\n".join(lines[-8:]), flush=True)
    lines += ["", *DISCUSSION, ""]
    path = Path(__file__).parents[2] / "results" / "worked_example.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    print(f"written to {path}")


DISCUSSION = """
## Against what practitioners report

Practitioners report about 30 % of peak untuned and 70-80 % tuned.

* The large product agrees with silicon at both ends. With one buffer everywhere, loads, L1-to-L0
  moves and the cube run one after the other: 22 %. Double buffers alone gain little here, because
  chunks of 64 along k cost the scalar unit 900 cycles of issue each (two loads of `s_load` = 450
  cycles, device study of matmul, section 4), more than the cube needs for them; fewer, larger L1
  chunks (the pipeline row) and larger blocks lift that. Tuned, 93 % of peak inside the cores:
  CANN's own tiling measures 93 % on a 910B3 for 4096 x 6144 x 4096 (755.7 us,
  `measured_official.csv`), with warm L2 and launches back to back as here. 70-80 % is what profiles
  of whole models show (ascend-hardware notes, section 2.3), where operands are cold and the clock
  drops; the model has neither in this table.
* The small product stays at 64 % inside the cores and 43 % with the launch. It is 7.3 us of work at
  peak: the launch costs 5.7 us, the first loads and the last way out of L0C cannot be hidden, and
  the blocks do not divide by 20 cores. No schedule of one kernel can change that.
* Tails cost in MTE2: 1000 x 3000 x 520 has rows of 1040 and 6000 bytes. Neither is a multiple of
  512 B (the packet) and 6000 is not one of 32 B, for which the model charges 1.9 times the load;
  CANN avoids that with a conversion pass, which is not modelled yet.
""".strip().splitlines()

if __name__ == "__main__":
    sys.exit(main())
