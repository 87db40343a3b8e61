"""Operators by name: typed attributes in, te tensors out.

An `Operator` pairs a declaration function with what text needs: how to read each attribute, and
which sizes search-space formulas may use. `declare` is the door that text, files and profiles go
through.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from akg_py import dtypes
from akg_py.errors import AkgError, ExpressionError, SpaceError
from akg_py.records import dataclass
from akg_py.te.tensor import Tensor

Attrs = dict[str, Any]
_KINDS = ("extent", "shape", "dtype", "number", "choice")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A typed attribute of an operator.

    Attributes:
        kind: extent (integer >= 0), shape (`4096x1024`), dtype, number (float) or choice (of
            `choices`).
        default: its value when omitted; None means that it must be given.
    """

    name: str
    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()
    about: str = ""

    def parse(self, value: object) -> Any:
        """The canonical value of `value`, a text or a Python value.

        Raises:
            ExpressionError: it is no such value.
        """
        match self.kind:
            case "extent":
                return self._extent(value)
            case "shape":
                items = value.lower().split("x") if isinstance(value, str) else value
                if isinstance(items, int):
                    items = (items,)
                if not isinstance(items, Sequence) or not items:
                    raise self._wrong(value, "extents joined by x, such as 4096x1024")
                return tuple(self._extent(i) for i in items)
            case "dtype":
                try:
                    return dtypes.check_dtype(value)
                except ExpressionError as error:
                    from difflib import get_close_matches

                    near = get_close_matches(str(value), dtypes.DTYPES, 2)
                    hint = f"did you mean {' or '.join(near)}?" if near else error.hint
                    raise ExpressionError(error.message, hint=hint) from None
            case "number":
                try:
                    number = float(value)  # type: ignore[arg-type]
                except (TypeError, ValueError):
                    number = math.nan
                if not math.isfinite(number):
                    raise self._wrong(value, "a number")
                return number
        if value not in self.choices:
            raise self._wrong(value, f"one of {', '.join(self.choices)}")
        return value

    def _extent(self, value: object) -> int:
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
            value = int(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise self._wrong(value, "an integer of 0 or more")
        number = value.__index__()
        if not 0 <= number < 1 << 31:
            raise self._wrong(value, "an integer from 0 to 2147483647")
        return int(number)

    def _wrong(self, value: object, expected: str) -> ExpressionError:
        return ExpressionError(
            f"attribute {self.name} is {value!r}", hint=f"{self.name} is {expected}"
        )

    def format(self, value: Any) -> str:
        """`value` as workload text spells it."""
        if self.kind == "shape":
            return "x".join(map(str, value))
        return f"{value:g}" if self.kind == "number" else str(value)

    def __str__(self) -> str:
        kind = (
            "|".join(self.choices)
            if self.choices
            else {"extent": "int", "shape": "AxB..."}.get(self.kind, self.kind)
        )
        return f"{self.name}: {kind}" + (
            "" if self.default is None else f" = {self.format(self.default)}"
        )


def extent(name: str, default: int | None = None, about: str = "") -> Attribute:
    """An axis extent in elements, 0 or more; without a default it must be given."""
    return Attribute(name, "extent", default, about=about)


def shape(name: str = "shape", about: str = "") -> Attribute:
    """Extents in elements, written as 4096x1024."""
    return Attribute(name, "shape", about=about)


def dtype(default: str = "float16", name: str = "dtype") -> Attribute:
    """The dtype of inputs and output."""
    return Attribute(name, "dtype", default, about="of inputs and output")


def number(name: str, default: float) -> Attribute:
    """A number without unit."""
    return Attribute(name, "number", default)


def choice(name: str, *choices: str) -> Attribute:
    """One of `choices`; the first is the default."""
    return Attribute(name, "choice", choices[0], choices)


@dataclass(frozen=True, slots=True)
class Declared:
    """An operator as te tensors: the kernel's arguments are inputs, then outputs."""

    op: str
    attrs: Attrs
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def args(self) -> list[Tensor]:
        return [*self.inputs, *self.outputs]

    @property
    def text(self) -> str:
        """Workload text that declares the same again."""
        return get(self.op).text(self.attrs)


@dataclass(frozen=True, slots=True)
class Operator:
    """A named operator.

    Attributes:
        declare: takes the attributes by keyword; returns (inputs, outputs).
        flops: operations of one call, for shares of peak and for limits of checks.
        unit: which unit's peak a share refers to, cube or vector.
        scratch: intermediate float32 values per element that are alive at once in a vector
            kernel; it tells search spaces how large a tile may be.
        exact: whether small-integer data gives the same bits in any order of evaluation.
        source: file of the declaration: a worker process loads it when it isn't akg_py's own.
    """

    name: str
    attributes: tuple[Attribute, ...]
    declare: Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]]
    about: str = ""
    flops: Callable[[Attrs], int] | None = None
    unit: str = "vector"
    scratch: int = 4
    exact: bool = False
    source: str = ""

    def parse(self, given: Mapping[str, object]) -> Attrs:
        """All attributes, with defaults, in declaration order.

        Raises:
            ExpressionError: an unknown, missing or wrong attribute.
        """
        known = {a.name: a for a in self.attributes}
        for name in given:
            if name not in known:
                from difflib import get_close_matches

                near = get_close_matches(name, known, 2)
                raise ExpressionError(
                    f"{self.name} has no attribute {name}",
                    hint=f"did you mean {' or '.join(near)}?" if near else f"{self.signature}",
                )
        missing = [a.name for a in self.attributes if a.default is None and a.name not in given]
        if missing:
            raise ExpressionError(f"{self.name} without {', '.join(missing)}", hint=self.signature)
        try:
            return {a.name: a.parse(given.get(a.name, a.default)) for a in self.attributes}
        except ExpressionError as error:
            raise ExpressionError(f"{self.name}: {error.message}", hint=error.hint) from None

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(map(str, self.attributes))})"

    def text(self, attrs: Attrs) -> str:
        """Workload text: `name:attr=value,...` without defaults, but always with the dtype."""
        shown = [a for a in self.attributes if a.kind == "dtype" or attrs[a.name] != a.default]
        return f"{self.name}:" + ",".join(f"{a.name}={a.format(attrs[a.name])}" for a in shown)

    def sizes(self, attrs: Attrs) -> dict[str, Any]:
        """Names that search-space formulas may use.

        Extents go by their names; a shape gives `rows` (product of all extents but the last),
        `cols` and `elements`; a dtype gives `<name>_bytes`; a choice gives `<name>_<value>`, which
        is 1 for the value it has and 0 for the others.
        """
        sizes: dict[str, Any] = {}
        for a in self.attributes:
            value = attrs[a.name]
            if a.kind == "extent":
                sizes[a.name] = value
            elif a.kind == "dtype":
                sizes[f"{a.name}_bytes"] = dtypes.size_bytes(value)
            elif a.kind == "choice":
                sizes |= {f"{a.name}_{x}": int(x == value) for x in a.choices}
            elif a.kind == "shape":
                sizes |= {
                    "rows": math.prod(value[:-1]),
                    "cols": value[-1],
                    "elements": math.prod(value),
                }
        return sizes

    def count_flops(self, attrs: Attrs) -> int:
        """Floating-point operations of one call."""
        return (
            self.flops(attrs)
            if self.flops is not None
            else int(self.sizes(attrs).get("elements", 0))
        )


_OPERATORS: dict[str, Operator] = {}


def register(
    name: str,
    attributes: Sequence[Attribute],
    *,
    about: str = "",
    flops: Callable[[Attrs], int] | None = None,
    unit: str = "vector",
    scratch: int = 4,
    exact: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a declaration function an operator that text, the tuner and the command line know.

        @ops.register("scaled_add", [ops.shape(), ops.dtype()], about="x + 2 y")
        def scaled_add(shape, dtype):
            X, Y = te.placeholder(shape, dtype, name="X"), te.placeholder(shape, dtype, name="Y")
            return [X, Y], [te.compute(shape, lambda *i: X(*i) + Y(*i) * 2, name="Z")]

    Raises:
        ExpressionError: the name is taken by a declaration elsewhere, or isn't an identifier.
    """

    def add(declare_function: Callable[..., Any]) -> Callable[..., Any]:
        if not name.isidentifier():
            raise ExpressionError(
                f"operator name {name!r} is no identifier",
                hint="letters, digits and _, such as scaled_add",
            )
        source = inspect.getsourcefile(declare_function) or ""
        before = _OPERATORS.get(name)
        if before is not None and before.source != source:
            raise ExpressionError(
                f"operator {name} exists already, from {before.source}", hint="choose another name"
            )
        _OPERATORS[name] = Operator(
            name, tuple(attributes), declare_function, about, flops, unit, scratch, exact, source
        )
        return declare_function

    return add


def get(name: str) -> Operator:
    """The operator of that name.

    Raises:
        ExpressionError: there is none; the hint names the nearest.
    """
    if name not in _OPERATORS:
        from difflib import get_close_matches

        near = get_close_matches(name, _OPERATORS, 3, 0.5)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"operators: {', '.join(sorted(_OPERATORS))}"
        )
        raise ExpressionError(f"unknown operator {name!r}", hint=hint)
    return _OPERATORS[name]


def operators() -> Iterator[Operator]:
    """All operators, by name."""
    return iter(sorted(_OPERATORS.values(), key=lambda o: o.name))


def declare(name: str, /, **attrs: object) -> Declared:
    """Declare an operator by name.

    Returns:
        The placeholders and the outputs, as te tensors.

    Raises:
        ExpressionError: unknown operator, attribute, dtype, or a shape the operator doesn't take.
    """
    op = get(name)
    values = op.parse(attrs)
    inputs, outputs = op.declare(**values)
    return Declared(name, values, tuple(inputs), tuple(outputs))


def parse_text(text: str) -> tuple[Operator, Attrs]:
    """Operator and attributes of workload text such as `softmax:shape=4096x1024,dtype=float16`.

    Raises:
        ExpressionError, SpaceError: the text is no workload.
    """
    name, _, rest = text.strip().partition(":")
    if not name.strip():
        raise SpaceError(
            f"no operator in the workload {text!r}", hint="write op:attribute=value,..."
        )
    given: dict[str, object] = {}
    for item in rest.split(",") if rest.strip() else []:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise SpaceError(
                f"can't read {item.strip()!r} in the workload {text!r}",
                hint="write op:attribute=value,...",
            )
        if key in given:
            raise SpaceError(
                f"{key} stands twice in the workload {text!r}", hint="give each attribute once"
            )
        given[key] = value
    op = get(name.strip())
    try:
        return op, op.parse(given)
    except AkgError as error:
        raise type(error)(error.message, where=error.where, hint=error.hint) from None
