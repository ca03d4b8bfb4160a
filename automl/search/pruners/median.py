"""The median rule (Golovin et al., 2017, Google Vizier, https://doi.org/10.1145/3097983.3098043).

Unlike there, running trials count, too. It is a file of its own, as every pruner is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from automl.config import check_setting
from automl.search.pruners.pruner import Pruner


@dataclass
class MedianPruner(Pruner):
    """Stops a trial whose best value so far is worse than the median at the same step."""

    n_startup_trials: int = 5
    """No trial is pruned at a step before this many trials have reported the step."""
    n_warmup_steps: int = 2
    """No trial is pruned before this step."""
    interval_steps: int = 1
    """Trials are judged once in this many steps."""

    def __post_init__(self) -> None:
        check_setting(
            self.n_startup_trials >= 1, "pruner.n_startup_trials", self.n_startup_trials, "≥ 1."
        )
        check_setting(
            self.n_warmup_steps >= 0, "pruner.n_warmup_steps", self.n_warmup_steps, "≥ 0."
        )
        check_setting(
            self.interval_steps >= 1, "pruner.interval_steps", self.interval_steps, "≥ 1."
        )

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        rung = self._rung(step)
        return () if rung is None or rung == self._rung(last_step) else (rung,)

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Return whether the trial is strictly worse than the median of all, so equals go on."""
        low, high = keys[(len(keys) - 1) // 2], keys[len(keys) // 2]
        median = low if math.isinf(low) else low + (high - low) / 2  # their sum can overflow
        return len(keys) >= self.n_startup_trials and best_key > median

    def _rung(self, step: int) -> int | None:
        """Return the first step of the interval in which `step` lies; None while warming up."""
        past_steps = step - self.n_warmup_steps
        return None if past_steps < 0 else step - past_steps % self.interval_steps
