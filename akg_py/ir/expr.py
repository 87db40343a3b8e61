"""Expressions: frozen nodes with a dtype, and the constructors that build them.

An *index expression* (integers over loop variables) is kept canonical by its constructors: sums are
`Affine` nodes (a constant plus coefficients times atoms), constants fold, and `//`, `%`, min and max
are decided by the static bounds that every `Var` carries. So equal indices meet without a prover.
All other expressions stay as they were written. Passes branch on values only through `decide`.

    expr ::= Const | Var | Affine | Binary | Unary | Select | Cast | Call | Load | Reduce
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Union

from akg_py import dtypes
from akg_py.errors import AkgError, ExpressionError, InternalError

if TYPE_CHECKING:
    from akg_py.ir.stmt import Buffer

INDEX = "int32"  # dtype of loop variables; evaluated with unbounded integers
UNBOUNDED = 1 << 62
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_MIRROR = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

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
        return _lift("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return _lift("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _lift("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return _lift("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _lift("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return _lift("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _lift("/", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return _lift("/", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _lift("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return _lift("//", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return _lift("%", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return _lift("%", other, self)

    def __neg__(self) -> Expr:
        if dtypes.is_bool(self.dtype):
            raise ExpressionError("can't negate a bool", hint='te.logical_not, or .astype("int32") first')
        return _lift("-", const(0, self.dtype), self) if is_index(self) else Unary("-", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return _lift("<", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return _lift("<=", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return _lift(">", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return _lift(">=", self, other)

    def __eq__(self, other: object) -> Any:
        return _equality("==", self, other)

    def __ne__(self, other: object) -> Any:
        return _equality("!=", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return _lift("&&", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return _lift("||", self, other)

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
            "an expression is not an integer of Python", hint="use te.compute over an axis instead of range()"
        )

    def astype(self, dtype: object) -> Expr:
        """This value converted to `dtype`."""
        return cast(dtypes.check_dtype(dtype), self)

    def __hash__(self) -> int:
        raise InternalError("unhashable expression")

    def __str__(self) -> str:
        from akg_py.ir.printer import format_expr

        return format_expr(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
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
    """A named integer with inclusive static bounds; two Vars are the same only if they are one object."""

    name: str
    dtype: str = INDEX
    lo: int = -UNBOUNDED
    hi: int = UNBOUNDED

    def __hash__(self) -> int:
        return id(self) >> 4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Affine(Expr):
    """Index sum: `const + sum(coef * atom)`; atoms distinct, no coefficient zero, order of first use."""

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
    """`a if condition else b`. With `guards` set the side not taken is never evaluated (if_then_else)."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: str
    guards: bool = False

    def __hash__(self) -> int:
        return hash((self.condition, self.a, self.b, self.guards))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
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
        return tuple(substitute(r, mapping) for r in self.result)


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
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "expm1": 1, "sqrt": 1, "rsqrt": 1,
    "sin": 1, "cos": 1, "tan": 1, "tanh": 1, "sinh": 1, "cosh": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2,
    "erf": 1, "sigmoid": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "abs": 1, "pow": 2, "fmod": 2,
    "isnan": 1, "isinf": 1, "isfinite": 1,
}  # fmt: skip


def const(value: int | float | bool, dtype: str = INDEX) -> Const:
    """A constant of `dtype`; integers must fit it."""
    if dtypes.is_float(dtype):
        return Const(float(value), dtype)
    if dtypes.is_bool(dtype):
        return Const(bool(value), dtype)
    _check_fits(int(value), dtype)
    return Const(int(value), dtype)


def _check_fits(value: int, dtype: str) -> None:
    if dtype != INDEX and not dtypes.lowest(dtype) <= value <= dtypes.highest(dtype):
        raise ExpressionError(
            f"{value} is no {dtype}: it holds {dtypes.lowest(dtype)} .. {dtypes.highest(dtype)}",
            hint='use a wider dtype, such as .astype("int32") on the other operand',
        )


def as_expr(value: object, like: str | None = None) -> Expr:
    """Wrap a Python or numpy scalar, or anything with `as_expr`; expressions pass through.

    Args:
        like: dtype of the other operand, which decides the dtype of a bare number.
    """
    if isinstance(value, Expr):
        return value
    if hasattr(value, "as_expr"):
        return value.as_expr()  # type: ignore[no-any-return]
    if isinstance(value, bool):
        return Const(value, "bool")
    if isinstance(value, int):
        if like and dtypes.is_float(like):
            return Const(float(value), like)
        if like and dtypes.is_int(like):
            _check_fits(value, like)
            return Const(value, like)
        return Const(value, INDEX)
    if isinstance(value, float):
        return Const(value, like if like and dtypes.is_float(like) else "float32")
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", ()) == ():
        return const(value.item(), dtypes.check_dtype(value.dtype))
    raise ExpressionError(
        f"{type(value).__name__} {value!r} is no expression", hint="index a tensor, A[i, j], to use its elements"
    )


_INDEX_NODES = (Var, Affine, Const)


def is_index(e: Expr) -> bool:
    """Whether `e` is an integer expression over Vars only (kept canonical)."""
    if isinstance(e, _INDEX_NODES):
        return not dtypes.is_float(e.dtype) and e.dtype == INDEX
    return isinstance(e, Binary) and e.op in ("*", "//", "%", "min", "max") and e.dtype == INDEX and (
        is_index(e.a) and is_index(e.b)
    )


def _lift(op: str, a: object, b: object) -> Expr:
    """Build `a op b` for operands a user may write: numbers adopt the other side's dtype."""
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    return binary(op, a, b)


def _equality(op: str, a: Expr, other: object) -> Any:
    """`a == other` as an unfolded expression; its truth, for dictionaries, is structural equality."""
    if not isinstance(other, (Expr, int, float)) and not hasattr(other, "as_expr"):
        return NotImplemented
    b = as_expr(other, a.dtype)
    return Binary(op, a, b, "bool") if a.dtype == b.dtype else binary(op, a, b)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """Build `a op b`, promoting dtypes and folding index expressions."""
    if a.dtype == INDEX and b.dtype == INDEX and op != "/" and op != "pow" and is_index(a) and is_index(b):
        return _index_binary(op, a, b)
    if op in ("&&", "||"):
        return logical(op, a, b)
    if a.dtype != b.dtype:
        dtype = dtypes.promote(a.dtype, b.dtype)
        a, b = cast(dtype, a), cast(dtype, b)
    if op in COMPARISONS:
        return Binary(op, a, b, "bool")
    if a.dtype == "bool" and op not in ("min", "max"):
        raise ExpressionError(f"can't compute {op} of bools", hint='convert with .astype("int32"), or use te.all / te.any')
    if op == "/" and not dtypes.is_float(a.dtype):
        raise ExpressionError(
            f"the division of two {a.dtype} is ambiguous",
            hint="use // (floor) or .astype(\"float32\") / ...",
        )
    return Binary(op, a, b, a.dtype)


def logical(op: str, a: Expr, b: Expr) -> Expr:
    """`a && b` or `a || b` of bools; constants fold."""
    for e in (a, b):
        if e.dtype != "bool":
            raise ExpressionError(f"{op} needs bools, not {e.dtype}", hint="compare first, such as x != 0")
    absorbing = op == "||"
    for this, other in ((a, b), (b, a)):
        if isinstance(this, Const):
            return this if bool(this.value) == absorbing else other
    return Binary(op, a, b, "bool")


# ---------------------------------------------------------------- index expressions


def _terms(e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
    if isinstance(e, Const):
        return (), int(e.value)
    if isinstance(e, Affine):
        return e.terms, e.const
    return ((e, 1),), 0


def _affine(terms: dict[Expr, int], constant: int) -> Expr:
    items = tuple((a, c) for a, c in terms.items() if c)
    if len(items) > 1 and any(isinstance(a, Binary) and a.op == "%" for a, _ in items):
        items = _join_quotients(terms)
    if not items:
        return Const(constant, INDEX)
    if constant == 0 and len(items) == 1 and items[0][1] == 1:
        return items[0][0]
    return Affine(items, constant)


def _join_quotients(terms: dict[Expr, int]) -> tuple[tuple[Expr, int], ...]:
    """Replace `(x // n) * n * c + (x % n) * c` by `x * c`."""
    joined = {a: c for a, c in terms.items() if c}
    for atom, coef in list(joined.items()):
        if isinstance(atom, Binary) and atom.op == "%" and isinstance(atom.b, Const):
            quotient = Binary("//", atom.a, atom.b, INDEX)
            inner, constant = _terms(atom.a)
            if constant == 0 and joined.get(quotient) == coef * int(atom.b.value):
                del joined[quotient], joined[atom]
                for a, c in inner:
                    joined[a] = joined.get(a, 0) + coef * c
    return tuple((a, c) for a, c in joined.items() if c)


def linear_combination(e: Expr) -> tuple[dict[Expr, int], int]:
    """Split an index expression into {atom: coefficient} and a constant."""
    terms, constant = _terms(e)
    return dict(terms), constant


def _add(a: Expr, b: Expr, sign: int) -> Expr:
    terms_b, const_b = _terms(b)
    if not terms_b and const_b == 0:
        return a
    terms_a, const_a = _terms(a)
    if not terms_b:
        return _affine(dict(terms_a), const_a + sign * const_b)
    merged = dict(terms_a)
    for atom, coef in terms_b:
        merged[atom] = merged.get(atom, 0) + sign * coef
    return _affine(merged, const_a + sign * const_b)


def _scale(a: Expr, factor: int) -> Expr:
    if factor == 1:
        return a
    terms, constant = _terms(a)
    return _affine({atom: c * factor for atom, c in terms} if factor else {}, constant * factor)


def _index_binary(op: str, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return _fold(op, int(a.value), int(b.value))
    if op == "+":
        return _add(a, b, 1)
    if op == "-":
        return _add(a, b, -1)
    if op == "*":
        if isinstance(b, Const):
            return _scale(a, int(b.value))
        if isinstance(a, Const):
            return _scale(b, int(a.value))
        return Binary("*", a, b, INDEX)
    if op == "//" or op == "%":
        return _divide(op, a, b)
    if op in ("min", "max"):
        lo, hi = bounds(_add(b, a, -1))  # b - a
        if lo >= 0:
            return a if op == "min" else b
        if hi <= 0:
            return b if op == "min" else a
        return Binary(op, a, b, INDEX)
    return _compare(op, a, b)


def _fold(op: str, a: int, b: int) -> Expr:
    if op in COMPARISONS:
        return Const(_COMPARE[op](a, b), "bool")
    if op in ("//", "%") and b == 0:
        raise ExpressionError(f"division by zero: {a} {op} 0", hint="divide by a positive constant")
    return Const(_FOLD[op](a, b), INDEX)


_FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "min": min, "max": max,
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def _divide(op: str, a: Expr, b: Expr) -> Expr:
    if not isinstance(b, Const):
        lo, hi = bounds(a)
        b_lo, _ = bounds(b)
        if lo >= 0 and hi < b_lo:
            return Const(0, INDEX) if op == "//" else a
        return Binary(op, a, b, INDEX)
    divisor = int(b.value)
    if divisor == 0:
        raise ExpressionError(f"division by zero: {a} {op} 0", hint="divide by a positive constant")
    if divisor == 1:
        return a if op == "//" else Const(0, INDEX)
    if divisor < 0:
        return Binary(op, a, b, INDEX)
    terms, constant = _terms(a)
    quotient = {atom: c // divisor for atom, c in terms if c % divisor == 0}
    rest = _affine({atom: c for atom, c in terms if c % divisor}, constant % divisor)
    lo, hi = bounds(rest)
    if lo // divisor == hi // divisor:
        inner: Expr = Const(lo // divisor, INDEX)
    elif isinstance(rest, Binary) and rest.op == "//" and isinstance(rest.b, Const):
        inner = _divide("//", rest.a, Const(int(rest.b.value) * divisor, INDEX))
    else:
        inner = Binary("//", rest, b, INDEX)
    if op == "//":
        return _add(_affine(quotient, constant // divisor), inner, 1)
    if isinstance(inner, Const):
        return _add(rest, Const(int(inner.value) * divisor, INDEX), -1)
    return Binary("%", rest, b, INDEX)


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    lo, hi = bounds(_add(a, b, -1))  # a - b against 0
    if op in (">", ">=", "!="):
        positive = {">": "<=", ">=": "<", "!=": "=="}[op]
        answer = _decided(positive, lo, hi)
        answer = None if answer is None else not answer
    else:
        answer = _decided(op, lo, hi)
    return Const(answer, "bool") if answer is not None else Binary(op, a, b, "bool")


def _decided(op: str, lo: int, hi: int) -> bool | None:
    if op == "<":
        return True if hi < 0 else False if lo >= 0 else None
    if op == "<=":
        return True if hi <= 0 else False if lo > 0 else None
    if lo == hi == 0:
        return True
    return False if lo > 0 or hi < 0 else None


def bounds(e: Expr) -> tuple[int, int]:
    """Inclusive static bounds of an index expression, from the bounds of its Vars."""
    if isinstance(e, Const):
        return int(e.value), int(e.value)
    if isinstance(e, Var):
        return e.lo, e.hi
    if isinstance(e, Affine):
        lo = hi = e.const
        for atom, coef in e.terms:
            atom_lo, atom_hi = bounds(atom)
            lo += coef * (atom_lo if coef > 0 else atom_hi)
            hi += coef * (atom_hi if coef > 0 else atom_lo)
        if any(isinstance(atom, Binary) and atom.op in ("min", "max") for atom, _ in e.terms):
            lo, hi = _tighten(e, lo, hi)
        if sum(isinstance(atom, Binary) and atom.op == "//" for atom, _ in e.terms) > 1:
            lo, hi = _tighten_quotients(e, lo, hi)
        return lo, hi
    if not isinstance(e, Binary):
        return -UNBOUNDED, UNBOUNDED
    (a_lo, a_hi), (b_lo, b_hi) = bounds(e.a), bounds(e.b)
    if e.op == "min":
        return min(a_lo, b_lo), min(a_hi, b_hi)
    if e.op == "max":
        return max(a_lo, b_lo), max(a_hi, b_hi)
    if e.op == "*":
        corners = [x * y for x in (a_lo, a_hi) for y in (b_lo, b_hi)]
        return min(corners), max(corners)
    if e.op == "//" and b_lo > 0:
        corners = [x // y for x in (a_lo, a_hi) for y in (b_lo, b_hi)]
        return min(corners), max(corners)
    if e.op == "%" and b_lo > 0:
        return (0, b_hi - 1) if a_lo < 0 or a_hi >= b_lo else (a_lo, a_hi)
    return -UNBOUNDED, UNBOUNDED


def _tighten(e: Affine, lo: int, hi: int) -> tuple[int, int]:
    """Bounds of a sum with a min or max in it: `r + min(a, b)` is at most both `r + a` and `r + b`."""
    for atom, coef in e.terms:
        if isinstance(atom, Binary) and atom.op in ("min", "max"):
            rest = _affine({a: c for a, c in e.terms if a is not atom}, e.const)
            sides = [bounds(_add(rest, _scale(x, coef), 1)) for x in (atom.a, atom.b)]
            if (atom.op == "min") == (coef > 0):
                hi = min(hi, sides[0][1], sides[1][1])
            else:
                lo = max(lo, sides[0][0], sides[1][0])
    return lo, hi


def _tighten_quotients(e: Affine, lo: int, hi: int) -> tuple[int, int]:
    """Bounds of a sum with `x // n - y // n` in it, which lies in `(x - y) // n .. ceil((x - y) / n)`."""
    quotients = [(a, c) for a, c in e.terms if isinstance(a, Binary) and a.op == "//" and isinstance(a.b, Const)]
    for x, coef in quotients:
        for y, other in quotients:
            n = int(x.b.value) if isinstance(x.b, Const) else 0
            if coef <= 0 or other != -coef or n <= 0 or not same(x.b, y.b):
                continue
            rest_lo, rest_hi = bounds(_affine({a: c for a, c in e.terms if a is not x and a is not y}, e.const))
            gap_lo, gap_hi = bounds(_add(x.a, y.a, -1))
            lo = max(lo, rest_lo + coef * (gap_lo // n))
            hi = min(hi, rest_hi + coef * -(-gap_hi // n))
    return lo, hi


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return _lift("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return _lift("max", a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """`a / b` rounded up, for positive `b`."""
    b = as_expr(b)
    return (as_expr(a) + (b - 1)) // b


def align(a: ExprLike, multiple: int) -> Expr:
    """`a` rounded up to a multiple."""
    return ceildiv(a, multiple) * multiple


# ---------------------------------------------------------------- decisions of passes


def decide(condition: Expr | bool) -> bool:
    """Branch on a value: the only way a pass may do so.

    Concrete lowering always has a constant here. A condition that varies over a loop is a fault of
    the pass (ask about the full tile instead).
    """
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Const):
        return bool(condition.value)
    raise InternalError(f"decide() on the open condition {condition}")


def require(condition: Expr | bool, error: Callable[[], AkgError]) -> None:
    """State a constraint that a config must satisfy; the error carries the reason."""
    if not decide(condition):
        raise error()


def constant_value(e: Expr) -> int | None:
    """The integer that `e` is, or None if it varies."""
    return int(e.value) if isinstance(e, Const) else None


# ---------------------------------------------------------------- values, traversal


def cast(dtype: str, e: Expr) -> Expr:
    """`e` converted to `dtype`; constants fold."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const) and (not dtypes.is_float(e.dtype) or dtypes.is_float(dtype)):
        if not dtypes.is_int(dtype) or 0 <= e.value < 128:
            exact = dtypes.numpy_dtype(e.dtype).type(e.value) if dtypes.is_float(e.dtype) else e.value
            return const(float(exact) if dtypes.is_float(e.dtype) else exact, dtype)
    return Cast(e, dtype)


def select(condition: Expr, a: Expr, b: Expr, guards: bool = False) -> Expr:
    """`a if condition else b` with promotion; a constant condition folds."""
    if condition.dtype != "bool":
        raise ExpressionError(f"a condition is a bool, not {condition.dtype}", hint="compare first, such as x != 0")
    dtype = dtypes.promote(a.dtype, b.dtype)
    a, b = cast(dtype, a), cast(dtype, b)
    if isinstance(condition, Const):
        return a if condition.value else b
    return Select(condition, a, b, dtype, guards)


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct operands."""
    match e:
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


def rebuild(e: Expr, new: Callable[[Expr], Expr]) -> Expr:
    """`e` with `new` applied to each operand, through the constructors (so that it folds again)."""
    match e:
        case Affine():
            total: Expr = Const(e.const, INDEX)
            for atom, coef in e.terms:
                total = total + new(atom) * coef
            return total
        case Binary():
            a, b = new(e.a), new(e.b)
            return e if a is e.a and b is e.b else binary(e.op, a, b)
        case Unary():
            return Unary(e.op, new(e.a))
        case Cast():
            a = new(e.a)
            return e if a is e.a else cast(e.dtype, a)
        case Select():
            return select(new(e.condition), new(e.a), new(e.b), e.guards)
        case Call():
            return Call(e.name, tuple(map(new, e.args)), e.dtype)
        case Load():
            return Load(e.source, tuple(map(new, e.indices)), e.dtype)
        case Reduce():
            return Reduce(
                e.combiner, tuple(map(new, e.sources)), e.axes, None if e.where is None else new(e.where),
                None if e.init is None else tuple(map(new, e.init)), e.index, e.dtype,
            )  # fmt: skip
    return e


def substitute(e: Expr, mapping: dict[Any, Expr]) -> Expr:
    """Replace Vars by expressions."""
    if not mapping:
        return e
    if isinstance(e, Var):
        return mapping.get(e, e)
    if isinstance(e, Const):
        return e
    return rebuild(e, lambda x: substitute(x, mapping))


def walk(e: Expr) -> Iterator[Expr]:
    """`e` and all its operands, parents first."""
    yield e
    for child in children(e):
        yield from walk(child)


def free_vars(e: Expr) -> set[Var]:
    """The Vars that `e` depends on."""
    found: set[Var] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            found.add(node)
        elif not isinstance(node, Const):
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
            return a.const == b.const and len(a.terms) == len(b.terms) and dict(a.terms) == dict(b.terms)
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
        case Reduce(), Reduce() if a.combiner is not b.combiner or a.index != b.index or a.axes != b.axes:
            return False
        case Var(), Var():
            return False
    ours, theirs = children(a), children(b)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def evaluate_index(e: Expr, env: dict[Any, Any]) -> Any:
    """The value of an index expression or a condition over it, with ints or numpy arrays for its Vars."""
    import numpy as np

    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, Affine):
        total: Any = e.const
        for atom, coef in e.terms:
            total = total + coef * evaluate_index(atom, env)
        return total
    if isinstance(e, Unary) and e.op == "!":
        return np.logical_not(evaluate_index(e.a, env))
    if not isinstance(e, Binary):
        raise InternalError(f"{type(e).__name__} in an index expression")
    a, b = evaluate_index(e.a, env), evaluate_index(e.b, env)
    if e.op in COMPARISONS:
        return _COMPARE[e.op](a, b)
    match e.op:
        case "&&":
            return np.logical_and(a, b)
        case "||":
            return np.logical_or(a, b)
        case "min" | "max" if not isinstance(a, int) or not isinstance(b, int):
            return np.minimum(a, b) if e.op == "min" else np.maximum(a, b)
    return _FOLD[e.op](a, b)


def loads(e: Expr) -> Iterator[Load]:
    """All loads inside `e`."""
    return (node for node in walk(e) if isinstance(node, Load))


def buffer_of(load: Load) -> Buffer:
    """The buffer a Load of loop IR reads."""
    return load.source  # type: ignore[return-value]
