"""Which of a trial's reports Optuna's storage is given: all of the first 1,000, then ever fewer.

The journal storage copies all values of a trial for each one added, so that 100,000 reports in one
trial went from 5,288 a second to 55. The event log has every report; the storage gets 500 more each
time that their number doubles (4,500 of 128,000), and besides what must not be missed:

- those at a rung, the best before it and the one after it: from these a study that is resumed knows
  what each trial had reached at each rung, and which rungs it has passed;
- at the trial's end the best and the last: TPE learns from a pruned trial's last value.

Of more than 1,000 rungs in one trial (the median pruner can have one at each step) the rest is
thinned like other reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Point: TypeAlias = tuple[int, float]
"""A step and its value."""
N_WHOLE = 1000
"""So many reports are given without a gap."""
_N_PER_DOUBLING = N_WHOLE // 2
_MAX_RUNGS = 1000


@dataclass
class Thinning:
    """Of one trial. Holds no more than two of its reports."""

    n_given: int = 0
    _n_since: int = 0
    """Reports since the last that was given."""
    _n_rungs: int = 0
    _follows_rung: bool = False
    _best_key: float | None = None
    _left_out: dict[str, Point] = field(default_factory=dict)
    """The best so far and the last report, where they were not given."""

    def take(self, point: Point, key: float, *, at_rung: bool) -> list[Point]:
        """What the storage is given now; of keys the lower is the better."""
        is_best = self._best_key is None or key < self._best_key
        at_rung = at_rung and self._n_rungs < _MAX_RUNGS
        self._n_since += 1
        self._left_out["last"] = point
        if is_best:
            self._best_key = key
            self._left_out["best"] = point
        if at_rung:
            self._n_rungs += 1
            given = self.rest()
        elif self._follows_rung or self._n_since >= self._stride:
            given = [self._left_out.pop("last")]
            if is_best:
                del self._left_out["best"]
        else:
            return []
        self._follows_rung = at_rung
        self._n_since = 0
        self.n_given += len(given)
        return given

    def rest(self) -> list[Point]:
        """The best and the last report, where the storage lacks them; by step."""
        points = sorted(set(self._left_out.values()))
        self._left_out.clear()
        return points

    def replayed(self, n_given: int) -> None:
        """All that was taken so far, `n_given` reports, came from the storage."""
        self._left_out.clear()
        self.n_given, self._n_since = n_given, 0

    @property
    def _stride(self) -> int:
        """1, and from the 1,000th on 2, from the 1,500th on 4, from the 2,000th on 8 …"""
        n_doublings = max(0, self.n_given - N_WHOLE + _N_PER_DOUBLING) // _N_PER_DOUBLING
        return 1 << n_doublings
