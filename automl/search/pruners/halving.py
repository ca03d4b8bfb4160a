"""Asynchronous successive halving (Li et al., 2020, https://arxiv.org/abs/1810.05934).

Without its later promotions: who stopped stays stopped. Steps count from 0, so the rung of `n`
reported steps is step `n - 1`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from automl.config import check
from automl.search.pruners.pruner import Pruner


@dataclass
class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al., 2020): of the trials at a rung, 1/factor go on.

    Rungs are at `max_steps / factor^k` reported steps, rounded up, as in Hyperband (Li et al.,
    2018); where `max_steps` is not known, at `min_steps · factor^k`. A trial is judged against the
    values that all trials, running ones too, reported at its rung.
    """

    min_steps: int = 2
    """No rung stands before this many steps."""
    max_steps: int | None = None
    """Steps of a trial that is not stopped; none: training.epochs, and for a function of your own
    not known."""
    factor: int = 3
    """Of the trials that reach a rung, one in `factor` goes on."""
    min_trials: int = 4
    """A rung judges nobody before this many trials have reached it."""

    def __post_init__(self) -> None:
        check(self.min_steps >= 1, "pruner.min_steps", self.min_steps, "must be at least 1.")
        check(
            self.max_steps is None or self.max_steps >= 1,
            "pruner.max_steps",
            self.max_steps,
            "must be at least 1.",
        )
        check(self.factor >= 2, "pruner.factor", self.factor, "must be at least 2.")
        check(self.min_trials >= 1, "pruner.min_trials", self.min_trials, "must be at least 1.")

    def for_length(self, n_steps: int, n_first: int = 1) -> SuccessiveHalving:
        """What the user set counts more."""
        if self.max_steps is not None:
            return self
        return replace(self, max_steps=n_steps, min_steps=max(self.min_steps, n_first))

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        max_steps = self.max_steps
        counts = self._from_below(step) if max_steps is None else self._from_above(max_steps)
        return [n - 1 for n in counts if last_step < n - 1 <= step]

    def _from_above(self, max_steps: int) -> Sequence[int]:
        """A factor-th of a trial's steps, a factor-th of that, …: where the work is that is saved.

        Counted from below, a rung could stand just before the end: it saved two epochs of 20, and
        cost the winner.
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
        """Only those strictly better count, so equals never stop each other."""
        n_go_on = max(1, len(keys) // self.factor)
        return len(keys) >= self.min_trials and bisect_left(keys, key) >= n_go_on
