"""The command line: `akg_py targets`, `ops`, `tune`, `db`. It prints, the library computes.

Exit codes: 0 done; 1 something could not be done (one message, with a hint); 2 wrong usage.
"""

from akg_py.cli.main import main

__all__ = ["main"]
