"""Functions that tests let worker processes run."""

import os
import signal
import time


def double(x):
    return 2 * x


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(code):
    os._exit(code)


def hang(seconds):
    time.sleep(seconds)


def fail(message):
    from akg_py.errors import CapacityError

    raise CapacityError(message, where="tile.py:3", hint="smaller")


def stumble():
    print("noise on standard output")
    raise ZeroDivisionError("oh")


def unserialisable():
    return object()
