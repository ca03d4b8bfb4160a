"""Selects the models of a study's ensemble, and their weights, greedily with replacement
(Caruana et al., 2004, https://doi.org/10.1145/1015330.1015432).

Models are judged by their predictions for rows that none of them has seen. In each step, the model
is added with which the mean of all added models is best; a model that is added twice has twice the
weight. The best mean on the way is kept.

A selection can learn few rows by heart, the more easily the more trials there are. For few rows it
is therefore made on many samples of the rows, and the mean of all selections is taken. The plain
mean of the best five models is taken instead if it is better by more than two standard errors, on
rows held back. `experiments/013-tables/few_rows.md` has the measurements.

On rows held back, the ensemble is also compared with the best single model, which replaces it if it
is better by more than chance.

A mean of probabilities is less sure than its models are, and not more often right. A factor of the
class scores is therefore chosen, too (`experiments/013-tables/defaults.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.data.dataset import spread_places

Array: TypeAlias = NDArray[np.float64]

FEW_ROWS = 1_000
N_FLOOR = 5
"""Number of best models whose plain mean an ensemble chosen on few rows has to match."""
_N_SAMPLES = 20
"""Number of samples of few rows, with replacement; a selection is made on each."""
_N_PARTS = 5
"""Number of parts of few rows: an ensemble is made on all but one, and scored on that one."""
N_BOOTSTRAPS = 1_000
MAX_COMPARED_ROWS = 4_000
"""Number of rows, evenly spread, by which an ensemble is compared with its best model."""
MAX_ADDED = 50
MAX_CANDIDATES = 100
"""Number of single models, the best ones, that are candidates. No use was seen of the others, which
cost time."""
_LEAST_PROBABILITY = 1e-15
_SHARPNESSES = np.geomspace(0.5, 4.0, 43)
"""Factors of class scores that are tried, a twentieth apart."""


Weighing: TypeAlias = Callable[[Array, Array, "ValueLoss | None"], Array]
"""Type of a function that returns the weights (M,) of an ensemble."""


@dataclass(frozen=True)
class WeightedSelection:
    """The weights of an ensemble's members, and its loss on the rows that it was selected by."""

    weights: tuple[float, ...]
    """The weight of each model, 0 for models outside the ensemble; they sum to 1."""
    loss: float
    """The log-loss, or for numbers the study's loss, by default the mean squared error in the
    target's unit."""

    @property
    def members(self) -> tuple[int, ...]:
        """Return the places of the models in the ensemble, the heaviest first."""
        heaviest = sorted(range(len(self.weights)), key=lambda i: -self.weights[i])
        return tuple(i for i in heaviest if self.weights[i] > 0)


def select_ensemble(
    predictions: Array, y: Array, task: Task, loss: ValueLoss = SQUARED_ERROR
) -> WeightedSelection:
    """Return an ensemble of the M models with these `predictions` (M, N).

    A prediction is the probability of the row's own class, or a value; `y` (N,) are then the true
    values, and `loss` judges. Raises ValueError where there is no model.
    """
    if not len(predictions):
        raise ValueError("an ensemble of no model")
    if task is not Task.regression:
        y = np.zeros(predictions.shape[1])  # predictions are of each row's class already
    judge: ValueLoss | None = loss if task is Task.regression else None
    make: Weighing = _greedy
    if predictions.shape[1] < FEW_ROWS:
        make = _floor if _floor_is_better(predictions, y, judge) else _sampled
    if _best_alone_is_better(make, predictions, y, judge):
        make = _best_alone
    weights = make(predictions, y, judge)
    return WeightedSelection(
        tuple(map(float, weights)), float(_losses(weights[None] @ predictions, y, judge)[0])
    )


def standard_errors_lost(
    before: Array, after: Array, y: Array, task: Task, loss: ValueLoss = SQUARED_ERROR
) -> float:
    """Return by how much the mean loss rises from predictions (N,) to others, as in
    `select_ensemble`, in standard errors of the mean loss."""
    judge: ValueLoss | None = loss if task is Task.regression else None
    losses, others = _row_losses(np.stack([before, after]), y, judge)
    rise, scale = float((others - losses).mean()), float(losses.std() / np.sqrt(len(y)))
    return rise / scale if scale > 0 else float(np.sign(rise)) * np.inf


def choose_sharpness(scores: Array, y: NDArray[np.integer]) -> float:
    """Return the factor of class scores (N, C) with which the log-loss of the classes `y` (N,) is
    least, or 1 if the gain is within two standard errors.

    One row more, as sure as the median row and wrong, is counted: without it, the factor is endless
    where all rows are right.
    """
    rows = spread_places(len(y), MAX_COMPARED_ROWS)
    logs = scores[rows] - np.logaddexp.reduce(scores[rows], axis=1, keepdims=True)
    margin = float(np.median(np.diff(np.sort(logs, axis=1)[:, -2:])))

    def losses(factor: float) -> Array:
        scaled = factor * logs
        own = scaled[np.arange(len(rows)), y[rows]] - np.logaddexp.reduce(scaled, axis=1)
        return np.append(-own, np.logaddexp(0.0, factor * margin))

    best = min(_SHARPNESSES, key=lambda factor: float(losses(factor).mean()))
    gain = losses(1.0) - losses(best)
    return float(best) if gain.mean() > 2 * gain.std() / np.sqrt(len(gain)) else 1.0


def _greedy(predictions: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Return the (M,) weights of a greedy selection."""
    candidates = np.argsort(_losses(predictions, y, judge), kind="stable")[:MAX_CANDIDATES]
    counts, kept = np.zeros(len(predictions)), np.zeros(len(predictions))
    total, best = np.zeros(predictions.shape[1]), np.inf
    for n_added in range(1, MAX_ADDED + 1):
        losses = _losses((total + predictions[candidates]) / n_added, y, judge)
        added = candidates[losses.argmin()]
        counts[added] += 1
        total += predictions[added]
        if losses.min() < best:
            best, kept = losses.min(), counts / n_added
    return kept


def _sampled(predictions: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Return (M,) weights: the mean of greedy selections on samples of the rows."""
    rng, n_rows = np.random.default_rng(0), predictions.shape[1]
    drawn = (rng.integers(0, n_rows, n_rows) for _ in range(_N_SAMPLES))
    each = [_greedy(predictions[:, rows], y[rows], judge) for rows in drawn]
    return np.asarray(np.mean(each, axis=0))


def _floor(predictions: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Return (M,) weights that are equal for the best five models."""
    weights = np.zeros(len(predictions))
    best = np.argsort(_losses(predictions, y, judge), kind="stable")[:N_FLOOR]
    weights[best] = 1 / len(best)
    return weights


def _best_alone(predictions: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Return (M,) weights that are 1 for the best model."""
    weights = np.zeros(len(predictions))
    weights[_losses(predictions, y, judge).argmin()] = 1.0
    return weights


def _best_alone_is_better(
    make: Weighing, predictions: Array, y: Array, judge: ValueLoss | None
) -> bool:
    """Return whether the best model is better than an ensemble by more than chance.

    Both are chosen on some rows and compared on the others, by a paired bootstrap of the rows.
    """
    n_rows = predictions.shape[1]
    if n_rows < 2 or len(predictions) < 2:
        return False
    rows = spread_places(n_rows, MAX_COMPARED_ROWS)
    predictions, y = predictions[:, rows], y[rows]
    # A selection of the mean of many takes 20 times as long as a single one, which is no better.
    make = _greedy if make is _sampled else make
    alone, joined = (
        _row_losses(_predict_held_back(one, predictions, y, judge)[None], y, judge)[0]
        for one in (_best_alone, make)
    )
    gain, rng = joined - alone, np.random.default_rng(0)
    if gain.mean() <= 0:
        return False
    means = [gain[rng.integers(0, len(gain), len(gain))].mean() for _ in range(N_BOOTSTRAPS)]
    return bool(np.quantile(means, 0.025) > 0)


def _floor_is_better(predictions: Array, y: Array, judge: ValueLoss | None) -> bool:
    """Return whether the plain mean of the best is better than a greedy selection.

    It must be better by more than two standard errors, on rows that neither was made by. A single
    selection is tried, because it takes a twentieth of the time of all.
    """
    n_rows = predictions.shape[1]
    if n_rows < 2:
        return True
    floor, greedy = (_predict_held_back(make, predictions, y, judge) for make in (_floor, _greedy))
    gain = _row_losses(greedy[None], y, judge)[0] - _row_losses(floor[None], y, judge)[0]
    return bool(gain.mean() > 2 * gain.std() / np.sqrt(n_rows))


def _predict_held_back(
    make: Weighing,
    predictions: Array,
    y: Array,
    judge: ValueLoss | None,
) -> Array:
    """Return (N,) predictions for each part of the rows, by an ensemble made on the others."""
    parts = np.random.default_rng(0).permutation(len(y)) % _N_PARTS
    held_back = np.empty(len(y))
    for out in (parts == part for part in range(min(_N_PARTS, len(y)))):
        held_back[out] = make(predictions[:, ~out], y[~out], judge) @ predictions[:, out]
    return held_back


def _losses(predictions: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Return the (K,) mean losses of the lines of (K, N) predictions."""
    losses: Array = _row_losses(predictions, y, judge).mean(axis=1)
    return losses


def _row_losses(predictions: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Return the (K, N) losses of predictions; `judge` is None where these are probabilities."""
    if judge is None:
        return np.asarray(-np.log(predictions.clip(_LEAST_PROBABILITY)))
    from automl.data.scoring.metrics import losses_per_row

    losses: Array = losses_per_row(judge, predictions, y, scale=1.0)
    return losses
