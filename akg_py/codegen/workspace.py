"""Where intermediates live: small ones on the stack, large ones at fixed offsets of a workspace.

Offsets are given like a stack: buffers that are never alive together share them. `peak` is what the
caller of a kernel has to provide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ALIGN = 64


class Workspace:
    def __init__(self, stack_bytes: int, stack_total: int) -> None:
        self.stack_bytes = stack_bytes
        self.stack_left = stack_total
        self.top = 0
        self.peak = 0

    @contextmanager
    def take(self, size: int) -> Iterator[int | None]:
        """The offset of `size` bytes while the context lasts, or None for the stack."""
        if size <= min(self.stack_bytes, self.stack_left):
            self.stack_left -= size
            yield None
            return
        offset = self.top
        self.top += -(-size // ALIGN) * ALIGN
        self.peak = max(self.peak, self.top)
        yield offset
        self.top = offset
