"""Schedule completion: which stages sit together, then each root stage by what it computes.

An untouched schedule gets everything; a partly written one keeps its steps and gets what is missing
(scopes, staging, the core axis). Appended steps are marked `auto` in the trace. A target's part is
imported when it is needed: a kernel of the host's processor knows nothing of devices.
"""

from __future__ import annotations

from akg_py.target import Target
from akg_py.te.schedule import Schedule


def complete_schedule(schedule: Schedule, target: Target, auto: str = "complete") -> Schedule:
    """A completed copy of `schedule` for `target`.

    Args:
        auto: "full" also decides which stages are computed together; "complete" does so only for a
            schedule without any step.
    """
    done = schedule.copy()
    done.auto = True
    untouched = auto == "full" or not len(schedule.trace)
    if target.family == "cpu":
        from akg_py.autoschedule.cpu import complete_cpu

        complete_cpu(done, untouched)
    else:
        from akg_py.autoschedule.ascend import complete_ascend

        complete_ascend(done, target, untouched)
    done.auto = False
    return done
