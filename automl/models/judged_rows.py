"""Metrics of the rows by which a trial is judged, from what a model gives for them. No torch.

A report of each epoch holds few of them, for their cost and for the log's; the best report, when it
is kept, has them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from automl.config import Task
from automl.config.metrics import EACH_EPOCH, PREFIX, SQUARED_ERROR, ValueLoss, metrics_of
from automl.data.dataset import Dataset, DatasetPart, Targets
from automl.data.scoring.metrics import (
    Floats,
    best_threshold,
    make_predictions,
    second_of_two,
    thresholds_elsewhere,
)
from automl.models.model_file import THRESHOLD_KEY

THRESHOLD_METRIC = "val_f1"
"""The metric of a study whose labels go by a threshold of their own."""


@dataclass(frozen=True, eq=False)
class JudgedTargets:
    """The judged rows' targets, and what the study goes by. A family asks it with its outputs."""

    task: Task
    y: Targets
    """(N,) of the judged rows."""
    target_mean: float
    target_scale: float
    metric: str
    """`study.metric`."""
    loss: ValueLoss = SQUARED_ERROR

    @classmethod
    def of(cls, dataset: Dataset, metric: str) -> JudgedTargets:
        """The rows of the validation part."""
        return cls.of_part(dataset, dataset.validation, metric)

    @classmethod
    def of_part(cls, dataset: Dataset, part: DatasetPart, metric: str) -> JudgedTargets:
        """Rows of the data set."""
        unit = dataset.target_mean, dataset.target_scale
        return cls(dataset.task, part.y, *unit, metric, dataset.loss)

    @property
    def wants_metric(self) -> bool:
        """Whether the study goes by one that is no sum over rows which each epoch has anyway."""
        name = self.metric.removeprefix(PREFIX)
        known = self.metric.startswith(PREFIX) and name in metrics_of(self.task, self.loss)
        return known and self.metric not in EACH_EPOCH[self.task] and len(self.y) > 0

    def metric_of(self, outputs: Floats) -> dict[str, float]:
        """The study's metric by outputs (N, C) as `family.Model.outputs` gives them; NaN where the
        rows do not tell it."""
        names = [self.metric.removeprefix(PREFIX)]
        return self._scored(outputs, [*names, "error"] if self._has_threshold(outputs) else names)

    def each_epoch(self, outputs: Floats) -> dict[str, float]:
        """What a report holds, `train_loss` beside it: the loss, what people read, and the study's
        metric."""
        names = [*EACH_EPOCH[self.task], self.metric] if self.wants_metric else []
        names = names or list(EACH_EPOCH[self.task])
        return self._scored(outputs, [n.removeprefix(PREFIX) for n in names])

    def every(self, outputs: Floats) -> dict[str, float]:
        """All metrics that the rows tell."""
        found = self._scored(outputs, metrics_of(self.task, self.loss))
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def beside(self, outputs: Floats) -> dict[str, float]:
        """What a model file says besides the model, by its outputs for the rows: of two classes,
        where F1 is what counts, the probability from which on a row is of the second."""
        if not (len(self.y) and self._has_threshold(outputs)):
            return {}
        return {THRESHOLD_KEY: best_threshold(second_of_two(outputs.astype(np.float64)), self.y)}

    def _has_threshold(self, outputs: Floats) -> bool:
        return self.metric == THRESHOLD_METRIC and outputs.shape[1] == 2

    def _scored(self, outputs: Floats, names: Sequence[str]) -> dict[str, float]:
        if not len(self.y):
            return {}
        scale = self.target_mean, self.target_scale
        outputs, threshold = outputs.astype(np.float64), None
        if self._has_threshold(outputs):
            threshold = thresholds_elsewhere(second_of_two(outputs), self.y)
        of = make_predictions(self.task, outputs, self.y, *scale, self.loss, threshold)
        return {f"{PREFIX}{name}": value for name, value in of.scored(names).items()}


@dataclass(frozen=True, eq=False)
class ReportScores:
    """All metrics of a report, for whoever wants them, and the outputs that they are made of."""

    judged: JudgedTargets
    get_outputs: Callable[[], Floats]
    """(N, C) for the judged rows."""

    def __call__(self) -> dict[str, float]:
        return self.judged.every(self.get_outputs())


def join_judged(parts: Sequence[JudgedTargets]) -> JudgedTargets:
    """The rows of all."""
    return replace(parts[0], y=np.concatenate([part.y for part in parts]))


def class_weights(dataset: Dataset) -> tuple[float, ...]:
    """What a row of each class counts where all classes shall count the same: the mean over the
    training part is 1; empty for numbers."""
    if not dataset.classes:
        return ()
    counts = np.bincount(dataset.train.y, minlength=len(dataset.classes))
    n_present = np.count_nonzero(counts)
    return tuple((len(dataset.train) / (n_present * np.maximum(counts, 1))).tolist())
