"""Arguments of a kernel call: checked, made contiguous, outputs allocated, results written back.

In: the parameters of a Func and what the user passed; out: `Prepared`, one array per parameter
that any target can take by address. Target-neutral. The common case, right arrays in the right
order, is tested first and costs about two microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from akg_py import dtypes
from akg_py.codegen.addresses import Array, address_of
from akg_py.codegen.allocator import empty
from akg_py.errors import ExpressionError
from akg_py.ir.stmt import Buffer
from akg_py.records import dataclass

_OVERLAP_WORK = 10_000
_PLAIN, _WRITEABLE = 0x001 | 0x100, 0x400  # numpy's flags: C-contiguous and aligned; writeable


@dataclass(slots=True)
class Prepared:
    """Arrays to run on, in the order of the parameters.

    Attributes:
        arrays: C-contiguous, aligned, of exactly the parameters' shapes and dtypes.
        given: what the user passed for each, or the array that was allocated.
        addresses: where the elements of `arrays` begin.
        pending: (array of the user, array to copy there after the run).
        result: what the call returns.
    """

    arrays: list[Array]
    given: list[Any]
    addresses: list[int]
    pending: list[tuple[Array, Array]]
    result: Any

    def finish(self) -> Any:
        """Copy results back; what the call returns."""
        for target, source in self.pending:
            target[...] = source
        return self.result


class Signature:
    """What a kernel takes.

    Args:
        params: all parameters, in call order.
        outputs: those that are written.
        inplace: output -> input that may be the same array.
    """

    def __init__(
        self,
        params: Sequence[Buffer],
        outputs: Sequence[Buffer],
        inplace: Mapping[Buffer, Buffer] | None = None,
    ) -> None:
        self.params = tuple(params)
        self.outputs = tuple(outputs)
        self.inplace = dict(inplace or {})
        self.written = {id(b) for b in outputs}
        self._inputs = [n for n, p in enumerate(params) if id(p) not in self.written]
        places = {id(p): n for n, p in enumerate(params)}
        self._places = [places[id(b)] for b in outputs]
        where = {n: k for k, n in enumerate([*self._inputs, *self._places])}
        self._order = [where[n] for n in range(len(params))]  # of inputs, then outputs
        kinds = [dtypes.numpy_dtype(p.dtype) for p in params]
        self._checks = [
            (kind, p.shape, _PLAIN | (_WRITEABLE if id(p) in self.written else 0))
            for kind, p in zip(kinds, params, strict=True)
        ]
        sizes = [math.prod(p.shape) * k.itemsize for p, k in zip(params, kinds, strict=True)]
        self._fresh = [(b.shape, dtypes.numpy_dtype(b.dtype)) for b in outputs]
        self._rivals = [  # pairs that must not overlap, their bytes, whether they may be the same
            (n, sizes[n], m, sizes[m], self.inplace.get(params[n]) is params[m])
            for n in self._places
            for m in range(len(params))
            if m != n and (m in self._inputs or m < n)
        ]

    def addresses(self, arrays: Sequence[Any]) -> list[int] | None:
        """Where the elements begin, if all parameters are given as they should be.

        None means that `prepare` has something to convert, allocate or refuse.
        """
        if len(arrays) != len(self._checks):
            return None
        found = []
        for a, (dtype, shape, flags) in zip(arrays, self._checks, strict=True):
            if (
                type(a) is not np.ndarray
                or a.dtype != dtype
                or a.shape != shape
                or a.flags.num & flags != flags
            ):
                return None
            found.append(address_of(a))
        for n, n_bytes, m, m_bytes, same in self._rivals:
            start, other = found[n], found[m]
            if (
                start < other + m_bytes
                and other < start + n_bytes
                and not (same and start == other)
            ):
                return None
        return found

    def prepare(self, arrays: Sequence[Any], out: Any = None) -> Prepared:
        """Check the arguments of a call.

        Args:
            arrays: one per parameter, or one per input; then outputs are allocated.
            out: the outputs of a call with inputs only: an array, or one of each output.

        Raises:
            ExpressionError: a wrong count, dtype, shape or kind of argument, a read-only output,
                or an output that overlaps another argument.
        """
        given, result = self._merge(arrays, out)
        addresses = self.addresses(given)
        if addresses is not None:
            return Prepared(given, given, addresses, [], result)
        ready: list[Array] = []
        pending: list[tuple[Array, Array]] = []
        for p, a in zip(self.params, given, strict=True):
            ready.append(_ready(p, a, id(p) in self.written, pending))
        _check_overlap(self.params, self.written, given, self.inplace)
        return Prepared(ready, given, [address_of(a) for a in ready], pending, result)

    def _merge(self, arrays: Sequence[Any], out: Any) -> tuple[list[Any], Any]:
        """One argument per parameter, and what the call returns."""
        if len(arrays) == len(self.params) and out is None:
            return list(arrays), None
        if len(arrays) != len(self._inputs):
            raise self._count_error(len(arrays), out is not None)
        result = out
        if out is None:
            written = [empty(shape, dtype, arrays) for shape, dtype in self._fresh]
            result = written[0] if len(written) == 1 else tuple(written)
        elif len(self.outputs) == 1 and not isinstance(out, (tuple, list)):
            written = [out]
        elif isinstance(out, (tuple, list)) and len(out) == len(self.outputs):
            written = list(out)
        else:
            raise self._out_error(out)
        every = [*arrays, *written]
        return [every[n] for n in self._order], result

    def _count_error(self, count: int, has_out: bool) -> ExpressionError:
        inputs = [self.params[n].name for n in self._inputs]
        names = [p.name for p in self.params]
        wants = f"its {len(inputs)} inputs ({', '.join(inputs) or 'none'})"
        if has_out:
            return ExpressionError(
                f"beside out= the kernel takes {wants}, not {count}",
                hint="pass each output once: in its place, or with out=",
            )
        return ExpressionError(
            f"the kernel takes {len(names)} arrays ({', '.join(names)}) or {wants}, not {count}",
            hint="pass the outputs to have them written in place, or leave all of them out",
        )

    def _out_error(self, out: Any) -> ExpressionError:
        names = ", ".join(b.name for b in self.outputs)
        many = f"{len(out)} arrays" if isinstance(out, (tuple, list)) else type(out).__name__
        return ExpressionError(
            f"out= is {many}, the kernel has {len(self.outputs)} outputs ({names})",
            hint=f"out=({names})" if len(self.outputs) > 1 else f"out={names}",
        )


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
