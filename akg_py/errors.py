"""Errors that a user sees, and where in the user's code they come from.

Every error is an `AkgError` with a message, the place (`file:line` of the nearest frame outside the
package) and a hint that says what to do. `InternalError` is for broken invariants of our own.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from akg_py.records import dataclass

_PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def find_place() -> Place | None:
    """Return the innermost line outside the package, or None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE_DIR) and not file.startswith("<"):
            return Place(file, frame.f_lineno)
        frame = frame.f_back
    return None


class AkgError(Exception):
    """Base of every error akg_py raises on purpose.

    Args:
        message: what is wrong, in one line; further lines show the state.
        where: place in the user's code or data (`Place`, or text such as `list.toml, entry 3`);
            found by walking the frames when omitted.
        hint: what to do about it.
    """

    def __init__(self, message: str, *, where: Place | str | None = None, hint: str = "") -> None:
        self.message = message
        self.where = where if where is not None else find_place()
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}{self.message}{hint}"

    def __reduce__(self) -> tuple[object, ...]:  # errors cross process boundaries
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(kind: type[AkgError], message: str, where: Place | str | None, hint: str) -> AkgError:
    return kind(message, where=where if where is not None else "", hint=hint)


class ExpressionError(AkgError):
    """An expression or an operator declaration is wrong: shapes, dtypes, indices, arguments."""


class ScheduleError(AkgError):
    """A schedule primitive can't be applied, or a trace can't be replayed."""


class CapacityError(AkgError):
    """A memory of the target is too small for what the schedule puts there."""


class UnsupportedError(AkgError):
    """The target can't do this at all."""


class SpaceError(AkgError):
    """A search space, knob, config or workload is wrong."""


class DatabaseError(AkgError):
    """A tuning database can't be read or written."""


class PerformanceWarning(UserWarning):
    """What was built is right but slow for a stated reason, such as code on the scalar pipe."""


class InternalError(AkgError):
    """An invariant of akg_py is broken: this is our bug, not the user's."""

    def __str__(self) -> str:
        return f"akg_py has a bug: {super().__str__()}\n  please report it with the program above"
