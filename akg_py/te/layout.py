"""Layouts: how the axes of a buffer are split and permuted in memory.

A layout lists physical axes, outermost first; each is a digit `x // divisor % modulus` of a logical
axis x. The digits of an axis must make up a whole mixed radix number, so that no two elements share
a place; the open digit takes what is left of the extent. In text: `i, j -> j // 64, i, j % 64`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from akg_py.errors import ScheduleError
from akg_py.ir.expr import INDEX, Binary, Const, Expr, Var
from akg_py.records import dataclass
from akg_py.te.tensor import IterVar

_LARGE = 1 << 30
_HINT = 'physical axes are digits of the axes: "i, j -> j // 64, i, j % 64"'


@dataclass(frozen=True, slots=True)
class Digit:
    """`axis // divisor % modulus`; no modulus: whatever is left."""

    axis: int
    divisor: int = 1
    modulus: int | None = None

    def of(self, index: Expr) -> Expr:
        """The digit of an index of the axis."""
        result = index // self.divisor
        return result if self.modulus is None else result % self.modulus

    def extent(self, size: int) -> int:
        """Places needed for an axis of `size` elements; the open digit is rounded up."""
        return self.modulus if self.modulus is not None else -(-size // self.divisor)

    def text(self, name: str) -> str:
        result = name if self.divisor == 1 else f"{name} // {self.divisor}"
        return result if self.modulus is None else f"{result} % {self.modulus}"


Layout = tuple[Digit, ...]


def shape_of(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """The physical shape of a logical one, in elements."""
    return tuple(d.extent(shape[d.axis]) for d in layout)


def indices_of(layout: Layout, indices: Sequence[Expr]) -> tuple[Expr, ...]:
    """Physical indices of a logical element."""
    return tuple(d.of(indices[d.axis]) for d in layout)


def text_of(layout: Layout, axes: Sequence[IterVar]) -> str:
    """The layout as `read_layout` reads it; the names on the left stand for the axes in order."""
    names = [a.name if a.name.isidentifier() else f"d{n}" for n, a in enumerate(axes)]
    return f"{', '.join(names)} -> {', '.join(d.text(names[d.axis]) for d in layout)}"


def read_layout(given: str | Callable[..., object], axes: Sequence[IterVar]) -> Layout:
    """The layout that a text, or a function of the axes, stands for.

    Raises:
        ScheduleError: it is no permutation of digits of the axes.
    """
    if isinstance(given, str):
        layout = _parse(given, len(axes))
    elif callable(given):
        free = [Var(a.name, INDEX, 0, _LARGE) for a in axes]  # so that no digit folds
        made = given(*free)
        items = made if isinstance(made, (list, tuple)) else (made,)
        layout = tuple(_digit(e, free) for e in items)
    else:
        raise ScheduleError(f"{given!r} is no layout", hint=_HINT)
    for n, a in enumerate(axes):
        _check_whole(a.name, sorted((d for d in layout if d.axis == n), key=lambda d: d.divisor))
    return layout


def _check_whole(name: str, digits: list[Digit]) -> None:
    reached: int | None = 1
    for d in digits:
        if d.divisor != reached:
            break
        reached = None if d.modulus is None else d.divisor * d.modulus
    else:
        if reached is None:
            return
    raise ScheduleError(
        f"the layout doesn't hold every element of {name} in a place of its own",
        hint=f"its digits follow each other: {name} // 64 with {name} % 64",
    )


def _digit(e: object, axes: Sequence[Var]) -> Digit:
    for n, a in enumerate(axes):
        if e is a:
            return Digit(n)
    match e:
        case Binary(op="//" | "%", a=inner, b=Const(value=int(size))) if size > 0:
            return _within(_digit(inner, axes), e.op, size)
    raise ScheduleError(f"{e} is no digit of an axis", hint=_HINT)


def _within(d: Digit, op: str, size: int) -> Digit:
    """`d // size` or `d % size` as a digit."""
    if op == "%":
        if d.modulus is None or d.modulus % size == 0:
            return Digit(d.axis, d.divisor, size)
    elif d.modulus is None:
        return Digit(d.axis, d.divisor * size)
    elif d.modulus % size == 0:
        return Digit(d.axis, d.divisor * size, d.modulus // size)
    raise ScheduleError(f"{size} doesn't divide {d.modulus}", hint=_HINT)


def _parse(text: str, count: int) -> Layout:
    left, _, right = text.partition("->")
    names = [name.strip() for name in left.split(",")]
    if len(names) != count or len(set(names)) != count:
        raise ScheduleError(f"the layout {text!r} doesn't begin with {count} axes", hint=_HINT)
    try:
        body = ast.parse(f"({right},)", mode="eval").body
    except SyntaxError as e:
        raise ScheduleError(f"the layout {text!r} can't be read", hint=_HINT) from e
    assert isinstance(body, ast.Tuple)
    return tuple(_parse_digit(node, names, text) for node in body.elts)


def _parse_digit(node: ast.expr, names: list[str], text: str) -> Digit:
    match node:
        case ast.Name(id=name) if name in names:
            return Digit(names.index(name))
        case ast.BinOp(
            left=inner, op=ast.FloorDiv() | ast.Mod() as op, right=ast.Constant(value=n)
        ):
            if type(n) is int and n > 0:
                name = "//" if isinstance(op, ast.FloorDiv) else "%"
                return _within(_parse_digit(inner, names, text), name, n)
    raise ScheduleError(f"the layout {text!r} can't be read", hint=_HINT)
