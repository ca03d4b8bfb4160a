"""Weighted rows counted by group, and in the order of a score: what metrics are made of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Floats: TypeAlias = "npt.NDArray[np.float64]"


class Groups:
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


class Ranked:
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
