"""Trials that run here and are another sweep's by now.

They learn it as the answer to their next report, and write a checkpoint. One whose next report is
far is ended after a moment, so that nothing trains here any more when its lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from automl.record.lease_clock import lease_seconds

STOP_SECONDS = 5.0
"""How long they may take to stop by themselves."""


class LostTrials:
    """Of one sweep. For one thread."""

    def __init__(self, clock: Callable[[], float] = lease_seconds) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    def overdue(self, lost: Collection[int]) -> Collection[int]:
        """Those of the trials lost now that are to be ended; after as long once more, since who was
        just about to begin could not be."""
        now = self._clock()
        self._since = {number: self._since.get(number, now) for number in lost}
        late = {n for n, since in self._since.items() if now - since >= STOP_SECONDS}
        self._since |= dict.fromkeys(late, now)
        return late
