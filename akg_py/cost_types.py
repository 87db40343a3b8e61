"""Cost: what a time is made of. Plain data that every layer may return.

Busy times of pipes overlap and don't add up; the critical path does, to the time of the slowest
core. `interval` comes from the residuals of the validation, and no gain inside it is a gain.
"""

from __future__ import annotations

from dataclasses import field

from akg_py.records import dataclass


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """One phase of a Program.

    Attributes:
        seconds: max of the slowest core, the GM port and HBM.
        cycles: of the slowest core.
        busy: busy cycles by pipe, of the slowest core.
        critical: cycles of the slowest core's critical path by pipe, plus "issue" and "latency";
            empty unless asked for.
        bound: what decides: a pipe, "latency", "issue", "HBM" or "GM port".
    """

    name: str
    kind: str
    cores: int
    seconds: float
    cycles: float
    busy: dict[str, float]
    critical: dict[str, float]
    hbm_seconds: float
    port_seconds: float
    bound: str


@dataclass(frozen=True, slots=True)
class Cost:
    """A time with its breakdown.

    Attributes:
        seconds: launch, phases and barriers.
        interval: (low, high) seconds, from `residual`.
        bytes_read, bytes_written: GM traffic by tensor, all cores.
        hbm_bytes: what of it reaches HBM under `l2` ("warm" or "cold").
        source: what made it: "simulated", "closed form", "measured".
        residual: relative error of the model on measurements, with its origin in `residual_source`.
    """

    seconds: float
    interval: tuple[float, float]
    cycles: float
    busy: dict[str, float]
    critical: dict[str, float]
    bound: str
    phases: tuple[PhaseCost, ...] = ()
    launch_seconds: float = 0.0
    barrier_seconds: float = 0.0
    bytes_read: dict[str, int] = field(default_factory=dict)
    bytes_written: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    l2: str = "warm"
    source: str = "simulated"
    residual: float = 0.0
    residual_source: str = ""

    @property
    def microseconds(self) -> float:
        return self.seconds * 1e6

    def explain(self) -> str:
        """The breakdown as a few lines of text; times in us."""
        low, high = self.interval
        lines = [
            f"{self.microseconds:.2f} us ({low * 1e6:.2f} to {high * 1e6:.2f}), "
            f"bound by {self.bound}, L2 {self.l2}",
            f"  launch   {self.launch_seconds * 1e6:9.2f} us",
        ]
        for p in self.phases:
            lines.append(
                f"  {p.name:8} {p.seconds * 1e6:9.2f} us on {p.cores} {p.kind} cores, "
                f"bound by {p.bound}"
            )
            total = max(p.cycles, 1e-9)
            busy = "  ".join(f"{k} {v / total:.0%}" for k, v in p.busy.items() if v > 0)
            lines.append(f"    cycles   {p.cycles:9.0f}   busy: {busy}")
            if p.critical:
                parts = sorted(((v, k) for k, v in p.critical.items() if v > 0), reverse=True)
                lines.append(
                    "    critical path: " + "  ".join(f"{k} {v / total:.0%}" for v, k in parts)
                )
            if p.hbm_seconds:
                lines.append(f"    HBM      {p.hbm_seconds * 1e6:9.2f} us")
        if self.barrier_seconds:
            lines.append(f"  barriers {self.barrier_seconds * 1e6:9.2f} us")
        for name, amount in self.bytes_read.items():
            if amount:
                lines.append(f"  read     {amount:12,} B of {name}")
        for name, amount in self.bytes_written.items():
            if amount:
                lines.append(f"  written  {amount:12,} B of {name}")
        lines.append(f"  HBM      {self.hbm_bytes:12,} B")
        if self.residual:
            lines.append(f"  interval: +-{self.residual:.0%}, {self.residual_source}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()
