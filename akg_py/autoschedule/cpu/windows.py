"""Recognises stages that sum products of a sliding window and a weight."""

from __future__ import annotations

from akg_py.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    free_vars,
    linear_combination,
)
from akg_py.records import dataclass
from akg_py.te.stage import StageState
from akg_py.te.tensor import IterVar, Tensor


@dataclass(frozen=True)
class Convolution:
    """What `find_convolution` sees in a stage.

    Attributes:
        channel: the output's channel axis.
        group: neighbours along it that read the same input.
        pixels: the last one or two axes that windows slide along, columns last.
        others: images of a batch, and further axes.
        data, weight: what the sum reads.
    """

    stage: StageState
    channel: IterVar
    group: int
    pixels: tuple[IterVar, ...]
    others: tuple[IterVar, ...]
    data: Load
    weight: Load

    @property
    def channel_is_last(self) -> bool:
        """Whether channels are the innermost axis of the output."""
        return self.stage.op.axis[-1] is self.channel

    @property
    def column_step(self) -> int:
        """Columns of the input from one window to the next."""
        columns = self.pixels[-1]
        steps = [linear_combination(i)[0].get(columns, 0) for i in self.data.indices]
        return max(steps)


def find_convolution(stage: StageState) -> Convolution | None:
    """The convolution that `stage` computes, or None."""
    e = stage.op.body[0]
    if not isinstance(e, Reduce) or e.combiner.name != "sum" or e.where is not None or e.init:
        return None
    product = e.sources[0]
    if not isinstance(product, Binary) or product.op != "*":
        return None
    sides = _load(product.a), _load(product.b)
    for data, weight in (sides, sides[::-1]):
        if data is not None and weight is not None:
            found = _read(stage, data, weight)
            if found is not None:
                return found
    return None


def _load(e: Expr) -> Load | None:
    while isinstance(e, Cast):
        e = e.a
    return e if isinstance(e, Load) and isinstance(e.source, Tensor) else None


def _read(stage: StageState, data: Load, weight: Load) -> Convolution | None:
    axes, reduce = stage.op.axis, stage.op.reduce_axis
    known = [i for i in weight.indices if not isinstance(i, Const)]
    own = [a for a in axes if any(i is a for i in known)]
    steps = [a for a in reduce if any(i is a for i in known)]
    if len(own) != 1 or len(own) + len(steps) != len(known):
        return None
    (channel,) = own
    group, sliding = channel.extent, set()
    for index in data.indices:
        used = free_vars(index)
        if channel in used:
            share = _share(index, channel)
            if share is None or channel.extent % share:
                return None
            group = share
        elif len(used) > 1:
            sliding |= {a for a in axes if a in used}
    others = tuple(a for a in axes if a is not channel and a not in sliding)
    if not sliding or not all(any(i is a for i in data.indices) for a in others):
        return None
    pixels = tuple(a for a in axes if a in sliding)
    return Convolution(stage, channel, group, pixels[-2:], others + pixels[:-2], data, weight)


def _share(index: Expr, channel: IterVar) -> int | None:
    """n of an index whose only part that depends on `channel` is `channel // n`, or itself."""
    found = None
    for atom in linear_combination(index)[0]:
        if atom is channel:
            return 1
        if channel in free_vars(atom):
            if not isinstance(atom, Binary) or atom.op != "//" or atom.a is not channel:
                return None
            if not isinstance(atom.b, Const):
                return None
            found = int(atom.b.value)
    return found
