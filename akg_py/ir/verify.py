"""What must hold of loop IR: checked after every pass, so that a broken invariant names its pass.

In goes a Func, out comes nothing or an InternalError with the statement. Bounds of accesses are
refused only where the static bounds of the loops prove a violation for every iteration; accesses
under an If, or under a choice that guards, are left to the interpreter.
"""

from __future__ import annotations

from dataclasses import replace

from akg_py import dtypes
from akg_py.errors import InternalError
from akg_py.ir.expr import (
    COMPARISONS,
    INDEX,
    MATH_FUNCTIONS,
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
    bounds,
    children,
    free_vars,
    is_index,
)
from akg_py.ir.stmt import LOOP_KINDS, Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt, Store
from akg_py.records import dataclass

LEVELS = ("loops",)
_ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max", "pow")
_NO_RACE = ("parallel", "core", "vector")


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is visible at a statement.

    Attributes:
        concurrent: enclosing loops whose iterations run at the same time, with the buffers alive
            when each began (storage made inside is private to an iteration).
    """

    vars: frozenset[Var]
    buffers: frozenset[int]
    concurrent: tuple[tuple[For, frozenset[int]], ...] = ()
    runs: bool = True  # not under a condition, and no enclosing loop may be empty


class _Verifier:
    def __init__(self, func: Func, stage: str) -> None:
        self.func = func
        self.stage = stage
        self.inputs = {id(p) for p in func.params} - {id(p) for p in func.outputs}
        self.stored: set[int] = set()

    def fail(self, problem: str, s: Stmt | None = None) -> InternalError:
        text = (
            ""
            if s is None
            else "\n" + "\n".join(f"    {line}" for line in str(s).splitlines()[:12])
        )
        origin = f" ({s.origin})" if s is not None and s.origin is not None else ""
        return InternalError(
            f"after {self.stage}: {self.func.name}: {problem}{origin}{text}", where=""
        )

    def check(self) -> None:
        func = self.func
        if func.level not in LEVELS and not func.level:
            raise self.fail("it has no level")
        names = [p.name for p in func.params]
        if len(set(names)) != len(names):
            raise self.fail(f"two parameters have one name: {', '.join(names)}")
        for p in func.params:
            self.buffer(p, None)
        if not {id(p) for p in func.outputs} <= {id(p) for p in func.params}:
            raise self.fail("an output is no parameter")
        self.stmt(func.body, _Scope(frozenset(), frozenset(id(p) for p in func.params)))
        for p in func.outputs:
            if id(p) not in self.stored and 0 not in p.shape:
                raise self.fail(f"output {p.name} is never stored")

    def buffer(self, b: Buffer, s: Stmt | None) -> None:
        if b.dtype not in dtypes.DTYPES:
            raise self.fail(f"{b.name} has the unknown dtype {b.dtype}", s)
        if any(not isinstance(n, int) or n < 0 for n in b.shape):
            raise self.fail(f"{b.name} has the shape {list(b.shape)}", s)
        if b.copies < 1:
            raise self.fail(f"{b.name} has {b.copies} copies", s)
        if b.align is not None and (not 0 <= b.align[0] < max(len(b.shape), 1) or b.align[1] < 1):
            raise self.fail(f"{b.name} is aligned by {b.align}", s)

    # ------------------------------------------------------------ statements

    def stmt(self, s: Stmt, scope: _Scope) -> None:
        match s:
            case For():
                self.loop(s, scope)
            case If():
                self.expr(s.condition, s, scope, guarded=not scope.runs)
                if s.condition.dtype != "bool":
                    raise self.fail(f"a condition of dtype {s.condition.dtype}", s)
                for branch in (s.body, s.orelse):
                    if branch is not None:
                        self.stmt(branch, replace(scope, runs=False))
            case Store():
                self.store(s, scope)
            case Alloc():
                self.buffer(s.buffer, s)
                if id(s.buffer) in scope.buffers:
                    raise self.fail(f"{s.buffer.name} is allocated twice", s)
                self.stmt(s.body, replace(scope, buffers=scope.buffers | {id(s.buffer)}))
            case Seq():
                for inner in s.stmts:
                    self.stmt(inner, scope)
            case Intrinsic():
                if not s.name:
                    raise self.fail("an intrinsic without a name", s)
                self.stmt(s.body, scope)
            case _:
                raise self.fail(f"unknown statement {type(s).__name__}")

    def loop(self, s: For, scope: _Scope) -> None:
        if s.kind not in LOOP_KINDS:
            raise self.fail(f"unknown kind of loop {s.kind!r}", s)
        if not is_index(s.extent):
            raise self.fail(f"the extent {s.extent} is no index expression", s)
        self.expr(s.extent, s, scope, guarded=True)
        if s.var in scope.vars:
            raise self.fail(f"the variable {s.var.name} is bound twice", s)
        lo, hi = bounds(s.extent)
        if s.var.lo > 0 or (
            hi > 0 and s.var.hi < min(hi, 1 << 61) - 1 and isinstance(s.extent, Const)
        ):
            raise self.fail(
                f"the variable {s.var.name} is bounded by {s.var.lo}..{s.var.hi}, "
                f"its loop runs {s.extent} times",
                s,
            )
        concurrent = scope.concurrent
        if s.kind in _NO_RACE:
            concurrent = (*concurrent, (s, scope.buffers))
        self.stmt(
            s.body,
            _Scope(scope.vars | {s.var}, scope.buffers, concurrent, scope.runs and lo > 0),
        )

    def store(self, s: Store, scope: _Scope) -> None:
        if not s.buffers or len(s.buffers) != len(s.values):
            raise self.fail(f"{len(s.values)} values for {len(s.buffers)} buffers", s)
        for b, value in zip(s.buffers, s.values, strict=True):
            if id(b) not in scope.buffers:
                raise self.fail(f"{b.name} is stored outside of its allocation", s)
            if id(b) in self.inputs:
                raise self.fail(f"the input {b.name} is stored", s)
            if value.dtype != b.dtype:
                raise self.fail(
                    f"a value of {value.dtype} is stored to {b.name}, which has {b.dtype}", s
                )
            self.access(b, s.indices, s, scope, guarded=not scope.runs)
            self.stored.add(id(b))
        for e in s.indices:
            self.expr(e, s, scope, guarded=not scope.runs)
        for e in s.values:
            self.expr(e, s, scope, guarded=not scope.runs)
        for loop, outside in scope.concurrent:
            if not any(id(b) in outside for b in s.buffers):
                continue
            varies = any(loop.var in free_vars(i) for i in s.indices)
            lo, hi = bounds(loop.extent)
            if not varies and hi > 1 and not (lo <= 1 and not isinstance(loop.extent, Const)):
                raise self.fail(
                    f"iterations of the {loop.kind} loop {loop.var.name} store the same element", s
                )

    def access(
        self, b: Buffer, indices: tuple[Expr, ...], s: Stmt, scope: _Scope, guarded: bool
    ) -> None:
        if len(indices) != len(b.shape):
            raise self.fail(
                f"{b.name} has {len(b.shape)} dimensions, {len(indices)} indices are given", s
            )
        for index, extent in zip(indices, b.shape, strict=True):
            if not dtypes.is_int(index.dtype):
                raise self.fail(f"the index {index} of {b.name} is {index.dtype}", s)
            if guarded or not is_index(index):
                continue
            lo, hi = bounds(index)
            if hi < 0 or lo >= extent:
                raise self.fail(
                    f"the index {index} of {b.name} is always outside of {list(b.shape)}", s
                )

    # ------------------------------------------------------------ expressions

    def expr(self, e: Expr, s: Stmt, scope: _Scope, guarded: bool) -> None:
        match e:
            case Var():
                if e not in scope.vars:
                    raise self.fail(f"the variable {e.name} is used outside of its loop", s)
            case Load():
                if not isinstance(e.source, Buffer):
                    raise self.fail(f"{e} reads a tensor of the language", s)
                if id(e.source) not in scope.buffers:
                    raise self.fail(f"{e.source.name} is read outside of its allocation", s)
                if e.dtype != e.source.dtype:
                    raise self.fail(f"{e} has {e.dtype}, {e.source.name} has {e.source.dtype}", s)
                self.access(e.source, e.indices, s, scope, guarded)
            case Reduce():
                raise self.fail(f"the reduction {e} was not lowered", s)
            case Affine():
                if not e.terms or any(c == 0 for _, c in e.terms) or e.dtype != INDEX:
                    raise self.fail(f"{e!r} is no canonical sum", s)
            case Binary(op="&&" | "||"):
                self.same_dtypes(e, (e.a, e.b), "bool", s)
                self.expr(e.a, s, scope, guarded)
                self.expr(e.b, s, scope, True)
                return
            case Binary():
                if e.op in COMPARISONS:
                    self.same_dtypes(e, (e.a, e.b), e.a.dtype, s)
                    if e.dtype != "bool":
                        raise self.fail(f"the comparison {e} has {e.dtype}", s)
                elif e.op in _ARITHMETIC:
                    self.same_dtypes(e, (e.a, e.b), e.dtype, s)
                else:
                    raise self.fail(f"unknown operator {e.op}", s)
            case Unary():
                if e.op not in ("-", "!") or (e.op == "!" and e.a.dtype != "bool"):
                    raise self.fail(f"{e.op} of {e.a.dtype}", s)
            case Select():
                self.same_dtypes(e, (e.a, e.b), e.dtype, s)
                self.same_dtypes(e, (e.condition,), "bool", s)
                self.expr(e.condition, s, scope, guarded)
                self.expr(e.a, s, scope, guarded or e.guards)
                self.expr(e.b, s, scope, guarded or e.guards)
                return
            case Call():
                if MATH_FUNCTIONS.get(e.name) != len(e.args):
                    raise self.fail(f"unknown function {e.name} of {len(e.args)} arguments", s)
            case Cast():
                if e.dtype not in dtypes.DTYPES:
                    raise self.fail(f"a cast to the unknown dtype {e.dtype}", s)
            case Const():
                pass
            case _:
                raise self.fail(f"unknown expression {type(e).__name__}", s)
        for child in children(e):
            self.expr(child, s, scope, guarded)

    def same_dtypes(self, e: Expr, parts: tuple[Expr, ...], dtype: str, s: Stmt) -> None:
        for part in parts:
            if part.dtype != dtype:
                raise self.fail(f"{part} in {e} has {part.dtype}, not {dtype}", s)


def verify(func: Func, stage: str = "an unnamed pass") -> None:
    """Check that `func` is well-formed loop IR.

    Args:
        stage: the pass that made it, for the message.

    Raises:
        InternalError: with the pass and the offending statement.
    """
    _Verifier(func, stage).check()


__all__ = ["LEVELS", "verify"]
