"""Follows the attempts of trials, and sums the time in which devices had a trial to run. Pure.

The report divides the same time among trials (`automl/report_page/findings.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from automl.trial import (
    IMPORTED_DEVICE,
    OUTSIDE_DEVICE,
    Event,
    SweepStarted,
    TrialEvent,
    TrialOutcome,
    TrialStarted,
)

NO_DEVICES = ("", "none", OUTSIDE_DEVICE, IMPORTED_DEVICE)
"""Devices that are logged for trials that ran on none of this machine's or cluster's."""


@dataclass
class Attempt:
    """One stay of a trial on a device, which ends at its last event: what came of a killed sweep's
    time after that is not known."""

    trial: int
    device: str
    start_seconds: float
    """Begin of the attempt (Unix seconds)."""
    end_seconds: float
    """The time of the attempt's last event."""
    is_left: bool = False
    """Whether another sweep has begun since the last event."""


class OpenAttempts:
    """Follows the attempts of the trials of a study, event by event."""

    def __init__(self, not_followed: Collection[str] = NO_DEVICES) -> None:
        """`not_followed`: the devices whose attempts are left out."""
        self._not_followed = not_followed
        self._by_trial: dict[int, Attempt] = {}

    def all(self) -> Collection[Attempt]:
        """Return the attempts that have not ended."""
        return self._by_trial.values()

    def get(self, trial: int) -> Attempt | None:
        """Return the open attempt of the trial; None: there is none, or it runs on no device."""
        return self._by_trial.get(trial)

    def take(self, event: Event) -> Attempt | None:
        """Take the next event, and return the attempt that it ends."""
        if isinstance(event, SweepStarted):
            for attempt in self._by_trial.values():
                attempt.is_left = True  # one of another sweep of a shared study reports again
        if not isinstance(event, TrialEvent):
            return None
        known = self._by_trial.get(event.trial)
        if isinstance(event, TrialStarted):
            self._by_trial.pop(event.trial, None)
            if event.device not in self._not_followed:
                begun = Attempt(event.trial, event.device, event.time, event.time)
                self._by_trial[event.trial] = begun
            return known
        if known is not None:
            known.end_seconds = max(known.end_seconds, event.time)
            known.is_left = False
        return self._by_trial.pop(event.trial, None) if isinstance(event, TrialOutcome) else None


class DeviceTime:
    """Sums the time of devices, in which trials that run side by side on one count once."""

    def __init__(self) -> None:
        self._attempts = OpenAttempts()
        self._busy = defaultdict[str, list[tuple[float, float]]](list)
        """The disjoint intervals in which each device had a trial, in their order."""
        self._seconds = 0.0

    def take(self, event: Event) -> None:
        """Count the next event."""
        if (ended := self._attempts.take(event)) is not None:
            self._add(ended)

    def runs(self, trial: int) -> bool:
        """Return whether the trial is on a device, as far as is known."""
        return self._attempts.get(trial) is not None

    def seconds(self, now_seconds: float = 0.0) -> float:
        """Return the time of all devices; a trial that runs counts until its last event, or until
        `now_seconds` if that is later and no sweep has begun since."""
        total = self._seconds
        open_spans = defaultdict[str, list[tuple[float, float]]](list)
        for attempt in self._attempts.all():
            end = attempt.end_seconds if attempt.is_left else max(now_seconds, attempt.end_seconds)
            open_spans[attempt.device].append((attempt.start_seconds, end))
        for device, spans in open_spans.items():
            for start, end in merge_spans(spans):
                total += end - start
                for busy_start, busy_end in reversed(self._busy[device]):
                    if busy_end <= start:
                        break
                    total -= max(0.0, min(busy_end, end) - max(busy_start, start))
        return total

    def _add(self, attempt: Attempt) -> None:
        start, end = attempt.start_seconds, attempt.end_seconds
        busy = self._busy[attempt.device]
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


def merge_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the disjoint spans of time that the given ones cover, in their order."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
