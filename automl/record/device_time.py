"""Sums, event by event, the time in which devices had a trial to run. Pure.

The report divides the same time among trials (`automl/report/findings.py`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from automl.trial import OUTSIDE_DEVICE, TrialEvent, TrialOutcome, TrialStarted

MAX_SILENT_SECONDS = 3600.0
"""A trial that starts again after a longer silence was killed at its last event."""
NO_DEVICES = ("", "none", OUTSIDE_DEVICE)
"""Devices that are logged for trials that ran on none of this machine's or cluster's."""


@dataclass
class _OpenExecution:
    """A trial that runs on a device."""

    device: str
    start_seconds: float
    last_seconds: float
    """The time of the trial's last event (Unix seconds)."""


class DeviceTime:
    """Sums the time of devices, in which trials that run side by side on one count once."""

    def __init__(self) -> None:
        self._running: dict[int, _OpenExecution] = {}
        self._busy = defaultdict[str, list[tuple[float, float]]](list)
        """The disjoint intervals in which each device had a trial, in their order."""
        self._seconds = 0.0

    def take(self, event: TrialEvent) -> None:
        """Count the next event."""
        if isinstance(event, TrialOutcome):
            self._end(event.trial, event.time)
        elif isinstance(event, TrialStarted):
            known = self._running.get(event.trial)
            if known is not None:
                was_killed = event.time > known.last_seconds + MAX_SILENT_SECONDS
                self._end(event.trial, known.last_seconds if was_killed else event.time)
            if event.device not in NO_DEVICES:
                self._running[event.trial] = _OpenExecution(event.device, event.time, event.time)
        elif event.trial in self._running:
            self._running[event.trial].last_seconds = event.time

    def seconds(self, now_seconds: float = 0.0) -> float:
        """Return the time of all devices; a trial that runs counts until its last event, or until
        `now_seconds` if that is later."""
        spans: dict[str, tuple[float, float]] = {}
        for running in self._running.values():
            start, last = running.start_seconds, max(now_seconds, running.last_seconds)
            known = spans.get(running.device, (start, last))
            spans[running.device] = min(known[0], start), max(known[1], last)
        total = self._seconds
        for device, (start, last) in spans.items():
            total += max(0.0, last - start)
            for busy_start, busy_end in reversed(self._busy[device]):
                if busy_end <= start:
                    break
                total -= max(0.0, min(busy_end, last) - max(busy_start, start))
        return total

    def _end(self, trial: int, time_seconds: float) -> None:
        execution = self._running.pop(trial, None)
        if execution is None:
            return
        start, end = execution.start_seconds, max(execution.start_seconds, time_seconds)
        busy = self._busy[execution.device]
        later = []
        while busy and busy[-1][1] >= start:
            other_start, other_end = busy.pop()
            if other_start > end:
                later.append((other_start, other_end))
                continue
            self._seconds -= other_end - other_start
            start, end = min(start, other_start), max(end, other_end)
        self._seconds += end - start
        busy += [(start, end), *reversed(later)]
