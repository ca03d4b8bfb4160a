"""How good predictions are: every metric of the task, of weighted rows. numpy only.

The weights are (B, N): B bootstrap samples at once, each telling how often a row was drawn; ones
give the score itself. So a metric and its interval come from one formula. What metrics share is
computed once, and only where one of them is asked for.

Weighted rows counted by group, and in the order of a score: what metrics are made of.

Losses of predicted numbers, row by row; what networks descend is in `models/networks/losses.py`.

From which probability on a row is of the second of two classes. numpy only.

Labels are the likelier class, unless F1 is what a study goes by: that is highest elsewhere, where
classes are of unlike sizes. The threshold is found on rows that the model did not train on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.config.metrics import METRICS, SQUARED_ERROR, ValueLoss, metrics_of
from automl.data.dataset import Targets
from automl.errors import AutoMLError

_Floats: TypeAlias = "npt.NDArray[np.float64]"


class GroupSums:
    """Rows by a number below `n`, to be counted; rows of a larger number are not."""

    def __init__(self, numbers: npt.NDArray[Any], n: int) -> None:
        kept = np.flatnonzero(numbers < n)
        self._order = kept[np.argsort(numbers[kept], kind="stable")]
        self._present, self._starts = np.unique(numbers[self._order], return_index=True)
        self._n = n

    def sums(self, weights: _Floats) -> _Floats:
        """(B, n): how often the rows of each number were drawn."""
        found = np.zeros((len(weights), self._n))
        if len(self._order):
            sums = np.add.reduceat(weights[:, self._order], self._starts, axis=1)
            found[:, self._present] = sums
        return found


class RankedScores:
    """Rows in the order of their scores, those of equal score together."""

    def __init__(self, scores: _Floats, positive: npt.NDArray[np.bool_]) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = positive[self._order].astype(np.float64)
        self._starts = np.unique(scores[self._order], return_index=True)[1]

    def scores(self, weights: _Floats) -> _Floats:
        """(2, B): how probable it is that a positive row has a larger score than another, ties
        counting half; and the mean precision at the positive rows. NaN for a sample that lacks one
        of both (Davis & Goadrich 2006: both count the same)."""
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


FloatArray = npt.NDArray[np.float64]
_LEAST_SHARE = 1e-6
"""Of the target's scale: a rate that is predicted counts as so much at least."""


def losses_per_row(loss: ValueLoss, values: FloatArray, y: FloatArray, scale: float) -> FloatArray:
    """(…, N) losses of values for targets (N,), both in the target's unit; as in training, where
    targets are divided by `scale`.

    Squared errors; absolute ones; those of a quantile (Koenker and Bassett, 1978: above it by its
    share, below it by the rest); of rates the deviance (twice the log-likelihood ratio of Poisson).
    """
    errors = y - values
    found: FloatArray
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


FloatsOfThresholds = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
_N_PARTS = 5


def labels_by(scores: FloatsOfThresholds, threshold: float | FloatsOfThresholds | None) -> Places:
    """(N,) places of the classes in (N, C) probabilities or scores: the first of the largest; with
    a threshold (of two classes) the second where its probability is above it."""
    if threshold is None:
        return np.asarray(scores.argmax(axis=1))
    return (scores[:, 1] > threshold).astype(np.int64)


def best_threshold(probabilities: FloatsOfThresholds, y: Targets) -> float:
    """By which F1, the mean of both classes', is highest for rows with these probabilities (N,) of
    the second class; half-way between two rows, and of several the nearest to a half."""
    order = np.argsort(-probabilities, kind="stable")
    said, true = probabilities[order], y[order].astype(np.int64)
    n_rows, n_second = len(y), int(true.sum())
    n_said = np.arange(n_rows + 1)
    right = np.concatenate([[0], np.cumsum(true)])  # of those said to be the second
    right_first = (n_rows - n_second) - (n_said - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        second = 2 * right / (n_said + n_second)
        first = 2 * right_first / ((n_rows - n_said) + (n_rows - n_second))
    f1 = np.nan_to_num(first) + np.nan_to_num(second)
    cuts = np.concatenate([[1.0], (said[:-1] + said[1:]) / 2, [0.0]])
    possible = np.concatenate([[True], said[:-1] > said[1:], [True]])
    best = np.flatnonzero(possible & (f1 >= f1[possible].max() - 1e-12))
    return float(cuts[best[np.abs(cuts[best] - 0.5).argmin()]])


def thresholds_elsewhere(probabilities: FloatsOfThresholds, y: Targets) -> FloatsOfThresholds:
    """(N,) for each row the best threshold of rows that it is none of: every fifth row's is that of
    the others, so that F1 by them flatters nobody."""
    parts = np.arange(len(y)) % _N_PARTS
    found = np.full(len(y), 0.5)
    for part in range(_N_PARTS):
        if (others := parts != part).any():
            found[~others] = best_threshold(probabilities[others], y[others])
    return found


def second_of_two(outputs: FloatsOfThresholds) -> FloatsOfThresholds:
    """(N,) probabilities of the second class, of scores (N, 2)."""
    return np.asarray(1 / (1 + np.exp(np.clip(outputs[:, 0] - outputs[:, 1], -700, 700))))


Floats: TypeAlias = "npt.NDArray[np.float64]"
Formulas: TypeAlias = "Mapping[tuple[str, ...], Callable[[Floats], Mapping[str, Floats]]]"
"""By the names of the metrics that each gives: (B, N) weights → (B,) of each."""


class JudgedPredictions(ABC):
    """What somebody predicts of rows whose targets are known."""

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All metrics of the task."""

    @abstractmethod
    def formulas(self) -> Formulas:
        """What computes them."""

    def scores(self, weights: Floats, names: Collection[str] | None = None) -> dict[str, Floats]:
        """(B,) of each metric, or of these, by rows that count `weights` (B, N) times; NaN where
        rows do not tell it."""
        wanted = self.names if names is None else names
        found: dict[str, Floats] = {}
        for given, formula in self.formulas().items():
            if not set(given).isdisjoint(wanted):
                found |= formula(weights)
        return {name: found[name] for name in self.names if name in wanted}

    def scored(self, names: Collection[str] | None = None) -> dict[str, float]:
        """Each metric, or these, by all rows once."""
        found = self.scores(np.ones((1, self.n_rows)), names)
        return {name: float(values[0]) for name, values in found.items()}


class ClassPredictions(JudgedPredictions):
    """`loss` (cross entropy), `error` (share of wrong labels) and `accuracy`; means over the
    classes: `balanced_accuracy` (share of right labels), `f1`, `auc` (area under the ROC curve) and
    `average_precision`, each class against the rest; `brier` (Brier 1950: squared error of the
    probabilities). Of two classes `average_precision` and `brier` are those of the second alone, as
    scikit-learn has them."""

    names = METRICS[Task.classification]

    def __init__(
        self, outputs: Floats, y: Targets, threshold: float | Floats | None = None
    ) -> None:
        """`outputs` (N, C) are scores whose softmax are the classes' probabilities; `threshold`:
        see `metrics.py`, one or (N,) of each row."""
        top = outputs.max(axis=1, keepdims=True)
        logs = outputs - top - np.log(np.exp(outputs - top).sum(axis=1, keepdims=True))
        self._outputs, self._logs, self._y = outputs, logs, y
        said = outputs if threshold is None else np.exp(logs)
        self._labels = labels_by(said, threshold)

    @property
    def n_rows(self) -> int:
        return len(self._y)

    def formulas(self) -> Formulas:
        return {
            ("loss", "error", "accuracy"): self._of_rows,
            ("brier",): lambda weights: {"brier": _means(weights, self._brier[:, None])[0]},
            ("balanced_accuracy", "f1"): self._of_labels,
            ("auc", "average_precision"): self._of_ranks,
        }

    def _of_rows(self, weights: Floats) -> dict[str, Floats]:
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
        of_all = np.square(missed).sum(axis=1)
        per_row: Floats = of_all / 2 if missed.shape[1] == 2 else of_all
        return per_row

    @cached_property
    def _groups(self) -> tuple[GroupSums, GroupSums, GroupSums]:
        """Rows by their class, by the one said of them, and the right ones by it."""
        n_classes = self._outputs.shape[1]
        right = np.where(self._labels == self._y, self._y, n_classes)
        return tuple(GroupSums(of, n_classes) for of in (self._y, self._labels, right))  # type: ignore[return-value]

    def _of_labels(self, weights: Floats) -> dict[str, Floats]:
        """`f1` over the classes that the sample holds, or that are said of it."""
        true, said, right = (group.sums(weights) for group in self._groups)
        both = true + said
        f1 = (2 * right / np.where(both, both, 1)).sum(axis=1) / (both > 0).sum(axis=1)
        recall = (right / np.where(true, true, 1)).sum(axis=1) / (true > 0).sum(axis=1)
        return {"balanced_accuracy": recall, "f1": f1}

    @cached_property
    def _ranked(self) -> tuple[RankedScores, ...]:
        """Rows by what is said of each class; one for the second of two."""
        outputs, logs = self._outputs, self._logs
        if outputs.shape[1] == 2:
            return (RankedScores(outputs[:, 1] - outputs[:, 0], self._y == 1),)
        return tuple(RankedScores(logs[:, c], self._y == c) for c in range(outputs.shape[1]))

    def _of_ranks(self, weights: Floats) -> dict[str, Floats]:
        """Over the classes that the sample holds, beside others."""
        found = np.stack([ranked.scores(weights) for ranked in self._ranked])  # (C, 2, B)
        known = np.isfinite(found)
        with np.errstate(invalid="ignore"):
            auc, precision = np.where(known, found, 0).sum(axis=0) / known.sum(axis=0)
        return {"auc": auc, "average_precision": precision}


class ValuePredictions(JudgedPredictions):
    """`loss` (mean square of the scaled error), `rmse` and `mae` in the target's unit, `r2`, and
    `mape` (mean share of the target by which it is missed, over targets that are not 0). With
    another loss than squared errors `loss` is that one; of a quantile there is `pinball`, the same
    in the target's unit, and of rates `poisson_deviance`."""

    def __init__(
        self, values: Floats, y: Targets, scale: float, loss: ValueLoss = SQUARED_ERROR
    ) -> None:
        """`values` (N,) are in the target's unit; losses are told by `scale`, as in training."""
        targets = y.astype(np.float64)
        errors = values - targets
        centred = targets - targets.mean()
        shares = np.abs(errors) / np.where(targets, np.abs(targets), np.inf)
        self._scale = scale
        self._per_row = np.column_stack(
            [
                *(errors**2, np.abs(errors), centred, centred**2, shares, targets != 0),
                losses_per_row(loss, values, targets, scale),
            ]
        )
        self._loss = loss

    @property
    def names(self) -> tuple[str, ...]:
        return metrics_of(Task.regression, self._loss)

    @property
    def n_rows(self) -> int:
        return len(self._per_row)

    def formulas(self) -> Formulas:
        return {self.names: self._of_rows}

    def _of_rows(self, weights: Floats) -> dict[str, Floats]:
        square, absolute, y, y_square, share, has_share, loss = _means(weights, self._per_row)
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
        }


def make_predictions(
    task: Task,
    outputs: Floats,
    y: Targets,
    target_mean: float,
    target_scale: float,
    loss: ValueLoss = SQUARED_ERROR,
    threshold: float | Floats | None = None,
) -> JudgedPredictions:
    """Of what a model gives for rows: see `family.Model.outputs`; `threshold` is of two classes.

    Raises AutoMLError where that are no numbers.
    """
    if n_odd := int((~np.isfinite(outputs)).any(axis=1).sum()):
        raise AutoMLError(
            f"The model gives no finite number for {n_odd:,} of {len(y):,} rows, so that it has no "
            "score: take another trial."
        )
    if task is Task.classification:
        return ClassPredictions(outputs, y, threshold)
    values = outputs[:, 0] * target_scale + target_mean
    return ValuePredictions(values, y, target_scale, loss)


def _means(weights: Floats, per_row: npt.NDArray[np.float64]) -> Floats:
    """(K, B) weighted means of the columns of (N, K)."""
    means: Floats = ((weights @ per_row) / weights.sum(axis=1, keepdims=True)).T
    return means
