"""The digest of everything that the code of a Func depends on, so that emission can be skipped.

In: a Func, its aliases and the processor; out: a digest, or None for a Func with parts that have no
text. It covers every field of every node except origins, the sources of the layers that make code
of it, LLVM and the processor. Emission and what it imports take longer than all else in a new
process.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from akg_py.codegen.target import Processor
from akg_py.ir.stmt import Buffer, Func

_PACKAGE = Path(__file__).resolve().parent.parent


def digest_sources() -> str:
    """The digest of the sources that decide what code is made, as they are on disk now."""
    found = hashlib.sha256()
    try:
        for folder in (_PACKAGE / "codegen", _PACKAGE / "ir"):
            for file in sorted(folder.rglob("*.py")):
                found.update(file.name.encode() + file.read_bytes())
        for name in ("dtypes.py", "records.py"):
            found.update((_PACKAGE / name).read_bytes())
    except OSError:  # a package without files: what this process makes serves no other
        found.update(os.urandom(16))
    return found.hexdigest()


#: as they were when this process began to use them
SOURCES = digest_sources()


def digest_func(
    func: Func, inplace: Mapping[Buffer, Buffer], processor: Processor, llvm: str
) -> str | None:
    """The key of the code of `func`.

    Args:
        inplace: output -> input that may be the same array.
        llvm: the version of what compiles it.
    """
    found: list[str] = [SOURCES, llvm, repr(processor)]
    try:
        numbers: dict[int, int] = {}
        _describe(func, found, numbers)
        for pair in inplace.items():
            _describe(pair, found, numbers)
    except TypeError:
        return None
    return hashlib.sha256("\0".join(found).encode()).hexdigest()


def _describe(x: Any, out: list[str], numbers: dict[int, int]) -> None:
    """Append the text of `x`; a node that was seen before is its number."""
    kind: Any = type(x)
    if kind is str:
        out.append(f"'{x}'")
    elif kind is int or kind is bool or x is None:
        out.append(repr(x))
    elif kind is tuple:
        out.append(f"({len(x)}")
        for part in x:
            _describe(part, out, numbers)
    elif kind is float:
        out.append(struct.pack(">d", x).hex())
    elif id(x) in numbers:
        out.append(f"#{numbers[id(x)]}")
    else:
        fields = _fields(kind)
        numbers[id(x)] = len(numbers)
        out.append(kind.__name__)
        for name in fields:
            _describe(getattr(x, name), out, numbers)


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    """Names of the fields that matter; a TypeError for what isn't a node."""
    if not kind.__module__.startswith("akg_py.ir."):
        raise TypeError(f"{kind} is no node of loop IR")
    return tuple(f.name for f in dataclasses.fields(kind) if f.name != "origin")
