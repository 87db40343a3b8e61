"""Memory of the arrays that kernels return: 64-byte aligned, and recycled when large.

In: shape and dtype; out: an array with undefined elements. Fresh memory costs a page fault per
4 KB, 10 ms for 64 MB; so a large block goes on a list when the array and all its views are gone,
and the next array of about its size takes it. What the list holds is bounded.

A processor takes a load for one of what was stored last if their addresses agree in the lowest 12
bits, and a load that starts within such a line waits for the store: softmax and norms of rows of 32
to 128 floats took up to 2.6 times as long. So a large array starts where the next loads of the
kernel's inputs aren't.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from akg_py.codegen.addresses import address_of

ALIGN = 64
LARGE_BYTES = 1 << 20
KEPT_BYTES = 256 << 20
_GRAIN = 64 << 10
_ALIAS_BYTES = 4096
_APART_BYTES = 1536  # that an output starts past an input, in terms of the lowest 12 bits
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class _Spare:
    """Blocks that no array uses, the one freed last at the end."""

    def __init__(self) -> None:
        self.most_bytes = KEPT_BYTES  # the module's names are gone when the interpreter ends
        self.lock = threading.Lock()
        self.blocks: list[mmap.mmap] = []
        self.leases: dict[int, Any] = {}

    def lease(self, size: int) -> np.ndarray[Any, Any]:
        """At least `size` bytes; the block comes back when nothing refers to the array."""
        block = self._take(size) or _fresh(-(-size // _GRAIN) * _GRAIN)
        bytes_ = np.frombuffer(block, np.uint8)

        def give(ref: Any) -> None:
            del self.leases[id(ref)]
            self._give(block)

        ref = weakref.ref(bytes_, give)
        self.leases[id(ref)] = ref
        return bytes_

    def _take(self, size: int) -> mmap.mmap | None:
        with self.lock:
            for n in range(len(self.blocks) - 1, -1, -1):
                if size <= len(self.blocks[n]) <= size + size // 4 + _GRAIN:
                    return self.blocks.pop(n)
        return None

    def _give(self, block: mmap.mmap) -> None:
        # this may run in the middle of anything: not even waiting for the lock is allowed
        if len(block) <= self.most_bytes and self.lock.acquire(blocking=False):
            self.blocks.append(block)
            kept = sum(map(len, self.blocks))
            while kept > self.most_bytes:
                kept -= len(self.blocks.pop(0))
            self.lock.release()


def _fresh(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, size, **_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the kernel may have none
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


_spare = _Spare()


def _after_fork() -> None:
    global _spare
    _spare = _Spare()  # the lock may be held; blocks of living arrays are freed with them


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def empty(
    shape: Sequence[int], dtype: np.dtype[Any], inputs: Sequence[Any] = ()
) -> np.ndarray[Any, Any]:
    """An array with undefined elements, 64-byte aligned, for what is computed from `inputs`."""
    size = math.prod(shape) * dtype.itemsize
    if size >= LARGE_BYTES:
        offset = _offset(inputs)
        return np.ndarray(shape, dtype, buffer=_spare.lease(offset + size), offset=offset)
    raw = np.empty(size + ALIGN, np.uint8)
    return np.ndarray(shape, dtype, buffer=raw, offset=-address_of(raw) % ALIGN)


def _offset(inputs: Sequence[Any]) -> int:
    """Where in a page an output starts so that loads of large inputs don't wait for its stores."""
    starts = [
        address_of(a) for a in inputs if isinstance(a, np.ndarray) and a.nbytes >= LARGE_BYTES
    ]

    def apart(offset: int) -> int:
        return min(((offset - start - 1) % _ALIAS_BYTES for start in starts), default=_APART_BYTES)

    return max(range(0, _ALIAS_BYTES, 512), key=lambda offset: min(apart(offset), _APART_BYTES))
