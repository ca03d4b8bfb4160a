"""The progress of a trial with folds: from the folds' metrics to the trial's metrics. Pure.

The loss of all rows is the mean of the folds' losses. A metric that is no mean over rows, such as
the area under a curve, is computed from the outputs of the folds' models for all rows of a
division. Several divisions count with their mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from automl.data.dataset import Dataset
from automl.data.scoring.metrics import Floats
from automl.in_trial.goal import FinalReport, Patience, StudyGoal
from automl.models.judged_rows import JudgedTargets, join_judged

MAX_KEPT = 2**22
"""The most outputs for the rows left out that a trial keeps for further metrics: 32 MB."""
FoldMetrics: TypeAlias = Mapping[str, float]
CombineFolds: TypeAlias = Callable[[Sequence[Any]], Mapping[str, Any]]
"""Returns the content of `best.pt` from the models of all folds."""


class FoldLengthChoice(NamedTuple):
    """A fold at the length (a step) that the other folds chose for it."""

    step: int
    others: float
    """The value of the other folds at this step, which is the best so far."""
    metrics: FoldMetrics
    """The fold's own metrics at this step."""
    outputs: Floats | None = None
    """The fold's outputs (N, C) at this step for the rows that judge it; None if unknown."""


def pool_metrics(metrics: Sequence[FoldMetrics], n_rows: Sequence[int]) -> dict[str, float]:
    """Return the metrics of all rows, from those of folds that are judged by `n_rows` rows each.

    A root of a mean (`val_rmse`) is averaged by its squares.
    """
    shares = [n / sum(n_rows) for n in n_rows]
    pooled = {}
    for name in metrics[0]:
        power = 2 if name.endswith("rmse") else 1
        mean = math.fsum(
            share * fold[name] ** power for share, fold in zip(shares, metrics, strict=True)
        )
        pooled[name] = mean ** (1 / power)
    return pooled


@dataclass(frozen=True)
class FoldsProgress:
    """The progress of a trial with folds between two of its reports."""

    goal: StudyGoal
    n_rows: tuple[int, ...]
    """The number of rows that judge each fold."""
    repeats: tuple[int, ...]
    """The number of each fold's division of the rows, whose other folds choose its length."""
    choices: tuple[FoldLengthChoice | None, ...]
    """The length chosen for each fold; None before the first finite value."""
    judged: tuple[JudgedTargets, ...] = ()
    """The rows that judge each fold; empty if only means over rows are known."""
    n_classes: int = 0

    @classmethod
    def from_dataset(cls, dataset: Dataset, goal: StudyGoal) -> FoldsProgress:
        """Return the progress of a trial at its start."""
        n_rows = tuple(len(fold.judged) for fold in dataset.folds)
        repeats = tuple(fold.repeat for fold in dataset.folds)
        judged = tuple(
            JudgedTargets.from_part(dataset, dataset.train.take(fold.judged), goal.metric)
            for fold in dataset.folds
        )
        return cls(goal, n_rows, repeats, (None,) * len(n_rows), judged, len(dataset.classes))

    @property
    def asks_outputs(self) -> bool:
        """Whether the study's metric is computed from the outputs of all folds together."""
        return bool(self.judged) and self.judged[0].wants_metric

    @property
    def keeps_outputs(self) -> bool:
        """Whether a fold's outputs at its chosen length are kept."""
        n_outputs = max(1, self.n_classes)
        return bool(self.judged) and (self.asks_outputs or sum(self.n_rows) * n_outputs <= MAX_KEPT)

    def after(
        self, step: int, metrics: Sequence[FoldMetrics], outputs: Sequence[Floats] = ()
    ) -> tuple[FoldsProgress, list[int]]:
        """Return the progress after a step, and the folds whose chosen length is now this step.

        On a tie the earlier length stays. `outputs` are those (N, C) of each fold, if
        `asks_outputs`.
        """
        choices, improved = list(self.choices), []
        for fold, own in enumerate(metrics):
            value = self._value_of_others(fold, metrics, outputs)
            before = choices[fold]
            better = before is None or self.goal.direction.better(value, before.others)
            if math.isfinite(value) and self._is_finite(own) and better:
                choices[fold] = FoldLengthChoice(step, value, own)
                improved.append(fold)
        return replace(self, choices=tuple(choices)), improved

    def with_outputs(self, fold: int, outputs: Floats) -> FoldsProgress:
        """Return the progress with a fold's outputs at its chosen length, for its judging rows."""
        choices = list(self.choices)
        before = choices[fold]
        assert before is not None, "its length was chosen in this step"
        choices[fold] = before._replace(outputs=outputs)
        return replace(self, choices=tuple(choices))

    def pooled(
        self, metrics: Sequence[FoldMetrics], outputs: Sequence[Floats] = ()
    ) -> dict[str, float]:
        """Return the metrics that the trial reports for a step."""
        found = pool_metrics(metrics, self.n_rows)
        if self.asks_outputs:
            found |= self._score_divisions(JudgedTargets.study_metric, outputs)
        return found

    @property
    def out_of_fold(self) -> dict[str, float] | None:
        """The metrics of the rows left out at the chosen lengths; None if a fold has none."""
        choices = [choice for choice in self.choices if choice is not None]
        if len(choices) < len(self.choices):
            return None
        means = pool_metrics([choice.metrics for choice in choices], self.n_rows)
        outputs = [choice.outputs for choice in choices if choice.outputs is not None]
        if not self.judged or len(outputs) < len(choices):
            return means
        own = (
            self._score_divisions(JudgedTargets.study_metric, outputs) if self.asks_outputs else {}
        )
        found = self._score_divisions(JudgedTargets.all_metrics, outputs) | means | own
        return found if self.goal.metric in found else None

    @property
    def fold_values(self) -> tuple[float, ...]:
        """The study's metric of each fold at its chosen length; empty if a fold has none."""
        name = self.goal.metric
        values = [c.metrics[name] for c in self.choices if c is not None and name in c.metrics]
        return tuple(values) if len(values) == len(self.choices) else ()

    @property
    def threshold_entry(self) -> dict[str, Any]:
        """The label threshold for a model file, by the models' outputs at the chosen lengths."""
        outputs = [c.outputs for c in self.choices if c is not None and c.outputs is not None]
        if not self.asks_outputs or len(outputs) < len(self.choices):
            return {}
        return join_judged(self.judged).threshold_entry(np.concatenate(outputs))

    def _is_finite(self, own: FoldMetrics) -> bool:
        """Return whether a fold's own metrics are finite.

        The study's metric may be missing: rows of one class have no area under a curve.
        """
        return all(
            math.isfinite(value)
            for name, value in own.items()
            if not (self.asks_outputs and name == self.goal.metric)
        )

    def _value_of_others(
        self, fold: int, metrics: Sequence[FoldMetrics], outputs: Sequence[Floats]
    ) -> float:
        """Return the value of the other folds of a fold's division."""
        others = [
            other
            for other, repeat in enumerate(self.repeats)
            if repeat == self.repeats[fold] and other != fold
        ]
        if self.asks_outputs:
            return self._score_folds(JudgedTargets.study_metric, others, outputs)[self.goal.metric]
        found = pool_metrics([metrics[o] for o in others], [self.n_rows[o] for o in others])
        return found[self.goal.metric]

    def _score_divisions(
        self, score: Callable[[JudgedTargets, Floats], dict[str, float]], outputs: Sequence[Floats]
    ) -> dict[str, float]:
        """Return the mean scores over the divisions of the rows."""
        by_division = [
            self._score_folds(
                score, [fold for fold, own in enumerate(self.repeats) if own == repeat], outputs
            )
            for repeat in sorted(set(self.repeats))
        ]
        return {
            name: math.fsum(scores[name] for scores in by_division) / len(by_division)
            for name in by_division[0]
            if all(name in scores for scores in by_division)
        }

    def _score_folds(
        self,
        score: Callable[[JudgedTargets, Floats], dict[str, float]],
        folds: Sequence[int],
        outputs: Sequence[Floats],
    ) -> dict[str, float]:
        rows = join_judged([self.judged[fold] for fold in folds])
        return score(rows, np.concatenate([outputs[fold] for fold in folds]))

    def state(self) -> list[Any]:
        """Return the part of the progress that a checkpoint keeps."""
        return [
            None if c is None else (c.step, c.others, dict(c.metrics), c.outputs)
            for c in self.choices
        ]

    def restored(self, state: Sequence[Any]) -> FoldsProgress:
        """Return the progress at the time of a checkpoint, from its `state`."""
        return replace(
            self, choices=tuple(None if c is None else _restored_choice(*c) for c in state)
        )


def _restored_choice(
    step: int, others: float, metrics: FoldMetrics, outputs: Any = None
) -> FoldLengthChoice:
    """Return a choice from a checkpoint; older ones hold no outputs, those of torch tensors."""
    return FoldLengthChoice(step, others, metrics, None if outputs is None else np.asarray(outputs))


@dataclass(frozen=True)
class FoldedTrial:
    """A trial with folds between two of its reports: its progress, patience and kept models."""

    progress: FoldsProgress
    patience: Patience
    kept: Sequence[Any]
    """Each fold's model at its chosen length; None before the first finite value."""

    def after(
        self,
        step: int,
        metrics: Sequence[FoldMetrics],
        outputs: Sequence[Floats],
        get_model: Callable[[int], Any],
        get_outputs: Callable[[int], Floats | None],
    ) -> tuple[FoldedTrial, dict[str, float]]:
        """Return the trial after a step, and the metrics that it reports.

        The functions return a copy of a fold's present model, and its present outputs if known.
        """
        progress, improved = self.progress.after(step, metrics, outputs)
        kept = list(self.kept)
        for fold in improved:
            kept[fold] = get_model(fold)
            own = get_outputs(fold) if progress.keeps_outputs else None
            if own is not None:
                progress = progress.with_outputs(fold, own)
        report = progress.pooled(metrics, outputs)
        return FoldedTrial(progress, self.patience.after(report), kept), report

    def state(self) -> dict[str, Any]:
        """Return the part of it that a checkpoint stores."""
        return {"course": self.progress.state(), "kept": self.kept, **self.patience.state()}

    def restored(self, state: Mapping[str, Any]) -> FoldedTrial:
        """Return the trial as a checkpoint stored it."""
        progress = self.progress.restored(state["course"])
        return FoldedTrial(progress, self.patience.restored(state), state["kept"])

    def final_report(self, combine: CombineFolds) -> FinalReport | None:
        """Return the trial's value and model; None if no value was finite."""
        metrics = self.progress.out_of_fold
        if metrics is None:
            return None
        step = max(choice.step for choice in self.progress.choices if choice is not None)
        state = {**combine(self.kept), **self.progress.threshold_entry}
        return FinalReport(step, metrics, state, self.progress.fold_values)
