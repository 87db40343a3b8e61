"""Completes schedules for a target: appends what users left out, never alters what they wrote."""

from akg_py.autoschedule.complete import complete_schedule

__all__ = ["complete_schedule"]
