"""Functions of floats as polynomials, inline."""

from __future__ import annotations

from akg_py.codegen.llvm import Builder, Val

FUNCTIONS: dict[str, object] = {}


def call(b: Builder, name: str, args: list[Val]) -> Val:
    raise NotImplementedError
