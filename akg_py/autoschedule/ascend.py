"""Completion for Ascend: on-chip memories, staging, the core axis.

In: a schedule copy that marks its steps `auto`, a target; the stages that sit together are computed
together, contractions go to the cube, the rest to vector cores.
"""

from __future__ import annotations

from akg_py.ascend.device import load_device
from akg_py.ascend.memory import ON_CHIP
from akg_py.autoschedule.contraction import can_stage, match_contraction, stage_contraction
from akg_py.autoschedule.vector import fuse_vector_stages, stage_vector
from akg_py.target import Target
from akg_py.te.schedule import Schedule


def complete_ascend(s: Schedule, target: Target, untouched: bool) -> None:
    """Append what `s` lacks for a part.

    Args:
        untouched: also decide which stages are computed together.
    """
    device = load_device(target.name)
    if untouched:
        fuse_vector_stages(s)
    for name in [stage.name for stage in s.stages]:
        stage = s.state.stage(name)
        contraction = match_contraction(s.state, stage)
        if contraction is not None and can_stage(s.state, contraction):
            stage_contraction(s, contraction, device)
    for name in reversed([stage.name for stage in s.stages]):  # consumers take their producers in
        stage = s.state.stage(name)
        if stage.attach is None and stage.scope in ("", "global", "workspace"):
            stage_vector(s, stage, device)
    for name in reversed([stage.name for stage in s.stages]):
        _attach_on_chip(s, name)
    for stage in s.state.stages:
        if stage.attached_to and stage.scope in (
            "",
            "local",
            "global",
        ):  # per-core memory, whatever its name
            s[stage.name].set_scope("UB")


def _attach_on_chip(s: Schedule, name: str) -> None:
    """On-chip memory lives inside a phase: compute the stage at its consumer's outermost loop."""
    stage = s.state.stage(name)
    consumers = s.state.consumers(stage)
    if stage.attach is not None or stage.scope not in ON_CHIP or len(consumers) != 1:
        return
    consumer = consumers[0]
    if consumer.attached_to is not None:
        s[name].compute_at(*consumer.attached_to)
    elif consumer.leaves and not consumer.is_inline:
        core = next((a for a in consumer.leaves if consumer.mark(a).kind == "core"), None)
        s[name].compute_at(consumer.name, consumer.leaves[0] if core is None else core)
