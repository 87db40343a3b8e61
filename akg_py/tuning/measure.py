"""Jobs of worker processes: build one config and time it; run a winner and check its values.

A job is plain data (workload text, target, config, files of the user's operators), so that it can
go to any process or machine. Imports and compilation of the engines happen in `warm_up`, before
the clock of a trial starts.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akg_py import dtypes, library, te
from akg_py.errors import AkgError
from akg_py.ops.workload import Workload
from akg_py.target import find_target

FULL_CHECK_FLOPS = 1 << 26  # above this, values are checked on sampled parts of the output
SAMPLED_PARTS = 4
PART_EXTENT = 64
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "float64": 1e-12}
_PACKAGE = Path(__file__).resolve().parent.parent

Job = dict[str, Any]


def make_job(task: library.Task, config: Any, seed: int = 0) -> Job:
    """The data a worker needs to build `config` of a task."""
    operator = task.workload.operator
    sources = [task.found.source, operator.source if operator is not None else ""]
    return {
        "workload": task.workload.text,
        "target": task.target.name,
        "config": dict(config),
        "seed": seed,
        "sources": [
            s for s in dict.fromkeys(sources) if s and _PACKAGE not in Path(s).resolve().parents
        ],
    }


def measure(job: Job) -> dict[str, Any]:
    """Build a config and time it.

    Returns:
        `seconds`, and of the cost `bound`, `interval_us`, `busy`.
    """
    kernel, workload = _build(job)
    cost = (
        kernel.time()
        if is_simulated(job["target"])
        else kernel.time(*_inputs(workload, job["seed"])[0])
    )
    return {
        "seconds": float(cost.seconds),
        "bound": str(cost.bound),
        "interval_us": [round(t * 1e6, 4) for t in cost.interval],
        "source": cost.source,
    }


def prepare(job: Job) -> None:
    """Compile a config into the cache, so that measuring it begins at once."""
    _build(job)


def verify(job: Job) -> dict[str, Any]:
    """Run a config at its full shape and compare its values with the oracle.

    Returns:
        `how` it was checked, `wrong` (empty, or what differs), and the `trace` of the full
        schedule.
    """
    kernel, workload = _build(job)
    operator = workload.operator
    exact = operator is not None and operator.exact
    inputs, rng = _inputs(workload, job["seed"])
    results = kernel(*inputs)
    outputs = list(results) if isinstance(results, (tuple, list)) else [results]
    trace = kernel.schedule.trace.to_json()
    flops = 0 if operator is None else operator.count_flops(workload.attrs)
    feeds = dict(zip(workload.inputs, inputs, strict=True))
    regions, how = _regions(workload, flops, rng)
    faults = kernel.check() if hasattr(kernel, "check") else []
    wrong = f"the program has faults: {faults[0]}" if faults else ""
    for region in regions:
        wanted = te.evaluate(workload.outputs, feeds, region=region)
        wrong = wrong or _compare(
            outputs if region is None else [a[region] for a in outputs], wanted, exact
        )
    return {
        "how": f"{how}, {'bit-exact' if exact else 'within tolerance'}",
        "wrong": wrong,
        "trace": trace,
    }


def _regions(workload: Workload, flops: int, rng: np.random.Generator) -> tuple[list[Any], str]:
    """Parts of the output to check, and how to call that; [None] is all of it."""
    shape = workload.outputs[0].shape
    if flops <= FULL_CHECK_FLOPS or any(t.shape != shape for t in workload.outputs):
        return [None], "full"
    size = [min(n, 1 if d < len(shape) - 2 else PART_EXTENT) for d, n in enumerate(shape)]
    starts = [[n - m for n, m in zip(shape, size, strict=True)]]  # the end, where tails are
    while len(starts) < SAMPLED_PARTS:
        starts.append([int(rng.integers(0, n - m + 1)) for n, m in zip(shape, size, strict=True)])
    regions = [tuple(slice(b, b + m) for b, m in zip(begin, size, strict=True)) for begin in starts]
    return regions, f"sampled, {SAMPLED_PARTS} parts of {'x'.join(map(str, size))}"


def warm_up(job: Job) -> None:
    """Import what a job needs, register the user's operators, have the engines compiled."""
    for source in job.get("sources", ()):
        load_source(source)
    _warm_engines(job["target"])


@functools.cache
def _warm_engines(target: str) -> None:
    for text in ("matmul:m=16,n=16,k=16", "softmax:shape=2x64"):
        task = library.task(text, target)
        kernel, workload = _build(make_job(task, task.default))
        inputs, _ = _inputs(workload, 0)
        kernel(*inputs)
        if is_simulated(target):
            kernel.time()
            kernel.check()


def is_simulated(target: str) -> bool:
    """Whether times come from a model (else they are measured on this machine)."""
    return find_target(target).family != "cpu"


measure.warm_up = prepare.warm_up = warm_up  # type: ignore[attr-defined]
measure.prepare = prepare  # type: ignore[attr-defined]
verify.warm_up = warm_up  # type: ignore[attr-defined]


def load_source(path: str) -> None:
    """Import a user's file under a name of its own, once."""
    name = f"akg_py_user_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AkgError(
            f"can't load {path}",
            where=path,
            hint="worker processes load the file of an operator: it must import by itself",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _pipeline() -> Any:
    from akg_py import pipeline

    return pipeline


@functools.lru_cache(maxsize=16)
def _shipped_task(text: str, target: str) -> library.Task:
    """The task of a workload that akg_py ships the schedule of; reading its space takes longest."""
    return library.task(text, target)


def _build(job: Job) -> tuple[Any, Workload]:
    find = library.task if job["sources"] else _shipped_task
    task = find(job["workload"], job["target"])
    workload = task.workload
    schedule = task.apply(job["config"])
    return _pipeline().build(schedule, workload.args, target=job["target"]), workload


def _inputs(workload: Workload, seed: int) -> tuple[list[NDArray[Any]], np.random.Generator]:
    """Random inputs: small integers where arithmetic on them is exact, else normal numbers."""
    rng = np.random.default_rng(seed)
    operator = workload.operator
    exact = operator is not None and operator.exact
    return [_data(t, rng, exact) for t in workload.inputs], rng


def _data(tensor: te.Tensor, rng: np.random.Generator, exact: bool) -> NDArray[Any]:
    kind = dtypes.numpy_dtype(tensor.dtype)
    if exact or not dtypes.is_float(tensor.dtype):
        low = 0 if tensor.dtype.startswith("u") else -2
        return rng.integers(low, 3, tensor.shape, dtype=np.int8).astype(kind)
    return rng.standard_normal(tensor.shape, dtype=np.float32).astype(kind)


def _compare(got: list[NDArray[Any]], wanted: list[NDArray[Any]], exact: bool) -> str:
    for number, (g, w) in enumerate(zip(got, wanted, strict=True)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"output {number} is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        if not g.size:
            continue
        wide_g, wide_w = g.astype(np.float64), w.astype(np.float64)
        if exact or g.dtype.kind not in "fV":
            bad = wide_g != wide_w
        else:
            limit = TOLERANCE.get(str(g.dtype), 1e-5) * np.maximum(1.0, np.abs(wide_w))
            bad = ~(np.abs(wide_g - wide_w) <= limit)
        bad &= ~(np.isnan(wide_g) & np.isnan(wide_w))
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            return (
                f"{int(bad.sum()):,} of {g.size:,} elements of output {number} differ, "
                f"first at {list(place)}: {wide_g[place]:g}, not {wide_w[place]:g}"
            )
    return ""
