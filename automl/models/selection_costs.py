"""Says what an ensemble's selection makes as small as it can: a loss, or a study's metric.

`RowCosts` are means over rows, which differ for all models. `LabelCosts` are by labels or by ranks,
in which many models are alike. `UsersMetricCosts` are by a function of the user's, which may be
slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from automl.config.metrics import LARGER_IS_BETTER, RMSLE, SQUARED_ERROR, ValueLoss
from automl.data.dataset import Places, Targets, spread_places
from automl.data.scoring.metrics import (
    ClassPredictions,
    Threshold,
    log_errors,
    losses_per_row,
    predict_labels,
)
from automl.data.users_metric import UsersMetric

Array: TypeAlias = NDArray[np.float64]
_LEAST_PROBABILITY = 1e-15
MAX_SHARPENED_ROWS = 4_000
"""Number of rows, evenly spread, by which an ensemble's sharpness is chosen."""
_N_USERS_ROWS = 1_000
"""The same, while models are selected by a function of the user's."""
_SHARPNESSES = np.geomspace(0.5, 4.0, 43)
"""Factors of class scores that are tried, a twentieth apart."""


@dataclass(frozen=True, eq=False)
class SelectionCosts(ABC):
    """The predictions of M models, and what means of them cost."""

    max_added: ClassVar[int] = 50
    """Number of times that a selection adds a model."""
    max_candidates: ClassVar[int] = 100
    """Number of single models, the best ones, that a selection chooses from. No use was seen of the
    others, which cost time."""
    n_bootstraps: ClassVar[int] = 1_000
    """Number of samples of the rows by which two ways of selecting are compared."""

    predictions: Array
    """(M, N), or (M, N, C)."""

    @property
    def n_models(self) -> int:
        return len(self.predictions)

    @property
    def n_rows(self) -> int:
        return int(self.predictions.shape[1])

    def mean(self, weights: Array, rows: Places) -> Array:
        """Return the mean (R, …) of the predictions for the rows, by weights (M,)."""
        chosen = np.flatnonzero(weights)
        return np.asarray(np.tensordot(weights[chosen], self.predictions[chosen][:, rows], axes=1))

    @abstractmethod
    def of_means(self, means: Array, rows: Places) -> Array:
        """Return the costs (K,) of means (K, R, …) for the rows of these places."""

    @abstractmethod
    def resampled(self, mean: Array, rows: Places, counts: Array) -> Array:
        """Return the costs (B,) of a mean (R, …) for the rows, each counted so often (B, R)."""


@dataclass(frozen=True, eq=False)
class RowCosts(SelectionCosts):
    """The mean of what each row costs, by predictions (M, N): the log-loss of the probability of
    the row's own class, or an error of values."""

    y: Array
    """(N,) true values; zeros where predictions are probabilities."""
    row_costs: Callable[[Array, Array], Array]
    """Returns the costs (K, R) of predictions (K, R) for the true values (R,)."""

    def of_rows(self, predictions: Array) -> Array:
        """Return the costs (K, N) of predictions (K, N)."""
        return self.row_costs(predictions, self.y)

    def of_means(self, means: Array, rows: Places) -> Array:
        return np.asarray(self.row_costs(means, self.y[rows]).mean(axis=1))

    def resampled(self, mean: Array, rows: Places, counts: Array) -> Array:
        costs = self.row_costs(mean[None], self.y[rows])[0]
        return np.asarray(counts @ costs / counts.sum(axis=1))

    def spread(self, n_rows: int) -> RowCosts:
        """Return the costs of at most so many rows, evenly spread."""
        rows = spread_places(self.n_rows, n_rows)
        return replace(self, predictions=self.predictions[:, rows], y=self.y[rows])


def class_costs(probabilities: Array) -> RowCosts:
    """Return the log-losses by the probability (M, N) of each row's own class."""
    return RowCosts(probabilities, np.zeros(probabilities.shape[1]), _log_losses)


def _log_losses(probabilities: Array, _: Array) -> Array:
    return np.asarray(-np.log(probabilities.clip(_LEAST_PROBABILITY)))


def value_costs(
    values: Array, y: Array, loss: ValueLoss = SQUARED_ERROR, metric: str = "loss"
) -> RowCosts:
    """Return the costs of values (M, N) by a metric of numbers, for true values (N,).

    `loss` is the study's loss, and the cost by its own metric.
    """
    own = {"mae": ValueLoss("absolute_error"), "rmse": SQUARED_ERROR, "r2": SQUARED_ERROR}
    if metric in _ROW_COSTS:
        return RowCosts(values, y, _ROW_COSTS[metric])
    judge = own.get(metric, loss)

    def row_costs(values: Array, y: Array) -> Array:
        costs: Array = losses_per_row(judge, values, y, scale=1.0)
        return costs

    return RowCosts(values, y, row_costs)


def _relative_errors(values: Array, y: Array) -> Array:
    return np.abs(values - y) / np.where(y, np.abs(y), np.inf)


def _square_log_errors(values: Array, y: Array) -> Array:
    return np.asarray(np.square(log_errors(values, y)))


_ROW_COSTS = {"mape": _relative_errors, RMSLE: _square_log_errors}


@dataclass(frozen=True, eq=False)
class LabelCosts(SelectionCosts):
    """A metric of classes by probabilities (M, N, C). What is the same by the metric is ordered by
    the log-loss."""

    max_added = 20
    max_candidates = 20

    y: Targets
    """(N,) true classes."""
    metric: str
    """Name of the metric, without `val_`."""
    threshold: Threshold | None = None
    """What decides labels; None: the likeliest class."""

    def of_means(self, means: Array, rows: Places) -> Array:
        y = self.y[rows].astype(np.int64)
        own = means[:, np.arange(len(y)), y].clip(_LEAST_PROBABILITY)
        ties = 1e-6 * -np.log(own).mean(axis=1)
        if self.metric in ("error", "accuracy"):
            wrong = [(predict_labels(mean, self.threshold) != y).mean() for mean in means]
            return np.asarray(wrong + ties)
        ones = np.ones((1, len(y)))
        return np.asarray([self._costs(mean, y, ones)[0] for mean in means] + ties)

    def resampled(self, mean: Array, rows: Places, counts: Array) -> Array:
        return self._costs(mean, self.y[rows].astype(np.int64), counts)

    def _costs(self, mean: Array, y: Targets, counts: Array) -> Array:
        scores = ClassPredictions(np.log(mean.clip(_LEAST_PROBABILITY)), y, self.threshold)
        found = scores.scores(counts, [self.metric])[self.metric]
        costs = -found if self.metric in LARGER_IS_BETTER else found
        return np.where(np.isnan(costs), np.inf, costs)  # rows of one class have no AUC


@dataclass(frozen=True, eq=False)
class UsersMetricCosts(SelectionCosts):
    """A metric that is a function of the user's, by probabilities (M, N, C) or amounts (M, N)."""

    max_added = 10
    max_candidates = 10
    n_bootstraps = 200

    y: Targets
    """(N,) true classes or amounts."""
    metric: UsersMetric
    thresholds: Threshold | None = None
    """What decides labels; None: the likeliest class."""

    def of_means(self, means: Array, rows: Places) -> Array:
        y = self.y[rows]
        return np.array(
            [self.metric.cost(self.metric.score(y, self._metric_input(m, y))) for m in means]
        )

    def resampled(self, mean: Array, rows: Places, counts: Array) -> Array:
        y = self.y[rows]
        scores = self.metric.score_samples(y, self._metric_input(mean, y), counts)
        return np.array([self.metric.cost(score) for score in scores])

    def _metric_input(self, mean: Array, y: Targets) -> NDArray[Any]:
        """Return what the function takes for the mean (R, …) of predictions; probabilities are as
        sharp as those of the ensemble will be."""
        if mean.ndim == 1:
            return mean
        scores = np.log(mean.clip(_LEAST_PROBABILITY))
        factor = choose_sharpness(scores, y.astype(np.int64), _N_USERS_ROWS)
        shares = np.exp(factor * scores)
        shares /= shares.sum(axis=1, keepdims=True)
        if self.metric.takes_probabilities:
            return np.asarray(shares)
        return predict_labels(shares, self.thresholds)


def choose_sharpness(
    scores: Array, y: NDArray[np.integer], n_rows: int = MAX_SHARPENED_ROWS
) -> float:
    """Return the factor of class scores (N, C) with which the log-loss of the classes `y` (N,) is
    least on at most `n_rows` rows, or 1 if the gain is within two standard errors.

    One row more, as sure as the median row and wrong, is counted: without it, the factor is endless
    where all rows are right.
    """
    rows = spread_places(len(y), n_rows)
    logs = scores[rows] - np.logaddexp.reduce(scores[rows], axis=1, keepdims=True)
    margin = float(np.median(np.diff(np.sort(logs, axis=1)[:, -2:])))

    def losses(factor: float) -> Array:
        scaled = factor * logs
        own = scaled[np.arange(len(rows)), y[rows]] - np.logaddexp.reduce(scaled, axis=1)
        return np.append(-own, np.logaddexp(0.0, factor * margin))

    best = min(_SHARPNESSES, key=lambda factor: float(losses(factor).mean()))
    gain = losses(1.0) - losses(best)
    return float(best) if gain.mean() > 2 * gain.std() / np.sqrt(len(gain)) else 1.0
