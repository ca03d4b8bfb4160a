"""What a model has to beat: predictions that know nothing of a row, and a linear model's.

Both learn from the rows that trials train on. The linear one sees what a network does
(`features.py`), so that the difference is what depth brings.

How sure scores are: resampled rows, the same for all that are compared. numpy only.

Percentile intervals of the bootstrap over rows (Efron & Tibshirani 1993, chapter 13). All
predictions are scored on the same samples, so that the difference of two has an interval of its
own, which is far narrower than theirs: a row that is hard for one is mostly hard for the other.
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
"""A linear model learns from no more of them: the rest would move its figures by a thousandth, and
take minutes."""
_MAX_STEPS = 300


def baseline_predictions(dataset: Dataset, rows: TableRows) -> dict[str, Floats]:
    """Outputs like a model's (`family.Model.outputs`) for `rows`, by the name of the baseline."""
    return {"linear": _linear(dataset, rows), **simplest_baseline(dataset, rows)}


def simplest_baseline(dataset: Dataset, rows: TableRows) -> dict[str, Floats]:
    """Of that alone which says the same of all rows."""
    name = "majority" if dataset.classes else "mean"
    return {name: np.tile(_constant(dataset), (len(rows), 1))}


def baselines_out_of_fold(dataset: Dataset) -> dict[str, Floats]:
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
    """(C,) the same for all rows: logarithms of the classes' shares, or the mean target."""
    if not dataset.classes:
        return np.zeros(1)  # in units of the scaled target
    return constant_outputs(np.bincount(dataset.train.y, minlength=len(dataset.classes)))


def constant_outputs(counts: npt.NDArray[np.integer]) -> Floats:
    """(C,) logarithms of the classes' shares in the training rows."""
    more = counts + 1.0  # no class is impossible
    logs: Floats = np.log(more / more.sum())
    return logs


def _linear(dataset: Dataset, rows: TableRows) -> Floats:
    from sklearn.exceptions import ConvergenceWarning

    train = _at_most(dataset.train, MAX_ROWS)
    x, x_rows = (
        one_hot_features(dataset.columns, train.rows),
        one_hot_features(dataset.columns, rows),
    )
    with warnings.catch_warnings():
        # One that has not come to its end is a baseline, too.
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
    said = LogisticRegression(max_iter=_MAX_STEPS).fit(x, y).decision_function(x_rows)
    outputs = np.full((len(x_rows), len(dataset.classes)), np.log(1 / (len(x) + 1)))
    # Of two classes it gives the second one's score alone.
    outputs[:, present] = np.column_stack([np.zeros(len(said)), said]) if said.ndim == 1 else said
    return outputs


def _at_most(part: DatasetPart, n_rows: int) -> DatasetPart:
    if len(part) <= n_rows:
        return part
    return part.taking(np.sort(np.random.default_rng(0).permutation(len(part))[:n_rows]))


CONFIDENCE = 0.95
_CELLS_AT_ONCE = 2**20
"""Of the weights of samples, 8 bytes each."""


def bootstrap(
    named: Mapping[str, JudgedPredictions], n_resamples: int, seed: int
) -> dict[str, dict[str, Floats]]:
    """(n_resamples,) of each metric of each, by the same samples of the same rows."""
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
    """The score and where it lies with 95 %, of `n_compared` of them together (Bonferroni)."""
    known = resampled[np.isfinite(resampled)]
    if not len(known):
        return ScoreInterval(value, math.nan, math.nan)
    beyond = (1 - CONFIDENCE) / n_compared / 2
    low, high = np.quantile(known, [beyond, 1 - beyond])
    return ScoreInterval(value, float(low), float(high))


def bootstrap_difference(
    metric: str, value: float, resampled: Floats, n_compared: int = 1
) -> ScoreDifference:
    """By how much a metric is above another's, of the same samples; `n_compared` as above."""
    found = bootstrap_interval(value, resampled, n_compared)
    if not found.low > 0 and not found.high < 0:
        return ScoreDifference(*found, "may be chance")
    better = (found.low > 0) == (metric in LARGER_IS_BETTER)
    return ScoreDifference(*found, "better" if better else "worse")


def _samples(n_rows: int, n_resamples: int, seed: int) -> Iterator[Floats]:
    """(B, N) how often each row is drawn, in as many pieces as memory asks for."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // n_rows)
    for begin in range(0, n_resamples, at_once):
        n = min(at_once, n_resamples - begin)
        drawn = rng.integers(0, n_rows, (n, n_rows))
        drawn += n_rows * np.arange(n)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=n * n_rows)
        yield counts.reshape(n, n_rows).astype(np.float64)
