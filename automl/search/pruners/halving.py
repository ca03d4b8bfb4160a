"""Asynchronous successive halving (Li et al., 2020, https://arxiv.org/abs/1810.05934).

The promotions of the paper are in `asha.py`: here a trial that was stopped stays stopped. Steps
count from 0, so the rung of `n` reported steps is step `n - 1`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from automl.config import check_setting
from automl.search.pruners.pruner import Pruner


@dataclass
class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al., 2020): 1/factor of the trials at a rung go on.

    Rungs are at `max_steps / factor^k` reported steps, rounded up, as in Hyperband (Li et al.,
    2018). If `max_steps` is not known, they are at `min_steps · factor^k`. A trial is judged
    against the values that all trials, running ones included, reported at its rung.
    """

    several_metrics: ClassVar[bool] = True

    min_steps: int = 2
    """The first rung comes after at least this many steps."""
    max_steps: int | None = None
    """Steps of a trial that is not stopped; auto: training.epochs, or not known for a function of
    your own."""
    factor: int = 3
    """One in `factor` of the trials that reach a rung goes on."""
    min_trials: int = 4
    """A rung judges no trial before this many trials have reached it."""

    def __post_init__(self) -> None:
        check_setting(
            self.min_steps >= 1, "pruner.min_steps", self.min_steps, "must be at least 1."
        )
        check_setting(
            self.max_steps is None or self.max_steps >= 1,
            "pruner.max_steps",
            self.max_steps,
            "must be at least 1.",
        )
        check_setting(self.factor >= 2, "pruner.factor", self.factor, "must be at least 2.")
        check_setting(
            self.min_trials >= 1, "pruner.min_trials", self.min_trials, "must be at least 1."
        )

    def for_length(self, n_steps: int, n_first: int = 1) -> SuccessiveHalving:
        """Return a pruner for trials of `n_steps` steps; a `max_steps` of the user wins."""
        if self.max_steps is not None:
            return self
        return replace(self, max_steps=n_steps, min_steps=max(self.min_steps, n_first))

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        max_steps = self.max_steps
        counts = self._from_below(step) if max_steps is None else self._from_above(max_steps)
        return [n - 1 for n in counts if last_step < n - 1 <= step]

    def _from_above(self, max_steps: int) -> Sequence[int]:
        """Return the rungs at 1/factor of a trial's steps, 1/factor of that, and so on.

        Counted from below, a rung could stand just before the end: one saved two epochs of 20, and
        cost the best trial.
        """
        counts: list[int] = []
        part = self.factor
        while (n := math.ceil(max_steps / part)) >= self.min_steps and n not in counts:
            counts.append(n)
            part *= self.factor
        return [n for n in reversed(counts) if n < max_steps]

    def _from_below(self, step: int) -> Sequence[int]:
        counts = []
        n = self.min_steps
        while n - 1 <= step:
            counts.append(n)
            n *= self.factor
        return counts

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Return whether the trial stops; only strictly better trials count, so equals go on."""
        n_go_on = max(1, len(keys) // self.factor)
        return len(keys) >= self.min_trials and bisect_left(keys, key) >= n_go_on
