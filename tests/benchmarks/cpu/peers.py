"""The optional peers, and baselines that several classes share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.cpu.harness import Array, Candidate

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

COMPILE_FOR = (1,)  # torch.compile bakes the number of threads in and takes ten seconds a kernel


def copies(count: int, *, both: bool = True) -> list[Candidate]:
    """Plain copies of `count` bytes, by numpy and by the C library."""
    source, target = np.ones(count // 4, np.float32), np.zeros(count // 4, np.float32)
    ends = target.ctypes.data, source.ctypes.data
    move, size = ctypes.memmove, 4 * (count // 4)
    keep = (source, target)

    def memmove() -> object:
        return move(*ends, size) and keep

    found = [Candidate("copy: numpy", lambda: np.copyto(target, source))]
    return [*found, Candidate("copy: memmove", memmove)] if both else found


def from_torch(
    name: str, run: Callable[[], object], *results: Any, thread_counts: tuple[int, ...] = ()
) -> list[Candidate]:
    """A candidate that runs torch without gradients; none when torch is missing."""
    if torch is None:
        return []

    def ungraded() -> object:
        with torch.no_grad():
            return run()

    return [Candidate(name, ungraded, list(results) or None, thread_counts)]


def compiled(function: Callable[..., Any], *arguments: Any) -> list[Candidate]:
    """torch.compile of a function that returns its results (a tensor, or a tuple of them)."""
    if torch is None:
        return []
    torch.set_num_threads(1)
    quick = torch.compile(function)

    class Results:
        """The tensors of the last run, as the harness reads results."""

        def __init__(self) -> None:
            self.last: Any = ()

        def __getitem__(self, n: int) -> Any:
            if n >= len(self):
                raise IndexError(n)
            return self.last[n] if isinstance(self.last, tuple) else self.last

        def __len__(self) -> int:
            return len(self.last) if isinstance(self.last, tuple) else 1

    results = Results()

    def run() -> None:
        with torch.no_grad():
            results.last = quick(*arguments)

    return [Candidate("torch.compile", run, results, COMPILE_FOR)]  # type: ignore[arg-type]


def tensor(array: Array) -> Any:
    """The torch tensor on an array's memory; None when torch is missing."""
    if torch is None:
        return None
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
