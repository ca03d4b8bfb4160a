"""Computes how long trials take, and how many end in the time of a sweep. Pure.

What was seen of a trial for a short time is continued to its end: by the number of its reports
where it ends after a number, else by the arithmetic of its family. Trials begin one after another,
where one ends.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from automl.running.trials.row_promotion import TrialTime, is_time_for_more_rows, rows_in_time

USUAL_PATIENCES = 3
"""Length of a trial that its patience ends, in patiences. The first network of `model=auto` took
1,100 to 6,300 steps on four tables, with a patience of 1,000 (experiments/013-tables/planned.md).
"""


@dataclass(frozen=True)
class TrialObservation:
    """What was seen of a trial that trained for a short time."""

    reports: tuple[float, ...]
    """Seconds from its start to each of its reports."""
    n_to_best: int
    """Number of reports up to the best one; 0: there is none."""
    ended_seconds: float | None
    """Seconds from its start to its own end; None: its time was up before."""
    peaks: tuple[tuple[int, int], ...] = ()
    """The most memory that it held so far, with the number of its reports up to then, in the order
    of time."""
    trouble: str | None = None
    """Why it failed, one line."""


@dataclass(frozen=True)
class ReportLimits:
    """What is known of the number of reports of a trial."""

    n_most: int
    n_likely: int
    """About how many there are at least, by the arithmetic of the family."""
    patience: int | None
    """Number of reports without a better value that end the trial; None: no number does."""


@dataclass(frozen=True)
class TrialForecast:
    """How long a trial takes, and how that is known."""

    seconds: float | None
    """Time of the trial; None: it is not known."""
    known_by: str
    peak_bytes: int | None = None
    """The most memory that it holds; None: it is not known."""


def extrapolate_trial(seen: TrialObservation, limits: ReportLimits) -> TrialForecast | None:
    """Return how long the trial takes from its start to its end. None if nothing tells it."""
    if seen.ended_seconds is not None:
        return TrialForecast(
            seen.ended_seconds,
            "one that was timed to its end",
            max((size_bytes for _, size_bytes in seen.peaks), default=None),
        )
    n_seen = len(seen.reports)
    if seen.trouble is not None or n_seen == 0:
        return None
    n_reports = max(_likely_reports(seen, limits), n_seen)
    first, last = seen.reports[0], seen.reports[-1]
    each = (last - first) / (n_seen - 1) if n_seen > 1 else first
    return TrialForecast(
        last + (n_reports - n_seen) * each,
        f"{n_seen} of about {n_reports} reports timed",
        _extrapolate_peak(seen.peaks, n_reports, grows=limits.patience is None),
    )


def _likely_reports(seen: TrialObservation, limits: ReportLimits) -> int:
    """Return about how many reports the trial has in the end.

    A trial that has improved up to its last report is expected to improve for as long again (J. R.
    Gott, Implications of the Copernican principle, Nature 363, 1993); one whose patience is nearly
    over is not. The patience comes on top. Fewer reports than the patience tell that in part only.
    """
    if limits.patience is None:
        return limits.n_most
    n_seen = len(seen.reports)
    more = seen.n_to_best * max(0.0, 1 - (n_seen - seen.n_to_best) / limits.patience)
    expected = seen.n_to_best + more + limits.patience
    weight = min(1.0, n_seen / limits.patience)
    unseen = max(limits.n_likely, USUAL_PATIENCES * limits.patience)
    return min(limits.n_most, round(weight * expected + (1 - weight) * unseen))


def _extrapolate_peak(
    peaks: Sequence[tuple[int, int]], n_reports: int, *, grows: bool
) -> int | None:
    """Return the memory after `n_reports`. Where it `grows`, as that of a forest does with its
    trees, it grows on as it did since the first report."""
    since = [peak for peak in peaks if peak[0] > 0]
    if not grows or not since:
        return peaks[-1][1] if peaks else None
    (n_first, first), (n_last, last) = since[0], since[-1]
    each = (last - first) / (n_last - n_first) if n_last > n_first else 0.0
    return last + round(max(0.0, each) * (n_reports - n_last))


def extrapolate_part(seconds: float, share: float, fixed_seconds: float) -> float:
    """Return the time of a trial by the time of a part that is this share of its work.

    `fixed_seconds` of the part go to the start of its process, whatever it computes.
    """
    fixed = min(seconds, fixed_seconds)
    return fixed + (seconds - fixed) / share


def fill_from_arithmetic(
    forecasts: Mapping[str, TrialForecast | None], arithmetic: Mapping[str, float | None]
) -> dict[str, TrialForecast]:
    """Return a forecast for each kind of trial.

    Kinds that were not timed get the seconds of the families' arithmetic, times the ratio to it of
    what was timed: of the sums, since what long trials take shows the machine best.
    """
    timed = [
        (found.seconds, seconds)
        for kind, found in forecasts.items()
        if found is not None and found.seconds and (seconds := arithmetic.get(kind))
    ]
    factor = sum(seen for seen, _ in timed) / sum(told for _, told in timed) if timed else 1.0
    known_by = "arithmetic for a quiet core"
    if timed:
        known_by = f"arithmetic, times {factor:.2g} by the families that were timed"
    filled = {}
    for kind, found in forecasts.items():
        seconds = arithmetic.get(kind)
        other = TrialForecast(None, "nothing before one has run")
        if seconds is not None:
            other = TrialForecast(factor * seconds, known_by)
        filled[kind] = found or other
    return filled


@dataclass(frozen=True)
class RowGrowth:
    """How trials of a large table train on more rows in the last part of a sweep."""

    n_rows: int
    """Rows that the other trials train on."""
    n_all: int


@dataclass(frozen=True)
class SweepSchedule:
    """The trials of a sweep, one after another where one ends."""

    n_by_kind: Mapping[str, int]
    """Number of trials of each kind that end."""
    seconds: float
    """Time from the start of the first trial to the end of the last."""
    trial_seconds: float
    """Mean time of a trial that ends."""

    @property
    def n_trials(self) -> int:
        return sum(self.n_by_kind.values())


def schedule_trials(
    kinds: Iterable[str],
    seconds: Mapping[str, float],
    n_at_once: int,
    *,
    n_trials: int | None = None,
    limit_seconds: float | None = None,
    growth: RowGrowth | None = None,
) -> SweepSchedule:
    """Place trials of these kinds, in their order, until all have ended or the time is up.

    `seconds`: time of a trial of each kind. `n_trials` and `limit_seconds` end the sweep; None: no
    number of trials does, no limit.
    """
    assert n_trials is not None or limit_seconds is not None, "the sweep has an end"
    free_at = [0.0] * max(1, n_at_once)
    counts, ends, taken = Counter[str](), [0.0], 0.0
    for number, kind in enumerate(kinds):
        if n_trials is not None and number >= n_trials:
            break
        begins = free_at[0]
        left = None if limit_seconds is None else limit_seconds - begins
        if left is not None and left <= 0:
            break
        need = seconds[kind]
        time = TrialTime(0.0, begins, limit_seconds)
        if growth is not None and is_time_for_more_rows(time, number, n_trials or 0):
            n_more = rows_in_time(need, growth.n_rows, growth.n_all, left)
            need *= max(1.0, n_more / growth.n_rows)
        heapq.heapreplace(free_at, begins + max(need, 1e-3))
        if left is None or need <= left * (1 + 1e-9):
            counts[kind] += 1
            ends.append(begins + need)
            taken += need
    n_ended = sum(counts.values())
    return SweepSchedule(dict(counts), max(ends), taken / n_ended if n_ended else 0.0)
