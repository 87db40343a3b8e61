"""Single functions of the readers as entry points, for tests and single instructions."""

from __future__ import annotations

from akg_py.ascend.readers.cycles import ticks
from akg_py.ascend.readers.regions import regions
from akg_py.codegen.memory import compiled


@compiled
def regions_of(traits, x, out):  # type: ignore[no-untyped-def]
    """See regions.regions."""
    return regions(traits, x, out)


@compiled
def ticks_of(traits, x, cost):  # type: ignore[no-untyped-def]
    """See cycles.ticks."""
    return ticks(traits, x, cost, False)
