"""Time of `import akg_py` in a fresh process: the median of ten.

python tests/benchmarks/import_time.py        exits with 1 above the bar
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

BAR_SECONDS = 0.25
RUNS = 10


def seconds(code: str) -> float:
    """Wall time of a fresh process that runs `code`; the median of several."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    empty, whole = seconds("pass"), seconds("import akg_py")
    print(
        f"import akg_py: {whole:.3f} s with the start of the interpreter ({empty:.3f} s), "
        f"bar {BAR_SECONDS} s"
    )
    return int(whole > BAR_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
