"""What predictions show of a model, as figures that are drawn: errors by class, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Label, Targets
from automl.data.scores import Floats

OTHERS = "others"
N_BINS = 10


class Confusion(NamedTuple):
    """What rows of each class were taken for."""

    names: tuple[str, ...]
    """The classes, the most frequent of many; the last may stand for all others."""
    n_rows: npt.NDArray[np.int64]
    """(C, C): of the class by line, taken for the class by column."""

    @property
    def shares(self) -> Floats:
        """Likewise, of the rows of each class; 0 for one without rows."""
        shares: Floats = self.n_rows / np.maximum(1, self.n_rows.sum(axis=1, keepdims=True))
        return shares


def confusion(taken: Targets, y: Targets, classes: Sequence[Label], *, n_most: int) -> Confusion:
    """`taken` and `y` (N,) are places in `classes`; up to `n_most` of these stand by themselves."""
    frequent = np.argsort(-np.bincount(y, minlength=len(classes)), kind="stable")[:n_most]
    kept = np.sort(frequent)
    names = [str(classes[place]) for place in kept]
    if len(classes) > len(kept):
        names.append(OTHERS)
    places = np.full(len(classes), len(kept))
    places[kept] = np.arange(len(kept))
    n_rows = np.zeros((len(names), len(names)), np.int64)
    np.add.at(n_rows, (places[y], places[taken]), 1)
    return Confusion(tuple(names), n_rows)


class Calibration(NamedTuple):
    """Of rows (and classes) with like probabilities: bins of equal width, less the empty ones."""

    said: Floats
    """(B,) mean probability."""
    seen: Floats
    """(B,) share of those that are of the class."""
    n: npt.NDArray[np.int64]
    """(B,) how many they are."""


def calibration(probabilities: Floats, y: Targets) -> Calibration:
    """Of two classes that of the second; of more each class against the rest, all together.
    `probabilities` (N, C)."""
    is_of = y[:, None] == np.arange(probabilities.shape[1])
    said, hit = (_told(each) for each in (probabilities, is_of))
    bins = np.minimum((said * N_BINS).astype(np.int64), N_BINS - 1)
    n = np.bincount(bins, minlength=N_BINS)
    sums = [np.bincount(bins, values, minlength=N_BINS)[n > 0] for values in (said, hit)]
    return Calibration(sums[0] / n[n > 0], sums[1] / n[n > 0], n[n > 0])


def _told(each: npt.NDArray[Any]) -> Floats:
    """Of (N, C) what is looked at, as one line; of two classes the first tells nothing more."""
    told: Floats = (each[:, 1] if each.shape[1] == 2 else each).ravel().astype(np.float64)
    return told
