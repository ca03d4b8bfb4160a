"""Records for what trials had to wait, beside their turn: memory, a device, a reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from automl.errors import StorageError
from automl.record.texts import mask_varying
from automl.running.features.feature import SweepFeature, SweepSite
from automl.terminal.view import SweepView, WaitingRow
from automl.trial import TrialsWaited

MIN_SECONDS = 1.0
"""Shorter waits are left out: the queue is looked at about once a second."""
MAX_WAITS = 1_000
"""Largest number of waits that a sweep records."""


class WaitHistory:
    """Turns what the queue shows from time to time into waits, each with one reason."""

    def __init__(self, append: Callable[[TrialsWaited], object]) -> None:
        """`append` records a wait that is over."""
        self._append = append
        self._n = 0
        self._reason: str | None = None
        self._since_seconds = 0.0

    def look(self, rows: Sequence[WaitingRow], now_seconds: float) -> None:
        """Take the trials that wait now (Unix seconds). Reasons that differ by numbers alone, such
        as free memory, are one wait."""
        reason = next((row.reason for row in rows if not row.as_it_should), None)
        known = self._reason
        if reason and known and mask_varying(reason) == mask_varying(known):
            return
        self.close(now_seconds)
        self._reason, self._since_seconds = reason, now_seconds

    def close(self, now_seconds: float) -> None:
        """Record the wait that lasts until now, if there is one."""
        reason, self._reason = self._reason, None
        is_short = now_seconds - self._since_seconds < MIN_SECONDS
        if reason is None or is_short or self._n >= MAX_WAITS:
            return
        self._n += 1
        text = reason.removeprefix("waiting: ")
        self._append(TrialsWaited(self._since_seconds, now_seconds, text))


class SweepWaits(SweepFeature):
    """Records the waits of one sweep."""

    def __init__(self, history: WaitHistory) -> None:
        self._history = history

    @classmethod
    def make(cls, site: SweepSite) -> SweepWaits:
        return cls(WaitHistory(site.log.append))

    def look(self, view: SweepView) -> SweepView:
        if view.ended is None:
            self._history.look(view.waiting, view.time)
        return view

    def trials_over(self) -> None:
        with suppress(StorageError):  # the sweep's end tells of a full disk
            self._history.close(time.time())
