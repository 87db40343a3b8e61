"""akg_py: tensor expressions, schedules and tuned kernels for Ascend NPUs, without a board.

`te` declares and schedules, `build` compiles for a target, `tune` searches, `tuned` looks up.
Everything heavy is imported when first used.
"""

from __future__ import annotations

import importlib
import sys as _sys
from importlib.machinery import PathFinder as _PathFinder
from importlib.util import module_from_spec as _module_from_spec
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

for _name in ("schedules", "search_spaces"):
    _beside = _Path(__file__).parent.parent / _name
    if (
        not (_Path(__file__).parent / _name).is_dir() and _beside.is_dir()
    ):  # a checkout or an editable install
        _spec = _PathFinder.find_spec(f"{__name__}.{_name}", [str(_beside.parent)])
        if _spec is not None:
            _sys.modules[_spec.name] = _module_from_spec(_spec)

if TYPE_CHECKING:
    from akg_py import ops, te
    from akg_py.codegen.threads import threads
    from akg_py.cost_types import Cost
    from akg_py.errors import (
        AkgError,
        CapacityError,
        DatabaseError,
        ExpressionError,
        InternalError,
        ScheduleError,
        SpaceError,
        UnsupportedError,
    )
    from akg_py.library import task
    from akg_py.pipeline import build, complete, lower
    from akg_py.target import TARGETS, Target
    from akg_py.te import Schedule, Trace, create_schedule
    from akg_py.tuning import tune, tuned

_HOMES = {
    "akg_py.codegen.threads": ("threads",),
    "akg_py.cost_types": ("Cost",),
    "akg_py.errors": (
        "AkgError",
        "CapacityError",
        "DatabaseError",
        "ExpressionError",
        "InternalError",
        "ScheduleError",
        "SpaceError",
        "UnsupportedError",
    ),
    "akg_py.library": ("task",),
    "akg_py.pipeline": ("build", "complete", "lower"),
    "akg_py.target": ("TARGETS", "Target"),
    "akg_py.te": ("Schedule", "Trace", "create_schedule"),
    "akg_py.tuning": ("tune", "tuned"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "TARGETS",
    "AkgError",
    "CapacityError",
    "Cost",
    "DatabaseError",
    "ExpressionError",
    "InternalError",
    "Schedule",
    "ScheduleError",
    "SpaceError",
    "Target",
    "Trace",
    "UnsupportedError",
    "build",
    "complete",
    "create_schedule",
    "lower",
    "ops",
    "task",
    "te",
    "threads",
    "tune",
    "tuned",
]


def __getattr__(name: str) -> Any:
    if name in ("te", "ops"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
