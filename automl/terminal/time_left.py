"""Estimates how long the trials of a sweep still take, from when earlier ones ended.

Nothing is estimated until enough trials have ended, nor once the next end is overdue: how long a
trial takes is then not known. Time in which no trial may start does not count.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

MIN_ENDED = 3
"""Nothing is estimated before this many trials ended, or one for each that runs."""
OVERDUE = 2.0
"""The next end is overdue after this multiple of the longest recent wait for one."""
SLACK_SECONDS = 2.0
"""A wait may be this much longer, since ends are seen about once a second."""


@dataclass(frozen=True)
class _Pace:
    """How trials have ended of late."""

    seconds: float
    """Mean time from one end to the next."""
    overdue_seconds: float
    """How long the next end may take."""


@dataclass
class TimeLeft:
    """Looks at a sweep about once a second. Times are of one clock, in seconds."""

    _ends: list[tuple[float, int]] = field(default_factory=list)
    """When more trials had ended than ever before, and how many; first the start of a trial."""
    _pace: _Pace | None = None
    _held_seconds: float = 0.0
    _looked_seconds: float = 0.0
    _estimate: float | None = None

    def look(
        self,
        now_seconds: float,
        *,
        n_ended: int,
        n_paused: int,
        n_running: int,
        n_trials: int,
        is_held: bool,
    ) -> float | None:
        """Return the estimated seconds until all trials have ended; None: not known.

        `is_held`: no trial may start now, and the estimate stays what it was.
        """
        if is_held:
            self._held_seconds += now_seconds - self._looked_seconds
        self._looked_seconds = now_seconds
        n_done = n_ended + n_paused
        if not self._ends and not n_running + n_done:
            return None
        if not self._ends or n_done > self._ends[-1][1]:
            self._ends.append((now_seconds - self._held_seconds, n_done))
            self._pace = self._recent_pace(max(MIN_ENDED, n_running))
        if not is_held:
            n_left = n_trials - n_done
            # How many of the paused trials will be promoted is not known.
            is_known = not n_paused or n_left > n_running
            self._estimate = self._estimated(n_left) if is_known else None
        return self._estimate

    def _recent_pace(self, n_least: int) -> _Pace | None:
        """Return the pace of the last half of the trials that ended, and of at least `n_least`."""
        n_ended = self._ends[-1][1]
        n_seen = n_ended - self._ends[0][1]
        if n_seen < n_least:
            return None
        until = n_ended - max(n_least, n_seen // 2)
        first = max(place for place, (_, n) in enumerate(self._ends) if n <= until)
        times = [seconds for seconds, _ in self._ends[first:]]
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        mean_seconds = (times[-1] - times[0]) / (n_ended - self._ends[first][1])
        return _Pace(mean_seconds, OVERDUE * max(waits) + SLACK_SECONDS)

    def _estimated(self, n_left: int) -> float | None:
        waited_seconds = self._looked_seconds - self._held_seconds - self._ends[-1][0]
        if self._pace is None or waited_seconds > self._pace.overdue_seconds:
            return None
        if n_left <= 0:
            return 0.0
        return max(self._pace.seconds, n_left * self._pace.seconds - waited_seconds)


def within_time_limit(
    left_seconds: float | None, seconds: float, limit_seconds: float | None, *, has_total: bool
) -> float | None:
    """Return the estimate, at most up to the time limit; None after it, when the length of the last
    trials is unknown. Without a total of trials, `has_total`, the limit alone counts."""
    if not has_total:
        left_seconds = limit_seconds
    if left_seconds is None or limit_seconds is None:
        return left_seconds
    return min(left_seconds, limit_seconds - seconds) if seconds < limit_seconds else None
