"""What a model has to beat: predictions that know nothing of a row, and a linear model's.

Both learn from the rows that trials train on. The linear one sees what a network does
(`one_hot.py`), so that the difference is what depth brings.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Dataset, Part, Rows
from automl.data.one_hot import one_hot
from automl.data.scores import Floats

MAX_ROWS = 100_000
"""A linear model learns from no more of them: the rest would move its figures by a thousandth, and
take minutes."""
_MAX_STEPS = 300


def baselines(dataset: Dataset, rows: Rows) -> dict[str, Floats]:
    """Outputs like a model's (`family.Model.outputs`) for `rows`, by the name of the baseline."""
    return {"linear": _linear(dataset, rows), **simplest(dataset, rows)}


def simplest(dataset: Dataset, rows: Rows) -> dict[str, Floats]:
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
    return {"linear": linear[dataset.judged_places], **simplest(dataset, dataset.judged.rows)}


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


def _linear(dataset: Dataset, rows: Rows) -> Floats:
    from sklearn.exceptions import ConvergenceWarning

    train = _at_most(dataset.train, MAX_ROWS)
    x, x_rows = one_hot(dataset.columns, train.rows), one_hot(dataset.columns, rows)
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


def _at_most(part: Part, n_rows: int) -> Part:
    if len(part) <= n_rows:
        return part
    return part.taking(np.sort(np.random.default_rng(0).permutation(len(part))[:n_rows]))
