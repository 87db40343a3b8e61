"""Checks that the loops under a tensorized axis compute what the intrinsic declares."""

from __future__ import annotations

from collections.abc import Mapping

from akg_py.errors import Place, ScheduleError
from akg_py.ir.expr import (
    Affine,
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Reduce,
    Unary,
    children,
    constant_value,
)
from akg_py.te.intrin import TensorIntrin, find_intrin
from akg_py.te.stage import Split, StageState
from akg_py.te.tensor import IterVar


def check_tensorize(
    stage: StageState,
    axis: IterVar,
    name: str,
    extents: Mapping[IterVar, Expr],
    place: Place | None,
) -> None:
    """Raise unless the loops from `axis` inward compute the intrinsic `name`, call for call."""
    intrin = find_intrin(name)
    inner = stage.leaves[stage.leaves.index(axis) :]
    ours = []
    for a in inner:
        extent = constant_value(extents[a])
        if extent is None:
            raise ScheduleError(
                f"{stage.name}: can't tensorize {axis.name}: {a.name} has a tail, "
                f"its extent is {extents[a]}",
                where=place,
                hint="choose tiles that divide the shape, or leave the tail to another loop",
            )
        ours.append((a, extent))
    theirs = [(a, a.extent) for a in intrin.op.axis + intrin.op.reduce_axis]
    kinds = [(n, a.is_reduce) for a, n in ours if n != 1]
    declared = [(n, a.is_reduce) for a, n in theirs if n != 1]
    if kinds != declared:
        raise ScheduleError(
            f"{stage.name}: can't tensorize {axis.name}: {name} computes {_show(declared)}, "
            f"the loops are {_show(kinds)}",
            where=place,
            hint="split the loops to these extents and order them as the intrinsic does",
        )
    matcher = _Matcher(
        stage,
        intrin,
        dict(zip((a for a, n in theirs if n != 1), (a for a, n in ours if n != 1), strict=True)),
    )
    for mine, its in zip(stage.op.body, intrin.op.body, strict=False):
        if not matcher.match(mine, its):
            raise ScheduleError(
                f"{stage.name}: can't tensorize {axis.name}: it computes\n    {mine}\n"
                f"  {name} computes\n    {its}",
                where=place,
                hint="declare the intrinsic with the same expression",
            )


def _show(extents: list[tuple[int, bool]]) -> str:
    return "[" + ", ".join(f"{n}{' reduce' if r else ''}" for n, r in extents) + "]"


class _Matcher:
    def __init__(
        self, stage: StageState, intrin: TensorIntrin, axes: dict[IterVar, IterVar]
    ) -> None:
        self.root_of = self._roots(stage)
        self.axes = axes  # axis of the intrinsic -> loop of the stage
        self.tensors: dict[object, object] = {}

    @staticmethod
    def _roots(stage: StageState) -> dict[IterVar, IterVar]:
        """The root axis of each loop that moves it by one."""
        root = {a: a for a in stage.op.axis + stage.op.reduce_axis}
        for r in stage.relations:
            if isinstance(r, Split) and r.parent in root:
                root[r.inner] = root[r.parent]
        return root

    def match(self, mine: Expr, its: Expr) -> bool:
        match mine, its:
            case Const(), Const():
                return mine.value == its.value and mine.dtype == its.dtype
            case Load(), Load():
                return self._match_load(mine, its)
            case Binary(), Binary() if mine.op != its.op:
                return False
            case Call(), Call() if mine.name != its.name:
                return False
            case Unary(), Unary() if mine.op != its.op:
                return False
            case Reduce(), Reduce() if mine.combiner.name != its.combiner.name:
                return False
            case (Affine(), _) | (_, Affine()):
                return False
        if type(mine) is not type(its) or mine.dtype != its.dtype:
            return False
        ours, theirs = children(mine), children(its)
        return len(ours) == len(theirs) and all(map(self.match, ours, theirs))

    def _match_load(self, mine: Load, its: Load) -> bool:
        if (
            mine.dtype != its.dtype
            or self.tensors.setdefault(its.source, mine.source) is not mine.source
        ):
            return False
        extra = len(mine.indices) - len(its.indices)
        if extra < 0:
            return False
        for n, index in enumerate(mine.indices):
            moves = {loop for loop in self.axes.values() if self.root_of.get(loop) is index}
            expected = its.indices[n - extra] if n >= extra else Const(0, "int32")
            wanted = (
                {self.axes[expected]}
                if isinstance(expected, IterVar) and expected in self.axes
                else set()
            )
            if moves != wanted:
                return False
        return True
