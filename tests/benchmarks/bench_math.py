"""Error and speed of the inline math functions, beside numpy's; writes results/cpu_math.md.

    python tests/benchmarks/bench_math.py [name ...]

Speed is thread CPU time per element on 2048 elements that stay in the first cache, the smallest of
many runs, one thread; numpy's functions get 16384, so that their call costs nothing. Errors are
the largest over a million samples and all special values.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from akg_py import te
from akg_py.codegen.host import CpuKernel
from akg_py.ir.expr import MATH_FUNCTIONS, Binary, Call, Expr
from akg_py.ops.elementwise import gelu_value
from tests.codegen import test_math
from tests.codegen.funcs import at, axis, buffer, func, loop, put

ELEMENTS, REPEATS, SHIFT = 2048, 64, 16
NUMPY = {
    "pow": np.power,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "round": np.rint,
    "%": np.remainder,
    "//": np.floor_divide,
}
COMPOSITE: dict[str, Callable[[Any], Any]] = {
    "gelu (tanh)": lambda x: gelu_value(x, "tanh"),
    "gelu (erf)": lambda x: gelu_value(x, "erf"),
    "silu": lambda x: x / (te.exp(-x) + 1.0),
}
LATENT = ("sqrt", "floor", "ceil", "round", "trunc", "abs")  # single instructions, no error


def kernel(value: Callable[..., Expr], count: int, dtype: str) -> CpuKernel:
    """REPEATS passes over ELEMENTS elements, each a little further on."""
    size = (ELEMENTS + SHIFT * REPEATS,)
    inputs, C = [buffer(f"A{n}", size, dtype) for n in range(count)], buffer("C", size, dtype)
    again, i = axis("again", REPEATS), axis("i", ELEMENTS)
    place = again * SHIFT + i
    body = loop(i, ELEMENTS, put(C, (place,), value(*(at(b, place) for b in inputs))), "vector")
    return CpuKernel(func([*inputs, C], [C], loop(again, REPEATS, body)))


def fastest(run: Callable[[], Any], runs: int = 25) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best


def speed(name: str, dtype: str) -> tuple[float, float | None]:
    """ns an element of ours and of numpy's."""
    count = 2 if name in ("%", "//") else MATH_FUNCTIONS.get(name, 1)
    rng = np.random.default_rng(0)
    top = 1.0 if name in ("asin", "acos") else 4.0
    data = [rng.uniform(0.05, 1, ELEMENTS * 8).astype(dtype) * top for _ in range(count)]
    if name in COMPOSITE:
        value: Callable[..., Expr] = COMPOSITE[name]
    elif name in ("%", "//"):
        value = lambda *x: Binary(name, *x, dtype)  # noqa: E731
    else:
        value = lambda *x: Call(name, x, dtype)  # noqa: E731
    arrays = [d[: ELEMENTS + SHIFT * REPEATS].copy() for d in data]
    ours = kernel(value, count, dtype).bind(*arrays, np.empty_like(arrays[0]))
    other = NUMPY.get(name) or getattr(np, name, None)
    result = np.empty_like(data[0])
    own = fastest(ours) / REPEATS / ELEMENTS * 1e9
    if other is None:
        return own, None
    return own, fastest(lambda: other(*data, out=result)) / data[0].size * 1e9


def error(name: str, dtype: str) -> float:
    """Largest error in ulp."""
    two = name in test_math.TWO_ARGUMENTS
    if dtype == "float32":
        x = test_math.samples(1_000_000)
        args = test_math.pairs(x) if two else [x]
        return test_math.ulp_error(test_math.run(name, dtype, "vector", args), args, name, dtype)
    args = test_math.wide_samples(name, 3000 if name == "erf" else 130_000)
    return test_math.wide_error(test_math.run(name, dtype, "vector", args), args, name)


def main() -> None:
    chosen = sys.argv[1:]
    names = [n for n in MATH_FUNCTIONS if not n.startswith("is")]
    rows = []
    for name in [*names, "%", "//", *COMPOSITE]:
        if chosen and name not in chosen:
            continue
        cells = [name]
        for dtype in ("float32", "float64"):
            own, other = speed(name, dtype)
            exact = name in LATENT or name in ("%", "//")
            ulp = "" if name in COMPOSITE else "0" if exact else f"{error(name, dtype):.2f}"
            cells += [ulp, f"{own:.3f}", "" if other is None else f"{other:.2f}"]
            cells.append("" if other is None else f"{other / own:.1f}")
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    head = ["# Math functions on the CPU", ""]
    head += [
        "Command: `PYTHONPATH=. python tests/benchmarks/bench_math.py`. Errors in units in the last"
    ]
    head += ["place, times in ns an element on one thread, in the first cache.", ""]
    kinds = [f"{d} {c}" for d in ("fp32", "fp64") for c in ("ulp", "ns", "numpy ns", "ratio")]
    head += [f"| function | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    if not chosen:
        path = Path(__file__).resolve().parents[2] / "results" / "cpu_math.md"
        path.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
