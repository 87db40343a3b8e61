"""A list of workloads: entries with their counts, and what could not be read."""

from __future__ import annotations

from dataclasses import field, replace

from akg_py.errors import AkgError, SpaceError
from akg_py.ops.workload import Workload
from akg_py.records import dataclass


@dataclass(frozen=True)
class Entry:
    """A workload of a list.

    Attributes:
        count: launches per run of the model; weighs the workload in totals.
        note: what it is in the model.
    """

    workload: Workload
    count: int = 1
    note: str = ""


@dataclass
class Worklist:
    """Workloads, most often several launches each, and what could not be read.

    Attributes:
        problems: one line each, with its place; these entries are left out.
        skipped: launches of a profile that no operator here covers: (type, launches, reason).
    """

    name: str
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Add an entry; the same workload again adds to its count."""
        for n, old in enumerate(self.entries):
            if old.workload.digest == entry.workload.digest:
                self.entries[n] = replace(
                    old, count=old.count + entry.count, note=old.note or entry.note
                )
                return
        self.entries.append(entry)

    def add_text(self, text: object, where: str, count: object = 1, note: str = "") -> None:
        """Add the workload of `text`, or its problem."""
        try:
            if not isinstance(text, str):
                raise SpaceError(
                    f"a workload is text such as matmul:m=8,n=8,k=8, not {text!r}",
                    hint="akg_py ops lists operators and their attributes",
                )
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SpaceError(
                    f"count is {count!r}, not a positive integer",
                    hint="launches of this workload, 1 or more",
                )
            self.add(Entry(Workload.parse(text), count, note))
        except AkgError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.problems.append(f"{where}: {error.message}{hint}")
