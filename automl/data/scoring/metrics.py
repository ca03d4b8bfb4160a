"""Metrics of predictions on weighted rows, losses of single rows, and thresholds. numpy only.

Weights are (B, N): B bootstrap samples at once, each counting how often a row was drawn; ones give
the score itself. One formula therefore gives a metric and its interval. Sums that metrics share are
computed once, and only if one of these metrics is wanted. The losses that networks descend are in
`models/networks/losses.py`.

A label is the likeliest class, unless a study goes by F1. Where classes differ in size, F1 is
highest at other thresholds of the probabilities. They are found on rows that the model did not
train on, in `label_thresholds.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.config.metrics import (
    METRICS_OF_TASK,
    RMSLE,
    SQUARED_ERROR,
    ValueLoss,
    prediction_metrics,
)
from automl.data.dataset import Targets
from automl.data.users_metric import UsersMetric
from automl.errors import AutoMLError

Floats: TypeAlias = "npt.NDArray[np.float64]"


class GroupSums:
    """Counts rows by a number, such as their class; rows with a number of `n` or more are left
    out."""

    def __init__(self, numbers: npt.NDArray[Any], n: int) -> None:
        kept = np.flatnonzero(numbers < n)
        self._order = kept[np.argsort(numbers[kept], kind="stable")]
        self._present, self._starts = np.unique(numbers[self._order], return_index=True)
        self._n = n

    def sums(self, weights: Floats) -> Floats:
        """Return (B, n): how often the rows of each number were drawn, by weights (B, N)."""
        counts = np.zeros((len(weights), self._n))
        if len(self._order):
            sums = np.add.reduceat(weights[:, self._order], self._starts, axis=1)
            counts[:, self._present] = sums
        return counts


class RankedScores:
    """Ranks rows by their scores, rows of equal score together, for AUC and average precision."""

    def __init__(self, scores: Floats, positive: npt.NDArray[np.bool_]) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = positive[self._order].astype(np.float64)
        self._starts = np.unique(scores[self._order], return_index=True)[1]

    def scores(self, weights: Floats) -> Floats:
        """Return (2, B): the AUC and the average precision, by weights (B, N).

        The AUC is the probability that a positive row has a larger score than a negative one, ties
        counting half. The average precision is the mean precision at the positive rows. Both are
        NaN for a sample without positive or without negative rows (Davis & Goadrich 2006: both
        count the same).
        """
        ranked = weights[:, self._order]
        all_ = np.add.reduceat(ranked, self._starts, axis=1)
        positive = np.add.reduceat(ranked * self._positive, self._starts, axis=1)
        negative = all_ - positive
        n_positive, n_negative = positive.sum(axis=1), negative.sum(axis=1)
        below = negative.cumsum(axis=1) - negative / 2
        n_above = all_[:, ::-1].cumsum(axis=1)[:, ::-1]
        precision = positive[:, ::-1].cumsum(axis=1)[:, ::-1] / np.where(n_above, n_above, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            auc = (positive * below).sum(axis=1) / (n_positive * n_negative)
            mean = (positive * precision).sum(axis=1) / n_positive
        return np.stack([auc, np.where(n_negative, mean, np.nan)])


_LEAST_SHARE = 1e-6
"""Share of the target's scale that a predicted rate counts as at least."""


def losses_per_row(loss: ValueLoss, values: Floats, y: Floats, scale: float) -> Floats:
    """Return (…, N) losses of predicted values for targets (N,), both in the target's unit.

    Losses are those of training, where targets are divided by `scale`: squared errors; absolute
    errors; errors of a quantile (Koenker and Bassett, 1978: targets above it count by its share,
    targets below it by the rest); or, for rates, the deviance (twice the log-likelihood ratio of
    Poisson).
    """
    errors = y - values
    found: Floats
    if loss.name == "absolute_error":
        found = np.abs(errors) / scale
    elif loss.name == "quantile":
        found = np.maximum(loss.quantile * errors, (loss.quantile - 1) * errors) / scale
    elif loss.name == "poisson":
        rates = np.maximum(values, _LEAST_SHARE * scale)
        logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / rates), 0)
        found = 2 * (logs - y + rates)
    else:
        found = np.square(errors) / scale**2
    return found


def log_errors(values: Floats, y: Floats) -> Floats:
    """Return (…, N) differences of the logarithms of 1 + values and 1 + targets; what is below 0
    counts as 0."""
    found: Floats = np.log1p(np.maximum(values, 0)) - np.log1p(np.maximum(y, 0))
    return found


Places = npt.NDArray[np.int64]
Threshold: TypeAlias = "float | tuple[float, ...] | Floats"
"""Type of what decides labels. With two classes it is the probability of the second class above
which a row belongs to it, or (N,) one for each row. With more classes it is one for each class, or
(N, C): a row belongs to the class whose probability is the largest multiple of its threshold."""


def predict_labels(scores: Floats, threshold: Threshold | None) -> Places:
    """Return (N,) places of the predicted classes, by probabilities or scores (N, C).

    Without a threshold, the predicted class is the first with the largest score.
    """
    if threshold is None:
        return np.asarray(scores.argmax(axis=1))
    if scores.shape[1] == 2:
        return (scores[:, 1] > np.asarray(threshold)).astype(np.int64)
    return np.asarray((scores / np.asarray(threshold)).argmax(axis=1))


Formulas: TypeAlias = "Mapping[tuple[str, ...], Callable[[Floats], Mapping[str, Floats]]]"
"""Functions from weights (B, N) to (B,) scores by metric; keys are the names of a function's
metrics."""


class JudgedPredictions(ABC):
    """Predictions for rows whose targets are known, to be scored by the task's metrics."""

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the names of all metrics of the task."""

    @abstractmethod
    def formulas(self) -> Formulas:
        """Return the functions that compute the metrics."""

    def scores(self, weights: Floats, names: Collection[str] | None = None) -> dict[str, Floats]:
        """Return (B,) scores of each metric, or of `names`, with rows weighted by `weights` (B, N).

        A score is NaN where the rows do not determine it.
        """
        wanted = self.names if names is None else names
        scores: dict[str, Floats] = {}
        for formula_names, formula in self.formulas().items():
            if not set(formula_names).isdisjoint(wanted):
                scores |= formula(weights)
        return {name: scores[name] for name in self.names if name in wanted}

    def scored(self, names: Collection[str] | None = None) -> dict[str, float]:
        """Return the score of each metric, or of `names`, on all rows once."""
        scores = self.scores(np.ones((1, self.n_rows)), names)
        return {name: float(values[0]) for name, values in scores.items()}


class PredictionsWithUsersMetric(JudgedPredictions):
    """Predictions that are scored by a function of the user's, too."""

    def __init__(
        self,
        predictions: ClassPredictions | ValuePredictions,
        metric: UsersMetric,
        y: Targets,
    ) -> None:
        self._predictions, self._metric, self._y = predictions, metric, y
        self._metric_input = predictions.metric_input(metric)

    @property
    def n_rows(self) -> int:
        return self._predictions.n_rows

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._predictions.names, self._metric.name)

    def formulas(self) -> Formulas:
        return {**self._predictions.formulas(), (self._metric.name,): self._users}

    def _users(self, weights: Floats) -> dict[str, Floats]:
        return {self._metric.name: self._metric.score_samples(self._y, self._metric_input, weights)}


class ClassPredictions(JudgedPredictions):
    """Predictions of classes.

    The metrics are `loss` (cross entropy), `error` (share of wrong labels) and `accuracy`. Means
    over the classes, each against the rest, are `balanced_accuracy` (share of right labels), `f1`,
    `auc` (area under the ROC curve) and `average_precision`. `brier` is the squared error of the
    probabilities (Brier 1950). With two classes, `average_precision` and `brier` are those of the
    second alone, as in scikit-learn.
    """

    names = METRICS_OF_TASK[Task.classification]

    def __init__(self, outputs: Floats, y: Targets, threshold: Threshold | None = None) -> None:
        """Take `outputs` (N, C), scores whose softmax are the classes' probabilities.

        `threshold` decides the labels; None: the label is the likeliest class.
        """
        top = outputs.max(axis=1, keepdims=True)
        logs = outputs - top - np.log(np.exp(outputs - top).sum(axis=1, keepdims=True))
        self._outputs, self._logs, self._y = outputs, logs, y
        self._labels = predict_labels(outputs if threshold is None else np.exp(logs), threshold)

    @property
    def n_rows(self) -> int:
        return len(self._y)

    def metric_input(self, metric: UsersMetric) -> npt.NDArray[Any]:
        """Return what a function of the user's takes: the places (N,) of the predicted classes, or
        probabilities (N, C)."""
        return np.exp(self._logs) if metric.takes_probabilities else self._labels

    def formulas(self) -> Formulas:
        return {
            ("loss", "error", "accuracy"): self._row_metrics,
            ("brier",): lambda weights: {"brier": _means(weights, self._brier[:, None])[0]},
            ("balanced_accuracy", "f1"): self._label_metrics,
            ("auc", "average_precision"): self._rank_metrics,
        }

    def _row_metrics(self, weights: Floats) -> dict[str, Floats]:
        loss, error = _means(weights, self._per_row)
        return {"loss": loss, "error": error, "accuracy": 1 - error}

    @cached_property
    def _per_row(self) -> Floats:
        losses = -self._logs[np.arange(self.n_rows), self._y]
        return np.column_stack([losses, self._labels != self._y])

    @cached_property
    def _brier(self) -> Floats:
        missed = np.exp(self._logs)
        missed[np.arange(self.n_rows), self._y] -= 1
        all_classes = np.square(missed).sum(axis=1)
        per_row: Floats = all_classes / 2 if missed.shape[1] == 2 else all_classes
        return per_row

    @cached_property
    def _groups(self) -> tuple[GroupSums, GroupSums, GroupSums]:
        """Return counters of rows by true class, of rows by label, and of right rows by class."""
        n_classes = self._outputs.shape[1]
        right = np.where(self._labels == self._y, self._y, n_classes)
        numbers = (self._y, self._labels, right)
        return tuple(GroupSums(each, n_classes) for each in numbers)  # type: ignore[return-value]

    def _label_metrics(self, weights: Floats) -> dict[str, Floats]:
        """Return the metrics of labels; `f1` is the mean over classes that a sample holds or that
        are predicted for it."""
        true, predicted, right = (group.sums(weights) for group in self._groups)
        both = true + predicted
        f1 = (2 * right / np.where(both, both, 1)).sum(axis=1) / (both > 0).sum(axis=1)
        recall = (right / np.where(true, true, 1)).sum(axis=1) / (true > 0).sum(axis=1)
        return {"balanced_accuracy": recall, "f1": f1}

    @cached_property
    def _ranked(self) -> tuple[RankedScores, ...]:
        """Return the rows ranked by the score of each class; with two classes, only of the
        second."""
        outputs, logs = self._outputs, self._logs
        if outputs.shape[1] == 2:
            return (RankedScores(outputs[:, 1] - outputs[:, 0], self._y == 1),)
        return tuple(RankedScores(logs[:, c], self._y == c) for c in range(outputs.shape[1]))

    def _rank_metrics(self, weights: Floats) -> dict[str, Floats]:
        """Return the metrics of ranks: means over the classes that a sample has along with
        others."""
        by_class = np.stack([ranked.scores(weights) for ranked in self._ranked])  # (C, 2, B)
        known = np.isfinite(by_class)
        with np.errstate(invalid="ignore"):
            auc, precision = np.where(known, by_class, 0).sum(axis=0) / known.sum(axis=0)
        return {"auc": auc, "average_precision": precision}


class ValuePredictions(JudgedPredictions):
    """Predictions of numbers.

    The metrics are `loss` (mean square of the scaled error), `rmse` and `mae` in the target's unit,
    `r2`, and `mape` (mean share of the target by which it is missed, over targets that are not 0).
    Targets from 0 on have `rmsle` besides, the root of the mean square of
    log((1 + value) / (1 + target)), with values from 0 on.
    With another loss than squared errors, `loss` is its mean. A quantile has the metric `pinball`
    besides, its loss in the target's unit, and rates have `poisson_deviance`.
    """

    def __init__(
        self, values: Floats, y: Targets, scale: float, loss: ValueLoss = SQUARED_ERROR
    ) -> None:
        """Take `values` (N,) in the target's unit; losses are divided by `scale`, as in
        training."""
        targets = y.astype(np.float64)
        self._values = values
        errors = values - targets
        centred = targets - targets.mean()
        shares = np.abs(errors) / np.where(targets, np.abs(targets), np.inf)
        self._has_logs = bool((targets >= 0).all())
        self._scale = scale
        self._per_row = np.column_stack(
            [
                *(errors**2, np.abs(errors), centred, centred**2, shares, targets != 0),
                losses_per_row(loss, values, targets, scale),
                log_errors(values, targets) ** 2,
            ]
        )
        self._loss = loss

    @property
    def names(self) -> tuple[str, ...]:
        names = prediction_metrics(Task.regression, self._loss)
        return names if self._has_logs else tuple(name for name in names if name != RMSLE)

    @property
    def n_rows(self) -> int:
        return len(self._per_row)

    def metric_input(self, metric: UsersMetric) -> npt.NDArray[Any]:
        """Return the predicted values (N,), which a function of the user's takes."""
        return self._values

    def formulas(self) -> Formulas:
        return {self.names: self._row_metrics}

    def _row_metrics(self, weights: Floats) -> dict[str, Floats]:
        square, absolute, y, y_square, share, has_share, loss, log_square = _means(
            weights, self._per_row
        )
        with np.errstate(divide="ignore", invalid="ignore"):  # targets all alike, or all 0
            r2 = 1 - square / (y_square - y**2)
            mape = share / has_share
        rmse = np.sqrt(square)
        own = loss * self._scale if self._loss.name == "quantile" else loss
        return {
            **({} if self._loss.metric is None else {self._loss.metric: own}),
            "loss": loss,
            "rmse": rmse,
            "mae": absolute,
            "r2": r2,
            "mape": mape,
            **({RMSLE: np.sqrt(log_square)} if self._has_logs else {}),
        }


def make_predictions(
    task: Task,
    outputs: Floats,
    y: Targets,
    target_mean: float,
    target_scale: float,
    loss: ValueLoss = SQUARED_ERROR,
    threshold: Threshold | None = None,
    users_metric: UsersMetric | None = None,
) -> JudgedPredictions:
    """Return the predictions that a model's outputs (`family.Model.outputs`) mean.

    `threshold` decides labels. Raises AutoMLError where outputs are not finite numbers.
    """
    if n_odd := int((~np.isfinite(outputs)).any(axis=1).sum()):
        raise AutoMLError(
            f"The model gives no finite number for {n_odd:,} of {len(y):,} rows, so that it has no "
            "score: take another trial."
        )
    predictions: ClassPredictions | ValuePredictions
    if task is Task.classification:
        predictions = ClassPredictions(outputs, y, threshold)
    else:
        values = outputs[:, 0] * target_scale + target_mean
        predictions = ValuePredictions(values, y, target_scale, loss)
    if users_metric is None:
        return predictions
    return PredictionsWithUsersMetric(predictions, users_metric, y)


def _means(weights: Floats, per_row: npt.NDArray[np.float64]) -> Floats:
    """Return (K, B) weighted means of the columns of (N, K), by weights (B, N)."""
    means: Floats = ((weights @ per_row) / weights.sum(axis=1, keepdims=True)).T
    return means
