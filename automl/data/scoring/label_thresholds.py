"""Finds thresholds of probabilities by which the labels are the best by a metric of a study.

Such metrics are F1 and the balanced accuracy, means over the classes, and the error. The best
threshold of two classes is found exactly. With more classes, the best threshold of one class after
another is found, while the others stay as they are. numpy only.

True probabilities need no search: the error is least by the likeliest class, and the balanced
accuracy highest where each class has its share of the rows as its threshold. Thresholds that are
found are worse there, since they follow the rows that they were found on; they are taken only if
they are better by more than chance on rows held back (`experiments/013-tables/by_metric.md`).

The thresholds by a function of the user's are not searched, but follow from what the function takes
for a wrong label of each class (`UsersMetric.thresholds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Targets, spread_places
from automl.data.scoring.metrics import Floats, predict_labels
from automl.data.users_metric import UsersMetric

THRESHOLD_METRICS = ("f1", "balanced_accuracy", "error", "accuracy")
"""Metrics whose labels may follow a threshold."""
LIKELIEST_METRICS = ("error", "accuracy")
"""Those that are the best by the likeliest class if all probabilities are true."""
MAX_CLASSES = 20
"""Largest number of classes that have thresholds; of more, the time grows and the rows of each are
few."""
_N_PARTS, _N_PASSES, _MAX_ROWS = 5, 2, 20_000
_MAX_MULTIPLE = 1e9
_N_STANDARD_ERRORS = 2
"""Standard errors by which found thresholds have to be better, by error or balanced accuracy."""


@dataclass(frozen=True, eq=False)
class LabelThresholds:
    """The thresholds that decide the labels of a model, found on the rows that judge it."""

    probabilities: Floats
    """(N,) or (N, C), as `label_probabilities` returns them."""
    y: Targets
    metric: str
    held_out: Floats
    """(N,) or (N, C): for each row that judges, one that was found on other rows."""
    given: float | tuple[float, ...] | None = None
    """The thresholds of all rows, where nothing is searched; None: they are found."""

    @classmethod
    def find(
        cls, outputs: Floats, y: Targets, metric: str, users_metric: UsersMetric | None = None
    ) -> LabelThresholds | None:
        """Return the thresholds by a metric for scores (N, C); None: labels are the likeliest
        classes. `users_metric` is the study's, if it is a function."""
        if users_metric is not None and metric == users_metric.name:
            return cls._by_costs(outputs, y, users_metric)
        if metric not in THRESHOLD_METRICS or not 2 <= outputs.shape[1] <= MAX_CLASSES:
            return None
        shares = label_probabilities(outputs)
        held_out = held_out_thresholds(shares, y, metric)
        if metric in LIKELIEST_METRICS and (held_out == held_out.flat[0]).all():
            return None
        return cls(shares, y, metric, held_out)

    @classmethod
    def _by_costs(cls, outputs: Floats, y: Targets, metric: UsersMetric) -> LabelThresholds | None:
        """Return the thresholds by what a function of the user's takes for wrong labels."""
        if (given := thresholds_by_costs(y, metric)) is None:
            return None
        shares = label_probabilities(outputs)
        return cls(shares, y, metric.name, np.broadcast_to(given, shares.shape), given)

    @cached_property
    def best(self) -> float | tuple[float, ...]:
        """The thresholds of new rows."""
        if self.given is not None:
            return self.given
        probabilities, y, metric = self.probabilities, self.y, self.metric
        usual = _usual_thresholds(probabilities, y, metric)
        is_found = metric == "f1" and probabilities.ndim == 1
        is_found = is_found or not (self.held_out == usual).all()
        return _plain(_find(probabilities, y, metric) if is_found else usual)


def thresholds_by_costs(y: Targets, metric: UsersMetric) -> float | tuple[float, ...] | None:
    """Return the thresholds by what a function of the user's takes for wrong labels; None: labels
    are the likeliest classes."""
    if len(metric.classes) > MAX_CLASSES or (found := metric.thresholds(y)) is None:
        return None
    return _plain(found if len(found) > 2 else found[1])


def _plain(thresholds: Floats) -> float | tuple[float, ...]:
    """Return thresholds () or (C,) as a model file holds them."""
    return tuple(map(float, thresholds)) if thresholds.ndim else float(thresholds)


def label_probabilities(outputs: Floats) -> Floats:
    """Return (N, C) probabilities of the classes by scores (N, C); of two, (N,) of the second."""
    if outputs.shape[1] == 2:
        return np.asarray(1 / (1 + np.exp(np.clip(outputs[:, 0] - outputs[:, 1], -700, 700))))
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def best_threshold(
    probabilities: Floats, y: Targets, metric: str = "f1"
) -> float | tuple[float, ...]:
    """Return the best threshold by a metric of `THRESHOLD_METRICS`: of two classes by probabilities
    (N,), of more by (N, C).

    With two classes it is half-way between two rows; among several, it is the nearest to a half.
    It is that of true probabilities unless thresholds found on some rows are better on others.
    """
    held_out = held_out_thresholds(probabilities, y, metric)
    return LabelThresholds(probabilities, y, metric, held_out).best


def held_out_thresholds(probabilities: Floats, y: Targets, metric: str = "f1") -> Floats:
    """Return for each row the best threshold of other rows, (N,) or (N, C).

    Rows are dealt into five parts, and a part's threshold is found on the other four. The score by
    these thresholds is therefore not flattering.
    """
    parts = np.arange(len(y)) % _N_PARTS
    thresholds = np.full(probabilities.shape, 0.5)
    for part in range(_N_PARTS):
        if (others := parts != part).any():
            thresholds[~others] = _find(probabilities[others], y[others], metric)
    if metric == "f1" and probabilities.ndim == 1:
        return thresholds
    usual = np.broadcast_to(_usual_thresholds(probabilities, y, metric), probabilities.shape)
    return thresholds if _is_better(probabilities, y, thresholds, usual, metric) else usual


def _usual_thresholds(probabilities: Floats, y: Targets, metric: str) -> Floats:
    """Return the thresholds () or (C,) that are the best if all probabilities are true; of F1,
    those of the likeliest class."""
    n_classes = 2 if probabilities.ndim == 1 else int(probabilities.shape[1])
    shares = np.full(n_classes, 1 / n_classes)
    if metric == "balanced_accuracy":
        counts = np.bincount(y.astype(np.int64), minlength=n_classes).clip(1)
        shares = counts / counts.sum()
    return np.asarray(shares[1] if probabilities.ndim == 1 else shares)


def _is_better(
    probabilities: Floats, y: Targets, found: Floats, usual: Floats, metric: str
) -> bool:
    """Return whether labels by the thresholds that were found are better than by the usual ones; by
    error or balanced accuracy, whether they are so by more than chance."""
    y = y.astype(np.int64)
    shares = _both_shares(probabilities)
    n_classes = shares.shape[1]
    labels, others = (predict_labels(shares, each) for each in (found, usual))
    if metric == "f1":
        return _mean_f1(y, labels, n_classes) > _mean_f1(y, others, n_classes)
    weights = np.ones(len(y))
    if metric == "balanced_accuracy":
        weights = 1 / np.bincount(y, minlength=n_classes)[y]
    gain = weights * ((labels == y).astype(float) - (others == y))
    return bool(gain.mean() > _N_STANDARD_ERRORS * gain.std() / np.sqrt(len(y)))


def _both_shares(probabilities: Floats) -> Floats:
    """Return probabilities (N, C), also of two classes."""
    if probabilities.ndim > 1:
        return probabilities
    return np.stack([1 - probabilities, probabilities], axis=1)


def _mean_f1(y: Targets, labels: npt.NDArray[np.int64], n_classes: int) -> float:
    true, said = (np.bincount(each, minlength=n_classes) for each in (y, labels))
    right = np.bincount(y[y == labels], minlength=n_classes)
    return float(_scores("f1", true, said, right))


def _scores(
    metric: str,
    true: npt.NDArray[np.int64],
    said: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
) -> Floats:
    """Return scores (…,), of which large ones are good, by the numbers of rows of each class (C,),
    of each label (…, C), and of the right ones among these."""
    if metric == "f1":
        return np.asarray((2 * right / np.maximum(said + true, 1)).mean(axis=-1))
    if metric == "balanced_accuracy":
        return np.asarray((right / np.maximum(true, 1)).mean(axis=-1))
    return np.asarray(right.sum(axis=-1) / max(1, int(true.sum())))


def _find(probabilities: Floats, y: Targets, metric: str) -> Floats:
    if probabilities.ndim == 1:
        return _best_of_two(probabilities, y.astype(np.int64), metric)
    return _best_of_many(probabilities, y, metric)


def _best_of_two(probabilities: Floats, y: npt.NDArray[np.int64], metric: str) -> Floats:
    order = np.argsort(-probabilities, kind="stable")
    falling, true = probabilities[order], y[order]
    n_rows, n_second = len(y), int(true.sum())
    n_predicted = np.arange(n_rows + 1)  # rows that a cut predicts to be of the second class
    right = np.concatenate([[0], np.cumsum(true)])
    right_first = (n_rows - n_second) - (n_predicted - right)
    scores = _scores(
        metric,
        np.array([n_rows - n_second, n_second]),
        np.stack([n_rows - n_predicted, n_predicted], axis=1),
        np.stack([right_first, right], axis=1),
    )
    cuts = np.concatenate([[1.0], (falling[:-1] + falling[1:]) / 2, [0.0]])
    possible = np.concatenate([[True], falling[:-1] > falling[1:], [True]])
    best = np.flatnonzero(possible & (scores >= scores[possible].max() - 1e-12))
    return np.asarray(cuts[best[np.abs(cuts[best] - 0.5).argmin()]])


def _best_of_many(probabilities: Floats, y: Targets, metric: str) -> Floats:
    """Return thresholds (C,) whose sum is 1, found on at most `_MAX_ROWS` rows."""
    sample = spread_places(len(y), _MAX_ROWS)
    shares, classes = probabilities[sample], y[sample].astype(np.int64)
    thresholds = np.ones(shares.shape[1])
    for _ in range(_N_PASSES):
        for label in range(len(thresholds)):
            thresholds[label] = _best_of_class(label, shares, classes, thresholds, metric)
    found: Floats = thresholds / thresholds.sum()
    return found


def _best_of_class(
    label: int, probabilities: Floats, y: npt.NDArray[np.int64], thresholds: Floats, metric: str
) -> float:
    """Return the best threshold of one class, while those of the others stay as they are."""
    n_classes = len(thresholds)
    multiples = probabilities / thresholds
    multiples[:, label] = -1
    other = multiples.argmax(axis=1)
    highest = np.maximum(multiples.max(axis=1), 1 / _MAX_MULTIPLE)
    # A row is of the class where this ratio is above the threshold.
    ratios = np.minimum(probabilities[:, label] / highest, _MAX_MULTIPLE)
    order = np.argsort(-ratios, kind="stable")
    falling, true, other = ratios[order], y[order], other[order]
    classes = np.arange(n_classes)
    as_other = other[:, None] == classes  # (N, C) what a row is said to be below the cut
    lost = np.vstack([np.zeros(n_classes), as_other.cumsum(0)])
    lost_right = np.vstack([np.zeros(n_classes), (as_other & (true[:, None] == classes)).cumsum(0)])
    said, right = lost[-1] - lost, lost_right[-1] - lost_right
    said[:, label] = np.arange(len(y) + 1)
    right[:, label] = np.concatenate([[0], (true == label).cumsum()])
    scores = _scores(metric, np.bincount(y, minlength=n_classes), said, right)
    cuts = np.concatenate([[2 * falling[0]], (falling[:-1] + falling[1:]) / 2, [falling[-1] / 2]])
    possible = np.concatenate([[True], falling[:-1] > falling[1:], [True]]) & (cuts > 0)
    best = np.flatnonzero(possible & (scores >= scores[possible].max() - 1e-12))
    return float(cuts[best[np.abs(np.log(cuts[best] / thresholds[label])).argmin()]])
