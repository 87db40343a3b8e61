"""int8 and bf16 products beside torch (oneDNN); fp16 storage beside our own fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.harness import ONE_THREAD, Array, Bar, Candidate, Case, dtype_of, ours
from tests.benchmarks.cpu.matmul import label_of
from tests.benchmarks.cpu.peers import from_torch, tensor, torch

TITLE = "int8, bf16 and fp16 matmul beside torch and our fp32"
BARS = (
    Bar("torch", 1.0, groups=("int8",)),
    Bar("torch", 1.0, groups=("bfloat16",)),
    Bar("our float32", 0.95, groups=("float16",)),
    Bar(ONE_THREAD, 1.75, threads=2, least_ms=1.0),
)
TOLERANCE = {"bfloat16": 2**-7, "float16": 2**-10}  # relative, of a result rounded once
SHAPES = [(512, 512, 512), (1024, 1024, 1024), (1024, 512, 2048), (1000, 500, 2049)]


def operands(shape: tuple[int, ...], dtype: str) -> tuple[Array, Array]:
    M, K, N = shape
    rng = np.random.default_rng(0)
    if dtype == "int8":
        return rng.integers(-128, 128, (M, K), np.int8), rng.integers(-128, 128, (K, N), np.int8)
    kind = dtype_of(dtype)
    return (
        rng.standard_normal((M, K), np.float32).astype(kind),
        rng.standard_normal((K, N), np.float32).astype(kind),
    )


def our_product(dtype: str, a: Array, b: Array, name: str) -> Candidate:
    A, B = te.placeholder(a.shape, dtype, name="A"), te.placeholder(b.shape, dtype, name="B")
    C = ops.matmul(A, B, "int32" if dtype == "int8" else None)
    return ours([A, B], [C], [a, b], name=name)


def product(shape: tuple[int, ...], dtype: str) -> Case:
    a, b = operands(shape, dtype)
    M, K, N = shape
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    expected = exact.astype(np.int32 if dtype == "int8" else dtype_of(dtype))
    candidates = [our_product(dtype, a, b, "ours")]
    if dtype == "float16":
        wide = [x.astype(np.float32) for x in (a, b)]
        candidates.append(our_product("float32", *wide, name="our float32"))
        candidates[-1].results = None
    else:
        d = np.empty(expected.shape, expected.dtype)
        x, y, z = tensor(a), tensor(b), tensor(d)
        if dtype == "int8":
            candidates += from_torch("torch", lambda: torch._int_mm(x, y, out=z), d)
        else:
            candidates += from_torch("torch", lambda: torch.mm(x, y, out=z), d)
    return Case(
        f"{dtype} {label_of(shape)}",
        candidates,
        [expected],
        rtol=TOLERANCE.get(dtype, 0.0),
        atol=2e-6 * K,
        group=dtype,
        work=2e-9 * M * N * K,
        unit="Gop/s",
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for dtype in ("int8", "bfloat16", "float16"):
        for shape in SHAPES:
            label = f"{dtype} {label_of(shape)}"
            yield label, lambda shape=shape, dtype=dtype: product(shape, dtype)
