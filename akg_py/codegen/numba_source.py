"""The loop nest as Python that a reader understands and numba compiles: `kernel.source`.

Every operation is rounded to its dtype by an explicit `np.float32(...)`, as in the loop IR. 16-bit
floats are passed as `uint16` views, because numba has no such arrays on a processor. Slow beside
the compiled kernel: it is there to be read, stepped through and compared with.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

from akg_py import dtypes
from akg_py.errors import InternalError
from akg_py.ir.expr import (
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    is_index,
)
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt, Store

_HEADER = "import math\n\nimport numpy as np\nfrom numba import njit, prange\n"
_HELPERS = {
    "_divide": '''
@njit
def _divide(a, b):
    """Floor division of integers; by zero gives 0."""
    return a // b if b != 0 else a * 0
''',
    "_modulo": '''
@njit
def _modulo(a, b):
    """Remainder with the sign of the divisor; by zero gives 0."""
    return a % b if b != 0 else a * 0
''',
    "_power": '''
@njit
def _power(a, b):
    """Integer power, wrapping around; a negative exponent gives 0."""
    result = a * 0 + 1 if b >= 0 else a * 0
    for _ in range(b):
        result = result * a
    return result
''',
    "_from_float16": '''
@njit
def _from_float16(bits):
    """The float32 value of the bits of a float16."""
    sign = np.float32(-1.0) if bits & 0x8000 else np.float32(1.0)
    exponent, fraction = (np.int64(bits) >> 10) & 31, np.float32(np.int64(bits) & 1023)
    if exponent == 31:
        return sign * np.float32(np.inf) if fraction == 0 else np.float32(np.nan)
    if exponent == 0:
        return sign * fraction * np.float32(2.0**-24)
    return sign * (np.float32(1024.0) + fraction) * np.float32(2.0 ** (exponent - 25))
''',
    "_to_float16": '''
@njit
def _to_float16(value):
    """The bits of the nearest float16, ties to even."""
    x = np.float64(value)
    sign = 0x8000 if math.copysign(1.0, x) < 0 else 0
    x = abs(x)
    if x != x:
        return np.uint16(0x7E00)
    if x >= 65520.0:
        return np.uint16(sign | 0x7C00)
    exponent = max(math.frexp(x)[1] - 1, -14) if x > 0 else -14
    steps = np.int64(np.rint(x / 2.0 ** (exponent - 10)))
    return np.uint16(sign + ((exponent + 14) << 10) + steps)
''',
    "_from_bfloat16": '''
@njit
def _from_bfloat16(bits):
    """The float32 value of the bits of a bfloat16."""
    return np.array([np.uint32(bits) << np.uint32(16)], np.uint32).view(np.float32)[0]
''',
    "_to_bfloat16": '''
@njit
def _to_bfloat16(value):
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.int64(np.array([value], np.float32).view(np.uint32)[0])
    if value != value:
        return np.uint16(0x7FC0)
    return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
''',
}
_WIDE_CALLS = {
    "asin": "np.arcsin({0})",
    "acos": "np.arccos({0})",
    "atan": "np.arctan({0})",
    "atan2": "np.arctan2({0}, {1})",
    "erf": "math.erf({0})",
    "sigmoid": "(1.0 / (1.0 + np.exp(-{0})))",
    "rsqrt": "(1.0 / np.sqrt({0}))",
    "round": "np.rint({0})",
    "pow": "np.power({0}, {1})",
    "fmod": "np.fmod({0}, {1})",
    "abs": "np.abs({0})",
}
_NARROW = ("float16", "bfloat16")


def source_of(func: Func) -> str:
    """Python text that defines `func` as an `@njit` function over its parameters."""
    return _Writer(func).text()


def function_of(func: Func) -> Any:
    """The function that `source_of` describes; numba compiles it when it is called."""
    writer = _Writer(func)
    namespace: dict[str, Any] = {"__name__": "akg_py.generated"}
    exec(compile(writer.text(), f"<{func.name}>", "exec"), namespace)
    return namespace[writer.name]


class _Writer:
    def __init__(self, func: Func) -> None:
        self.func = func
        self.taken = {"np", "math", "njit", "prange", *_HELPERS}
        self.names: dict[int, str] = {}
        self.helpers: set[str] = set()
        self.temporaries = 0
        self.name = self._fresh(func.name)

    def _fresh(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted) or "x"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"_{base}"
        name, n = base, 1
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name

    def _name(self, thing: Var | Buffer) -> str:
        if id(thing) not in self.names:
            self.names[id(thing)] = self._fresh(thing.name)
        return self.names[id(thing)]

    def text(self) -> str:
        params = ", ".join(self._name(p) for p in self.func.params)
        notes = [
            f"    {self._name(p)}: {self._storage(p.dtype)}{list(p.shape)}"
            for p in self.func.params
        ]
        body = self._stmt(self.func.body, 1) or ["    pass"]
        outputs = ", ".join(self._name(o) for o in self.func.outputs)
        lines = [
            "@njit",
            f"def {self.name}({params}):",
            f'    """Writes {outputs}.',
            "",
            *notes,
            '    """',
            *body,
        ]
        helpers = [_HELPERS[h] for h in sorted(self.helpers)]
        return "\n".join([_HEADER, *helpers, "", *lines]) + "\n"

    def _storage(self, dtype: str) -> str:
        return f"uint16 (the bits of {dtype})" if dtype in _NARROW else dtype

    # ------------------------------------------------------------ statements

    def _stmt(self, s: Stmt, depth: int) -> list[str]:
        pad = "    " * depth
        match s:
            case Seq():
                return [line for inner in s.stmts for line in self._stmt(inner, depth)]
            case For():
                kind = "prange" if s.kind in ("parallel", "core") else "range"
                note = f"  # {s.kind}" if s.kind not in ("serial", "parallel", "core") else ""
                head = f"{pad}for {self._name(s.var)} in {kind}({self._index(s.extent)}):{note}"
                return [head, *(self._stmt(s.body, depth + 1) or [f"{pad}    pass"])]
            case If():
                lines = [
                    f"{pad}if {self._value(s.condition)}:",
                    *(self._stmt(s.body, depth + 1) or [f"{pad}    pass"]),
                ]
                if s.orelse is not None:
                    lines += [
                        f"{pad}else:",
                        *(self._stmt(s.orelse, depth + 1) or [f"{pad}    pass"]),
                    ]
                return lines
            case Store():
                return self._store(s, pad)
            case Alloc():
                dtype = "uint16" if s.buffer.dtype in _NARROW else self._type(s.buffer.dtype)[3:]
                shape = ", ".join(map(str, s.buffer.shape)) + (
                    "," if len(s.buffer.shape) == 1 else ""
                )
                return [
                    f"{pad}{self._name(s.buffer)} = np.empty(({shape}), np.{dtype})",
                    *self._stmt(s.body, depth),
                ]
            case Intrinsic():
                return [f"{pad}# {s.name}", *self._stmt(s.body, depth)]
        raise InternalError(f"no source for {type(s).__name__}")

    def _store(self, s: Store, pad: str) -> list[str]:
        index = ", ".join(map(self._index, s.indices)) or "()"
        values = [self._as_stored(v, b.dtype) for v, b in zip(s.values, s.buffers, strict=True)]
        targets = [f"{self._name(b)}[{index}]" for b in s.buffers]
        if len(values) == 1:
            return [f"{pad}{targets[0]} = {values[0]}"]
        names = []
        for _ in values:
            self.temporaries += 1
            names.append(self._fresh(f"new_{self.temporaries}"))
        return [f"{pad}{n} = {v}" for n, v in zip(names, values, strict=True)] + [
            f"{pad}{t} = {n}" for t, n in zip(targets, names, strict=True)
        ]

    def _as_stored(self, v: Expr, dtype: str) -> str:
        text = self._converted(v, dtype)
        return self._help(f"_to_{dtype}", text) if dtype in _NARROW else text

    # ------------------------------------------------------------ expressions

    def _help(self, helper: str, *args: str) -> str:
        self.helpers.add(helper)
        return f"{helper}({', '.join(args)})"

    def _type(self, dtype: str) -> str:
        return {"bool": "np.bool_", "float16": "np.float32", "bfloat16": "np.float32"}.get(
            dtype, f"np.{dtype}"
        )

    def _round(self, text: str, dtype: str) -> str:
        if dtype in _NARROW:
            return self._help(f"_from_{dtype}", self._help(f"_to_{dtype}", text))
        return f"{self._type(dtype)}({text})"

    def _converted(self, e: Expr, dtype: str) -> str:
        text = self._value(e)
        if e.dtype == dtype and not (is_index(e) and not isinstance(e, Const)):
            return text
        if dtype == "bool":
            return f"({text} != 0)"
        return self._round(text, dtype)

    def _index(self, e: Expr) -> str:
        if isinstance(e, Const):
            return str(int(e.value))
        if isinstance(e, Var):
            return self._name(e)
        if isinstance(e, Affine):
            parts = [self._index(a) if c == 1 else f"{self._index(a)} * {c}" for a, c in e.terms]
            return f"({' + '.join([*parts, str(e.const)] if e.const else parts)})".replace(
                "+ -", "- "
            )
        if isinstance(e, Binary) and is_index(e):
            a, b = self._index(e.a), self._index(e.b)
            return f"{e.op}({a}, {b})" if e.op in ("min", "max") else f"({a} {e.op} {b})"
        return f"np.int64({self._value(e)})"

    def _value(self, e: Expr) -> str:
        match e:
            case Const():
                return self._constant(e)
            case Var() | Affine():
                return self._index(e)
            case Binary():
                return self._binary(e)
            case Unary():
                return (
                    f"(not {self._value(e.a)})"
                    if e.op == "!"
                    else self._round(f"-{self._value(e.a)}", e.dtype)
                )
            case Cast():
                return self._converted(e.a, e.dtype)
            case Select():
                a, b = self._converted(e.a, e.dtype), self._converted(e.b, e.dtype)
                return f"({a} if {self._value(e.condition)} else {b})"
            case Call():
                return self._call(e)
            case Load():
                index = ", ".join(map(self._index, e.indices)) or "()"
                text = f"{self._name(e.source)}[{index}]"  # type: ignore[arg-type]
                return self._help(f"_from_{e.dtype}", text) if e.dtype in _NARROW else text
        raise InternalError(f"no source for {type(e).__name__}")

    def _constant(self, e: Const) -> str:
        if e.dtype == "bool":
            return str(bool(e.value))
        if not dtypes.is_float(e.dtype):
            return f"{self._type(e.dtype)}({int(e.value)})"
        value = float(e.value)
        if e.dtype in _NARROW:
            value = float(dtypes.numpy_dtype(e.dtype).type(value))
        text = (
            repr(value)
            if value - value == 0
            else "np.nan"
            if value != value
            else f"{'-' if value < 0 else ''}np.inf"
        )
        return f"{self._type(e.dtype)}({text})"

    def _binary(self, e: Binary) -> str:
        if is_index(e):
            return self._index(e)
        a, b, dtype = self._value(e.a), self._value(e.b), e.a.dtype
        is_float = dtypes.is_float(dtype)
        if e.op in ("&&", "||"):
            return f"({a} {'and' if e.op == '&&' else 'or'} {b})"
        if e.op in ("==", "!=", "<", "<=", ">", ">="):
            return f"({a} {e.op} {b})"
        if e.op in ("min", "max"):
            return self._round(f"np.{e.op}imum({a}, {b})", e.dtype)
        if e.op == "pow":
            return self._round(
                f"np.power({a}, {b})" if is_float else self._help("_power", a, b), e.dtype
            )
        if e.op in ("//", "%"):
            if is_float:
                return self._round(
                    f"np.{'floor_divide' if e.op == '//' else 'remainder'}({a}, {b})", e.dtype
                )
            return self._round(self._help("_divide" if e.op == "//" else "_modulo", a, b), e.dtype)
        return self._round(f"{a} {e.op} {b}", e.dtype)

    def _call(self, e: Call) -> str:
        if e.dtype == "bool":
            return f"np.{e.name}({self._value(e.args[0])})"
        if not dtypes.is_float(e.dtype):
            return self._round(f"np.abs({self._value(e.args[0])})", e.dtype)
        args = [f"np.float64({self._value(a)})" for a in e.args]
        return self._round(_WIDE_CALLS.get(e.name, f"np.{e.name}({{0}})").format(*args), e.dtype)
