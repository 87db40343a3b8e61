"""Tensor expressions: declared, scheduled and evaluated.

`placeholder` and `compute` declare, `create_schedule` starts a schedule, `evaluate` is the oracle.
"""

from akg_py.te.error_bound import Bounded, evaluate_with_bound
from akg_py.te.evaluate import evaluate, graph_inputs
from akg_py.te.hardware import thread_axis
from akg_py.te.intrin import TensorIntrin, decl_tensor_intrin
from akg_py.te.math import *
from akg_py.te.math import __all__ as _math_names
from akg_py.te.schedule import Schedule, Stage, create_schedule
from akg_py.te.tensor import (
    ComputeOp,
    IterVar,
    PlaceholderOp,
    Tensor,
    compute,
    placeholder,
    reduce_axis,
)
from akg_py.te.tensor import make_cast as cast
from akg_py.te.trace import Step, Trace

__all__ = [
    "Bounded",
    "ComputeOp",
    "IterVar",
    "PlaceholderOp",
    "Schedule",
    "Stage",
    "Step",
    "Tensor",
    "TensorIntrin",
    "Trace",
    "cast",
    "compute",
    "create_schedule",
    "decl_tensor_intrin",
    "evaluate",
    "evaluate_with_bound",
    "graph_inputs",
    "placeholder",
    "reduce_axis",
    "thread_axis",
    *_math_names,
]
