"""Kernels whose bars are missed or close, beside the same ones written by hand in C.

`by_hand.c` holds the loops with AVX-512 intrinsics; each is tried in many arrangements, and the
two fastest are measured in turn with ours. It needs a C compiler (`cc`) and AVX-512.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from akg_py import te
from akg_py.codegen.allocator import empty
from akg_py.codegen.target import host
from tests.benchmarks.cpu import layout, reductions, rows
from tests.benchmarks.cpu.harness import Array, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.peers import copies

TITLE = "kernels by hand in C"
BARS = (Bar("by hand", 1.0, "geomean"),)
THREADS = (1,)
PROFILE = """
Where ours is within a few percent of the best arrangement of the same loops by hand, it is as fast
as this machine runs them, whatever the copy beside it does: a copy of 16 MB runs at 36 to 55 GB/s,
as the last cache happens to hold both of its arrays or not. For layer_norm 12 to 48 arrangements
are tried (1, 2 or 4 rows at once, in blocks of columns or whole, the next rows fetched meanwhile,
stores around the cache or not), for transposes 160 (blocks of 32 elements and more, along reads or
writes, either side fetched ahead), for arg-maxima 56 (4 to 16 rows side by side, 1 to 4 vectors of
each, fetched ahead, one after the other or the best of a few rows first).
"""
SOURCE = Path(__file__).with_name("by_hand.c")
AVX512_BYTES = 64
FINALISTS = 2
TRIES = 4
SPAN = 1 << 30  # more than any extent
ARGMAX = [(8, 2), (8, 1), (8, 4), (16, 1), (16, 2), (4, 2), (4, 4)]

Arrangements = dict[str, Callable[[], object]]


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled C code, which is deleted when the process ends."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler: install cc")
    if host().vector_bytes < AVX512_BYTES:
        raise RuntimeError("by_hand.c needs a processor with AVX-512")
    folder = tempfile.TemporaryDirectory()
    built = Path(folder.name) / "by_hand.so"
    flags = ["-O3", "-march=native", "-funroll-loops", "-shared", "-fPIC", "-Werror"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(built), "-lm"], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.folder = folder  # type: ignore[attr-defined]
    return loaded


def call(name: str, *args: Array | int | float) -> Callable[[], object]:
    """A call of a C function: arrays by address, numbers as size or float."""
    function = getattr(library(), name)
    given = [
        ctypes.c_void_p(a.ctypes.data)
        if isinstance(a, np.ndarray)
        else ctypes.c_float(a)
        if isinstance(a, float)
        else ctypes.c_ssize_t(a)
        for a in args
    ]
    return lambda: (function(*given), args)  # which keeps the arrays


def fastest(arrangements: Arrangements, results: list[Array]) -> list[Candidate]:
    """The best few of them."""

    def seconds(run: Callable[[], object]) -> float:
        taken = []
        for _ in range(TRIES):
            start = time.thread_time()
            run()
            taken.append(time.thread_time() - start)
        return min(taken)

    order = sorted(arrangements, key=lambda name: seconds(arrangements[name]))
    print(f"  fastest of {len(order)}: {'; '.join(order[:FINALISTS])}", file=sys.stderr)
    kinds = ("best", "second")[:FINALISTS]
    return [
        Candidate(f"by hand: {kind}", arrangements[name], results)
        for kind, name in zip(kinds, order, strict=False)
    ]


def layer_norm(N: int) -> Case:
    case = rows.rows("layer_norm", N)
    M = rows.ELEMENTS // N
    x, g, b = rows.inputs(M, N)
    y = empty((M, N), x.dtype, [x])
    arrangements: Arrangements = {}
    for count, columns, fetches, stream in itertools.product(
        (1, 2, 4), (256, 512, 1024, SPAN), (0, 1), (0, 1)
    ):
        if (columns >= N and columns != SPAN) or M % count:
            continue
        name = f"{count} rows, {'all' if columns == SPAN else columns} columns"
        name += ", fetched" * fetches + ", around the cache" * stream
        arrangements[name] = call(
            "layer_norm", x, g, b, y, M, N, rows.EPSILON, count, columns, fetches, stream
        )
    case.candidates = [case.candidates[0], *fastest(arrangements, [y]), *copies(x.nbytes)]
    return case


def transpose(M: int, N: int) -> Case:
    case = layout.change(layout.transposed(M, N, "float32"))
    x = np.ascontiguousarray(case.expected[0].T)
    y = empty((N, M), x.dtype, [x])
    arrangements: Arrangements = {}
    for height, width, along in itertools.product((32, 64, 128, SPAN), (32, 64, 128, SPAN), (0, 1)):
        for reads, writes in ((0, 0), (32, 0), (0, 32), (64, 0), (0, 64)):
            name = f"blocks {height}x{width}, along {('reads', 'writes')[along]}"
            name += f", {reads} ahead" * bool(reads) + f", {writes} to write ahead" * bool(writes)
            arrangements[name] = call("transpose", x, y, M, N, height, width, along, reads, writes)
    case.candidates = [case.candidates[0], *fastest(arrangements, [y]), *copies(x.nbytes)]
    return case


def argmax_columns(M: int, N: int) -> Case:
    X = te.placeholder((M, N), name="X")
    x = np.random.default_rng(0).standard_normal((M, N), np.float32)
    best, place = empty((N,), x.dtype), empty((N,), np.dtype(np.int32))
    arrangements = {
        f"{r} rows, {v} vectors, {way}, {ahead} ahead": call(
            f"argmax_{way}_{r}_{v}", x, best, place, M, N, ahead
        )
        for (r, v), way, ahead in itertools.product(
            ARGMAX, ("one_by_one", "in_turn"), (0, 1024, 2048, 4096)
        )
    }
    return Case(
        f"argmax columns {M}x{N}",
        [
            ours([X], reductions.declare("argmax", X, 0), [x]),
            *fastest(arrangements, [place]),
            *copies(x.nbytes // 2),
        ],
        [x.argmax(0).astype(np.int32)],
        work=1e-9 * x.nbytes,
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for N in rows.ROWS:
        yield f"layer_norm {rows.ELEMENTS // N}x{N}", lambda N=N: layer_norm(N)
    for M, N in ((1000, 3000), (4096, 4096)):
        yield f"transpose {M}x{N}", lambda M=M, N=N: transpose(M, N)
    yield "argmax columns 4096x4096", lambda: argmax_columns(4096, 4096)
