"""Tensor intrinsics: a named computation that a target has an instruction for.

`tensorize` checks that a loop nest computes what the intrinsic declares; loop IR then carries its
name around the nest, which stays as its meaning. Intrinsics are registered by name so that traces
can refer to them.
"""

from __future__ import annotations

from akg_py.errors import ExpressionError, ScheduleError
from akg_py.records import dataclass
from akg_py.te.tensor import ComputeOp, PlaceholderOp, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrin:
    """A registered intrinsic.

    Attributes:
        op: its declaration; inputs are placeholders.
        instruction: the instruction of the target that computes it, such as `MMAD`; empty leaves
            the choice to the target.
    """

    name: str
    op: ComputeOp
    instruction: str = ""


_REGISTRY: dict[str, TensorIntrin] = {}


def decl_tensor_intrin(
    op: ComputeOp, name: str = "tensor_intrin", instruction: str = ""
) -> TensorIntrin:
    """Declare an intrinsic by the computation it does.

    Args:
        op: a computation over placeholders; its shape is the exact shape of one call.
        name: how traces refer to it. Declaring a name again replaces it.
        instruction: the target's instruction to use.
    """
    if not isinstance(op, ComputeOp):
        raise ExpressionError(
            f"{name}: an intrinsic is declared by a te.compute, not {op!r}", hint="pass C.op"
        )
    for t in op.input_tensors:
        if not isinstance(t.op, PlaceholderOp):
            raise ExpressionError(
                f"{name}: its input {t.name} is no placeholder",
                hint="declare the intrinsic over te.placeholder tensors",
            )
    intrin = TensorIntrin(name, op, instruction)
    _REGISTRY[name] = intrin
    return intrin


def find_intrin(intrin: object) -> TensorIntrin:
    """The intrinsic itself, or the one registered by that name."""
    if isinstance(intrin, TensorIntrin):
        return intrin
    if isinstance(intrin, str) and intrin in _REGISTRY:
        return _REGISTRY[intrin]
    known = ", ".join(sorted(_REGISTRY)) or "none"
    raise ScheduleError(
        f"unknown intrinsic {intrin!r}",
        hint=f"declare it with te.decl_tensor_intrin; known: {known}",
    )


__all__ = ["Tensor", "TensorIntrin", "decl_tensor_intrin", "find_intrin"]
