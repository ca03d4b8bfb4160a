"""Baselines that a model has to beat, and intervals of scores and of their differences.

The baselines are a constant prediction and a linear model; both learn from the rows that trials
train on. The linear model gets the features of a network (`features.py`), so that the difference is
what depth brings.

Intervals are percentiles of the bootstrap over rows (Efron & Tibshirani 1993, chapter 13). All
predictions are scored on the same samples, so that the difference of two scores has an interval of
its own. It is far narrower than the two of the scores: a row that is hard for one model is mostly
hard for the other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config.metrics import LARGER_IS_BETTER
from automl.data.dataset import Dataset, DatasetPart, TableRows
from automl.data.features import one_hot_features
from automl.data.scoring.metrics import Floats, JudgedPredictions
from automl.trial import ScoreDifference, ScoreInterval

MAX_ROWS = 100_000
"""Largest number of rows that a linear model learns from: more would move its figures by a
thousandth, and take minutes."""
_MAX_STEPS = 300


def baseline_predictions(dataset: Dataset, rows: TableRows) -> dict[str, Floats]:
    """Return outputs like a model's (`family.Model.outputs`) for `rows`, by baseline."""
    return {"linear": _linear(dataset, rows), **simplest_baseline(dataset, rows)}


def simplest_baseline(dataset: Dataset, rows: TableRows) -> dict[str, Floats]:
    """Return the outputs of the baseline that says the same of all rows, by its name."""
    name = "majority" if dataset.classes else "mean"
    return {name: np.tile(_constant(dataset), (len(rows), 1))}


def baseline_outputs_out_of_fold(dataset: Dataset) -> dict[str, Floats]:
    """Return outputs for `Dataset.judged`. Each row's linear outputs are those of a model that did
    not learn from the row, in the first division of the rows. The constant is one for all rows."""
    linear = np.empty((len(dataset.train), dataset.n_outputs))
    for number, place in enumerate(dataset.folds):
        if place.repeat == 0:
            fold = dataset.fold(number)
            linear[place.judged] = _linear(fold, fold.validation.rows)
    return {
        "linear": linear[dataset.judged_places],
        **simplest_baseline(dataset, dataset.judged.rows),
    }


def _constant(dataset: Dataset) -> Floats:
    """Return (C,) outputs for all rows: logarithms of the classes' shares, or the mean target."""
    if not dataset.classes:
        return np.zeros(1)  # in units of the scaled target
    return constant_outputs(np.bincount(dataset.train.y, minlength=len(dataset.classes)))


def constant_outputs(counts: npt.NDArray[np.integer]) -> Floats:
    """Return (C,) logarithms of the classes' shares, from their numbers of training rows."""
    smoothed = counts + 1.0  # no class is impossible
    logs: Floats = np.log(smoothed / smoothed.sum())
    return logs


def _linear(dataset: Dataset, rows: TableRows) -> Floats:
    from sklearn.exceptions import ConvergenceWarning

    train = _at_most(dataset.train, MAX_ROWS)
    x, x_rows = (
        one_hot_features(dataset.columns, train.rows),
        one_hot_features(dataset.columns, rows),
    )
    with warnings.catch_warnings():
        # A fit that has not converged is a baseline, too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _fitted_outputs(dataset, x, train.y, x_rows)


def _fitted_outputs(
    dataset: Dataset, x: npt.NDArray[np.float32], y: npt.NDArray[Any], x_rows: npt.NDArray[Any]
) -> Floats:
    from sklearn.linear_model import LogisticRegression, Ridge

    if not dataset.classes:
        scaled = (y.astype(np.float64) - dataset.target_mean) / dataset.target_scale
        values: Floats = Ridge().fit(x, scaled).predict(x_rows).astype(np.float64)
        return values[:, None]
    present = np.unique(y)
    if len(present) < 2:  # a part of the rows may hold one class alone
        return np.tile(_constant(dataset), (len(x_rows), 1))
    scores = LogisticRegression(max_iter=_MAX_STEPS).fit(x, y).decision_function(x_rows)
    if scores.ndim == 1:  # for two classes scikit-learn gives the score of the second alone
        scores = np.column_stack([np.zeros(len(scores)), scores])
    outputs = np.full((len(x_rows), len(dataset.classes)), np.log(1 / (len(x) + 1)))
    outputs[:, present] = scores
    return outputs


def _at_most(part: DatasetPart, n_rows: int) -> DatasetPart:
    if len(part) <= n_rows:
        return part
    return part.taking(np.sort(np.random.default_rng(0).permutation(len(part))[:n_rows]))


CONFIDENCE = 0.95
_CELLS_AT_ONCE = 2**20
"""Largest number of sample weights that are held at once, 8 bytes each."""


def bootstrap_metrics(
    named: Mapping[str, JudgedPredictions], n_resamples: int, seed: int
) -> dict[str, dict[str, Floats]]:
    """Return (n_resamples,) scores by name of the predictions and by metric.

    All predictions are of the same rows, and are scored on the same samples of them.
    """
    n_rows = next(iter(named.values())).n_rows
    assert all(predictions.n_rows == n_rows for predictions in named.values()), "the same rows"
    parts: dict[str, dict[str, list[Floats]]] = {name: {} for name in named}
    for weights in _samples(n_rows, n_resamples, seed):
        for name, predictions in named.items():
            for metric, values in predictions.scores(weights).items():
                parts[name].setdefault(metric, []).append(values)
    return {
        name: {metric: np.concatenate(values) for metric, values in metrics.items()}
        for name, metrics in parts.items()
    }


def bootstrap_interval(value: float, resampled: Floats, n_compared: int = 1) -> ScoreInterval:
    """Return a score with its interval at 95 %.

    The 95 % hold for `n_compared` intervals together (Bonferroni).
    """
    known = resampled[np.isfinite(resampled)]
    if not len(known):
        return ScoreInterval(value, math.nan, math.nan)
    beyond = (1 - CONFIDENCE) / n_compared / 2
    low, high = np.quantile(known, [beyond, 1 - beyond])
    return ScoreInterval(value, float(low), float(high))


def bootstrap_difference(
    metric: str, value: float, resampled: Floats, n_compared: int = 1
) -> ScoreDifference:
    """Return how much a model's metric is above another model's, with an interval and a verdict.

    `value` and `resampled` are differences on the same rows and samples. The 95 % hold for
    `n_compared` intervals together.
    """
    interval = bootstrap_interval(value, resampled, n_compared)
    if not interval.low > 0 and not interval.high < 0:
        return ScoreDifference(*interval, "may be chance")
    better = (interval.low > 0) == (metric in LARGER_IS_BETTER)
    return ScoreDifference(*interval, "better" if better else "worse")


def _samples(n_rows: int, n_resamples: int, seed: int) -> Iterator[Floats]:
    """Yield (B, N) counts: how often each sample draws each row; B is limited by memory."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // n_rows)
    for begin in range(0, n_resamples, at_once):
        n = min(at_once, n_resamples - begin)
        drawn = rng.integers(0, n_rows, (n, n_rows))
        drawn += n_rows * np.arange(n)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=n * n_rows)
        yield counts.reshape(n, n_rows).astype(np.float64)
