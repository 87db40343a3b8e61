"""Arguments of a kernel call: checked, made contiguous, outputs allocated, results written back.

In: the parameters of a Func and what the user passed; out: `Prepared`, one array per parameter
that any target can take by address. Target-neutral. The common case, right arrays in the right
order, costs about a microsecond.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.errors import ExpressionError
from akg_py.ir.stmt import Buffer

Array = np.ndarray[Any, Any]
_OVERLAP_WORK = 10_000


@dataclass(slots=True)
class Prepared:
    """Arrays to run on, in the order of the parameters.

    Attributes:
        arrays: C-contiguous, aligned, of exactly the parameters' shapes and dtypes.
        addresses: where their elements begin.
        pending: (array of the user, array to copy there after the run).
        allocated: outputs made for this call, or None when the user passed them.
    """

    arrays: list[Array]
    addresses: list[int]
    pending: list[tuple[Array, Array]]
    allocated: list[Array] | None

    def finish(self) -> Any:
        """Copy results back; what the call returns."""
        for target, source in self.pending:
            target[...] = source
        if self.allocated is None:
            return None
        return self.allocated[0] if len(self.allocated) == 1 else tuple(self.allocated)


def prepare(
    params: Sequence[Buffer],
    outputs: Sequence[Buffer],
    arrays: Sequence[Any],
    inplace: Mapping[Buffer, Buffer] | None = None,
) -> Prepared:
    """Check the arguments of a call.

    Args:
        params: all parameters, in call order.
        outputs: those that are written.
        arrays: one per parameter, or one per input (then outputs are allocated).
        inplace: output -> input that may be the same array.

    Raises:
        ExpressionError: a wrong count, dtype, shape or kind of argument, a read-only output,
            or an output that overlaps another argument.
    """
    written = {id(b) for b in outputs}
    allocated: list[Array] | None = None
    if len(arrays) == len(params):
        given = list(arrays)
    elif len(arrays) == sum(id(p) not in written for p in params):
        allocated, given = [], []
        inputs = iter(arrays)
        for p in params:
            if id(p) in written:
                allocated.append(np.empty(p.shape, dtypes.numpy_dtype(p.dtype)))
                given.append(allocated[-1])
            else:
                given.append(next(inputs))
    else:
        raise _count_error(params, written, len(arrays))
    ready: list[Array] = []
    pending: list[tuple[Array, Array]] = []
    for p, a in zip(params, given, strict=True):
        ready.append(_ready(p, a, id(p) in written, pending))
    addresses = [address_of(a) for a in ready]
    if allocated is None and _may_overlap(params, written, given, ready, addresses):
        _check_overlap(params, written, given, inplace or {})
    if allocated is not None and len(outputs) > 1:
        by_id = {id(p): a for p, a in zip(params, given, strict=True)}
        allocated = [by_id[id(o)] for o in outputs]
    return Prepared(ready, addresses, pending, allocated)


def address_of(a: Array) -> int:
    """Where the elements of a contiguous array begin."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(a))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or a dtype buffers don't know
        return int(a.__array_interface__["data"][0])


def _may_overlap(
    params: Sequence[Buffer],
    written: set[int],
    given: Sequence[Any],
    ready: Sequence[Array],
    addresses: Sequence[int],
) -> bool:
    """Whether an output might share memory with another argument: by address, unless copied."""
    spans = [(start, start + a.nbytes) for start, a in zip(addresses, ready, strict=True)]
    for n, p in enumerate(params):
        if given[n] is not ready[n]:
            return True
        if id(p) in written:
            start, end = spans[n]
            for m, (low, high) in enumerate(spans):
                if low < end and start < high and m != n:
                    return True
    return False


def _ready(p: Buffer, a: Any, is_output: bool, pending: list[tuple[Array, Array]]) -> Array:
    dtype = dtypes.numpy_dtype(p.dtype)
    if type(a) is not np.ndarray:
        a = _as_array(p, a, is_output)
    if a.dtype != dtype:
        raise ExpressionError(
            f"{p.name} needs {p.dtype}{_shape(p.shape)}, not {a.dtype}{_shape(a.shape)}",
            hint=_dtype_hint(p, a, is_output),
        )
    if a.shape != p.shape:
        raise ExpressionError(
            f"{p.name} needs {p.dtype}{_shape(p.shape)}, not {a.dtype}{_shape(a.shape)}",
            hint="a kernel is made for one shape; build another one for this shape",
        )
    flags = a.flags
    if is_output and not flags.writeable:
        raise ExpressionError(
            f"the output {p.name} is read-only", hint="pass a copy, or leave the outputs out"
        )
    if flags.c_contiguous and flags.aligned:
        return a  # type: ignore[no-any-return]
    fresh: Array = np.empty(p.shape, dtype)
    fresh[...] = a
    if is_output:
        pending.append((a, fresh))
    return fresh


def _as_array(p: Buffer, a: Any, is_output: bool) -> Array:
    if isinstance(a, np.ndarray):
        return a
    if is_output or not (hasattr(a, "__array__") or hasattr(a, "__array_interface__")):
        raise ExpressionError(
            f"{p.name} needs an array {p.dtype}{_shape(p.shape)}, not {type(a).__name__}",
            hint="pass a numpy array" + (", or leave the outputs out" if is_output else ""),
        )
    return np.asarray(a)


def _check_overlap(
    params: Sequence[Buffer],
    written: set[int],
    given: Sequence[Any],
    inplace: Mapping[Buffer, Buffer],
) -> None:
    for n, p in enumerate(params):
        if id(p) not in written:
            continue
        for m, other in enumerate(params):
            if (
                m == n
                or (id(other) in written and m < n)
                or not np.may_share_memory(given[n], given[m])
            ):
                continue
            if inplace.get(p) is other and _is_same(given[n], given[m]):
                continue
            if _overlaps(given[n], given[m]):
                raise ExpressionError(
                    f"the output {p.name} overlaps the argument {other.name}",
                    hint=f"pass a copy, or build with inplace={{{p.name}: {other.name}}}"
                    if id(other) not in written
                    else "pass separate arrays",
                )


def _is_same(a: Array, b: Any) -> bool:
    return bool(
        a.__array_interface__["data"] == np.asarray(b).__array_interface__["data"]
        and a.strides == b.strides
    )


def _overlaps(a: Array, b: Any) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_WORK))  # type: ignore[arg-type]
    except Exception:  # numpy gives up on hard cases: refuse those
        return True


def _count_error(params: Sequence[Buffer], written: set[int], count: int) -> ExpressionError:
    inputs = [p.name for p in params if id(p) not in written]
    names = [p.name for p in params]
    return ExpressionError(
        f"the kernel takes {len(names)} arrays ({', '.join(names)}) or its {len(inputs)} inputs "
        f"({', '.join(inputs) or 'none'}), not {count}",
        hint="pass the outputs to have them written in place, or leave all of them out",
    )


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _dtype_hint(p: Buffer, a: Array, is_output: bool) -> str:
    if is_output:
        return f"make the output with np.empty({tuple(p.shape)}, {p.dtype!r})"
    return (
        f"convert with {p.name}.astype({p.dtype!r})"
        if p.dtype != "bfloat16"
        else "convert with .astype(ml_dtypes.bfloat16)"
    )
