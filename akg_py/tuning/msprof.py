"""Workloads from profiles: `op_summary_*.csv` of msprof, `kernel_details.csv` of PyTorch.

One row is one launch. Rows of operators that akg_py has become workloads, counted; all others are
listed with their number of launches. Columns are found by name, since they vary with the metric
set.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable

from akg_py.errors import AkgError, SpaceError
from akg_py.ops.workload import Workload
from akg_py.records import dataclass
from akg_py.tuning.entries import Entry, Worklist

Shape = tuple[int, ...]
_TYPE = ("OP Type", "Type", "Op Type")
_DTYPES = {
    "FLOAT16": "float16",
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
    "INT32": "int32",
    "INT8": "int8",
    "DOUBLE": "float64",
}
_PLAIN_FORMATS = {"ND", "NCHW", "NHWC", "", "NULL", "N/A"}


class _Skip(Exception):
    """This launch can't become a workload; the text says why."""


@dataclass(frozen=True)
class Launch:
    """One row: operator type, shapes and dtypes of inputs and outputs."""

    kind: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    formats: tuple[str, ...]


def _shape_text(shape: Shape) -> str:
    if not shape:
        raise _Skip("a scalar")
    return "x".join(map(str, shape))


def _rows(op: str) -> Callable[[Launch, str], str]:
    def convert(launch: Launch, dtype: str) -> str:
        return f"{op}:shape={_shape_text(launch.inputs[0])},dtype={dtype}"

    return convert


def _binary(op: str) -> Callable[[Launch, str], str]:
    def convert(launch: Launch, dtype: str) -> str:
        if len(launch.inputs) < 2:
            raise _Skip("one input only")
        x, y = launch.inputs[:2]
        if x == y:
            return f"{op}:shape={_shape_text(x)},dtype={dtype}"
        if op == "add" and len(y) == 1 and x[-1:] == y:
            return f"bias_add:shape={_shape_text(x)},dtype={dtype}"
        raise _Skip("broadcast operands")

    return convert


def _matmul(launch: Launch, dtype: str) -> str:
    if len(launch.inputs) < 2 or not launch.outputs:
        raise _Skip("no shapes of both inputs and the output")
    (a, b), out = launch.inputs[:2], launch.outputs[0]
    if len(a) != 2 or len(b) != 2 or len(out) != 2:
        raise _Skip("operands in a blocked layout")
    m, n = out
    k = _common_extent(a, b, m, n)
    return f"matmul:m={m},n={n},k={k},dtype={dtype}"


def _batch_matmul(launch: Launch, dtype: str) -> str:
    if len(launch.inputs) < 2 or not launch.outputs:
        raise _Skip("no shapes of both inputs and the output")
    (a, b), out = launch.inputs[:2], launch.outputs[0]
    if (
        len(out) < 3
        or len(a) != len(out)
        or len(b) != len(out)
        or a[:-2] != out[:-2]
        or b[:-2] != out[:-2]
    ):
        raise _Skip("broadcast batch or a blocked layout")
    m, n = out[-2:]
    k = _common_extent(a[-2:], b[-2:], m, n)
    return f"batch_matmul:b={math.prod(out[:-2])},m={m},n={n},k={k},dtype={dtype}"


def _common_extent(a: Shape, b: Shape, m: int, n: int) -> int:
    """The reduced extent; profiles don't say which operands are transposed, shapes do."""
    for k in (a[1] if a[0] == m else None, a[0] if a[1] == m else None):
        if k is not None and b in ((k, n), (n, k)):
            return k
    raise _Skip(f"{list(a)} by {list(b)} doesn't give {m} x {n}")


_CONVERT: dict[str, Callable[[Launch, str], str]] = {
    "matmul": _matmul,
    "matmulv2": _matmul,
    "matmulv3": _matmul,
    "matmulcommon": _matmul,
    "batchmatmul": _batch_matmul,
    "batchmatmulv2": _batch_matmul,
    "batchmatmulv3": _batch_matmul,
    "softmaxv2": _rows("softmax"),
    "softmax": _rows("softmax"),
    "layernorm": _rows("layer_norm"),
    "layernormv2": _rows("layer_norm"),
    "layernormv3": _rows("layer_norm"),
    "layernormv4": _rows("layer_norm"),
    "rmsnorm": _rows("rms_norm"),
    "gelu": _rows("gelu"),
    "fastgelu": _rows("gelu"),
    "geluv2": _rows("gelu"),
    "relu": _rows("relu"),
    "sigmoid": _rows("sigmoid"),
    "swish": _rows("silu"),
    "silu": _rows("silu"),
    "add": _binary("add"),
    "addv2": _binary("add"),
    "mul": _binary("mul"),
    "biasadd": _binary("add"),
}


def read_profile(text: str, origin: str) -> Worklist:
    """The workloads of one profile.

    Raises:
        SpaceError: no header of a profile, or a profile without shapes.
    """
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    header = [h.strip() for h in next(reader, [])]
    type_column = next((header.index(name) for name in _TYPE if name in header), None)
    if type_column is None:
        raise SpaceError(
            "not a profile: no column 'OP Type' or 'Type'",
            where=origin,
            hint="give op_summary_*.csv of msprof or kernel_details.csv of the PyTorch profiler",
        )
    if "Input Shapes" not in header or "Output Shapes" not in header:
        raise SpaceError(
            "this profile has no shapes, so there is nothing to tune",
            where=origin,
            hint="profile again with record_shapes=True, or take an op_summary that has them",
        )
    result = Worklist(origin)
    counts: dict[str, tuple[int, str, int]] = {}
    skipped: dict[tuple[str, str], int] = {}
    for line, row in enumerate(reader, 2):
        if not any(cell.strip() for cell in row):
            continue
        where = f"{origin}, line {line}"
        if len(row) <= max(
            type_column, header.index("Input Shapes"), header.index("Output Shapes")
        ):
            result.problems.append(f"{where}: {len(row)} cells, the header has {len(header)}")
            continue
        kind = row[type_column].strip()
        try:
            content = _convert(kind, dict(zip(header, row, strict=False)))
        except _Skip as reason:
            skipped[kind, str(reason)] = skipped.get((kind, str(reason)), 0) + 1
        except ValueError as error:
            result.problems.append(f"{where}: {error}")
        else:
            seen, _, first = counts.get(content, (0, kind, line))
            counts[content] = (seen + 1, kind, first)
    for content, (count, kind, line) in counts.items():
        try:
            result.add(Entry(Workload.parse(content), count, kind))
        except AkgError as error:
            result.problems.append(f"{origin}, line {line}: {error.message}")
    result.skipped = [
        (kind, n, why) for (kind, why), n in sorted(skipped.items(), key=lambda item: -item[1])
    ]
    return result


def _convert(kind: str, row: dict[str, str]) -> str:
    launch = Launch(
        kind,
        _shapes(row["Input Shapes"]),
        _shapes(row["Output Shapes"]),
        tuple(_split(row.get("Input Data Types", ""))),
        tuple(_split(row.get("Input Formats", ""))),
    )
    convert = _CONVERT.get(kind.lower())
    if convert is None:
        raise _Skip("no such operator in akg_py")
    if not launch.inputs:
        raise _Skip("no input shapes")
    if any(f.upper() not in _PLAIN_FORMATS for f in launch.formats):
        raise _Skip(f"format {next(f for f in launch.formats if f.upper() not in _PLAIN_FORMATS)}")
    name = launch.dtypes[0].upper().removeprefix("DT_") if launch.dtypes else ""
    if name not in _DTYPES:
        raise _Skip(f"dtype {name or 'not recorded'}")
    return convert(launch, _DTYPES[name])


def _split(cell: str) -> list[str]:
    return (
        [part.strip() for part in cell.replace('"', "").split(";")]
        if cell.strip() not in ("", "N/A")
        else []
    )


def _shapes(cell: str) -> tuple[Shape, ...]:
    try:
        return tuple(tuple(int(n) for n in part.split(",") if n.strip()) for part in _split(cell))
    except ValueError:
        raise ValueError(f"can't read the shapes {cell!r}") from None
