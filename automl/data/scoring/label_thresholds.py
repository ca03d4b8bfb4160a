"""Finds thresholds of probabilities at which the F1 of labels, the mean over classes, is highest.

The best threshold of two classes is found exactly. With more classes, the best threshold of one
class after another is found, while the others stay as they are. numpy only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Targets, spread_places
from automl.data.scoring.metrics import Floats, Threshold, predict_labels

MAX_CLASSES = 20
"""Largest number of classes that have thresholds; of more, the time grows and the rows of each are
few."""
_N_PARTS, _N_PASSES, _MAX_ROWS = 5, 2, 20_000
_MAX_MULTIPLE = 1e9


def label_probabilities(outputs: Floats) -> Floats:
    """Return (N, C) probabilities of the classes by scores (N, C); of two, (N,) of the second."""
    if outputs.shape[1] == 2:
        return np.asarray(1 / (1 + np.exp(np.clip(outputs[:, 0] - outputs[:, 1], -700, 700))))
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def best_threshold(probabilities: Floats, y: Targets) -> float | tuple[float, ...]:
    """Return the threshold with the highest F1: of two classes by probabilities (N,), of more by
    (N, C).

    With two classes it is half-way between two rows; among several, it is the nearest to a half.
    With more classes all are the same unless thresholds found on some rows are better on others.
    """
    if probabilities.ndim == 1:
        return _best_of_two(probabilities, y)
    n_classes = int(probabilities.shape[1])
    held_out = held_out_thresholds(probabilities, y)
    if (held_out == held_out[0, 0]).all():
        return (1 / n_classes,) * n_classes
    return tuple(float(one) for one in _best_of_many(probabilities, y))


def held_out_thresholds(probabilities: Floats, y: Targets) -> Floats:
    """Return for each row the best threshold of other rows, (N,) or (N, C).

    Rows are dealt into five parts, and a part's threshold is found on the other four. The F1 by
    these thresholds is therefore not flattering.
    """
    parts = np.arange(len(y)) % _N_PARTS
    thresholds = np.full(probabilities.shape, 0.5)
    for part in range(_N_PARTS):
        if (others := parts != part).any():
            find = _best_of_two if probabilities.ndim == 1 else _best_of_many
            thresholds[~others] = find(probabilities[others], y[others])
    if probabilities.ndim > 1 and not _is_better(probabilities, y, thresholds):
        return np.full(probabilities.shape, 1 / probabilities.shape[1])
    return thresholds


def _is_better(probabilities: Floats, y: Targets, thresholds: Threshold) -> bool:
    """Return whether labels by thresholds have a higher F1 than the likeliest classes."""
    n_classes = probabilities.shape[1]
    found = [
        _mean_f1(y, predict_labels(probabilities, one), n_classes) for one in (thresholds, None)
    ]
    return found[0] > found[1]


def _mean_f1(y: Targets, labels: npt.NDArray[np.int64], n_classes: int) -> float:
    true, said = (np.bincount(each, minlength=n_classes) for each in (y, labels))
    right = np.bincount(y[y == labels], minlength=n_classes)
    return float((2 * right / np.maximum(true + said, 1)).mean())


def _best_of_two(probabilities: Floats, y: Targets) -> float:
    order = np.argsort(-probabilities, kind="stable")
    falling, true = probabilities[order], y[order].astype(np.int64)
    n_rows, n_second = len(y), int(true.sum())
    n_predicted = np.arange(n_rows + 1)  # rows that a cut predicts to be of the second class
    right = np.concatenate([[0], np.cumsum(true)])
    right_first = (n_rows - n_second) - (n_predicted - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        second = 2 * right / (n_predicted + n_second)
        first = 2 * right_first / ((n_rows - n_predicted) + (n_rows - n_second))
    f1 = np.nan_to_num(first) + np.nan_to_num(second)
    cuts = np.concatenate([[1.0], (falling[:-1] + falling[1:]) / 2, [0.0]])
    possible = np.concatenate([[True], falling[:-1] > falling[1:], [True]])
    best = np.flatnonzero(possible & (f1 >= f1[possible].max() - 1e-12))
    return float(cuts[best[np.abs(cuts[best] - 0.5).argmin()]])


def _best_of_many(probabilities: Floats, y: Targets) -> Floats:
    """Return thresholds (C,) whose sum is 1, found on at most `_MAX_ROWS` rows."""
    sample = spread_places(len(y), _MAX_ROWS)
    shares, classes = probabilities[sample], y[sample].astype(np.int64)
    thresholds = np.ones(shares.shape[1])
    for _ in range(_N_PASSES):
        for label in range(len(thresholds)):
            thresholds[label] = _best_of_class(label, shares, classes, thresholds)
    found: Floats = thresholds / thresholds.sum()
    return found


def _best_of_class(
    label: int, probabilities: Floats, y: npt.NDArray[np.int64], thresholds: Floats
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
    f1 = (2 * right / np.maximum(said + np.bincount(y, minlength=n_classes), 1)).mean(axis=1)
    cuts = np.concatenate([[2 * falling[0]], (falling[:-1] + falling[1:]) / 2, [falling[-1] / 2]])
    possible = np.concatenate([[True], falling[:-1] > falling[1:], [True]]) & (cuts > 0)
    best = np.flatnonzero(possible & (f1 >= f1[possible].max() - 1e-12))
    return float(cuts[best[np.abs(np.log(cuts[best] / thresholds[label])).argmin()]])
