"""Schedules: how the stages of a graph are computed. TVM's names, checked at the call.

`Schedule` is the one mutable object. Each primitive checks, computes a new `ScheduleState`,
replaces the old one and appends one `Step`; a primitive that fails changes nothing. Primitives of a
stage are methods of `Stage`: loops (split ... reorder), placement (compute_at ... set_scope),
annotation (vectorize ... pragma); those that rewrite the graph are methods of `Schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from akg_py.errors import ScheduleError, find_place
from akg_py.te import rewrite
from akg_py.te.hardware import THREAD_AXES, ThreadAxis
from akg_py.te.layout import read_layout, text_of
from akg_py.te.loops import fuse_axes, reorder_axes, split_axis
from akg_py.te.stage import INLINE, LoopMark, ScheduleState, StageState, unique_name
from akg_py.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor, graph_order
from akg_py.te.trace import Step, Trace


def create_schedule(ops: object) -> Schedule:
    """A schedule of the graph that ends in `ops`: an operation, a tensor, or a list of them."""
    items = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    tensors: list[Tensor] = []
    for item in items:
        if isinstance(item, Tensor):
            tensors += item.op.outputs
        elif isinstance(item, ComputeOp):
            tensors += item.outputs
        else:
            raise ScheduleError(
                f"can't schedule {item!r}", hint="pass C.op, or a list of operations"
            )
    return Schedule(tensors)


class Schedule:
    """Stages of a graph with their loops; see `create_schedule`.

    `s[C]` (or `s["C"]`) is a stage; `s.trace` the steps so far; `print(s)` shows both.
    """

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self.outputs = tuple(dict.fromkeys(outputs))
        order = graph_order(self.outputs)
        names = _unique_names([op.name for op in order])
        stages, inputs = [], []
        ends = {id(t.op) for t in self.outputs}
        for op, name in zip(order, names, strict=True):
            if isinstance(op, PlaceholderOp):
                inputs.append(op)
            else:
                leaves = op.axis + op.reduce_axis
                stages.append(
                    StageState(name, tuple(op.outputs), op, leaves, is_output=id(op) in ends)
                )
        self._input_names = {
            op: n for op, n in zip(order, names, strict=True) if isinstance(op, PlaceholderOp)
        }
        self._state = ScheduleState(tuple(stages), tuple(inputs))
        self._steps: tuple[Step, ...] = ()
        self.auto = False  # while set, steps are marked as appended by schedule completion

    # ------------------------------------------------------------ look-up

    @property
    def state(self) -> ScheduleState:
        """The frozen state (for passes)."""
        return self._state

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, producers first."""
        return tuple(Stage(self, s.name) for s in self._state.stages)

    @property
    def trace(self) -> Trace:
        """The steps taken, as data that prints, saves and replays."""
        return Trace(self._steps)

    def __getitem__(self, key: object) -> Stage:
        if isinstance(key, str):
            if any(s.name == key for s in self._state.stages):
                return Stage(self, key)
        elif isinstance(key, Tensor):
            stage = self._state.producer(key)
            if stage is not None:
                return Stage(self, stage.name)
        else:
            for s in self._state.stages:
                if s.op is key or any(t.op is key for t in s.outputs):
                    return Stage(self, s.name)
        raise ScheduleError(
            f"no stage for {key!r}",
            hint=f"stages: {', '.join(s.name for s in self._state.stages)}; inputs have none",
        )

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`: an input, or the output of a stage."""
        for op, label in self._input_names.items():
            if label == name:
                return op.outputs[0]
        for s in self._state.stages:
            for t in s.outputs:
                if s.name == name or t.name == name:
                    return t
        raise ScheduleError(f"no tensor {name!r} in this schedule", hint=self._known_names())

    def tensor_name(self, tensor: Tensor) -> str:
        """The name by which steps refer to `tensor`."""
        if isinstance(tensor.op, PlaceholderOp):
            if tensor.op in self._input_names:
                return self._input_names[tensor.op]
        else:
            stage = self._state.producer(tensor)
            if stage is not None:
                return stage.name if len(stage.outputs) == 1 else tensor.name
        raise ScheduleError(f"{tensor.name} is not part of this schedule", hint=self._known_names())

    def _known_names(self) -> str:
        names = [*self._input_names.values(), *(s.name for s in self._state.stages)]
        return f"tensors: {', '.join(names)}"

    def copy(self) -> Schedule:
        """An independent schedule in the same state (states are frozen, so this is cheap)."""
        new = Schedule.__new__(Schedule)
        new.__dict__.update(self.__dict__)
        return new

    def apply(self, trace: Trace) -> None:
        """Replay the steps of a trace made on an equal graph."""
        trace.replay(self)

    def __str__(self) -> str:
        lines = []
        for s in self._state.stages:
            where = "output" if s.is_output else ""
            if s.attached_to:
                where = f"at {s.attached_to[0]}.{s.attached_to[1].name}"
            elif s.is_inline:
                where = "inline"
            leaves = " ".join(_show_axis(s, a) for a in s.leaves)
            scope = f" in {s.scope}" if s.scope else ""
            copies = f" x {s.copies}" if s.copies > 1 else ""
            lines.append(f"{s.name}: {leaves}{scope}{copies} {where}".rstrip())
        return "\n".join(lines) + "\n\n" + str(self.trace)

    # ------------------------------------------------------------ recording

    def _commit(
        self, state: ScheduleState, primitive: str, stage: str, *args: object, **kwargs: object
    ) -> None:
        self._state = state
        self._steps += (
            Step(primitive, stage, args, tuple(kwargs.items()), self.auto, find_place()),
        )

    def _placed(self, state: ScheduleState, tensor: Tensor) -> ScheduleState:
        """`state` with the user's line noted on the new stage of `tensor`."""
        stage = state.producer(tensor)
        if stage is None or self.auto:
            return state
        return state.with_stage(replace(stage, placed=find_place()))

    # ------------------------------------------------------------ graph rewriting

    def cache_read(self, tensor: Tensor | str, scope: str, readers: object) -> Tensor:
        """Insert a copy of `tensor` in memory `scope` that the `readers` read instead.

        Before: `C[i] = f(A[i])`; after: `A.L1[i] = A[i]; C[i] = f(A.L1[i])`. Returns the copy.

        Args:
            readers: stages, tensors or operations that read `tensor`.
        """
        source = self.tensor(tensor) if isinstance(tensor, str) else tensor
        label = self.tensor_name(source)
        items = readers if isinstance(readers, (list, tuple)) else [readers]
        names = [item.name if isinstance(item, Stage) else self[item].name for item in items]
        state, copy = rewrite.cache_read(self._state, source, label, scope, names)
        state = self._placed(state, copy)
        self._commit(state, "cache_read", "", label, scope, tuple(names))
        return copy

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute the stage of `tensor` in memory `scope`; the stage itself becomes the copy out.

        Before: `C[i] = f(i)`; after: `C.L0C[i] = f(i); C[i] = C.L0C[i]`. Loops over data axes stay
        with the copy, reduce axes (with their splits) move to the new stage. Returns the new
        tensor(s).
        """
        given = tuple(tensor) if isinstance(tensor, (list, tuple)) else (tensor,)
        tensors = [self.tensor(t) if isinstance(t, str) else t for t in given]
        stage = self[tensors[0]]
        state, caches = rewrite.cache_write(self._state, stage._state, scope)
        state = self._placed(state, caches[0])
        self._commit(state, "cache_write", "", stage.name, scope)
        return list(caches) if isinstance(tensor, (list, tuple)) else caches[0]

    def rfactor(self, tensor: Tensor | str, axis: IterVar | str, factor_axis: int = 0) -> Any:
        """Turn one loop of a reduction into a data axis of a new stage `<name>.rf`.

        Before: `B[i] = sum(A[i, k])`, k split into ko, ki; after `rfactor(B, ko)`:
        `B.rf[ko, i] = sum(A[i, ko * f + ki], axis=ki); B[i] = sum(B.rf[ko.v, i], axis=ko.v)`.
        """
        stage = self[tensor]
        leaf = stage._axis(axis, "rfactor")
        state, tensors = rewrite.rfactor(self._state, stage._state, leaf, factor_axis)
        self._commit(state, "rfactor", "", stage.name, leaf.name, factor_axis=factor_axis)
        return tensors[0] if len(tensors) == 1 else list(tensors)


def _unique_names(names: list[str]) -> list[str]:
    taken = set(names)
    result: list[str] = []
    for name in names:
        unique = unique_name(name, taken) if name in result else name
        taken.add(unique)
        result.append(unique)
    return result


def _show_axis(state: StageState, axis: IterVar) -> str:
    mark = state.mark(axis)
    words = (
        [str(axis.extent)]
        + (["reduce"] if axis.is_reduce else [])
        + ([mark.kind] if mark.kind != "serial" else [])
    )
    return f"{axis.name}[{' '.join(words)}]"


class Stage:
    """A handle on one stage of a schedule; obtained by `s[C]`."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self._schedule = schedule
        self.name = name

    @property
    def _state(self) -> StageState:
        return self._schedule._state.stage(self.name)

    @property
    def op(self) -> ComputeOp:
        """What the stage computes now; `op.axis` and `op.reduce_axis` are its root axes."""
        return self._state.op

    @property
    def leaf_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops, outermost first."""
        return self._state.leaves

    @property
    def scope(self) -> str:
        return self._state.scope

    def __repr__(self) -> str:
        return f"Stage({self.name}: {' '.join(map(repr, self._state.leaves))})"

    # ------------------------------------------------------------ checks

    def _error(self, problem: str, hint: str = "") -> ScheduleError:
        axes = " ".join(_show_axis(self._state, a) for a in self._state.leaves)
        return ScheduleError(f"{self.name}: {problem}\n  axes of {self.name}:  {axes}", hint=hint)

    def _axis(self, axis: object, verb: str) -> IterVar:
        leaves = self._state.leaves
        found = next((a for a in leaves if a is axis or a.name == axis), None)
        if found is not None:
            return found
        name = axis.name if isinstance(axis, IterVar) else axis
        home = next(
            (s.name for s in self._schedule._state.stages if any(a is axis for a in s.leaves)), None
        )
        if home is not None:
            raise self._error(
                f"can't {verb} {name}: it is an axis of {home}",
                f's["{home}"] has it; or use one of the axes above',
            )
        if isinstance(axis, (IterVar, str)) and name in self._state.axis_names() - {
            a.name for a in leaves
        }:
            raise self._error(
                f"can't {verb} {name}: it has been split or fused", "use the axes that came of it"
            )
        raise self._error(
            f"can't {verb} {name}: it is no axis of this stage", "use one of the axes above"
        )

    def _update(self, new: StageState, primitive: str, *args: object, **kwargs: object) -> None:
        self._schedule._commit(
            self._schedule._state.with_stage(new), primitive, self.name, *args, **kwargs
        )

    def _store(self, change: dict[str, Any], primitive: str, *args: object) -> None:
        """Change where or how the result is stored, and remember the user's line that said so."""
        place = self._state.placed if self._schedule.auto else find_place()
        self._update(replace(self._state, placed=place, **change), primitive, *args)

    # ------------------------------------------------------------ loops

    def split(
        self, parent: IterVar | str, factor: int | None = None, nparts: int | None = None
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two: chunks of `factor` iterations, or `nparts` chunks.

        Before: `for i in n`; after: `for i.outer in ceil(n / factor): for i.inner in factor`. The
        last chunk is shorter when `factor` does not divide n. Returns (outer, inner).
        """
        axis = self._axis(parent, "split")
        if (factor is None) == (nparts is None):
            raise self._error(
                f"can't split {axis.name}: give either factor or nparts", "split(axis, factor=16)"
            )
        size = factor if factor is not None else nparts
        if isinstance(size, bool) or not hasattr(size, "__index__") or size.__index__() < 1:  # type: ignore[union-attr]
            raise self._error(
                f"can't split {axis.name}: factor and nparts are positive integers, not {size!r}",
                "split(axis, factor=16)",
            )
        given = {"factor": factor, "nparts": nparts}
        sizes = {name: x.__index__() for name, x in given.items() if x is not None}
        state, outer, inner = split_axis(
            self._schedule._state, self._state, axis, sizes.get("factor"), sizes.get("nparts")
        )
        self._schedule._commit(state, "split", self.name, axis.name, **sizes)
        return outer, inner

    def tile(
        self, x_parent: IterVar | str, y_parent: IterVar | str, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and order them (x.outer, y.outer, x.inner, y.inner)."""
        before = (self._schedule._state, self._schedule._steps)
        try:
            xo, xi = self.split(x_parent, factor=x_factor)
            yo, yi = self.split(y_parent, factor=y_factor)
            self.reorder(xo, yo, xi, yi)
        except ScheduleError:
            self._schedule._state, self._schedule._steps = before
            raise
        return xo, yo, xi, yi

    def fuse(self, *axes: IterVar | str) -> IterVar:
        """Make one loop of neighbours, given outermost first; of none, a loop of extent 1."""
        leaves = [self._axis(a, "fuse") for a in axes]
        order = [self._state.leaves.index(a) for a in leaves]
        if order != list(range(order[0], order[0] + len(order))) if order else False:
            raise self._error(
                f"can't fuse {', '.join(a.name for a in leaves)}: only neighbouring loops, "
                "outermost first, can be fused",
                "reorder them first",
            )
        state, fused = fuse_axes(self._schedule._state, self._state, leaves)
        self._schedule._commit(state, "fuse", self.name, *(a.name for a in leaves))
        return fused

    def reorder(self, *axes: IterVar | str) -> None:
        """Put the named loops into this order, in the places they occupy together."""
        leaves = [self._axis(a, "reorder") for a in axes]
        if len(set(leaves)) != len(leaves):
            raise self._error("can't reorder: an axis is named twice", "name each axis once")
        self._update(reorder_axes(self._state, leaves), "reorder", *(a.name for a in leaves))

    # ------------------------------------------------------------ annotation

    def _annotate(
        self, axis: IterVar | str, verb: str, kind: str, over_reduce: bool, *args: object
    ) -> None:
        leaf = self._axis(axis, verb)
        if leaf.is_reduce and not over_reduce:
            others = (
                ", ".join(a.name for a in self._state.leaves if not a.is_reduce) or "no other axis"
            )
            word = "parallelize" if verb == "parallel" else verb
            raise self._error(
                f"can't {word} {leaf.name}: it is a reduce axis, and its iterations write the same "
                "element",
                f"{word} {others}, or rfactor {leaf.name} first",
            )
        mark = replace(self._state.mark(leaf), kind=kind, place=find_place())
        self._update(self._state.with_mark(leaf, mark), verb, leaf.name, *args)

    def vectorize(self, axis: IterVar | str) -> None:
        """Run the loop in vector lanes. Not for reduce axes."""
        self._annotate(axis, "vectorize", "vector", False)

    def unroll(self, axis: IterVar | str) -> None:
        """Repeat the loop's body in the code."""
        self._annotate(axis, "unroll", "unroll", True)

    def parallel(self, axis: IterVar | str) -> None:
        """Run iterations on several cores. Not for reduce axes."""
        self._annotate(axis, "parallel", "parallel", False)

    def bind(self, axis: IterVar | str, thread: ThreadAxis | str) -> None:
        """Deal the iterations of a loop to the cores of the device: each is one block."""
        tag = thread.tag if isinstance(thread, ThreadAxis) else thread
        if tag not in THREAD_AXES:
            raise self._error(
                f"can't bind to {tag!r}: only thread axes are allowed",
                'te.thread_axis("blockIdx.x")',
            )
        self._annotate(axis, "bind", "core", False, tag)

    def pragma(self, axis: IterVar | str, pragma_type: str, pragma_value: object = None) -> None:
        """Attach a note to a loop; `unroll` and `vectorize` are the methods of these names."""
        if pragma_type in ("unroll", "vectorize"):
            return self.unroll(axis) if pragma_type == "unroll" else self.vectorize(axis)
        leaf = self._axis(axis, "pragma")
        mark = self._state.mark(leaf)
        mark = replace(mark, pragmas=(*mark.pragmas, (pragma_type, pragma_value)))
        self._update(
            self._state.with_mark(leaf, mark), "pragma", leaf.name, pragma_type, pragma_value
        )

    def pipeline(self, axis: IterVar | str, stages: int) -> None:
        """Keep `stages` copies of stages attached at or under this loop, to overlap iterations."""
        leaf = self._axis(axis, "pipeline")
        if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
            raise self._error(
                f"can't pipeline {leaf.name} in {stages!r} stages: give a positive integer",
                "2 copies overlap filling with using",
            )
        mark = replace(self._state.mark(leaf), pipeline=stages)
        self._update(self._state.with_mark(leaf, mark), "pipeline", leaf.name, stages)

    def tensorize(self, axis: IterVar | str, intrin: object) -> None:
        """Compute this loop and those inside by an intrinsic; lowering checks that both are equal.

        Args:
            intrin: from `te.decl_tensor_intrin`, or the name of one.
        """
        from akg_py.te.intrin import find_intrin

        leaf = self._axis(axis, "tensorize")
        name = find_intrin(intrin).name
        mark = replace(self._state.mark(leaf), tensorize=name, place=find_place())
        self._update(self._state.with_mark(leaf, mark), "tensorize", leaf.name, name)

    # ------------------------------------------------------------ placement

    def compute_at(self, parent: Stage | Tensor | str, axis: IterVar | str) -> None:
        """Compute what is needed of this stage inside the loop `axis` of a stage that uses it."""
        target = parent if isinstance(parent, Stage) else self._schedule[parent]
        if target._schedule is not self._schedule:
            raise self._error(
                f"can't compute at {target.name}: it belongs to another schedule",
                "take the stage from this one",
            )
        leaf = target._axis(axis, f"compute {self.name} at")
        if self._state.is_output:
            raise self._error(
                f"can't compute {self.name} at {target.name}: an output stays at the root",
                "cache_write it and attach the cache",
            )
        if target._state.is_inline:
            raise self._error(
                f"can't compute {self.name} at {target.name}: that is inlined and has no loops",
                f"attach to the stage that uses {target.name}",
            )
        self._check_uses(target)
        self._store({"attach": (target.name, leaf)}, "compute_at", target.name, leaf.name)

    def _check_uses(self, target: Stage) -> None:
        state = self._schedule._state
        seen, todo = set(), [self._state]
        while todo:
            for consumer in state.consumers(todo.pop()):
                if consumer.name not in seen:
                    seen.add(consumer.name)
                    todo.append(consumer)
        if target.name not in seen:
            raise self._error(
                f"can't compute {self.name} at {target.name}: {target.name} doesn't use it",
                f"stages that do: {', '.join(sorted(seen)) or 'none'}",
            )
        at: StageState | None = target._state
        while at is not None and at.attached_to is not None:
            if at.attached_to[0] == self.name:
                raise self._error(
                    f"can't compute {self.name} at {target.name}: that is computed inside "
                    f"{self.name}",
                    "attach it to a stage outside",
                )
            at = state.stage(at.attached_to[0])

    def compute_inline(self) -> None:
        """Put the expression where it is used instead of storing it. Not for reductions."""
        s = self._state
        if s.op.reduce_axis:
            raise self._error(
                "can't inline a reduction", "compute_at a loop of its consumer instead"
            )
        if len(s.outputs) > 1:
            raise self._error("can't inline a stage with several outputs", "compute_at instead")
        if s.is_output:
            raise self._error(
                "can't inline an output", "inline its producers, or schedule it at the root"
            )
        inside = [
            o.name
            for o in self._schedule._state.stages
            if o.attached_to and o.attached_to[0] == self.name
        ]
        if inside:
            raise self._error(
                f"can't inline it: {', '.join(inside)} is computed inside its loops",
                "compute_root those, or attach them to another stage, first",
            )
        self._update(replace(s, attach=INLINE), "compute_inline")

    def compute_root(self) -> None:
        """Compute the whole stage before its consumers."""
        self._update(replace(self._state, attach=None), "compute_root")

    def set_scope(self, scope: str) -> None:
        """Put the stage's result into memory `scope`: `UB`, `L1`, `L0C` ... or `global`."""
        if self._state.is_output and scope != "global":
            raise self._error(f"can't put an output into {scope}", f"cache_write it to {scope}")
        self._store({"scope": str(scope)}, "set_scope", str(scope))

    def double_buffer(self) -> None:
        """Keep two copies of the stage's result: filling one overlaps with using the other."""
        if self._state.is_output:
            raise self._error(
                "can't double-buffer an output", "cache_write it and double-buffer the cache"
            )
        self._store({"copies": 2}, "double_buffer")

    def storage_align(self, axis: IterVar | str, factor: int, offset: int = 0) -> None:
        """Pad rows so that the stride of `axis`, in elements, is `offset` modulo `factor`."""
        roots = self._state.op.axis
        index = next((n for n, a in enumerate(roots) if a is axis or a.name == axis), None)
        if index is None:
            raise self._error(
                f"can't align {axis}: it is no root axis",
                f"one of {', '.join(a.name for a in roots)}",
            )
        if self._state.layout is not None:
            raise self._error(
                "can't pad the rows of a changed layout", "storage_align without transform_layout"
            )
        if factor < 1:
            raise self._error(
                "can't align: factor is a positive integer", "storage_align(axis, 16)"
            )
        self._update(
            replace(self._state, align=(index, factor, offset)),
            "storage_align",
            roots[index].name,
            factor,
            offset,
        )

    def transform_layout(self, index_map: str | Callable[..., object]) -> None:
        """Store the result with other axes: splits and permutations of the root axes.

        Loops and values stay; only where elements lie changes. Before: `B[i, j]`; after
        `transform_layout(lambda i, j: (j // 16, i, j % 16))`: `B[j // 16, i, j % 16]`, so that
        16 neighbours along j lie together, row after row.

        Args:
            index_map: a function of the axes, or its text: `"i, j -> j // 16, i, j % 16"`.
        """
        if self._state.is_output:
            raise self._error(
                "can't change the layout of an output", "cache_write it and change the cache's"
            )
        if self._state.align is not None:
            raise self._error(
                "can't change the layout of padded rows", "transform_layout without storage_align"
            )
        roots = self._state.op.axis
        try:
            layout = read_layout(index_map, roots)
        except ScheduleError as e:
            raise self._error(e.message, e.hint) from None
        self._store({"layout": layout}, "transform_layout", text_of(layout, roots))


__all__ = ["LoopMark", "Schedule", "Stage", "create_schedule"]
