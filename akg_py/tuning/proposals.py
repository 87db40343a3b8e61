"""Which configs to measure next: by the closed form, corrected by what was measured.

The feasible space is enumerated, so a proposal is a row of it. The first batch is the default
config and the best-ranked configs, kept apart from each other. Later batches come from a model of
log(measured / predicted), learned on all measurements so far, plus neighbours of the best config.
Everything is a function of (seed, measurements), so a resumed run proposes what the first one
would have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from akg_py.cost.space import BoundSpace, Config
from akg_py.records import dataclass
from akg_py.tuning.residual import Residual

POOL = 4_000  # best-ranked rows that the model looks at
MAX_LEARN = 500  # measurements that the model learns from
OPTIMISM = 0.5  # standard deviations by which an unknown config is favoured
MIN_LEARN = 8  # measurements before the model is asked
LOCAL_MOVES = 2  # of each batch


@dataclass
class Proposer:
    """Proposes rows of the feasible space.

    Args:
        space: the bound space.
        seed: of all choices.
        batch: configs per proposal, independent of the number of workers.
        first: configs to begin with, such as the default.
        random: propose at random instead, for comparison.
    """

    space: BoundSpace
    seed: int = 0
    batch: int = 8
    first: tuple[Config, ...] = ()
    random: bool = False

    def __post_init__(self) -> None:
        self.columns = self.space.feasible()
        self.size = len(self.space)
        self.predicted = self.space.predict()
        self.order = np.argsort(self.predicted, kind="stable")
        if self.random:
            self.order = np.random.default_rng(self.seed).permutation(self.size)
        names = list(self.columns)
        raw = np.stack([self.columns[n] for n in names], axis=1) if names else np.zeros((1, 0))
        self.features = np.log2(np.abs(raw) + 1.0)
        self._scaled = self.features / np.maximum(self.features.std(axis=0), 1e-9)
        rest = self.order[POOL:]
        spread = rest[:: max(1, len(rest) // (POOL // 4))]  # so that it sees every region
        self._pool = np.concatenate([self.order[:POOL], spread])
        self._raw = raw
        self._codes = np.zeros(self.size, dtype=np.int64)  # mixed radix: one number per config
        self._digits: list[dict[object, int]] = []
        stride = 1
        for knob, column in zip(self.space.space.knobs, raw.T, strict=True):
            values, digit = np.unique(column, return_inverse=True)
            self._codes += digit * stride
            shown = (knob.values[v] if knob.is_text else int(v) for v in values)
            self._digits.append({value: n * stride for n, value in enumerate(shown)})
            stride *= len(values)
        self._by_code = np.argsort(self._codes, kind="stable")
        self._sorted_codes = self._codes[self._by_code]

    def row_of(self, config: Mapping[str, object]) -> int | None:
        """The row of a config, or None if it isn't feasible."""
        code = 0
        for knob, digits in zip(self.space.space.knobs, self._digits, strict=True):
            digit = digits.get(config.get(knob.name))
            if digit is None:
                return None
            code += digit
        place = int(np.searchsorted(self._sorted_codes, code))
        found = place < self.size and self._sorted_codes[place] == code
        return int(self._by_code[place]) if found else None

    def propose(self, measured: Mapping[int, float | None], number: int) -> list[int]:
        """Rows of batch `number`, given measured seconds by row (None for a failure).

        Fewer than `batch` rows mean that the space is used up.
        """
        taken = set(measured)
        good = {
            row: t for row, t in measured.items() if t is not None and t > 0 and math.isfinite(t)
        }
        rows: list[int] = []
        if not measured:
            rows += [r for c in self.first if (r := self.row_of(c)) is not None and r not in taken]
            rows = list(dict.fromkeys(rows))[: self.batch]
        wanted = self.batch - len(rows)
        if self.random:
            return rows + self._fill(taken | set(rows), wanted)
        if len(measured) < MIN_LEARN:
            rows += self._diverse(taken | set(rows), wanted)
        else:
            score = self._score(measured, good)
            moves = self._neighbours(good, score, taken, min(LOCAL_MOVES, wanted))
            rows += moves
            rows += self._top(score, taken | set(rows), self.batch - len(rows))
        rows += self._fill(taken | set(rows), self.batch - len(rows))
        return rows

    def _diverse(self, taken: set[int], count: int) -> list[int]:
        """The best-ranked rows, each at some distance from those chosen before."""
        chosen: list[int] = []
        pool = self._pool[:2000]
        for least in (2.0, 1.0, 0.0):
            for row in pool:
                if len(chosen) >= count:
                    return chosen
                row = int(row)
                if row in taken or row in chosen:
                    continue
                near = chosen + sorted(taken)[:64]
                if least and near:
                    gap = np.abs(self.features[near] - self.features[row]).sum(axis=1).min()
                    if gap < least:
                        continue
                chosen.append(row)
        return chosen

    def _score(
        self, measured: Mapping[int, float | None], good: Mapping[int, float]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Optimistic log seconds of the rows in the pool (sorted rows, scores)."""
        known = sorted(measured)[-MAX_LEARN:]
        log_predicted = np.log(np.maximum(self.predicted, 1e-12))
        log_predicted[~np.isfinite(log_predicted)] = 50.0
        seen = [math.log(good[r]) - log_predicted[r] for r in known if r in good]
        worst = max(seen, default=0.0) + math.log(2)  # what a failure counts as
        errors = [math.log(good[r]) - log_predicted[r] if r in good else worst for r in known]
        prior = float(np.median(seen)) if seen else 0.0
        model = Residual(self._scaled[known], np.asarray(errors), prior)
        rows = np.unique(np.concatenate([self._pool, np.asarray(sorted(measured))]))
        mean, deviation = model.predict(self._scaled[rows])
        return rows, log_predicted[rows] + mean - OPTIMISM * deviation

    def _top(
        self, score: tuple[NDArray[np.int64], NDArray[np.float64]], taken: set[int], count: int
    ) -> list[int]:
        rows, values = score
        chosen: list[int] = []
        for n in np.argsort(values, kind="stable"):
            if len(chosen) >= count:
                break
            if int(rows[n]) not in taken:
                chosen.append(int(rows[n]))
        return chosen

    def _neighbours(
        self,
        good: Mapping[int, float],
        score: tuple[NDArray[np.int64], NDArray[np.float64]],
        taken: set[int],
        count: int,
    ) -> list[int]:
        """Rows that differ from one of the best in one knob, the most promising first."""
        rows, values = score
        expected = dict(zip(rows.tolist(), values.tolist(), strict=True))
        found: list[int] = []
        for best in sorted(good, key=lambda r: (good[r], r))[:3]:
            differs = (self._raw != self._raw[best]).sum(axis=1)
            near = [
                int(r)
                for r in np.flatnonzero(differs == 1)
                if int(r) not in taken and int(r) not in found
            ]
            near.sort(key=lambda r: (expected.get(r, math.inf), r))
            found += near[: count - len(found)]
            if len(found) >= count:
                break
        return found

    def _fill(self, taken: set[int], count: int) -> list[int]:
        """Unmeasured rows in order."""
        chosen: list[int] = []
        for row in self.order:
            if len(chosen) >= count:
                break
            if int(row) not in taken:
                chosen.append(int(row))
        return chosen
