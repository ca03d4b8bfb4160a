"""The common part of all integrations: picks metrics by name and reports them to a trial.

The trial is a `TrialContext` or an `OptunaTrial`. No library is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import CheckpointState, TrialContext, UnfitObjectiveError
from automl.objectives.optuna_objective.optuna_trial import OptunaTrial
from automl.trial import Direction

AnyTrial: TypeAlias = TrialContext | OptunaTrial
GetState: TypeAlias = Callable[[], CheckpointState]
_TRAINING = ("train", "training", "learn")
"""Usual names of the training set when it is evaluated, too."""


class LibraryReports:
    """Reports the metrics of a library that the user has named.

    `tell` ends both kinds of trial by TrialPruned or TrialInterrupted. These are no Exceptions, so
    that no library takes them for its own failure.
    """

    def __init__(self, trial: object, names: Sequence[str] = ()) -> None:
        """Take the trial and the names of metrics; without names `study.metric` is reported.

        Raises TypeError if `trial` is no trial of a sweep, or a name is no string.
        """
        if not isinstance(trial, AnyTrial):
            raise TypeError(
                f"a {type(trial).__name__} is no trial of a sweep: give the one that your function "
                "was called with (objective=python or objective=optuna)."
            )
        if any(not isinstance(name, str) for name in names):
            raise TypeError(f"metrics are named by strings, such as 'val_loss', not by {names!r}.")
        self._record = trial._record
        self._is_optuna_trial = isinstance(trial, OptunaTrial)
        self.names = tuple(names) or (self.metric or "metric",)

    @property
    def metric(self) -> str | None:
        """The value of `study.metric`; None in a survey, which compares nothing."""
        return self._record.goal.metric if isinstance(self._record, TrialReports) else None

    def restore(self) -> dict[str, Any] | None:
        """Return the trial's last state, as `TrialContext.restore` does."""
        return self._record.restore()

    def tell(
        self,
        step: int,
        found: Mapping[str, Any],
        checkpoint: GetState | None = None,
        best: GetState | None = None,
    ) -> None:
        """Report the named metrics in `found`, as `TrialContext.report` does.

        For an objective written for Optuna the first name counts as `study.metric`, whatever it is.
        Raises UnfitObjectiveError if the first name is not in `found`.
        """
        if not isinstance(self._record, TrialReports):  # a survey computes nothing
            found = dict.fromkeys(self.names, math.nan) | {**found}
        metrics = pick_metrics(self.names, found)
        if self._is_optuna_trial and self.metric is not None:
            metrics = {self.metric: metrics.pop(self.names[0])} | metrics
        self._record.report(step, metrics, checkpoint, best)

    def raise_verdict(self) -> None:
        """Raise TrialPruned or TrialInterrupted if a report has ended the trial."""
        if isinstance(self._record, TrialReports):
            self._record.raise_verdict()

    def check_direction(self, name: str, *, larger_is_better: bool) -> None:
        """Raise UnfitObjectiveError if the study's direction is wrong for its metric `name`."""
        if self.metric is None or not (self._is_optuna_trial or name == self.metric):
            return
        wanted = Direction.maximize if larger_is_better else Direction.minimize
        assert isinstance(self._record, TrialReports)
        if self._record.goal.direction is not wanted:
            raise UnfitObjectiveError(
                f"{name} is better when {'larger' if larger_is_better else 'smaller'}: set "
                f"study.direction={wanted.name}."
            )


def trial_folder(trial: AnyTrial) -> Path:
    """Return the trial's own folder, which is `TrialContext.directory`."""
    if isinstance(trial, TrialContext):
        return trial.directory
    return Path(trial._record.spec.checkpoint_dir)


def pick_metrics(names: Sequence[str], found: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of these names. Raises UnfitObjectiveError if the first is missing."""
    if names[0] not in found:
        there = ", ".join(map(str, found)) or "none"
        raise UnfitObjectiveError(
            f"there is no metric {names[0]!r} to report. Name one of those that there are: {there}."
        )
    return {name: float(found[name]) for name in names if name in found}


def metrics_by_name(results: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Return the results (set, metric, value) as metrics by name.

    Each is named `set-metric`. If only one set besides the training set has a metric, it is named
    `metric`, too.
    """
    results = list(results)
    found = {f"{data}-{metric}": value for data, metric, value in results}
    others = [result for result in results if result[0] not in _TRAINING]
    names = [metric for _, metric, _ in others]
    return found | {m: value for _, m, value in others if names.count(m) == 1}
