"""Shipped and registered schedules with their search spaces: from a workload to something tunable.

`task(workload, target)` finds the schedule function and the space of the workload's operator and
binds the space to the workload's and the device's sizes. Schedules are functions `(schedule,
config) -> None` that call primitives; files are reached by name only:
`schedules/<family>/<op>.py` has a function called like the operator,
`search_spaces/<family>/<op>.toml` its knobs. One file may serve several operators (`SERVES =
("add", ...)` in the schedule's module).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from akg_py import dtypes, te
from akg_py.codegen.target import data_cache_bytes, host
from akg_py.codegen.threads import thread_count
from akg_py.cost.space import BoundSpace, Config, SearchSpace
from akg_py.errors import SpaceError, UnsupportedError
from akg_py.ops.workload import Workload
from akg_py.records import dataclass
from akg_py.target import TARGETS, Target, find_target


class ScheduleFunction(Protocol):
    """Schedules the stages of one operator as a config says."""

    def __call__(self, schedule: te.Schedule, config: Any, /) -> None: ...


@dataclass(frozen=True)
class Found:
    """A schedule function and the text of its space.

    Attributes:
        source: file of a function that is not akg_py's own (worker processes load it), else "".
    """

    function: ScheduleFunction
    space_text: str
    origin: str
    source: str = ""


@dataclass(frozen=True)
class Task:
    """A workload on a target, ready to be scheduled by configs of a space.

    Attributes:
        space: the knobs, bound to this workload and device.
    """

    workload: Workload
    target: Target
    space: BoundSpace
    found: Found

    @property
    def default(self) -> Config:
        """The config used when nothing has been tuned."""
        return self.space.default()

    def apply(self, config: Mapping[str, Any] | None = None) -> te.Schedule:
        """A schedule of the workload made by `config` (the default one if None), with its trace.

        Raises:
            SpaceError: unknown knob, or an infeasible config (names the constraint and its
                numbers).
            ScheduleError: the schedule function made a mistake.
        """
        checked = self.default if config is None else self.space.check(config)
        schedule = te.create_schedule([t.op for t in self.workload.outputs])
        self.found.function(schedule, checked)
        return schedule


_REGISTERED: dict[tuple[str, str], Found] = {}


def register_schedule(
    op: str, family: str, space: str | os.PathLike[str]
) -> Callable[[ScheduleFunction], ScheduleFunction]:
    """Make a function the schedule of operator `op` on a target family (`ascend`, `cpu`).

        @library.register_schedule("scaled_add", "ascend", "scaled_add.toml")
        def scaled_add(s, config):
            ...

    Args:
        space: TOML text of the search space, or the path of a file.
    """

    if isinstance(space, str) and "\n" in space:
        text, origin = space, f"space of {op}"
    elif Path(space).is_file():
        text, origin = Path(space).read_text(encoding="utf-8"), os.fspath(space)
    else:
        raise SpaceError("no such search space file", where=os.fspath(space))

    def add(function: ScheduleFunction) -> ScheduleFunction:
        source = inspect.getsourcefile(function) or ""
        _REGISTERED[family, op] = Found(function, text, origin, source)
        return function

    return add


@functools.cache
def _served(family: str) -> dict[str, str]:
    """Operator -> module of its shipped schedule."""
    served: dict[str, str] = {}
    try:
        folder = resources.files(f"akg_py.schedules.{family}")
    except ModuleNotFoundError:
        return served
    for name in sorted(p.name[:-3] for p in folder.iterdir() if p.name.endswith(".py")):
        if name != "__init__":
            module = importlib.import_module(f"akg_py.schedules.{family}.{name}")
            for op in getattr(module, "SERVES", (name,)):
                served[op] = module.__name__
    return served


def families_of(op: str) -> list[str]:
    """Target families that have a schedule of operator `op`."""
    families = sorted({t.family for t in TARGETS.values()})
    return [f for f in families if op in _served(f) or (f, op) in _REGISTERED]


def find_schedule(op: str, target: str | Target) -> Found:
    """The schedule of operator `op` for a target: a registered one, else the shipped one.

    Raises:
        UnsupportedError: there is none.
    """
    family = find_target(target).family
    if (family, op) in _REGISTERED:
        return _REGISTERED[family, op]
    module_name = _served(family).get(op)
    if module_name is None:
        known = sorted({*_served(family), *(o for f, o in _REGISTERED if f == family)})
        raise UnsupportedError(
            f"no schedule of {op or 'this graph'} for {find_target(target).name}",
            hint=f"there are schedules of {', '.join(known)}; "
            "add one with library.register_schedule",
        )
    module = importlib.import_module(module_name)
    name = module_name.rsplit(".", 1)[1]
    text = (resources.files(f"akg_py.search_spaces.{family}") / f"{name}.toml").read_text(
        encoding="utf-8"
    )
    return Found(getattr(module, name), text, f"search_spaces/{family}/{name}.toml")


def device_sizes(target: str | Target) -> dict[str, Any]:
    """Names that formulas of search spaces may use for the device, with their values.

    They are the numbers of the device's table, `memory.` left out and dots replaced: `l0c_bytes`,
    `cores_aic`, `mte2_bytes_per_cycle`. The cpu gives `cores` (threads of a kernel), `l1_bytes`,
    `l2_bytes`, `vector_bytes`, `float_lanes` (of a vector) and `registers` (vectors).
    """
    found = find_target(target)
    if found.family == "cpu":
        processor = host()
        return {
            "cores": thread_count(),
            "l1_bytes": data_cache_bytes(1),
            "l2_bytes": data_cache_bytes(2),
            "vector_bytes": processor.vector_bytes,
            "float_lanes": processor.vector_bytes // 4,
            "registers": processor.registers,
        }
    from akg_py.ascend.device import load_device

    parameters = load_device(found.name).parameters
    return {
        key.removeprefix("memory.").replace(".", "_"): p.value
        for key, p in parameters.items()
        if isinstance(p.value, (int, float))
    }


def device_digest(target: str | Target) -> str:
    """Digest of the device constants behind simulated times; "" where times are measured."""
    found = find_target(target)
    if found.family == "cpu":
        return ""
    from akg_py.ascend.device import load_device

    return load_device(found.name).digest


def peak_rates(target: str | Target) -> dict[str, float]:
    """Peaks per second of a simulated device; {} for others.

    They are `flops_f16` and `flops_f32` of the cube and `copy_bytes` between GM and UB.
    """
    found = find_target(target)
    if found.family == "cpu":
        return {}
    from akg_py.ascend.device import load_device

    device = load_device(found.name)
    clock = float(device["clock.nominal_ghz"]) * 1e9
    fractals = device.cores("aic") * clock
    return {
        "flops_f16": fractals * 2 * 16 * 16 * 16 / device["cube.fractal_cycles_f16"],
        "flops_f32": fractals * 2 * 16 * 8 * 16 / device["cube.fractal_cycles_f32"],
        "copy_bytes": device.cores("aiv") * clock * device["copy.bytes_per_cycle"],
    }


def workload_sizes(workload: Workload) -> dict[str, Any]:
    """Names that formulas may use for the workload, with their values.

    Those of `Operator.sizes`, and `flops`, `input_bytes`, `output_bytes` (all tensors),
    `tile_bytes` (of one element of every tensor that is as large as the first output), `row_bytes`
    (of one element of every input of one dimension), `scratch_bytes` (of an element's
    intermediates), `operands` (tensors as large as the output, which is one of them), `batch`
    (product of the output's extents but the last two).
    """

    def total(tensors: tuple[te.Tensor, ...]) -> int:
        return sum(math.prod(t.shape) * dtypes.size_bytes(t.dtype) for t in tensors)

    shape = workload.outputs[0].shape
    sizes: dict[str, Any] = {
        "input_bytes": total(workload.inputs),
        "output_bytes": total(workload.outputs),
        "tile_bytes": sum(dtypes.size_bytes(t.dtype) for t in workload.args if t.shape == shape),
        "row_bytes": sum(dtypes.size_bytes(t.dtype) for t in workload.inputs if t.ndim == 1),
        "batch": math.prod(shape[:-2]),
        "operands": sum(t.shape == shape for t in workload.args),
    }
    operator = workload.operator
    if operator is not None:
        sizes |= operator.sizes(workload.attrs)
        sizes["scratch_bytes"] = 4 * operator.scratch
        sizes["flops"] = operator.count_flops(workload.attrs)
    return sizes


def task(workload: Workload | str | Any, target: str | Target) -> Task:
    """The tunable task of a workload (text, output tensors, or a Workload) on a target.

    Raises:
        UnsupportedError: unknown target, or no schedule for this workload.
        SpaceError: the space file is wrong.
    """
    found_target = find_target(target)
    what = Workload.of(workload)
    found = find_schedule(what.op, found_target)
    sizes = {**device_sizes(found_target), **workload_sizes(what)}
    space = SearchSpace.load(found.space_text, found.origin, sizes)
    return Task(what, found_target, space.bind(sizes), found)
