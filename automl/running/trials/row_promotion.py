"""Decides when the params of a good trial of a large table are trained again on more rows.

Trials of a table of many rows train on a part of them (`rows` in the space of `model=auto`). In
the last part of the time the best of them are tried again, on as many rows as the time that is left
allows: as new trials, judged by the same rows, so that the ensemble takes whichever is better. The
decision is a function of values; `runner.py` asks for the trial.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from automl.models.families.auto.family import n_rows_of_trial
from automl.search.trial_standings import RankedTrial

SEARCH_FRACTION = 1 / 3
"""The fraction of the time for trials in which they train on the part alone."""
PROMOTED_FRACTION = 0.1
"""The fraction of a study's trials that train on more rows, in a sweep without a time limit."""
MIN_GROWTH = 1.5
"""The least ratio of the rows of such a trial to those of the trial before it."""
N_COMPARED = 3
"""Number of the best trials of which the one that can have most rows is trained again."""
MIN_ENDED = 3
"""With fewer trials that have ended, a leader that still runs is waited for."""


@dataclass(frozen=True)
class TrialTime:
    """The time for the trials of a sweep, as far as it has gone (monotonic seconds)."""

    began_seconds: float
    now_seconds: float
    end_seconds: float | None
    """When the trials have to be done; None: there is no limit."""

    @property
    def left_seconds(self) -> float | None:
        return None if self.end_seconds is None else self.end_seconds - self.now_seconds

    @property
    def fraction(self) -> float:
        """The fraction of the time that is over; 0 without a limit."""
        if self.end_seconds is None or self.end_seconds <= self.began_seconds:
            return 0.0
        return (self.now_seconds - self.began_seconds) / (self.end_seconds - self.began_seconds)


@dataclass(frozen=True)
class RowPromotion:
    """A trial whose params are trained again, and on how many rows."""

    trial: int
    n_rows: int


def promotion_request(trial: int) -> str:
    """Return the identity, among all trials that are enqueued, of the one that trains the params of
    `trial` again."""
    return f"more rows for trial {trial}"


def is_time_for_more_rows(time: TrialTime, n_asked: int, n_trials: int) -> bool:
    """Return whether the next trial may train on more rows: in the last part of the time, or of the
    trials of a sweep without a time limit."""
    if time.end_seconds is not None:
        return time.fraction >= SEARCH_FRACTION
    return n_trials - n_asked <= PROMOTED_FRACTION * n_trials


def choose_promotion(
    ranking: Iterable[RankedTrial],
    seconds: Mapping[int, float],
    *,
    leader: int | None,
    promoted: Collection[str],
    n_all: int,
    left_seconds: float | None,
) -> RowPromotion | None:
    """Return the trial that is trained again on more rows, or None: no trial, or not now.

    `ranking`: the trials that ended with a value, the best first. `seconds`: how long trials took,
    by number, as far as it is known. `leader`: the trial with the best report, which may still run.
    `promoted`: the requests of trials so far. `n_all`: the number of training rows. `left_seconds`:
    the time for trials that is left; None: there is no limit.
    """
    sized = ((trial, n_rows_of_trial(trial.params)) for trial in ranking)
    ended = [(trial, n_rows) for trial, n_rows in sized if n_rows is not None]
    if len(ended) < MIN_ENDED and all(trial.number != leader for trial, _ in ended):
        return None  # the leader is about to show what is to be trained on more rows
    found: list[RowPromotion] = []
    for trial, n_rows in ended:
        if promotion_request(trial.number) in promoted or n_rows >= n_all:
            continue
        n_more = rows_in_time(seconds.get(trial.number), n_rows, n_all, left_seconds)
        if n_more >= MIN_GROWTH * n_rows:
            found.append(RowPromotion(trial.number, n_more))
    # The best may be slow: the same time on more rows gains more than its lead.
    return max(found[:N_COMPARED], key=lambda promotion: promotion.n_rows, default=None)


def rows_in_time(seconds: float | None, n_rows: int, n_all: int, left_seconds: float | None) -> int:
    """Return on how many rows the params of a trial are trained in the time that is left.

    On `n_rows` they took `seconds`; None: unknown. A trial that takes longer ends with the best
    that it has reached.
    """
    if left_seconds is None or not seconds:
        return n_all
    return min(n_all, int(n_rows * left_seconds / seconds))
