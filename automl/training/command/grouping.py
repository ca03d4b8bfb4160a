"""Lines with metrics put together into reports: one of each step. Pure.

A line with the study's metric ends a report, which is told at once, so that it can be judged. What
other lines tell is told with it, or when another step begins. A step is the line's own where it is
larger than that of the last report; without one reports are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from automl.training.command.metrics import Found
from automl.trial import MAX_STEP

MAX_METRICS = 200
"""Of a report: a program may print names without end."""


class Report(NamedTuple):
    step: int
    metrics: dict[str, float]


class Grouping:
    """The lines of one program, from its first."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last = -1
        self._step: int | None = None
        """Of what is still to be told, where a line said it."""
        self._metrics: dict[str, float] = {}

    def take(self, found: Found) -> Iterator[Report]:
        """The reports that this line ends."""
        if found.step is not None and self._step not in (None, found.step):
            yield from self.rest()
        if found.step is not None and self._last < found.step <= MAX_STEP:
            self._step = found.step
        for name, value in found.metrics.items():
            if name in self._metrics or len(self._metrics) < MAX_METRICS or name == self._metric:
                self._metrics[name] = value
        if self._metric in found.metrics:
            yield from self.rest()

    def rest(self) -> Iterator[Report]:
        """What was not told yet."""
        if self._metrics:
            self._last = self._last + 1 if self._step is None else self._step
            metrics, self._metrics = self._metrics, {}
            self._step = None
            yield Report(self._last, metrics)
        self._step = None
