"""How a trial with folds stands: from the folds' metrics to the trial's. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from automl.data.dataset import Dataset
from automl.training.reports import Goal
from automl.training.told import Told

Metrics: TypeAlias = Mapping[str, float]
Whole: TypeAlias = Callable[[Sequence[Any]], Mapping[str, Any]]
"""What `best.pt` holds of the models of all folds."""


class Taken(NamedTuple):
    """A fold at the length that the others chose."""

    step: int
    others: float
    """What the others were worth there: the best so far."""
    metrics: Metrics
    """Its own there."""


def pooled(metrics: Sequence[Metrics], n_rows: Sequence[int]) -> dict[str, float]:
    """Of folds judged by so many rows each, the metrics of all these rows. Of a root of a mean
    (`val_rmse`) the squares are averaged."""
    shares = [n / sum(n_rows) for n in n_rows]
    found = {}
    for name in metrics[0]:
        power = 2 if name.endswith("rmse") else 1
        mean = math.fsum(
            share * one[name] ** power for share, one in zip(shares, metrics, strict=True)
        )
        found[name] = mean ** (1 / power)
    return found


@dataclass(frozen=True)
class Course:
    """Between two reports of the trial."""

    goal: Goal
    n_rows: tuple[int, ...]
    """That judge each fold."""
    repeats: tuple[int, ...]
    """Which division of the rows each fold is of: others of the same choose its length."""
    taken: tuple[Taken | None, ...]
    """None: none was finite yet."""

    @classmethod
    def of(cls, dataset: Dataset, goal: Goal) -> Course:
        """That of a trial at its start."""
        n_rows = tuple(len(fold.judged) for fold in dataset.folds)
        repeats = tuple(fold.repeat for fold in dataset.folds)
        return cls(goal, n_rows, repeats, (None,) * len(n_rows))

    def after(self, step: int, metrics: Sequence[Metrics]) -> tuple[Course, list[int]]:
        """After a step with these metrics of its folds, and the folds that are taken as they are
        now; on a tie the earlier stays."""
        taken, now = list(self.taken), []
        for fold, own in enumerate(metrics):
            value = self._others(fold, metrics)
            before = taken[fold]
            better = before is None or self.goal.direction.better(value, before.others)
            if math.isfinite(value) and math.isfinite(own[self.goal.metric]) and better:
                taken[fold] = Taken(step, value, own)
                now.append(fold)
        return replace(self, taken=tuple(taken)), now

    def pooled(self, metrics: Sequence[Metrics]) -> dict[str, float]:
        """What the trial reports of a step."""
        return pooled(metrics, self.n_rows)

    @property
    def out_of_fold(self) -> dict[str, float] | None:
        """The metrics of the rows left out, each fold as taken; None: of one there is nothing."""
        found = [taken.metrics for taken in self.taken if taken is not None]
        return self.pooled(found) if len(found) == len(self.taken) else None

    def _others(self, fold: int, metrics: Sequence[Metrics]) -> float:
        others = [
            other
            for other, repeat in enumerate(self.repeats)
            if repeat == self.repeats[fold] and other != fold
        ]
        found = pooled([metrics[o] for o in others], [self.n_rows[o] for o in others])
        return found[self.goal.metric]

    def state(self) -> list[Any]:
        """What a checkpoint keeps of it."""
        return [None if t is None else (t.step, t.others, dict(t.metrics)) for t in self.taken]

    def restored(self, state: Sequence[Any]) -> Course:
        """As it was when the checkpoint was made."""
        return replace(self, taken=tuple(None if t is None else Taken(*t) for t in state))


def told(course: Course, kept: Sequence[Any], whole: Whole) -> Told | None:
    """What a trial comes to whose folds' models were kept so; None: no value of it was finite."""
    metrics = course.out_of_fold
    if metrics is None:
        return None
    step = max(taken.step for taken in course.taken if taken is not None)
    return Told(step, metrics, whole(kept))
