"""The median rule (Golovin et al., 2017, Google Vizier, https://doi.org/10.1145/3097983.3098043)
against running trials too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from automl.config import check
from automl.search.pruners.pruner import Pruner


@dataclass
class MedianPruner(Pruner):
    """Stops a trial whose best value so far is worse than the median at the same step."""

    n_startup_trials: int = 5
    """No pruning before this many trials have reported the step."""
    n_warmup_steps: int = 2
    """No pruning before this step."""
    interval_steps: int = 1
    """Trials are judged every so many steps."""

    def __post_init__(self) -> None:
        check(self.n_startup_trials >= 1, "pruner.n_startup_trials", self.n_startup_trials, "≥ 1.")
        check(self.n_warmup_steps >= 0, "pruner.n_warmup_steps", self.n_warmup_steps, "≥ 0.")
        check(self.interval_steps >= 1, "pruner.interval_steps", self.interval_steps, "≥ 1.")

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        rung = self._rung(step)
        return () if rung is None or rung == self._rung(last_step) else (rung,)

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Strictly worse than the median of all, so equals never stop each other."""
        low, high = keys[(len(keys) - 1) // 2], keys[len(keys) // 2]
        median = low if math.isinf(low) else low + (high - low) / 2  # their sum can overflow
        return len(keys) >= self.n_startup_trials and best_key > median

    def _rung(self, step: int) -> int | None:
        """The interval that `step` lies in, by its first step; None while warming up."""
        past_steps = step - self.n_warmup_steps
        return None if past_steps < 0 else step - past_steps % self.interval_steps
