"""How long it takes to train again what a sweep came to, and the time that is kept for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from automl.record.trial_record import TrialRecord
from automl.running.readable import clock

MOST = 0.1
"""Of a sweep's time that is kept for it: where it takes more, the trials are worth more
(`experiments/013-tables/auto.md`)."""
N_LIKELY = 5
"""The best trials so far, by which the time is guessed: ensembles of many rows have 2 to 5
members (`experiments/013-tables`)."""
START_SECONDS = 20.0
"""The ensemble made and drawn before it, which took 15 s on Adult (two quiet cores, 128 trials),
its start, and the file that is written after it."""


class Lengths:
    """How long trials took from start to end, in one sweep."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        self._seconds: dict[int, float] = {}

    def began(self, trial: int, now_seconds: float) -> None:
        self._began[trial] = now_seconds

    def ended(self, trial: int, now_seconds: float) -> None:
        if (began := self._began.pop(trial, None)) is not None:
            self._seconds[trial] = now_seconds - began

    def of(self, trials: Sequence[int]) -> list[float]:
        """Of those that are known."""
        return [self._seconds[trial] for trial in trials if trial in self._seconds]


def length_seconds(trial: TrialRecord) -> float:
    """How long the trial took to its best report; 0: it was interrupted meanwhile, which tells
    nothing."""
    if trial.ended is None or trial.best_step is None or trial.n_starts > 1:
        return 0.0
    share = (trial.best_step + 1) / (max(trial.last_step, trial.best_step) + 1)
    return (trial.ended - trial.started) * share


def together_seconds(lengths: Sequence[float], n_places: int) -> float:
    """The longest that trainings of these lengths can take so many at a time, whatever their order
    (Graham, 1966, Bounds for Certain Multiprocessing Anomalies)."""
    longest = max(lengths, default=0.0)
    return longest + (sum(lengths) - longest) / n_places


def kept_seconds(needed_seconds: float, limit_seconds: float) -> float:
    """Of the sweep's time; 0: none."""
    kept = START_SECONDS + needed_seconds
    return kept if needed_seconds and kept <= MOST * limit_seconds else 0.0


def no_time(needed_seconds: float, left_seconds: float | None, limit_seconds: float | None) -> str:
    """What speaks against it of the time that is left of the sweep's; empty: there is enough."""
    if left_seconds is None or needed_seconds < left_seconds:
        return ""
    return (
        f"that takes about {clock(needed_seconds)}, and of study.timeout_seconds={limit_seconds:g} "
        f"{clock(left_seconds)} are left"
    )
