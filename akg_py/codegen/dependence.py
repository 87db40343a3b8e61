"""Whether the iterations of a loop touch different elements, so that their order does not matter.

In: a For; out: yes, or "don't know". The idea: if every access to a written buffer reveals the
loop variable (it is a digit of the index in a mixed radix whose other digits are too small to
reach it), then two iterations never meet in one element.
"""

from __future__ import annotations

from collections.abc import Iterator

from akg_py.ir.expr import (
    Affine,
    Binary,
    Const,
    Expr,
    Load,
    Var,
    binary,
    bounds,
    free_vars,
    is_index,
    linear_combination,
    same,
    walk,
)
from akg_py.ir.stmt import Alloc, Buffer, For, Stmt, Store, sub_exprs, walk_stmts

Access = tuple[Buffer, tuple[Expr, ...]]
# atom -> (path of the digit, coefficient, part fixed over the loop, lowest, highest of the rest)
Digits = dict[Expr, tuple[str, int, Expr, int, int]]


def accesses(s: Stmt) -> Iterator[tuple[Access, bool]]:
    """All reads (False) and writes (True) of buffer elements inside `s`."""
    for inner in walk_stmts(s):
        for e in sub_exprs(inner):
            for node in walk(e):
                if isinstance(node, Load):
                    yield (node.source, node.indices), False  # type: ignore[misc]
        if isinstance(inner, Store):
            for buffer in inner.buffers:
                yield (buffer, inner.indices), True


def is_independent(loop: For, alias: dict[int, int] | None = None) -> bool:
    """Whether no iteration of `loop` reads or writes what another one writes."""
    alias = alias or {}
    private = {id(s.buffer) for s in walk_stmts(loop.body) if isinstance(s, Alloc)}
    inner = {s.var for s in walk_stmts(loop.body) if isinstance(s, For)}
    groups: dict[int, list[tuple[Expr, ...]]] = {}
    written: set[int] = set()
    for (buffer, indices), writes in accesses(loop.body):
        if id(buffer) in private:
            continue
        key = alias.get(id(buffer), id(buffer))
        groups.setdefault(key, []).append(indices)
        if writes:
            written.add(key)
    return all(_reveals(groups[key], loop.var, inner) for key in written)


def _reveals(indices: list[tuple[Expr, ...]], var: Var, inner: set[Var]) -> bool:
    merged: Digits | None = None
    seen: list[tuple[Expr, ...]] = []
    for index in indices:
        if any(all(map(same, index, other)) for other in seen):
            continue
        seen.append(index)
        digits: Digits = {}
        for d, e in enumerate(index):
            if is_index(e):
                _read_digits(e, str(d), var, inner, digits)
        merged = digits if merged is None else _merge(merged, digits)
    return merged is not None and _derive(set(merged), var, inner)


def _read_digits(e: Expr, path: str, var: Var, inner: set[Var], found: Digits) -> None:
    """Record the atoms of `e` that depend on `var` and can be told from its value."""
    terms, constant = linear_combination(e)
    fixed: Expr = Const(constant, "int32")
    moving: list[tuple[Expr, int]] = []
    for atom, coef in terms.items():
        if free_vars(atom).isdisjoint(inner) and var not in free_vars(atom):
            fixed = fixed + atom * coef
        else:
            moving.append((atom, coef))
    moving.sort(key=lambda t: -abs(t[1]))
    for n, (atom, coef) in enumerate(moving):
        lo = hi = 0
        for other, c in moving[n + 1 :]:
            a, z = bounds(other)
            lo, hi = lo + min(c * a, c * z), hi + max(c * a, c * z)
        if hi - lo >= abs(coef):
            return
        if var in free_vars(atom):
            found[atom] = (f"{path}.{n}", coef, fixed, lo, hi)


def _merge(a: Digits, b: Digits) -> Digits:
    both: Digits = {}
    for atom, (path, coef, fixed, lo, hi) in a.items():
        other = next((v for k, v in b.items() if same(k, atom)), None)
        if other is None or other[0] != path or other[1] != coef or not same(other[2], fixed):
            continue
        lo, hi = min(lo, other[3]), max(hi, other[4])
        if hi - lo < abs(coef):
            both[atom] = (path, coef, fixed, lo, hi)
    return both


def _derive(known: set[Expr], var: Var, inner: set[Var]) -> bool:
    """Whether the known atoms give `var`: x // m and x % m give x."""
    pending = list(known)
    atoms = list(known)
    while pending:
        atom = pending.pop()
        if atom is var:
            return True
        new: Expr | None = None
        if isinstance(atom, Binary) and atom.op == "%":
            quotient = binary("//", atom.a, atom.b)
            if var not in free_vars(quotient) or any(same(quotient, k) for k in atoms):
                new = (
                    atom.a
                    if free_vars(quotient).isdisjoint(inner) or _known(quotient, atoms)
                    else None
                )
        elif isinstance(atom, Binary) and atom.op == "//":
            rest = binary("%", atom.a, atom.b)
            if _known(rest, atoms):
                new = atom.a
        elif isinstance(atom, Affine):
            digits: Digits = {}
            _read_digits(atom, "", var, inner, digits)
            for d in digits:
                if not _known(d, atoms):
                    atoms.append(d)
                    pending.append(d)
        if new is not None and not _known(new, atoms):
            atoms.append(new)
            pending.extend(atoms)
    return False


def _known(e: Expr, atoms: list[Expr]) -> bool:
    return any(same(e, a) for a in atoms)
