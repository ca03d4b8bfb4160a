"""How good predictions are: every metric of the task, of weighted rows. numpy only.

The weights are (B, N): B bootstrap samples at once, each telling how often a row was drawn; ones
give the score itself. So a metric and its interval come from one formula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.dataset import Targets
from automl.errors import AutoMLError

Floats: TypeAlias = "npt.NDArray[np.float64]"

LARGER_IS_BETTER = frozenset(["auc", "f1", "r2"])
"""Of the other metrics small values are good."""


class Predictions(ABC):
    """What somebody predicts of rows whose targets are known."""

    @abstractmethod
    def scores(self, weights: Floats) -> dict[str, Floats]:
        """(B,) of each metric, by rows that count `weights` (B, N) times."""

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    def scored(self) -> dict[str, float]:
        """Each metric, by all rows once."""
        found = self.scores(np.ones((1, self.n_rows)))
        return {name: float(values[0]) for name, values in found.items()}


class ClassPredictions(Predictions):
    """`loss` (cross entropy), `error` (share of wrong labels), `f1` (mean over the classes) and,
    of two classes, `auc` (area under the ROC curve)."""

    def __init__(self, outputs: Floats, y: Targets) -> None:
        """`outputs` (N, C) are scores whose softmax are the classes' probabilities."""
        top = outputs.max(axis=1, keepdims=True)
        logs = outputs - top - np.log(np.exp(outputs - top).sum(axis=1, keepdims=True))
        labels = outputs.argmax(axis=1)
        self._per_row = np.column_stack([-logs[np.arange(len(y)), y], labels != y])
        n_classes = outputs.shape[1]
        self._true, self._said = _Groups(y, n_classes), _Groups(labels, n_classes)
        self._right = _Groups(np.where(labels == y, y, n_classes), n_classes)
        self._ranked = _Ranked(outputs[:, 1] - outputs[:, 0], y) if n_classes == 2 else None

    @property
    def n_rows(self) -> int:
        return len(self._per_row)

    def scores(self, weights: Floats) -> dict[str, Floats]:
        loss, error = _means(weights, self._per_row)
        found = {"loss": loss, "error": error, "f1": self._f1(weights)}
        return found if self._ranked is None else found | {"auc": self._ranked.auc(weights)}

    def _f1(self, weights: Floats) -> Floats:
        """Over the classes that the sample holds, or that are said of it."""
        both = self._true.sums(weights) + self._said.sums(weights)
        shares = 2 * self._right.sums(weights) / np.where(both, both, 1)
        f1: Floats = shares.sum(axis=1) / (both > 0).sum(axis=1)
        return f1


class ValuePredictions(Predictions):
    """`loss` (mean square of the scaled error), `rmse` and `mae` in the target's unit, `r2`."""

    def __init__(self, values: Floats, y: Targets, scale: float) -> None:
        """`values` (N,) are in the target's unit; losses are told by `scale`, as in training."""
        errors = values - y.astype(np.float64)
        centred = y.astype(np.float64) - y.mean(dtype=np.float64)
        self._scale = scale
        self._per_row = np.column_stack([errors**2, np.abs(errors), centred, centred**2])

    @property
    def n_rows(self) -> int:
        return len(self._per_row)

    def scores(self, weights: Floats) -> dict[str, Floats]:
        square, absolute, y, y_square = _means(weights, self._per_row)
        with np.errstate(divide="ignore", invalid="ignore"):  # rows whose targets are all alike
            r2 = 1 - square / (y_square - y**2)
        rmse = np.sqrt(square)
        return {"loss": square / self._scale**2, "rmse": rmse, "mae": absolute, "r2": r2}


def predictions(
    task: Task, outputs: Floats, y: Targets, target_mean: float, target_scale: float
) -> Predictions:
    """Of what a model gives for rows: see `family.Model.outputs`.

    Raises AutoMLError where that are no numbers.
    """
    if n_odd := int((~np.isfinite(outputs)).any(axis=1).sum()):
        raise AutoMLError(
            f"The model gives no finite number for {n_odd:,} of {len(y):,} rows, so that it has no "
            "score: take another trial."
        )
    if task is Task.classification:
        return ClassPredictions(outputs, y)
    values = outputs[:, 0] * target_scale + target_mean
    return ValuePredictions(values, y, target_scale)


def _means(weights: Floats, per_row: Floats) -> Floats:
    """(K, B) weighted means of the columns of (N, K)."""
    means: Floats = ((weights @ per_row) / weights.sum(axis=1, keepdims=True)).T
    return means


class _Groups:
    """Rows by a number below `n`, to be counted; rows of a larger number are not."""

    def __init__(self, numbers: npt.NDArray[Any], n: int) -> None:
        kept = np.flatnonzero(numbers < n)
        self._order = kept[np.argsort(numbers[kept], kind="stable")]
        self._present, self._starts = np.unique(numbers[self._order], return_index=True)
        self._n = n

    def sums(self, weights: Floats) -> Floats:
        """(B, n): how often the rows of each number were drawn."""
        found = np.zeros((len(weights), self._n))
        if len(self._order):
            sums = np.add.reduceat(weights[:, self._order], self._starts, axis=1)
            found[:, self._present] = sums
        return found


class _Ranked:
    """Rows in the order of their scores, those of equal score together."""

    def __init__(self, scores: Floats, y: Targets) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = (y[self._order] == 1).astype(np.float64)
        self._starts = np.unique(scores[self._order], return_index=True)[1]

    def auc(self, weights: Floats) -> Floats:
        """(B,) how probable it is that a row of class 1 has the larger score, ties counting half;
        NaN for a sample of one class."""
        ranked = weights[:, self._order]
        all_ = np.add.reduceat(ranked, self._starts, axis=1)
        positive = np.add.reduceat(ranked * self._positive, self._starts, axis=1)
        negative = all_ - positive
        below = negative.cumsum(axis=1) - negative / 2
        with np.errstate(invalid="ignore"):
            share = (positive * below).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1))
        auc: Floats = share
        return auc
