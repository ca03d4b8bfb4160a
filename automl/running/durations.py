"""How long trials take, roughly: for backfill, which needs no more."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping

from automl.running.messages import Execution, Running, Waiting
from automl.trial import DeviceKind

Progress = Callable[[int], float | None]
"""How much of a running trial has been reported, above 0 to 1; None: not known."""
Predict = Callable[[Waiting, DeviceKind], float | None]
"""Seconds that a trial takes on such a device; None: not known."""


class Durations:
    """Learns from the trials that finished. For the main thread; no clock."""

    def __init__(
        self,
        progress: Progress = lambda number: None,
        predict: Predict = lambda waiting, kind: None,
    ) -> None:
        self._progress, self._predict = progress, predict
        self._finished: list[float] = []
        """Seconds, in order."""

    def finished(self, seconds: float) -> None:
        """A trial took so long to its end."""
        bisect.insort(self._finished, seconds)

    def of(self, waiting: Waiting, share: float = 0.5) -> float:
        """Seconds that a trial which has not started will take: as predicted for where it goes,
        else those in which such a share of those that finished was over, by default the median;
        infinite before the first."""
        predicted = None if waiting.where is None else self._predict(waiting, waiting.where)
        return self._at(share, self._finished) if predicted is None else predicted

    def left(self, running: Running, now_seconds: float) -> float:
        """Seconds that one which runs will still take: as fast as so far where its reports tell how
        far it is, else as predicted, else by those that finished and took longer than it has."""
        so_far = now_seconds - running.since_seconds
        done = self._progress(running.waiting.trial.number)
        if done:
            return so_far * (1 - done) / done
        predicted = self._predict(running.waiting, running.placement.kind)
        if predicted is not None:
            return predicted - so_far if predicted > so_far else so_far
        if not self._finished:
            return math.inf
        longer = self._finished[bisect.bisect_right(self._finished, so_far) :]
        return self._at(0.5, longer) - so_far if longer else so_far

    def end(
        self, execution: Execution, running: Mapping[int, Running], now_seconds: float
    ) -> float:
        """When the last of its trials will have ended."""
        live = [running[w.trial.number] for w in execution.live if w.trial.number in running]
        return now_seconds + max((self.left(r, now_seconds) for r in live), default=0.0)

    @staticmethod
    def _at(share: float, ordered: list[float]) -> float:
        return ordered[int(share * len(ordered))] if ordered else math.inf
