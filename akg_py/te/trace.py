"""Traces: the steps of a schedule as data.

They print as the calls that made them, parse back from that text (`ast`, never `eval`), convert to
JSON and replay on an equal graph.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from akg_py.errors import AkgError, Place, ScheduleError
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.te.schedule import Schedule

STAGE_PRIMITIVES = frozenset(
    {
        "split",
        "fuse",
        "reorder",
        "vectorize",
        "unroll",
        "parallel",
        "bind",
        "pragma",
        "pipeline",
        "tensorize",
        "compute_at",
        "compute_inline",
        "compute_root",
        "set_scope",
        "double_buffer",
        "storage_align",
        "transform_layout",
    }
)
SCHEDULE_PRIMITIVES = frozenset({"cache_read", "cache_write", "rfactor"})


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive: names and plain values only. `auto` marks what completion appended."""

    primitive: str
    stage: str
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...] = ()
    auto: bool = False
    place: Place | None = field(default=None, compare=False)

    def __str__(self) -> str:
        subject = f's["{self.stage}"]' if self.stage else "s"
        parts = [_literal(a) for a in self.args] + [f"{k}={_literal(v)}" for k, v in self.kwargs]
        return f"{subject}.{self.primitive}({', '.join(parts)})"

    def to_json(self) -> list[Any]:
        """`[primitive, stage, args, kwargs, auto]`."""
        return [self.primitive, self.stage, _plain(self.args), dict(self.kwargs), int(self.auto)]

    @classmethod
    def from_json(cls, data: Any) -> Step:
        """Read what `to_json` gave; ScheduleError for anything else."""
        try:
            primitive, stage, args, kwargs, auto = data
            step = cls(primitive, stage, _frozen(args), tuple(kwargs.items()), bool(auto))
        except (TypeError, ValueError, AttributeError) as e:
            raise ScheduleError(
                f"{data!r} is no step of a trace",
                where="trace",
                hint="[primitive, stage, arguments, options, auto], as to_json gives it",
            ) from e
        _check_primitive(step.primitive, bool(step.stage))
        return step


def _check_primitive(primitive: object, of_stage: bool) -> None:
    if not isinstance(primitive, str) or primitive not in (
        STAGE_PRIMITIVES if of_stage else SCHEDULE_PRIMITIVES
    ):
        raise ScheduleError(
            f"unknown primitive {primitive!r} in a trace",
            where="trace",
            hint="was the trace written by a newer akg_py?",
        )


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _plain(value: object) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, slots=True)
class Trace:
    """A sequence of steps."""

    steps: tuple[Step, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __str__(self) -> str:
        return "\n".join(f"{step}{'  # auto' if step.auto else ''}" for step in self.steps)

    def to_json(self) -> list[Any]:
        """A JSON-able list; `from_json` reads it back."""
        return [step.to_json() for step in self.steps]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Trace:
        """Read what `to_json` gave; ScheduleError for anything else."""
        if not isinstance(data, (list, tuple)):
            raise ScheduleError(
                f"{data!r} is no trace", where="trace", hint="a list of steps, as to_json gives it"
            )
        return cls(tuple(Step.from_json(d) for d in data))

    @classmethod
    def parse(cls, text: str) -> Trace:
        """Read what `str(trace)` prints."""
        try:
            tree = ast.parse(text)
        except SyntaxError as e:
            raise ScheduleError(
                f"not a trace: {e.msg}",
                where=f"trace, line {e.lineno}",
                hint="one primitive a line, as print(s.trace) writes it",
            ) from e
        lines = text.splitlines()
        return cls(tuple(_parse_step(node, lines) for node in tree.body))

    def replay(self, schedule: Schedule) -> None:
        """Call every primitive on `schedule`; an error names the step."""
        for number, step in enumerate(self.steps, 1):
            before = schedule.auto
            schedule.auto = step.auto
            try:
                target: Any = schedule[step.stage] if step.stage else schedule
                _call(getattr(target, step.primitive), step)
            except AkgError as e:
                e.add_note(f"  at step {number} of the trace: {step}")
                raise
            finally:
                schedule.auto = before


def _call(primitive: Callable[..., Any], step: Step) -> None:
    args, kwargs = tuple(map(_listed, step.args)), dict(step.kwargs)
    try:
        inspect.signature(primitive).bind(*args, **kwargs)
    except TypeError as e:
        raise ScheduleError(
            f"{step.primitive} doesn't take these arguments: {e}",
            hint="was the trace written by another version of akg_py?",
        ) from None
    primitive(*args, **kwargs)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _parse_step(node: ast.stmt, lines: list[str]) -> Step:
    where = f"trace, line {node.lineno}"
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=subject, attr=primitive), args=args, keywords=keywords
            )
        ):
            pass
        case _:
            raise ScheduleError(
                "not a call of a primitive",
                where=where,
                hint="one primitive a line, as print(s.trace) writes it",
            )
    match subject:
        case ast.Name(id="s"):
            stage = ""
        case ast.Subscript(value=ast.Name(id="s"), slice=ast.Constant(value=str(stage))):
            pass
        case _:
            raise ScheduleError(
                'a step begins with s["stage"]. or s.',
                where=where,
                hint="one primitive a line, as print(s.trace) writes it",
            )
    try:
        values = tuple(_frozen(ast.literal_eval(a)) for a in args)
        named = tuple((k.arg or "", _frozen(ast.literal_eval(k.value))) for k in keywords)
    except ValueError as e:
        raise ScheduleError(
            "arguments of a step are literals",
            where=where,
            hint="axes and stages by name, numbers as they are",
        ) from e
    _check_primitive(primitive, bool(stage))
    return Step(primitive, stage, values, named, lines[node.lineno - 1].rstrip().endswith("# auto"))
