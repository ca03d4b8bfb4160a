"""Pure judging: which rungs a report reaches, and whether a trial at a rung stops there.

A rung is a place in training at which trials are compared. Values come as keys, of which the lower
is the better (`standings.py` turns values round when they are maximised; NaN is worst of all), and
`keys` are those of all trials at the rung, running ones and the judged one included, in order:
of each trial the best that it had reported when it reached the rung.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from automl.config import HalvingPrunerConfig, MedianPrunerConfig, NoPrunerConfig, PrunerConfig


class Pruner(Protocol):
    """Decides early ends; holds no state."""

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        """The rungs newly reached by reporting `step` after `last_step` (-1: nothing before)."""

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Whether a trial stops that stands at a rung with `key`; `best_key` is its best so far."""


@dataclass(frozen=True)
class NoPruner:
    """Lets every trial train to its end."""

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        return ()

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        return False


@dataclass(frozen=True)
class HalvingPruner:
    """Asynchronous successive halving (Li et al., 2020, https://arxiv.org/abs/1810.05934).

    Without its later promotions: who stopped stays stopped. Steps count from 0, so the rung of
    `n` reported steps is step `n - 1`.
    """

    config: HalvingPrunerConfig

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        max_steps = self.config.max_steps
        counts = self._from_below(step) if max_steps is None else self._from_above(max_steps)
        return [n - 1 for n in counts if last_step < n - 1 <= step]

    def _from_above(self, max_steps: int) -> Sequence[int]:
        """A factor-th of a trial's steps, a factor-th of that, …: where the work is that is saved.

        Counted from below, a rung could stand just before the end: it saved two epochs of 20, and
        cost the winner.
        """
        counts: list[int] = []
        part = self.config.factor
        while (n := math.ceil(max_steps / part)) >= self.config.min_steps and n not in counts:
            counts.append(n)
            part *= self.config.factor
        return [n for n in reversed(counts) if n < max_steps]

    def _from_below(self, step: int) -> Sequence[int]:
        counts = []
        n = self.config.min_steps
        while n - 1 <= step:
            counts.append(n)
            n *= self.config.factor
        return counts

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Only those strictly better count, so equals never stop each other."""
        n_go_on = max(1, len(keys) // self.config.factor)
        return len(keys) >= self.config.min_trials and bisect_left(keys, key) >= n_go_on


@dataclass(frozen=True)
class MedianPruner:
    """The median rule (Golovin et al., 2017, Google Vizier) against running trials too."""

    config: MedianPrunerConfig

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        rung = self._rung(step)
        return () if rung is None or rung == self._rung(last_step) else (rung,)

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Strictly worse than the median of all, so equals never stop each other."""
        low, high = keys[(len(keys) - 1) // 2], keys[len(keys) // 2]
        median = low if math.isinf(low) else low + (high - low) / 2  # their sum can overflow
        return len(keys) >= self.config.n_startup_trials and best_key > median

    def _rung(self, step: int) -> int | None:
        """The interval that `step` lies in, by its first step; None while warming up."""
        past_steps = step - self.config.n_warmup_steps
        return None if past_steps < 0 else step - past_steps % self.config.interval_steps


def make_pruner(config: PrunerConfig) -> Pruner:
    match config:
        case HalvingPrunerConfig():
            return HalvingPruner(config)
        case MedianPrunerConfig():
            return MedianPruner(config)
        case NoPrunerConfig():
            return NoPruner()
    raise TypeError(f"no pruner for {type(config).__name__}")
