"""Axes of the hardware that loops are bound to."""

from __future__ import annotations

from akg_py.errors import ScheduleError
from akg_py.records import dataclass


@dataclass(frozen=True, slots=True)
class ThreadAxis:
    """A hardware axis to bind to; `blockIdx.x` is the block (one core's share)."""

    tag: str


THREAD_AXES = ("blockIdx.x",)


def thread_axis(dom: object = None, tag: str = "", name: str = "") -> ThreadAxis:
    """The hardware axis `tag`; a string as the first argument is the tag, as in TVM."""
    tag = dom if isinstance(dom, str) else tag
    if tag not in THREAD_AXES:
        raise ScheduleError(
            f"unknown thread axis {tag!r}", hint=f"use one of {', '.join(THREAD_AXES)}"
        )
    return ThreadAxis(tag)
