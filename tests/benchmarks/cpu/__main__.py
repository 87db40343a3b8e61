"""Measure classes of CPU kernels against their peers and print one table per class.

    python -m tests.benchmarks.cpu [--class NAME ...] [--seconds S] [--match TEXT] [--write]

Without --class every class runs, each in a process of its own. --write puts the tables into
results/cpu_<class>.md, or into results/avx2 where vectors have 256 bits. The peers come with
`pip install akg_py[bench]`; a missing one is said so. The command restarts itself without the
OPENBLAS_* variables that pin a slow kernel.
"""

from __future__ import annotations

import os
import sys

PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
if any(name in os.environ for name in PINNED):  # before numpy is imported
    clean = {k: v for k, v in os.environ.items() if k not in PINNED}
    os.execve(sys.executable, sys.orig_argv, clean)

import argparse  # noqa: E402
import importlib  # noqa: E402
import subprocess  # noqa: E402

from tests.benchmarks.cpu.harness import run_class  # noqa: E402
from tests.benchmarks.cpu.report import Report  # noqa: E402

CLASSES = (
    "ceilings",
    "matmul",
    "low_precision",
    "few_rows",
    "few_columns",
    "matmul_gelu",
    "elementwise",
    "rows",
    "reductions",
    "layout",
    "conv",
    "tvm",
    "calls",
    "by_hand",
)


def main() -> int:
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--class", dest="classes", nargs="+", choices=CLASSES, metavar="NAME")
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cpu", parents=[chosen])
    parser.add_argument("--seconds", type=float, default=1.2, help="per case and thread count")
    parser.add_argument("--match", default="", help="only cases whose label contains this")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", action="store_true", help="write the tables into results/")
    given = parser.parse_args()
    if given.write and given.match:
        parser.error("--write takes whole classes, not --match")
    if given.classes is None or len(given.classes) > 1:
        names = given.classes or CLASSES
        _, rest = chosen.parse_known_args()
        command = [sys.executable, "-m", "tests.benchmarks.cpu", *rest, "--class"]
        return max(subprocess.run([*command, name]).returncode for name in names)
    (name,) = given.classes
    module = importlib.import_module(f"tests.benchmarks.cpu.{name}")
    profile = getattr(module, "PROFILE", "")
    counts = getattr(module, "THREADS", tuple(given.threads))
    report = Report(name, module.TITLE, counts, profile)
    if hasattr(module, "figures"):
        for figure in module.figures():
            report.add_figure(figure)
    else:
        run_class(module, report, given.seconds, given.match)
    report.finish(given.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
