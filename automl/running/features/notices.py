"""Warns of what the user may not have meant: params tried twice, limits that no trial meets.

Each is told once. The lines are for people only; no decision depends on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.running.features.feature import StudyReader, SweepEnding, SweepFeature, SweepSite
from automl.running.loop.messages import PlannedTrial, StopReason
from automl.terminal.failure_counts import FailureCounts
from automl.terminal.view import SweepView
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    Params,
    StudyMetrics,
    TrialOutcome,
    TrialState,
)

N_BEFORE_NOTE = 10
"""Number of finished trials of which one should be within the limits."""


class ReturnedValues:
    """Finds the first trial of a study that returned another value than it reported."""

    def __init__(self, earlier: Iterable[TrialRecord]) -> None:
        """`earlier` are the trials of earlier sweeps."""
        self._is_told = any(trial.reported for trial in earlier)

    def line(self, outcome: TrialOutcome, metric: str) -> str | None:
        """Return what to say of a trial that has ended; None: nothing, or the user was told.

        `metric` is the study's metric; of several the leading one.
        """
        if self._is_told or not isinstance(outcome, FinishedOutcome) or not outcome.reported:
            return None
        self._is_told = True
        name, reported = next(iter(outcome.reported.items()))
        returned = {metric: outcome.value, **outcome.values}[name]
        return (
            f"trial {outcome.trial} returned {fit_line(name)} {returned:.6g}, and its best report "
            f"has {reported:.6g} (further trials are not listed). The returned number is the "
            "trial's value, by which trials rank and the sampler learns; curves, pruning and "
            "the kept model go by reports. To have the best report as the value, return None; to "
            "have one number everywhere, report what is returned"
        )


class RepeatedParams:
    """Finds the first trial whose params an earlier trial of the study had, in a space of few."""

    def __init__(self, trials: Iterable[Params]) -> None:
        """`trials` are those of the study so far, by number."""
        self._first_by_params: dict[Hashable, int] = {}
        self._is_told = False
        for number, params in enumerate(trials):
            self._first_by_params.setdefault(frozenset(params.items()), number)

    def line(self, number: int, params: Params) -> str | None:
        """Return what to say of a new trial; None: its params are new, or repeats were told of."""
        first = self._first_by_params.setdefault(frozenset(params.items()), number)
        if first == number or self._is_told:
            return None
        self._is_told = True
        return (
            f"trial {number} has the params of trial {first} and trains them again, with its own "
            "seed (further repeats are not listed); the grid sampler (sampler=grid) tries each "
            "combination once"
        )


class LimitWatch:
    """Says once that no trial of a study is within its limits, when ten have finished."""

    def __init__(self, metrics: StudyMetrics) -> None:
        self._limits, self._is_open = metrics.limits, bool(metrics.limits)

    def found(self, study: StudyReader) -> Iterator[str]:
        """Yield the line when it is due."""
        n_finished = study.counts()[TrialState.FINISHED] if self._is_open else 0
        if n_finished < N_BEFORE_NOTE:
            return
        self._is_open = False
        best = study.best()
        if best is None or best.point is None or best.point.excess == 0:
            return
        limits = ", ".join(f"{limit.name} ≤ {limit.largest:g}" for limit in self._limits)
        yield (
            f"none of the {n_finished} finished trials is within study.constraints ({limits}): the "
            f"nearest, trial {best.number}, exceeds them by {best.point.excess:.0%}. Widen the "
            "space to where they can be met, or begin a study with other limits"
        )


def no_trial_line(limit_seconds: float, loading_seconds: float) -> str:
    """Return the line about a sweep whose time was up before any of its trials had ended."""
    return (
        f"no trial ended in time: study.timeout_seconds={limit_seconds:g} counts from the call on, "
        f"and loading took {loading_seconds:.1f} s; give it more, such as timeout=10min"
    )


class SweepNotices(SweepFeature):
    """Warns the user once of each thing that they may not have meant, and counts failures by
    cause."""

    def __init__(self, site: SweepSite) -> None:
        prepared, trials = site.prepared(), site.log.record.trials
        self._study, self._metric = site.study, prepared.config.study.leading_metric
        self._limits = LimitWatch(prepared.config.study.metrics)
        self._returned = ReturnedValues(trials.values())
        self._failures = FailureCounts(trials)
        self._site, self._n_ended = site, 0
        self._repeated: RepeatedParams | None = None
        # The trials of others differ in more: in seeds and rows, or in what they ask for later.
        if prepared.purpose.tells_of_repeats and not prepared.asks_for_params:
            self._repeated = RepeatedParams(map(site.study.params, range(site.study.n_asked)))

    @classmethod
    def make(cls, site: SweepSite) -> SweepNotices:
        return cls(site)

    def trial_asked(self, trial: PlannedTrial) -> Iterator[str]:
        repeated = self._repeated
        if repeated and (line := repeated.line(trial.number, trial.params)) is not None:
            yield line

    def trial_ended(self, outcome: TrialOutcome) -> Iterator[str]:
        self._n_ended += 1
        if isinstance(outcome, FailedOutcome):
            self._failures.add(outcome)
        yield from self._limits.found(self._study)
        if (line := self._returned.line(outcome, self._metric)) is not None:
            yield line

    def closing(self, ending: SweepEnding) -> Iterator[str]:
        study, clock = self._site.prepared().config.study, self._site.clock
        if ending.stop is not StopReason.TIMEOUT or self._n_ended or study.timeout_seconds is None:
            return
        n_done = sum(n for state, n in self._study.counts().items() if state.is_final)
        if n_done < study.decided_n_trials:
            loading_seconds = clock.loaded_seconds - clock.called_seconds
            yield no_trial_line(study.timeout_seconds, loading_seconds)

    def look(self, view: SweepView) -> SweepView:
        return replace(view, failures=self._failures.rows())
