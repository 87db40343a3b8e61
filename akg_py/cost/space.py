"""Search spaces from TOML files: knobs, constraints with a reason, defaults, an estimate.

`SearchSpace.load` reads the file, `bind` gives it the sizes of one workload and one device. A bound
space enumerates its feasible configs as arrays, one knob at a time, dropping what a constraint
forbids as soon as all names of the constraint are known. The same formulas check one config and
rank all.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akg_py.cost.expressions import Formula, Scope
from akg_py.errors import SpaceError
from akg_py.records import dataclass

Value = int | str
Columns = dict[str, NDArray[Any]]
MAX_CONFIGS = 4_000_000  # rows held at once while enumerating

_TABLES = {"op", "about", "knobs", "constraints", "defaults", "estimate"}
_KNOB_KEYS = {"values", "multiples_of", "powers_of_two_from", "upto", "about"}


class Config(Mapping[str, Value]):
    """One value per knob; read as `config.tile_m` or `config["tile_m"]`."""

    __slots__ = ("_values",)
    _values: dict[str, Value]

    def __init__(self, values: Mapping[str, Value]) -> None:
        object.__setattr__(self, "_values", {k: _plain(v) for k, v in values.items()})

    def __getitem__(self, name: str) -> Value:
        try:
            return self._values[name]
        except KeyError:
            raise _unknown_knob(name, self._values) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise SpaceError(
            f"a config can't be changed; {name} stays",
            hint="make a new one: Config({**config, ...})",
        )

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(other) == self._values

    def __reduce__(self) -> tuple[Any, ...]:
        return (Config, (dict(self._values),))

    @property
    def digest(self) -> str:
        """Identity of the config: equal for equal values, whatever their order."""
        return hashlib.sha256(json.dumps(self._values, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self._values.items())

    def __repr__(self) -> str:
        return f"Config({self._values})"


def _plain(value: object) -> Value:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return int(value)
    raise SpaceError(
        f"a knob's value is an integer or a text, not {value!r}", hint="such as values = [16, 32]"
    )


def _unknown_knob(name: str, knobs: Mapping[str, object] | list[str]) -> SpaceError:
    near = get_close_matches(name, list(knobs), 3)
    return SpaceError(
        f"unknown knob {name}",
        hint=f"{'did you mean' if near else 'knobs'}: {', '.join(near or knobs)}",
    )


@dataclass(frozen=True, slots=True)
class Knob:
    """A named choice: fixed values, multiples of a step, or powers of two, none above `upto`."""

    name: str
    values: tuple[Value, ...] = ()
    multiples_of: Formula | None = None
    powers_of_two_from: Formula | None = None
    upto: Formula | None = None
    about: str = ""

    @property
    def is_text(self) -> bool:
        return bool(self.values) and isinstance(self.values[0], str)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that every config must meet, and why."""

    formula: Formula
    reason: str

    def explain(self, values: Mapping[str, Any]) -> str:
        numbers = ", ".join(f"{n} = {values[n]}" for n in sorted(self.formula.names))
        return f"{self.reason}: {self.formula.text} is false for {numbers}"


@dataclass(frozen=True)
class SearchSpace:
    """A space as its file states it, for every shape and device; `bind` makes it concrete."""

    op: str
    origin: str
    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...]
    defaults: dict[str, Formula | str]
    estimate: dict[str, Formula]
    scope: Scope
    digest: str

    @staticmethod
    def load(text: str, origin: str, sizes: Mapping[str, Any]) -> SearchSpace:
        """Read a space file.

        Args:
            text: TOML.
            origin: the file's name, for messages.
            sizes: workload and device sizes that formulas may name (only the names matter here).

        Raises:
            SpaceError: the text is no TOML, or a table, knob or formula is wrong.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SpaceError(
                f"not a TOML file: {error}",
                where=origin,
                hint="see the search spaces of docs/tuning.md",
            ) from None
        return SearchSpace.from_table(table, origin, sizes)

    @staticmethod
    def from_table(table: dict[str, Any], origin: str, sizes: Mapping[str, Any]) -> SearchSpace:
        """As `load`, from the parsed table."""
        return _read(table, origin, sizes)

    def bind(self, sizes: Mapping[str, Any]) -> BoundSpace:
        """The space for one workload and device."""
        return BoundSpace(self, {k: int(v) if isinstance(v, bool) else v for k, v in sizes.items()})


def _read(table: dict[str, Any], origin: str, sizes: Mapping[str, Any]) -> SearchSpace:
    for name in table:
        if name not in _TABLES:
            raise SpaceError(
                f"unknown table {name}", where=origin, hint=f"tables: {', '.join(sorted(_TABLES))}"
            )
    raw = table.get("knobs", {})
    if not isinstance(raw, dict):
        raise SpaceError(
            "[knobs] is no table", where=origin, hint="write [knobs.tile_m], then values = [16, 32]"
        )
    outer = Scope(dict.fromkeys(sizes, "size"), {})
    knobs = tuple(_read_knob(name, spec, outer, origin) for name, spec in raw.items())
    for knob in knobs:
        if knob.name in sizes:
            raise SpaceError(
                f"knob {knob.name} has the name of a size",
                where=origin,
                hint="choose another name, such as tile_m",
            )
    scope = Scope(
        {**dict.fromkeys(sizes, "size"), **{k.name: "knob" for k in knobs}},
        {k.name: k.values for k in knobs if k.is_text},
    )
    constraints = []
    for n, item in enumerate(table.get("constraints", []), 1):
        where = f"{origin}, constraint {n}"
        if not isinstance(item, dict) or "require" not in item or not item.get("reason"):
            raise SpaceError(
                "a constraint has `require` and a `reason`",
                where=where,
                hint="write both: the formula that must hold, and why",
            )
        constraints.append(Constraint(scope.parse(item["require"], where), str(item["reason"])))
        if constraints[-1].formula.expr.dtype != "bool":
            raise SpaceError(
                f"{item['require']!r} is no condition",
                where=where,
                hint='compare, such as "tile_m <= m"',
            )
    defaults: dict[str, Formula | str] = {}
    for name, value in table.get("defaults", {}).items():
        owner = next((k for k in knobs if k.name == name), None)
        if owner is None:
            raise SpaceError(
                f"default of unknown knob {name}", where=origin, hint=_unknown_knob(name, raw).hint
            )
        defaults[name] = (
            str(value) if owner.is_text else outer.parse(value, f"{origin}, default of {name}")
        )
    estimate: dict[str, Formula] = {}
    for name, text in table.get("estimate", {}).items():
        estimate[name] = scope.parse(text, f"{origin}, estimate of {name}")
        scope.define(name)
    if estimate and "seconds" not in estimate:
        raise SpaceError(
            "[estimate] doesn't give `seconds`",
            where=origin,
            hint="its last line ranks configs: seconds = ..., in any unit",
        )
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]
    return SearchSpace(
        str(table.get("op", "")),
        origin,
        knobs,
        tuple(constraints),
        defaults,
        estimate,
        scope,
        digest,
    )


def _read_knob(name: str, spec: Any, scope: Scope, origin: str) -> Knob:
    where = f"{origin}, knob {name}"
    if isinstance(spec, list):
        spec = {"values": spec}
    if not isinstance(spec, dict):
        raise SpaceError(
            "a knob is a list of values or a table",
            where=where,
            hint="values = [16, 32], or multiples_of = 16 with upto",
        )
    for key in spec:
        if key not in _KNOB_KEYS:
            raise SpaceError(
                f"unknown key {key}", where=where, hint=f"keys: {', '.join(sorted(_KNOB_KEYS))}"
            )
    if sum(k in spec for k in ("values", "multiples_of", "powers_of_two_from")) != 1:
        raise SpaceError(
            "give one of values, multiples_of, powers_of_two_from",
            where=where,
            hint="such as values = [16, 32]",
        )
    formula = {
        k: scope.parse(spec[k], where)
        for k in ("multiples_of", "powers_of_two_from", "upto")
        if k in spec
    }
    if "values" not in spec and "upto" not in spec:
        raise SpaceError("a generated knob needs `upto`", where=where, hint='such as upto = "m"')
    values = spec.get("values", [])
    if "values" in spec and (not isinstance(values, list) or not values):
        raise SpaceError("has no values", where=where, hint="such as values = [16, 32]")
    if len({isinstance(v, str) for v in values}) > 1:
        raise SpaceError(
            "mixes numbers and texts",
            where=where,
            hint="use one kind, such as [1, 2] or ['m', 'n']",
        )
    plain = tuple(_plain(v) for v in values)
    if len(set(plain)) != len(plain):
        raise SpaceError("has a value twice", where=where, hint="name each value once")
    return Knob(name, plain, about=str(spec.get("about", "")), **formula)


@dataclass
class BoundSpace:
    """A space with the sizes of one workload on one device."""

    space: SearchSpace
    sizes: dict[str, Any]
    _feasible: Columns | None = field(default=None, repr=False)

    def knob_values(self, knob: Knob) -> tuple[Value, ...]:
        """The values that `knob` may take here; never empty."""
        scope = self.space.scope
        upto = None if knob.upto is None else int(self._number(knob.upto, scope))
        if knob.multiples_of is not None:
            step = max(1, int(self._number(knob.multiples_of, scope)))
            return tuple(range(step, max(step, upto or step) + 1, step))
        if knob.powers_of_two_from is not None:
            values = [max(1, int(self._number(knob.powers_of_two_from, scope)))]
            while upto is not None and values[-1] * 2 <= upto:
                values.append(values[-1] * 2)
            return tuple(values)
        if upto is None or knob.is_text:
            return knob.values
        numbers = [v for v in knob.values if isinstance(v, int)]
        return tuple(v for v in numbers if v <= upto) or (min(numbers),)

    def _number(self, formula: Formula, scope: Scope) -> Any:
        from akg_py.cost.expressions import evaluate

        env = {var: self.sizes[var.name] for var in _vars(formula)}
        return evaluate(formula.expr, env)

    def feasible(self) -> Columns:
        """All feasible configs: one integer column per knob (text knobs as codes), equally long.

        Raises:
            SpaceError: no config satisfies the constraints; the message counts what each one
                dropped.
        """
        if self._feasible is None:
            self._feasible = self._enumerate()
        return self._feasible

    def _enumerate(self) -> Columns:
        columns: Columns = {}
        count = 1
        pending = list(self.space.constraints)
        dropped: list[tuple[Constraint, int]] = []
        known = set(self.sizes)
        for knob in (None, *self.space.knobs):
            if knob is not None:
                values = self.knob_values(knob)
                codes = (
                    np.arange(len(values)) if knob.is_text else np.asarray(values, dtype=np.int64)
                )
                if count * len(codes) > MAX_CONFIGS:
                    raise SpaceError(
                        f"more than {MAX_CONFIGS:,} configs at knob {knob.name}",
                        where=self.space.origin,
                        hint="give knobs fewer values, or put constrained knobs first",
                    )
                columns = {name: np.repeat(col, len(codes)) for name, col in columns.items()}
                columns[knob.name] = np.tile(codes, count)
                count *= len(codes)
                known.add(knob.name)
            ready = [c for c in pending if c.formula.names <= known]
            pending = [c for c in pending if c not in ready]
            for constraint in ready:
                keep = np.broadcast_to(
                    constraint.formula.value({**self.sizes, **columns}, self.space.scope), (count,)
                )
                kept = int(np.count_nonzero(keep))
                if kept != count:
                    dropped.append((constraint, count - kept))
                    columns = {name: col[keep] for name, col in columns.items()}
                    count = kept
                if not count:
                    detail = "\n".join(
                        f"  dropped {n:,}: {c.reason} ({c.formula.text})" for c, n in dropped
                    )
                    raise SpaceError(
                        f"no config of {self.space.op} satisfies all constraints\n{detail}",
                        where=self.space.origin,
                        hint="loosen the last constraint, or give a knob more values",
                    )
        return columns

    def __len__(self) -> int:
        columns = self.feasible()
        return len(next(iter(columns.values()))) if columns else 1

    def config_at(self, row: int) -> Config:
        """The feasible config of that row."""
        columns = self.feasible()
        return Config(
            {
                k.name: k.values[columns[k.name][row]] if k.is_text else columns[k.name][row]
                for k in self.space.knobs
            }
        )

    def check(self, config: Mapping[str, Any]) -> Config:
        """`config` as a Config, if it has every knob and satisfies every constraint.

        Raises:
            SpaceError: unknown or missing knob, a value the knob doesn't have, a violated
                constraint (with its reason and numbers).
        """
        names = [k.name for k in self.space.knobs]
        for name in config:
            if name not in names:
                raise _unknown_knob(name, names)
        missing = [n for n in names if n not in config]
        if missing:
            raise SpaceError(
                f"config without {', '.join(missing)}", hint="start from the default config"
            )
        codes = self._codes(config)
        for constraint in self.space.constraints:
            values = {**self.sizes, **codes}
            if not bool(constraint.formula.value(values, self.space.scope)):
                raise SpaceError(
                    f"infeasible config: {constraint.explain({**values, **config})}",
                    where=self.space.origin,
                    hint="change one of these knobs",
                )
        return Config(config)

    def _codes(self, config: Mapping[str, Any], any_number: bool = False) -> dict[str, int]:
        codes: dict[str, int] = {}
        for knob in self.space.knobs:
            value = _plain(config[knob.name])
            allowed = self.knob_values(knob)
            if value not in allowed and not (any_number and isinstance(value, int)):
                shown = ", ".join(map(str, allowed[:12])) + (" ..." if len(allowed) > 12 else "")
                raise SpaceError(
                    f"knob {knob.name} can't be {value!r} here", hint=f"its values: {shown}"
                )
            codes[knob.name] = allowed.index(value) if knob.is_text else int(value)
        return codes

    def default(self) -> Config:
        """The default config: the feasible one nearest to the file's defaults, usually those."""
        wanted: dict[str, float] = {}
        for knob in self.space.knobs:
            given = self.space.defaults.get(knob.name)
            values = self.knob_values(knob)
            if isinstance(given, str):
                wanted[knob.name] = values.index(given) if given in values else 0
            elif given is not None:
                wanted[knob.name] = float(self._number(given, self.space.scope))
        columns = self.feasible()
        if not columns:
            return Config({})
        distance = np.zeros(len(self))
        for name, target in wanted.items():
            distance += np.abs(np.log2(columns[name] + 1.0) - np.log2(target + 1.0))
        return self.config_at(int(np.argmin(distance)))

    def estimate(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Closed-form quantities of the configs in `columns`, `seconds` among them (arrays)."""
        values: dict[str, Any] = {**self.sizes, **columns}
        result: dict[str, Any] = {}
        with np.errstate(all="ignore"):
            for name, formula in self.space.estimate.items():
                values[name] = result[name] = formula.value(values, self.space.scope)
        return result

    def predict(self) -> NDArray[Any]:
        """Closed-form seconds of every feasible config (equal, if the file has no estimate)."""
        if not self.space.estimate:
            return np.ones(len(self))
        seconds = np.asarray(self.estimate(self.feasible())["seconds"], dtype=np.float64)
        seconds = np.broadcast_to(seconds, (len(self),))
        return np.where(np.isfinite(seconds), seconds, np.inf)

    def estimate_one(self, config: Mapping[str, Any]) -> dict[str, float]:
        """Closed-form quantities of one config."""
        columns = {
            name: np.asarray([code]) for name, code in self._codes(config, any_number=True).items()
        }
        return {name: float(np.ravel(value)[0]) for name, value in self.estimate(columns).items()}


def _vars(formula: Formula) -> set[Any]:
    from akg_py.ir.expr import free_vars

    return free_vars(formula.expr)
