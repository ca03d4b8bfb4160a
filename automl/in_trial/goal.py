"""Values that say what a trial is judged by: the study's goal, a final report, and early stopping.

A file of its own, because processes without torch and all kinds of sessions import it. It judges
nothing: `reports/trial_reports.py` keeps the best report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from automl.trial import Direction


@dataclass(frozen=True)
class StudyGoal:
    """What a trial of a study is judged by, and the params of the study's space."""

    metric: str
    """The study's metric; of several the leading one, which chooses the report that counts."""
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space; a trial may lack those whose `when` is not met."""
    keeps_last: bool = False
    """The last report counts as the best."""
    more_directions: tuple[Direction, ...] = ()
    """Directions of the other optimised metrics, which are the first of `more_metrics`."""
    more_metrics: tuple[str, ...] = ()
    """The names of further metrics whose values a trial must have, for limits, too."""
    value_at_end: bool = False
    """The trial's value comes at its end, with the model. Reports serve pruning alone, and a pruned
    trial has no value."""

    @property
    def several(self) -> tuple[str, ...]:
        """The names of the optimised metrics in their order; empty for one metric."""
        n_more = len(self.more_directions)
        return (self.metric, *self.more_metrics[:n_more]) if n_more else ()


MIN_LOSS_GOAL = StudyGoal("val_loss", Direction.minimize)


@dataclass(frozen=True)
class FinalReport:
    """A trial's value and model, returned by an estimator if `StudyGoal.value_at_end` is set."""

    step: int
    """The last step that the metrics and the state are from."""
    metrics: Mapping[str, float]
    """The metrics by name; the study's metric is the trial's value."""
    state: Mapping[str, Any]
    """The state that is stored in `best.pt`."""
    part_values: tuple[float, ...] = ()
    """The values of the trial's folds; empty if the study's metric is none of single folds."""


@dataclass(frozen=True)
class Patience:
    """The best value of a trial and the epochs since; without a limit it is never over."""

    goal: StudyGoal
    limit_epochs: int | None
    best: float | None = None
    n_waited: int = 0
    """Number of epochs since the best one."""

    def after(self, metrics: Mapping[str, float]) -> Patience:
        """Return the patience after another epoch with these metrics. A tie is not better."""
        value = metrics[self.goal.metric]
        if self.best is None or self.goal.direction.better(value, self.best):
            return replace(self, best=value, n_waited=0)
        return replace(self, n_waited=self.n_waited + 1)

    @property
    def is_over(self) -> bool:
        """Whether training stops after the present epoch."""
        return self.limit_epochs is not None and self.n_waited >= self.limit_epochs

    def state(self) -> dict[str, Any]:
        """Return the part of it that a checkpoint stores, which is empty without a limit."""
        if self.limit_epochs is None:
            return {}
        return {"patience": {"best": self.best, "n_waited": self.n_waited}}

    def restored(self, state: Mapping[str, Any]) -> Patience:
        """Return the patience as a checkpoint stored it."""
        return replace(self, **state.get("patience", {}))
