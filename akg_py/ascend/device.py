"""Devices: every constant of the simulated parts, from TOML files that name unit and source.

`load_device("ascend910b3")` gives a frozen `Device`; `device["mte2.latency_cycles"]` one value.
DEVICE_MODEL_VERSION changes with any change of the time model, so that stored times can be
qualified.
"""

from __future__ import annotations

import functools
import hashlib
import tomllib
from dataclasses import field
from importlib import resources
from typing import Any

from akg_py.errors import UnsupportedError
from akg_py.records import dataclass

DEVICE_MODEL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant with its unit and provenance."""

    value: Any
    unit: str
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """Plain data of one part. `parameters` maps "section.name" to a Parameter."""

    name: str
    family: str
    parameters: dict[str, Parameter] = field(repr=False)
    digest: str
    cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, key: str) -> Any:
        return self.parameters[key].value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a parameter, or `default`."""
        found = self.parameters.get(key)
        return default if found is None else found.value

    def cores(self, kind: str) -> int:
        """Number of cores of a kind, "aic" or "aiv"."""
        return int(self[f"cores.{kind}"])

    def capacity_bytes(self, scope: str) -> int:
        """Bytes of an on-chip memory: "L1", "L0A", "L0B", "L0C" or "UB"."""
        return int(self[f"memory.{scope.lower()}_bytes"])

    def alignment_bytes(self, scope: str) -> int:
        """Required alignment of operands in an on-chip memory."""
        return int(self[f"align.{scope}"])

    def clock_hz(self, kind: str) -> float:
        """Effective clock of a core kind under load."""
        return float(self["clock.nominal_ghz"] * 1e9 * self[f"clock.{kind}_sustained"])


def _flatten(prefix: str, table: dict[str, Any], out: dict[str, Parameter]) -> None:
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and "value" in value:
            out[name] = Parameter(value["value"], value["unit"], value["source"])
        elif isinstance(value, dict):
            _flatten(name, value, out)


def known_devices() -> tuple[str, ...]:
    """Names of the parts that have a table."""
    folder = resources.files("akg_py.ascend") / "devices"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml")))


def parse_device(text: str, base: Device | None = None) -> Device:
    """A Device from the text of its table; what it leaves out is as in `base`."""
    raw = tomllib.loads(text)
    parameters: dict[str, Parameter] = dict(base.parameters) if base else {}
    _flatten("", raw, parameters)
    text += base.digest if base else ""
    return Device(
        raw["name"], raw["family"], parameters, hashlib.sha256(text.encode()).hexdigest()[:16]
    )


@functools.cache
def load_device(name: str) -> Device:
    """The device called `name`; raises UnsupportedError with the known names."""
    if name not in known_devices():
        raise UnsupportedError(
            f"no device {name!r}", hint=f"known devices: {', '.join(known_devices())}"
        )
    text = (resources.files("akg_py.ascend") / "devices" / f"{name}.toml").read_text()
    base = tomllib.loads(text).get("base")
    return parse_device(text, load_device(base) if base else None)
