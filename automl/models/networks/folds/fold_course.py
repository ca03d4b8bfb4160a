"""How a trial with folds stands: from the folds' metrics to the trial's. Pure.

A loss of all rows is the mean of the folds' losses. What is no mean over rows, such as the area
under a curve, is told by what the folds' models say of the rows, all those of a division together;
of several divisions it is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from automl.data.dataset import Dataset
from automl.data.scoring.metrics import Floats
from automl.models.judged_rows import JudgedTargets, join_judged
from automl.objectives.goal import FinalReport, StudyGoal

MAX_KEPT = 2**22
"""Numbers that a trial's folds say of the rows left out, and that are kept for more metrics than
the study's own: 32 MB."""
FoldMetrics: TypeAlias = Mapping[str, float]
CombineFolds: TypeAlias = Callable[[Sequence[Any]], Mapping[str, Any]]
"""What `best.pt` holds of the models of all folds."""


class FoldLengthChoice(NamedTuple):
    """A fold at the length that the others chose."""

    step: int
    others: float
    """What the others were worth there: the best so far."""
    metrics: FoldMetrics
    """Its own there."""
    outputs: Floats | None = None
    """(N, C) what it said there of the rows that judge it; None: not known."""


def pool_metrics(metrics: Sequence[FoldMetrics], n_rows: Sequence[int]) -> dict[str, float]:
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
class FoldsProgress:
    """Between two reports of the trial."""

    goal: StudyGoal
    n_rows: tuple[int, ...]
    """That judge each fold."""
    repeats: tuple[int, ...]
    """Which division of the rows each fold is of: others of the same choose its length."""
    taken: tuple[FoldLengthChoice | None, ...]
    """None: none was finite yet."""
    judged: tuple[JudgedTargets, ...] = ()
    """The rows that judge each fold; empty: means over rows are all that is known."""
    n_classes: int = 0

    @classmethod
    def of(cls, dataset: Dataset, goal: StudyGoal) -> FoldsProgress:
        """That of a trial at its start."""
        n_rows = tuple(len(fold.judged) for fold in dataset.folds)
        repeats = tuple(fold.repeat for fold in dataset.folds)
        judged = tuple(
            JudgedTargets.of_part(dataset, dataset.train.taking(fold.judged), goal.metric)
            for fold in dataset.folds
        )
        return cls(goal, n_rows, repeats, (None,) * len(n_rows), judged, len(dataset.classes))

    @property
    def asks_outputs(self) -> bool:
        """Whether the study's metric is told by the folds' outputs together."""
        return bool(self.judged) and self.judged[0].wants_metric

    @property
    def keeps_outputs(self) -> bool:
        """Whether what a fold says as it is taken is kept."""
        n_outputs = max(1, self.n_classes)
        return bool(self.judged) and (self.asks_outputs or sum(self.n_rows) * n_outputs <= MAX_KEPT)

    def after(
        self, step: int, metrics: Sequence[FoldMetrics], outputs: Sequence[Floats] = ()
    ) -> tuple[FoldsProgress, list[int]]:
        """After a step with these metrics of its folds, and the folds that are taken as they are
        now; on a tie the earlier stays. `outputs` are (N, C) of each fold, where they are asked
        for."""
        taken, now = list(self.taken), []
        for fold, own in enumerate(metrics):
            value = self._others(fold, metrics, outputs)
            before = taken[fold]
            better = before is None or self.goal.direction.better(value, before.others)
            if math.isfinite(value) and self._is_finite(own) and better:
                taken[fold] = FoldLengthChoice(step, value, own)
                now.append(fold)
        return replace(self, taken=tuple(taken)), now

    def saying(self, fold: int, outputs: Floats) -> FoldsProgress:
        """With what a fold says as it is taken, of the rows that judge it."""
        taken = list(self.taken)
        before = taken[fold]
        assert before is not None, "it was taken now"
        taken[fold] = before._replace(outputs=outputs)
        return replace(self, taken=tuple(taken))

    def pooled(
        self, metrics: Sequence[FoldMetrics], outputs: Sequence[Floats] = ()
    ) -> dict[str, float]:
        """What the trial reports of a step."""
        found = pool_metrics(metrics, self.n_rows)
        if self.asks_outputs:
            found |= self._of_divisions(JudgedTargets.metric_of, outputs)
        return found

    @property
    def out_of_fold(self) -> dict[str, float] | None:
        """The metrics of the rows left out, each fold as taken; None: of one there is nothing."""
        taken = [taken for taken in self.taken if taken is not None]
        if len(taken) < len(self.taken):
            return None
        means = pool_metrics([one.metrics for one in taken], self.n_rows)
        outputs = [one.outputs for one in taken if one.outputs is not None]
        if not self.judged or len(outputs) < len(taken):
            return means
        own = self._of_divisions(JudgedTargets.metric_of, outputs) if self.asks_outputs else {}
        found = self._of_divisions(JudgedTargets.every, outputs) | means | own
        return found if self.goal.metric in found else None

    @property
    def beside(self) -> dict[str, float]:
        """What a model file says besides the models, by what each says as it is taken."""
        outputs = [t.outputs for t in self.taken if t is not None and t.outputs is not None]
        if not self.asks_outputs or len(outputs) < len(self.taken):
            return {}
        return join_judged(self.judged).beside(np.concatenate(outputs))

    def _is_finite(self, own: FoldMetrics) -> bool:
        """Of a fold by itself; one whose rows are of one class has no area under a curve."""
        return all(
            math.isfinite(value)
            for name, value in own.items()
            if not (self.asks_outputs and name == self.goal.metric)
        )

    def _others(
        self, fold: int, metrics: Sequence[FoldMetrics], outputs: Sequence[Floats]
    ) -> float:
        others = [
            other
            for other, repeat in enumerate(self.repeats)
            if repeat == self.repeats[fold] and other != fold
        ]
        if self.asks_outputs:
            return self._of_folds(JudgedTargets.metric_of, others, outputs)[self.goal.metric]
        found = pool_metrics([metrics[o] for o in others], [self.n_rows[o] for o in others])
        return found[self.goal.metric]

    def _of_divisions(
        self, scored: Callable[[JudgedTargets, Floats], dict[str, float]], outputs: Sequence[Floats]
    ) -> dict[str, float]:
        """The mean over the divisions of the rows, of what each tells."""
        of_each = [
            self._of_folds(scored, [f for f, own in enumerate(self.repeats) if own == one], outputs)
            for one in sorted(set(self.repeats))
        ]
        return {
            name: math.fsum(each[name] for each in of_each) / len(of_each)
            for name in of_each[0]
            if all(name in each for each in of_each)
        }

    def _of_folds(
        self,
        scored: Callable[[JudgedTargets, Floats], dict[str, float]],
        folds: Sequence[int],
        outputs: Sequence[Floats],
    ) -> dict[str, float]:
        rows = join_judged([self.judged[fold] for fold in folds])
        return scored(rows, np.concatenate([outputs[fold] for fold in folds]))

    def state(self) -> list[Any]:
        """What a checkpoint keeps of it."""
        return [
            None if t is None else (t.step, t.others, dict(t.metrics), t.outputs)
            for t in self.taken
        ]

    def restored(self, state: Sequence[Any]) -> FoldsProgress:
        """As it was when the checkpoint was made."""
        return replace(self, taken=tuple(None if t is None else _taken(*t) for t in state))


def _taken(step: int, others: float, metrics: FoldMetrics, outputs: Any = None) -> FoldLengthChoice:
    """Checkpoints of before hold no outputs; those of torch hold tensors."""
    return FoldLengthChoice(step, others, metrics, None if outputs is None else np.asarray(outputs))


def final_report_of_folds(
    course: FoldsProgress, kept: Sequence[Any], whole: CombineFolds
) -> FinalReport | None:
    """What a trial comes to whose folds' models were kept so; None: no value of it was finite."""
    metrics = course.out_of_fold
    if metrics is None:
        return None
    step = max(taken.step for taken in course.taken if taken is not None)
    return FinalReport(step, metrics, {**whole(kept), **course.beside})
