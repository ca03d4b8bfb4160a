"""What a trial is judged by.

What a trial comes to where its reports do not tell: its value, and its model, at its end.

Early stopping: whether a trial has waited long enough for a better value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from automl.trial import Direction


@dataclass(frozen=True)
class StudyGoal:
    """What the study optimises, over which params."""

    metric: str
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space; a trial may lack those whose `when` is not met."""
    keeps_last: bool = False
    """The last report is the best."""
    at_end: bool = False
    """The value is told at the end, with the model: reports are for pruning alone, and a trial that
    is pruned has no value."""


@dataclass(frozen=True)
class FinalReport:
    """Returned by an estimator whose `StudyGoal` says that values are told at the end."""

    step: int
    """The last that any of it is of."""
    metrics: Mapping[str, float]
    """The study's metric among them is the trial's value."""
    state: Mapping[str, Any]
    """What `best.pt` holds."""


@dataclass(frozen=True)
class Patience:
    """The best epoch of a trial so far. Without a limit it never ends."""

    goal: StudyGoal
    limit_epochs: int | None
    best: float | None = None
    n_waited: int = 0
    """Epochs since the best one."""

    def after(self, metrics: Mapping[str, float]) -> Patience:
        """After another epoch. A tie is not better."""
        value = metrics[self.goal.metric]
        if self.best is None or self.goal.direction.better(value, self.best):
            return replace(self, best=value, n_waited=0)
        return replace(self, n_waited=self.n_waited + 1)

    @property
    def is_over(self) -> bool:
        """Whether no epoch is to be trained any more."""
        return self.limit_epochs is not None and self.n_waited >= self.limit_epochs

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it: nothing where there is no limit."""
        if self.limit_epochs is None:
            return {}
        return {"patience": {"best": self.best, "n_waited": self.n_waited}}

    def restored(self, state: Mapping[str, Any]) -> Patience:
        """As it was when the checkpoint was made."""
        return replace(self, **state.get("patience", {}))
