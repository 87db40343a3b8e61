"""Speeds of the engines on one thread, interleaved with numpy in one process; minima over
repetitions.

Run as `python tests/benchmarks/bench_engines.py`. It restarts itself without the OPENBLAS_*
variables that pin a slow kernel. Prints a table of figure, value and bar; asserts nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def row(what: str, value: float, unit: str, bar: str) -> None:
    print(f"{what:<66} {value:10.3f} {unit:<10} {bar}")


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
    row("  checking mode / values", checked / run, "x", "bar 1.5")


if __name__ == "__main__":
    main()
