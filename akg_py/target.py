"""Targets by name: what a kernel can be built for."""

from __future__ import annotations

from akg_py.errors import UnsupportedError
from akg_py.records import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A part that kernels are built for; `family` chooses the code generator and the schedules."""

    name: str
    family: str
    description: str


TARGETS = {
    t.name: t
    for t in (
        Target("cpu", "cpu", "this machine, vector code through LLVM; times are measured"),
        Target(
            "ascend910b3",
            "ascend",
            "simulated Ascend 910B3: 20 cube cores, 40 vector cores, 1.8 GHz",
        ),
    )
}


def find_target(target: str | Target) -> Target:
    """The target of that name."""
    if isinstance(target, Target):
        return target
    if target in TARGETS:
        return TARGETS[target]
    from difflib import get_close_matches

    near = get_close_matches(str(target), TARGETS, n=1)
    raise UnsupportedError(
        f"unknown target {target!r}",
        hint=(f"did you mean {near[0]}? " if near else "") + f"targets: {', '.join(TARGETS)}",
    )
