"""Nodes of expressions: frozen, slotted, with a dtype; and what can be asked of their structure.

    expr ::= Const | Var | Affine | Binary | Unary | Select | Cast | Call | Load | Reduce

Operators of `Expr` call the constructors of `ir.expr`, which need the nodes first and therefore put
themselves into `CONSTRUCTORS`; so does the printer with `FORMATTERS`. Others import from `ir.expr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Union

from akg_py import dtypes
from akg_py.errors import ExpressionError, InternalError
from akg_py.records import dataclass

INDEX = "int32"  # dtype of loop variables; evaluated with unbounded integers
UNBOUNDED = 1 << 62
CONSTRUCTORS: dict[str, Callable[..., Expr]] = {}
FORMATTERS: dict[str, Callable[[Any], str]] = {}

ExprLike = Union["Expr", int, float, bool]


class Loadable(Protocol):
    """What a Load can read: a tensor of the language, or a buffer of loop IR."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...


class Expr:
    """Base of all nodes. Operators build expressions; truth of one is refused."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy leaves `np.float32(2) * e` to us
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("/", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("/", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("//", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("%", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("%", other, self)

    def __neg__(self) -> Expr:
        if dtypes.is_bool(self.dtype):
            raise ExpressionError(
                "can't negate a bool", hint='te.logical_not, or .astype("int32") first'
            )
        return CONSTRUCTORS["negate"](self)

    def __lt__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("<", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("<=", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"](">", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"](">=", self, other)

    def __eq__(self, other: object) -> Any:
        return CONSTRUCTORS["equality"]("==", self, other)

    def __ne__(self, other: object) -> Any:
        return CONSTRUCTORS["equality"]("!=", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("&&", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return CONSTRUCTORS["lift"]("||", self, other)

    def __bool__(self) -> bool:
        if isinstance(self, Const):
            return bool(self.value)
        if isinstance(self, Binary) and self.op in ("==", "!="):  # dictionary look-ups
            return same(self.a, self.b) == (self.op == "==")
        raise ExpressionError(
            "an expression has no truth value before the kernel runs",
            hint="use te.if_then_else or te.Select for a choice, te.all / te.any for 'and' / 'or'",
        )

    def __int__(self) -> int:
        raise InternalError(f"int() of the symbolic expression {self!r}")

    def __index__(self) -> int:
        raise ExpressionError(
            "an expression is not an integer of Python",
            hint="use te.compute over an axis instead of range()",
        )

    def astype(self, dtype: object) -> Expr:
        """This value converted to `dtype`."""
        return CONSTRUCTORS["cast"](dtypes.check_dtype(dtype), self)

    def __hash__(self) -> int:
        raise InternalError("unhashable expression")

    def __str__(self) -> str:
        return FORMATTERS["expr"](self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A number of a dtype."""

    value: int | float | bool
    dtype: str

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        if dtypes.is_float(self.dtype):
            raise ExpressionError(f"{self.value} is not an integer", hint="use an integer constant")
        return int(self.value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A named integer with inclusive static bounds; Vars are equal only if they are one object."""

    name: str
    dtype: str = INDEX
    lo: int = -UNBOUNDED
    hi: int = UNBOUNDED

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Affine(Expr):
    """Index sum `const + sum(coef * atom)`: distinct atoms in order of first use, no zero coef."""

    terms: tuple[tuple[Expr, int], ...]
    const: int
    dtype: str = INDEX

    def __hash__(self) -> int:
        return hash((frozenset(self.terms), self.const))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """`a op b`, op one of + - * / // % min max pow == != < <= > >= && ||."""

    op: str
    a: Expr
    b: Expr
    dtype: str

    def __hash__(self) -> int:
        return hash((self.op, self.a, self.b))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    """`-x` or `!x`."""

    op: str
    a: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.a.dtype

    def __hash__(self) -> int:
        return hash((self.op, self.a))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """`a if condition else b`; if `guards`, the other side is never evaluated (if_then_else)."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: str
    guards: bool = False

    def __hash__(self) -> int:
        return hash((self.condition, self.a, self.b, self.guards))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """`a` converted to another dtype, as numpy converts it."""

    a: Expr
    dtype: str

    def __hash__(self) -> int:
        return hash((self.a, self.dtype))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """A math function of MATH_FUNCTIONS applied to its arguments."""

    name: str
    args: tuple[Expr, ...]
    dtype: str

    def __hash__(self) -> int:
        return hash((self.name, self.args))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """An element of a tensor (in the language) or of a buffer (in loop IR)."""

    source: Loadable
    indices: tuple[Expr, ...]
    dtype: str

    def __hash__(self) -> int:
        return hash((id(self.source), self.indices))


@dataclass(frozen=True, slots=True, eq=False)
class Combiner:
    """How a reduction combines: `result[i] = f(lhs, rhs)[i]`, with the identity of each component.

    `lhs` and `rhs` are placeholders Vars; name is sum, max, min, prod or the user's.
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]

    def __call__(self, lhs: tuple[Expr, ...], rhs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The combined components, built anew from the arguments."""
        mapping = dict(zip(self.lhs + self.rhs, lhs + rhs, strict=True))
        return tuple(CONSTRUCTORS["substitute"](r, mapping) for r in self.result)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """Component `index` of the reduction of `sources` over `axes` (IterVars of the language).

    `where` skips points, `init` replaces the identity, `dtype` is the result's and `accumulators`
    the dtypes it is accumulated in.
    """

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[Any, ...]
    where: Expr | None
    init: tuple[Expr, ...] | None
    index: int
    dtype: str

    def __hash__(self) -> int:
        return hash((id(self.combiner), self.sources, tuple(id(a) for a in self.axes), self.index))


#: name -> number of arguments; all float to float
MATH_FUNCTIONS = {
    "exp": 1,
    "exp2": 1,
    "log": 1,
    "log2": 1,
    "log10": 1,
    "log1p": 1,
    "expm1": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "sin": 1,
    "cos": 1,
    "tan": 1,
    "tanh": 1,
    "sinh": 1,
    "cosh": 1,
    "asin": 1,
    "acos": 1,
    "atan": 1,
    "atan2": 2,
    "erf": 1,
    "sigmoid": 1,
    "floor": 1,
    "ceil": 1,
    "round": 1,
    "trunc": 1,
    "abs": 1,
    "pow": 2,
    "fmod": 2,
    "isnan": 1,
    "isinf": 1,
    "isfinite": 1,
}


def const(value: int | float | bool, dtype: str = INDEX) -> Const:
    """A constant of `dtype`; integers must fit it."""
    if dtypes.is_float(dtype):
        return Const(float(value), dtype)
    if dtypes.is_bool(dtype):
        return Const(bool(value), dtype)
    check_fits(int(value), dtype)
    return Const(int(value), dtype)


def is_zero(e: Expr) -> bool:
    """Whether `e` is the constant 0."""
    return isinstance(e, Const) and e.value == 0


def check_fits(value: int, dtype: str) -> None:
    if dtype != INDEX and not dtypes.lowest(dtype) <= value <= dtypes.highest(dtype):
        raise ExpressionError(
            f"{value} is no {dtype}: it holds {dtypes.lowest(dtype)} .. {dtypes.highest(dtype)}",
            hint='use a wider dtype, such as .astype("int32") on the other operand',
        )


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct operands."""
    match e:
        case Var() | Const():
            return ()
        case Affine():
            return tuple(a for a, _ in e.terms)
        case Binary():
            return (e.a, e.b)
        case Unary() | Cast():
            return (e.a,)
        case Select():
            return (e.condition, e.a, e.b)
        case Call():
            return e.args
        case Load():
            return e.indices
        case Reduce():
            return e.sources + ((e.where,) if e.where is not None else ()) + (e.init or ())
    return ()


def walk(e: Expr) -> Iterator[Expr]:
    """`e` and all its operands, parents first."""
    stack = [e]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def free_vars(e: Expr) -> set[Var]:
    """The Vars that `e` depends on."""
    found: set[Var] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            found.add(node)
        else:
            stack.extend(children(node))
    return found


def same(a: Expr, b: Expr) -> bool:
    """Structural equality: True means surely the same, False means nothing."""
    if a is b:
        return True
    if type(a) is not type(b) or a.dtype != b.dtype:
        return False
    match a, b:
        case Const(), Const():
            return a.value == b.value
        case Affine(), Affine():
            return (
                a.const == b.const
                and len(a.terms) == len(b.terms)
                and dict(a.terms) == dict(b.terms)
            )
        case Binary(), Binary() if a.op != b.op:
            return False
        case Unary(), Unary() if a.op != b.op:
            return False
        case Call(), Call() if a.name != b.name:
            return False
        case Select(), Select() if a.guards != b.guards:
            return False
        case Load(), Load() if a.source is not b.source:
            return False
        case Reduce(), Reduce() if (
            a.combiner is not b.combiner or a.index != b.index or a.axes != b.axes
        ):
            return False
        case Var(), Var():
            return False
    ours, theirs = children(a), children(b)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def loads(e: Expr) -> Iterator[Load]:
    """All loads inside `e`."""
    return (node for node in walk(e) if isinstance(node, Load))
