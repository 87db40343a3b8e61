"""Speeds of engines, compiler and ranking on one thread: minima of CPU time beside numpy's.

Run as `python tests/benchmarks/bench_engines.py`; it writes results/speed.md. It restarts itself
without the OPENBLAS_* variables that pin a slow kernel, and asserts nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if any(name in os.environ for name in PINNED) or os.environ.get("OPENBLAS_NUM_THREADS") != "1":
    clean = {k: v for k, v in os.environ.items() if k not in PINNED}
    os.execve(sys.executable, [sys.executable, *sys.argv], clean | {"OPENBLAS_NUM_THREADS": "1"})

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ascend"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402
from programs import layer_norm, matmul  # noqa: E402

from akg_py.ascend import check, timing, values  # noqa: E402
from akg_py.ascend.table import assemble  # noqa: E402
from akg_py.library import task  # noqa: E402
from akg_py.pipeline import build  # noqa: E402


def interleaved(repetitions: int, *functions: Callable[[], object]) -> list[float]:
    """Minimum thread-CPU seconds of each function."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(repetitions):
        for i, function in enumerate(functions):
            start = time.thread_time()
            function()
            best[i] = min(best[i], time.thread_time() - start)
    return best


TABLE: list[str] = []


def row(what: str, value: float, unit: str, bar: str) -> None:
    print(f"{what:<66} {value:10.3f} {unit:<10} {bar}", flush=True)
    TABLE.append(f"| {what.strip()} | {value:.3g} {unit} | {bar} |")


def compiled_rows() -> None:
    """The same through the compiler: a product from its schedule, configs to times, ranking."""
    text = "matmul:m=1024,n=1024,k=1024,dtype=float16"
    job = task(text, "ascend910b3")
    kernel = build(job.apply(), job.workload.args, target="ascend910b3")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1024, 1024)).astype(np.float16) for _ in range(2))
    c, wide_a, wide_b = (np.zeros((1024, 1024), t) for t in (np.float16, np.float32, np.float32))
    wide_a[:], wide_b[:] = a, b
    run, multiply = interleaved(
        20, lambda: values.execute(kernel.program, [a, b, c], threads=1), lambda: wide_a @ wide_b
    )
    row("compiled from te: values / numpy float32 matmul", run / multiply, "x", "bar 1.5")
    for m, n, k in ((1024, 2048, 512), (4096, 4096, 4096), (1000, 3000, 520)):
        job = task(f"matmul:m={m},n={n},k={k},dtype=float16", "ascend910b3")
        order = np.argsort(job.space.predict(), kind="stable")
        picked = [job.space.config_at(int(i)) for i in order[:: max(len(order) // 100, 1)][:100]]

        def simulate(job: Any = job, picked: Any = picked) -> None:
            for config in picked:
                build(job.apply(config), job.workload.args, target="ascend910b3").time()

        (seconds,) = interleaved(2, simulate)
        what = f"config to simulated time, fp16 {m} x {n} x {k}, over the whole space"
        row(what, len(picked) / seconds, "configs/s", "bar 100")
        workload = job.workload
        (seconds,) = interleaved(
            5, lambda workload=workload: task(workload, "ascend910b3").space.predict()
        )
        what = f"enumerate and rank {len(order):,} feasible tilings"
        row(what, len(order) / seconds, "configs/s", "bar 100,000")


def main() -> None:
    rng = np.random.default_rng(0)
    cube, norm, large = matmul(1024, 1024, 1024), layer_norm(4096, 1024), matmul(4096, 4096, 4096)
    for name, program in (("matmul 4096-cubed", large), ("layer_norm 4096 x 1024", norm)):
        rows = int(timing.time_phase(program, 0, early_stop=False).rows.sum())
        (seconds,) = interleaved(20, lambda p=program: timing.time_phase(p, 0, early_stop=False))  # type: ignore[misc]
        row(f"time, {name}, no early stop", rows / seconds / 1e6, "M rows/s", "bar 50")
    (seconds,) = interleaved(50, lambda: timing.simulate(large))
    row("time, 4096-cubed, 20 cores, early stop", seconds * 1e3, "ms", "bar 2")
    (seconds,) = interleaved(50, lambda: assemble(large.phases[0], large))
    row("assemble a matmul phase", seconds * 1e3, "ms", "bar 1")

    a, b = (rng.standard_normal((1024, 1024)).astype(np.float16) for _ in range(2))
    c, wide_a, wide_b = (
        np.zeros((1024, 1024), np.float16),
        a.astype(np.float32),
        b.astype(np.float32),
    )
    run, multiply, checked, cast = interleaved(
        20,
        lambda: values.execute(cube, [a, b, c], threads=1),
        lambda: wide_a @ wide_b,
        lambda: (check.check(cube), values.execute(cube, [a, b, c], threads=1, poison=True)),
        lambda: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16),
    )
    row("values, matmul fp16 1024-cubed", run * 1e3, "ms", f"{2.147 / run:.0f} GF")
    row("  numpy float32 matmul", multiply * 1e3, "ms", f"{2.147 / multiply:.0f} GF")
    row("  values / numpy", run / multiply, "x", "bar 1.5")
    row("  values / numpy with the casts", run / cast, "x", "")
    row("  checking mode / values", checked / run, "x", "bar 1.5")

    x, gamma, beta = (rng.standard_normal(t.shape).astype(np.float32) for t in norm.tensors[:3])
    y = np.zeros_like(x)

    def numpy_norm() -> np.ndarray:
        d = x - x.mean(1, keepdims=True)
        return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * gamma + beta  # type: ignore[no-any-return]

    run, plain, checked = interleaved(
        10,
        lambda: values.execute(norm, [x, gamma, beta, y], threads=1),
        numpy_norm,
        lambda: (
            check.check(norm),
            values.execute(norm, [x, gamma, beta, y], threads=1, poison=True),
        ),
    )
    row("values, layer_norm 4096 x 1024 fp32", run * 1e3, "ms", "")
    row("  values / numpy", run / plain, "x", "")
    row("  checking mode / values", checked / run, "x", "")
    compiled_rows()
    head = ["# Speed on one thread", "", "Command: `python tests/benchmarks/bench_engines.py`.", ""]
    head += ["| what | value | bar |", "|---|---|---|"]
    path = Path(__file__).resolve().parents[2] / "results" / "speed.md"
    path.write_text("\n".join([*head, *TABLE, ""]), encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
