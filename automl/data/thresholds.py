"""From which probability on a row is of the second of two classes. numpy only.

Labels are the likelier class, unless F1 is what a study goes by: that is highest elsewhere, where
classes are of unlike sizes. The threshold is found on rows that the model did not train on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Targets

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
_N_PARTS = 5


def labels_by(scores: Floats, threshold: float | Floats | None) -> Places:
    """(N,) places of the classes in (N, C) probabilities or scores: the first of the largest; with
    a threshold (of two classes) the second where its probability is above it."""
    if threshold is None:
        return np.asarray(scores.argmax(axis=1))
    return (scores[:, 1] > threshold).astype(np.int64)


def best_threshold(probabilities: Floats, y: Targets) -> float:
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


def thresholds_elsewhere(probabilities: Floats, y: Targets) -> Floats:
    """(N,) for each row the best threshold of rows that it is none of: every fifth row's is that of
    the others, so that F1 by them flatters nobody."""
    parts = np.arange(len(y)) % _N_PARTS
    found = np.full(len(y), 0.5)
    for part in range(_N_PARTS):
        if (others := parts != part).any():
            found[~others] = best_threshold(probabilities[others], y[others])
    return found


def second_of_two(outputs: Floats) -> Floats:
    """(N,) probabilities of the second class, of scores (N, 2)."""
    return np.asarray(1 / (1 + np.exp(np.clip(outputs[:, 0] - outputs[:, 1], -700, 700))))
