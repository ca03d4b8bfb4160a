"""What the libraries' callbacks have in common: metrics by name, told to a trial of either kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from automl.objectives.optuna_objective.optuna_trial import OptunaTrial
from automl.objectives.reports.trial_reports import TrialReports
from automl.objectives.trial_context import CheckpointState, TrialContext, UnfitObjectiveError
from automl.trial import Direction

AnyTrial: TypeAlias = TrialContext | OptunaTrial
GetState: TypeAlias = Callable[[], CheckpointState]
_TRAINING = ("train", "training", "learn")
"""What people call the set that a model trains on, when it is evaluated, too."""


class LibraryReports:
    """Reports those metrics of a library's that a user has named.

    Both kinds of trial end as one of `automl.TrialContext` does: `tell` raises TrialPruned or
    TrialInterrupted, which are no Exceptions, so that no library takes them for its own failure.
    """

    def __init__(self, trial: object, names: Sequence[str] = ()) -> None:
        """No names: `study.metric`. Raises TypeError for what is no trial of a sweep."""
        if not isinstance(trial, AnyTrial):
            raise TypeError(
                f"a {type(trial).__name__} is no trial of a sweep: give the one that your function "
                "was called with (objective=python or objective=optuna)."
            )
        if any(not isinstance(name, str) for name in names):
            raise TypeError(f"metrics are named by strings, such as 'val_loss', not by {names!r}.")
        self._record = trial._record
        self._optunas = isinstance(trial, OptunaTrial)
        self.names = tuple(names) or (self.metric or "metric",)

    @property
    def metric(self) -> str | None:
        """`study.metric`; None: a survey, which compares nothing."""
        return self._record.goal.metric if isinstance(self._record, TrialReports) else None

    def restore(self) -> dict[str, Any] | None:
        """See `TrialContext.restore`."""
        return self._record.restore()

    def tell(
        self,
        step: int,
        found: Mapping[str, Any],
        checkpoint: GetState | None = None,
        best: GetState | None = None,
    ) -> None:
        """Report what of `found` was named; see `TrialContext.report`.

        To an objective of Optuna's the first name is `study.metric`, whatever it is called.
        Raises UnfitObjectiveError where the first is not there.
        """
        if not isinstance(self._record, TrialReports):  # a survey computes nothing
            found = dict.fromkeys(self.names, math.nan) | {**found}
        metrics = pick_metrics(self.names, found)
        if self._optunas and self.metric is not None:
            metrics = {self.metric: metrics.pop(self.names[0])} | metrics
        self._record.report(step, metrics, checkpoint, best)

    def raise_verdict(self) -> None:
        """Raises TrialPruned or TrialInterrupted where a report has said that the trial ends."""
        if isinstance(self._record, TrialReports):
            self._record.raise_verdict()

    def check_direction(self, name: str, *, larger_is_better: bool) -> None:
        """Raises UnfitObjectiveError where the study wants the other of its own metric."""
        if self.metric is None or not (self._optunas or name == self.metric):
            return
        wanted = Direction.maximize if larger_is_better else Direction.minimize
        assert isinstance(self._record, TrialReports)
        if self._record.goal.direction is not wanted:
            raise UnfitObjectiveError(
                f"{name} is better when {'larger' if larger_is_better else 'smaller'}: set "
                f"study.direction={wanted.name}."
            )


def folder_of(trial: AnyTrial) -> Path:
    """The trial's own folder; see `TrialContext.directory`."""
    if isinstance(trial, TrialContext):
        return trial.directory
    return Path(trial._record.spec.checkpoint_dir)


def pick_metrics(names: Sequence[str], found: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of these names, the first of which must be there. Raises UnfitObjectiveError."""
    if names[0] not in found:
        there = ", ".join(map(str, found)) or "none"
        raise UnfitObjectiveError(
            f"there is no metric {names[0]!r} to report. Name one of those that there are: {there}."
        )
    return {name: float(found[name]) for name in names if name in found}


def metrics_by_name(results: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Of (set, metric, value): each as `set-metric`, and as `metric` alone where one set that is
    not trained on has it."""
    results = list(results)
    found = {f"{data}-{metric}": value for data, metric, value in results}
    others = [result for result in results if result[0] not in _TRAINING]
    names = [metric for _, metric, _ in others]
    return found | {m: value for _, m, value in others if names.count(m) == 1}
