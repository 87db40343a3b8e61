"""Tuning: search spaces in, schedules in a database out.

`tune` searches, `tuned` and `look_up` find again, `Database` reads and merges files. optuna is
imported when a search begins.
"""

from akg_py.tuning.database import Database, DatabaseWarning, merge
from akg_py.tuning.lookup import Answer, UntunedWarning, look_up, tuned
from akg_py.tuning.record import RECORD_SCHEMA, Record
from akg_py.tuning.tuner import tune

__all__ = [
    "RECORD_SCHEMA",
    "Answer",
    "Database",
    "DatabaseWarning",
    "Record",
    "UntunedWarning",
    "look_up",
    "merge",
    "tune",
    "tuned",
]
