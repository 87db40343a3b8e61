"""The meaning of loop IR: runs a Func element by element, slowly.

numpy scalars give each operation its dtype's value (rounding, wrap-around, NaN). Fresh storage is
filled with NaN or a marker value, and an index out of range is an InternalError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.errors import InternalError
from akg_py.ir.evaluate import apply_binary, apply_call, convert
from akg_py.ir.expr import (
    COMPARISONS,
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
    evaluate_index,
    is_index,
)
from akg_py.ir.stmt import Alloc, Buffer, For, Func, If, Intrinsic, Seq, Stmt, Store


def interpret(func: Func, *arrays: np.ndarray[Any, Any]) -> None:
    """Run `func` on one array per parameter, in order; outputs are written in place.

    Args:
        arrays: shapes and dtypes exactly those of `func.params`.
    """
    storage: dict[int, np.ndarray[Any, Any]] = {}
    for buffer, array in zip(func.params, arrays, strict=True):
        if array.shape != buffer.shape or array.dtype != dtypes.numpy_dtype(buffer.dtype):
            raise InternalError(f"{buffer.name} needs {buffer.dtype}{list(buffer.shape)}")
        storage[id(buffer)] = array
    with np.errstate(all="ignore"):
        _run(func.body, {}, storage)


def _run(s: Stmt, env: dict[Var, int], storage: dict[int, np.ndarray[Any, Any]]) -> None:
    match s:
        case Seq():
            for inner in s.stmts:
                _run(inner, env, storage)
        case For():
            for i in range(int(evaluate_index(s.extent, env))):
                env[s.var] = i
                _run(s.body, env, storage)
        case If():
            if _value(s.condition, env, storage):
                _run(s.body, env, storage)
            elif s.orelse is not None:
                _run(s.orelse, env, storage)
        case Store():
            values = [_value(v, env, storage) for v in s.values]
            for buffer, value in zip(s.buffers, values, strict=True):
                index = _index(buffer, s.indices, env, storage)
                storage[id(buffer)][index] = convert(value, buffer.dtype)
        case Alloc():
            storage[id(s.buffer)] = _undefined(s.buffer)
            _run(s.body, env, storage)
        case Intrinsic():
            _run(s.body, env, storage)
        case _:
            raise InternalError(f"unknown statement {type(s).__name__}")


def _undefined(buffer: Buffer) -> np.ndarray[Any, Any]:
    filler = np.nan if dtypes.is_float(buffer.dtype) else 85
    return np.full(buffer.shape, filler, dtypes.numpy_dtype(buffer.dtype))


def _index(
    buffer: Buffer,
    indices: tuple[Expr, ...],
    env: dict[Var, int],
    storage: dict[int, np.ndarray[Any, Any]],
) -> tuple[int, ...]:
    index = tuple(
        int(evaluate_index(i, env) if is_index(i) else _value(i, env, storage)) for i in indices
    )
    if any(not 0 <= i < n for i, n in zip(index, buffer.shape, strict=True)):
        raise InternalError(f"{buffer.name}{list(index)} is outside of {list(buffer.shape)}")
    return index


def _value(e: Expr, env: dict[Var, int], storage: dict[int, np.ndarray[Any, Any]]) -> Any:
    match e:
        case Const():
            return dtypes.numpy_dtype(e.dtype).type(e.value)
        case Var() | Affine():
            return (
                convert(evaluate_index(e, env), e.dtype)
                if is_index(e)
                else _affine(e, env, storage)
            )
        case Binary(op="&&"):
            return _value(e.a, env, storage) and _value(e.b, env, storage)
        case Binary(op="||"):
            return _value(e.a, env, storage) or _value(e.b, env, storage)
        case Binary() if e.op in COMPARISONS and is_index(e.a) and is_index(e.b):
            return np.bool_(evaluate_index(e, env))  # indices don't wrap
        case Binary():
            return apply_binary(
                e.op, _value(e.a, env, storage), _value(e.b, env, storage), e.a.dtype
            )
        case Unary():
            a = _value(e.a, env, storage)
            return np.logical_not(a) if e.op == "!" else -a
        case Cast():
            return convert(_value(e.a, env, storage), e.dtype)
        case Select():
            return convert(
                _value(e.a if _value(e.condition, env, storage) else e.b, env, storage), e.dtype
            )
        case Call():
            return apply_call(e.name, [_value(a, env, storage) for a in e.args], e.dtype)
        case Load():
            buffer: Buffer = e.source  # type: ignore[assignment]
            return storage[id(buffer)][_index(buffer, e.indices, env, storage)]
    raise InternalError(f"{type(e).__name__} can't be interpreted")


def _affine(e: Expr, env: dict[Var, int], storage: dict[int, np.ndarray[Any, Any]]) -> Any:
    if isinstance(e, Var):
        return np.int64(env[e])
    assert isinstance(e, Affine)
    return sum((c * _value(a, env, storage) for a, c in e.terms), np.int64(e.const))
