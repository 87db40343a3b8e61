"""The process behind `WorkerPool`: reads jobs as JSON lines, answers "started" and then the result.

Standard output carries answers only, so whatever a job prints goes to standard error. When standard
input ends, the parent is gone and the process ends at once, even in the middle of a job.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
from typing import IO, Any

from akg_py.tuning.executor import describe_error


def main() -> None:
    """Serve jobs until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, jobs), daemon=True).start()
    while True:
        job = json.loads(jobs.get())
        _answer(out, _run(out, job))


def _listen(stream: IO[str], jobs: queue.SimpleQueue[str]) -> None:
    for line in stream:
        jobs.put(line)
    os._exit(0)


def _run(out: IO[str], job: dict[str, Any]) -> dict[str, Any]:
    started = False
    try:
        module, _, name = job["call"].partition(":")
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        warm_up = getattr(function, "warm_up", None)
        if warm_up is not None:
            warm_up(*job["args"], **job["kwargs"])
        _answer(out, {"started": True})
        started = True
        result = {"result": function(*job["args"], **job["kwargs"])}
        json.dumps(result)
        return result
    except Exception as error:
        if not started:
            _answer(out, {"started": True})
        return {"error": describe_error(error)}


def _answer(out: IO[str], message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
