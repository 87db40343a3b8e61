"""Records: what a tuning run found out about one workload on one target, as plain data.

A record names its question (workload, target), the answer (config and trace), the evidence (costs,
baseline, trials, how values were verified) and the circumstances (versions, device constants). It
is JSON, and its digest is its identity.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, field, fields
from typing import Any

from akg_py.errors import DatabaseError
from akg_py.records import dataclass

RECORD_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One answer.

    Attributes:
        workload: display text, such as `matmul:m=1024,n=2048,k=512,dtype=float16`.
        key: digest of the canonical graph: the identity of the question, with `target`.
        trace: JSON steps of the complete schedule; replays with `te.replay`.
        config: knob values the trace was made from.
        costs: `predicted_us` (closed form), `simulated_us` (for the cpu, the measured
            time), and the breakdown: `bound`, `peak_share`, `interval_us`.
        baseline: `config` and `simulated_us` of the default schedule.
        trials: `completed`, `failed` and `space` (number of feasible configs).
        verified: how the values were checked: `full`, `sampled: ...`.
        device: digest of the device constants behind the simulation.
        space: digest of the search space.
        versions: of the package and models that gave the numbers.
    """

    workload: str
    key: str
    target: str
    config: dict[str, Any]
    trace: list[Any]
    costs: dict[str, Any]
    baseline: dict[str, Any] = field(default_factory=dict)
    trials: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    verified: str = ""
    device: str = ""
    space: str = ""
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Identity: equal for equal contents."""
        return digest_of(asdict(self))

    @property
    def simulated_us(self) -> float:
        """Simulated (cpu: measured) microseconds; infinite if the record has no usable number."""
        value = self.costs.get("simulated_us")
        good = isinstance(value, (int, float)) and math.isfinite(value) and value > 0
        return float(value) if good else math.inf  # type: ignore[arg-type]

    @property
    def is_checked(self) -> bool:
        """Whether the schedule's values were compared with the oracle (not if interrupted)."""
        return bool(self.verified) and not self.verified.startswith("no")

    @property
    def speedup(self) -> float:
        """Baseline time over this record's time; NaN without a baseline."""
        base = self.baseline.get("simulated_us")
        return float(base) / self.simulated_us if isinstance(base, (int, float)) else math.nan

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Record:
        """The record in `data`; unknown fields are ignored, missing or mistyped ones are errors."""
        if not isinstance(data, dict):
            raise DatabaseError("a record is a JSON object", where="")
        known = {f.name: f.type for f in fields(Record)}
        values = {name: value for name, value in data.items() if name in known}
        for name in ("workload", "key", "target", "config", "trace", "costs"):
            if name not in values:
                raise DatabaseError(f"a record without {name}", where="")
        for name, value in values.items():
            kind = str(known[name]).split("[")[0]
            if kind != type(value).__name__:
                raise DatabaseError(
                    f"{name} of a record is {type(value).__name__}, not {kind}", where=""
                )
        return Record(**values)


def digest_of(data: Any) -> str:
    """Short digest of JSON data, independent of the order of keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
