"""From a schedule to loop IR."""

from akg_py.lowering.lower import lower_schedule

__all__ = ["lower_schedule"]
