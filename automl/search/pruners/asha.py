"""Asynchronous successive halving with promotions (Li et al., 2020).

https://arxiv.org/abs/1810.05934, algorithm 2. Unlike `halving.py`, a trial that is not good enough
at a rung is paused, not ended: it goes on as soon as it is among the best 1/factor of the rung. A
free place first goes to a paused trial of the highest rung that has one to promote, and to a new
trial if there is none.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from automl.search.pruners.halving import SuccessiveHalving


@dataclass
class PromotingHalving(SuccessiveHalving):
    """Successive halving that pauses trials at rungs and promotes them (ASHA, Li et al., 2020).

    The rungs are those of `halving`. When no new trials come and nothing runs, a rung's share is
    rounded up, so that at least one trial is trained to its end.
    """

    several_metrics: ClassVar[bool] = False
    pauses: ClassVar[bool] = True

    factor: int = 4
    """One in `factor` of the trials that reach a rung goes on, at once or later."""
    min_trials: int = 1
    """A rung promotes no trial before this many trials have reached it."""

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Return whether the trial pauses; only strictly better trials count, so equals go on."""
        return not self.promotes(key, keys, is_last=False)

    def promotes(self, key: float, keys: Sequence[float], *, is_last: bool) -> bool:
        if is_last:
            return bisect_left(keys, key) < math.ceil(len(keys) / self.factor)
        return len(keys) >= self.min_trials and bisect_left(keys, key) < len(keys) // self.factor
