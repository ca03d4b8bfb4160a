"""Selects the reports that Optuna's storage gets, whatever the pruner.

`ReportThinning` selects the reports that Optuna's storage gets: the first 1,000 of a trial, then
ever fewer. The journal storage copies all values of a trial for each one added: with 100,000
reports in one trial it went from 5,288 a second to 55. The event log has every report. The storage
gets 500 more each time that their number doubles (4,500 of 128,000), and these in addition:

- the report at a rung, the best before it and the one after it: from these a resumed study knows
  what each trial had reached at each rung, and which rungs it has passed;
- the best and the last report at the trial's end: TPE learns from a pruned trial's last value.

A trial can have more than 1,000 rungs (the median pruner can have one at each step). Reports at
later rungs are thinned like other reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

ReportPoint: TypeAlias = tuple[int, float]
"""A step and its value."""
N_WITHOUT_GAP = 1000
"""The storage gets this many reports of a trial without a gap."""
_N_PER_DOUBLING = N_WITHOUT_GAP // 2
_MAX_RUNGS = 1000


@dataclass
class ReportThinning:
    """Selects the reports of one trial that the storage gets; holds at most two of them."""

    n_given: int = 0
    _n_since: int = 0
    """The number of reports since the last one that the storage got."""
    _n_rungs: int = 0
    _follows_rung: bool = False
    _best_key: float | None = None
    _left_out: dict[str, ReportPoint] = field(default_factory=dict)
    """The best and the last report so far, where the storage did not get them."""

    def take(self, point: ReportPoint, key: float, *, at_rung: bool) -> list[ReportPoint]:
        """Return the reports that the storage gets now; a lower key is better."""
        is_best = self._best_key is None or key < self._best_key
        at_rung = at_rung and self._n_rungs < _MAX_RUNGS
        self._n_since += 1
        self._left_out["last"] = point
        if is_best:
            self._best_key = key
            self._left_out["best"] = point
        if at_rung:
            self._n_rungs += 1
            points = self.rest()
        elif self._follows_rung or self._n_since >= self._stride:
            points = [self._left_out.pop("last")]
            if is_best:
                del self._left_out["best"]
        else:
            return []
        self._follows_rung = at_rung
        self._n_since = 0
        self.n_given += len(points)
        return points

    def rest(self) -> list[ReportPoint]:
        """Return the best and the last report, if the storage lacks them, in order of steps."""
        points = sorted(set(self._left_out.values()))
        self._left_out.clear()
        return points

    def replayed(self, n_given: int) -> None:
        """Note that all reports taken so far, `n_given` in number, came from the storage."""
        self._left_out.clear()
        self.n_given, self._n_since = n_given, 0

    @property
    def _stride(self) -> int:
        """The storage gets every n-th report: 1; 2 from the 1,000th on; 4 from the 1,500th on; …"""
        n_doublings = max(0, self.n_given - N_WITHOUT_GAP + _N_PER_DOUBLING) // _N_PER_DOUBLING
        return 1 << n_doublings
