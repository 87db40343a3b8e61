"""What the steps of a completion ask of a stage before they schedule it."""

from __future__ import annotations

from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState


def is_untouched(stage: StageState) -> bool:
    """Whether no step has changed the stage, nor where it is computed or kept."""
    return stage.attach is None and not stage.relations and not stage.marks and not stage.scope


def hosts(s: Schedule) -> set[str]:
    """Stages that others are computed in."""
    return {x.attached_to[0] for x in s.state.stages if x.attached_to}
