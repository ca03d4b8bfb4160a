"""Computes the metrics of a trial from a model's outputs for the rows that judge it. No torch.

The report of an epoch has few metrics, because each costs time and room in the log. The best report
has all of them when it is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from automl.config import Task
from automl.config.metrics import (
    EPOCH_METRICS,
    JUDGED_PREFIX,
    SQUARED_ERROR,
    ValueLoss,
    prediction_metrics,
)
from automl.data.dataset import Dataset, DatasetPart, Targets
from automl.data.scoring.label_thresholds import LabelThresholds
from automl.data.scoring.metrics import Floats, make_predictions
from automl.data.users_metric import UsersMetric
from automl.models.model_file import THRESHOLD_KEY

TRIAL_THRESHOLD_METRICS = ("f1", "balanced_accuracy")
"""Metrics of a study whose trials' models choose labels by a threshold of their own. By error, the
likeliest class is the label; only an ensemble may have a threshold."""


@dataclass(frozen=True, eq=False)
class JudgedTargets:
    """Targets of the rows that judge a trial, with the metric of the study."""

    task: Task
    y: Targets
    """Targets (N,) of the judged rows."""
    target_mean: float
    target_scale: float
    metric: str
    """Name of the metric that the study optimises (`study.metric`)."""
    loss: ValueLoss = SQUARED_ERROR
    users_metric: UsersMetric | None = None
    """The metric of the study, if it is a function of the user's."""

    @classmethod
    def from_part(cls, dataset: Dataset, part: DatasetPart, metric: str) -> JudgedTargets:
        """Return the targets of a part of the data set."""
        unit = dataset.target_mean, dataset.target_scale
        return cls(dataset.task, part.y, *unit, metric, dataset.loss, dataset.users_metric)

    @property
    def _names(self) -> tuple[str, ...]:
        """Return the names of all metrics."""
        own = () if self.users_metric is None else (self.users_metric.name,)
        return prediction_metrics(self.task, self.loss) + own

    @property
    def wants_metric(self) -> bool:
        """Whether the metric needs the outputs, and is no sum that each epoch has anyway."""
        name = self.metric.removeprefix(JUDGED_PREFIX)
        known = self.metric.startswith(JUDGED_PREFIX) and name in self._names
        return known and self.metric not in EPOCH_METRICS[self.task] and len(self.y) > 0

    def study_metric(self, outputs: Floats) -> dict[str, float]:
        """Return the study's metric for outputs (N, C); NaN if the rows do not determine it."""
        names = [self.metric.removeprefix(JUDGED_PREFIX)]
        return self._scored(outputs, [*names, "error"] if self._has_thresholds else names)

    def each_epoch(self, outputs: Floats) -> dict[str, float]:
        """Return the metrics of an epoch's report, without `train_loss`."""
        names = [*EPOCH_METRICS[self.task], self.metric] if self.wants_metric else []
        names = names or list(EPOCH_METRICS[self.task])
        return self._scored(outputs, [n.removeprefix(JUDGED_PREFIX) for n in names])

    def all_metrics(self, outputs: Floats) -> dict[str, float]:
        """Return all metrics that the rows determine."""
        found = self._scored(outputs, self._names)
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def threshold_entry(self, outputs: Floats) -> dict[str, Any]:
        """Return the label threshold for a model file, if the study's metric wants one."""
        thresholds = self._thresholds(outputs.astype(np.float64)) if len(self.y) else None
        return {} if thresholds is None else {THRESHOLD_KEY: thresholds.best}

    def _thresholds(self, outputs: Floats) -> LabelThresholds | None:
        name = self.metric.removeprefix(JUDGED_PREFIX)
        if not self._has_thresholds:
            return None
        return LabelThresholds.find(outputs, self.y, name, self.users_metric)

    @property
    def _has_thresholds(self) -> bool:
        """Whether labels may follow thresholds by the study's metric."""
        name, own = self.metric.removeprefix(JUDGED_PREFIX), self.users_metric
        is_users = own is not None and own.name == name and self.task is Task.classification
        is_known = is_users or name in TRIAL_THRESHOLD_METRICS
        return is_known and self.metric.startswith(JUDGED_PREFIX)

    def _scored(self, outputs: Floats, names: Sequence[str]) -> dict[str, float]:
        if not len(self.y):
            return {}
        scale = self.target_mean, self.target_scale
        outputs = outputs.astype(np.float64)
        thresholds = self._thresholds(outputs)
        threshold = None if thresholds is None else thresholds.held_out
        predictions = make_predictions(
            self.task, outputs, self.y, *scale, self.loss, threshold, self.users_metric
        )
        return {
            f"{JUDGED_PREFIX}{name}": value for name, value in predictions.scored(names).items()
        }


@dataclass(frozen=True, eq=False)
class ReportScores:
    """Computes all metrics of a report when it is called; holds the outputs that they need."""

    judged: JudgedTargets
    get_outputs: Callable[[], Floats]
    """Returns the outputs (N, C) for the judged rows."""

    def __call__(self) -> dict[str, float]:
        return self.judged.all_metrics(self.get_outputs())

    def study_metric(self) -> dict[str, float]:
        """Return the study's metric if it needs the outputs; else nothing."""
        return self.judged.study_metric(self.get_outputs()) if self.judged.wants_metric else {}

    def threshold_entry(self) -> dict[str, Any]:
        """Return `JudgedTargets.threshold_entry` by the outputs."""
        return self.judged.threshold_entry(self.get_outputs())


def join_judged(parts: Sequence[JudgedTargets]) -> JudgedTargets:
    """Return the targets of all parts, one part after another."""
    return replace(parts[0], y=np.concatenate([part.y for part in parts]))


def class_weights(dataset: Dataset) -> tuple[float, ...]:
    """Return the weights that make all classes count the same; regression has none."""
    if not dataset.classes:
        return ()
    counts = np.bincount(dataset.train.y, minlength=len(dataset.classes))
    n_present = np.count_nonzero(counts)
    return tuple((len(dataset.train) / (n_present * np.maximum(counts, 1))).tolist())
