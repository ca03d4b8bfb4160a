"""A small forest that learns the values of trials from their params, with numpy alone.

The report judges params by it at the end of each sweep, also of one of seconds, in which
scikit-learn would take longer to load than the forest to learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

N_RESAMPLES = 10
N_TREES = 8
"""Number of trees of each resample."""
MIN_LEAF = 3
N_CUTS = 3
"""Number of random cuts that are compared for each column of a node."""


@dataclass(frozen=True)
class _Tree:
    """A tree as arrays by node; the first node is its root."""

    column: Whole
    """Column of the node's cut; -1: the node is a leaf."""
    cut: Floats
    """Rows whose value is at most this go left."""
    left: Whole
    right: Whole
    value: Floats
    orders: tuple[tuple[int, Whole], ...]
    """The order in this tree of each column of categories."""

    def predict(self, rows: Floats) -> Floats:
        rows = _reordered(rows, self.orders)
        nodes, everyone = np.zeros(len(rows), dtype=np.int64), np.arange(len(rows))
        while True:
            columns = self.column[nodes]
            if (columns < 0).all():
                return self.value[nodes]
            goes_left = rows[everyone, columns] <= self.cut[nodes]
            below = np.where(goes_left, self.left[nodes], self.right[nodes])
            nodes = np.where(columns < 0, nodes, below)


class ValueForest:
    """Extremely randomised trees (Geurts et al., 2006) on resamples of the trials."""

    def __init__(
        self, rows: Floats, targets: Floats, n_categories: Sequence[int], *, seed: int = 0
    ) -> None:
        """Learn the `targets` (N,) of `rows` (N, D).

        `n_categories` has for each column the number of its categories, whose rows hold whole
        numbers below it; 0: the column holds numbers.
        """
        random = np.random.default_rng(seed)
        self._resamples: list[list[_Tree]] = []
        fits = []
        for _ in range(N_RESAMPLES):
            drawn = random.integers(len(rows), size=len(rows))
            trees = [
                _grow(rows[drawn], targets[drawn], n_categories, random) for _ in range(N_TREES)
            ]
            self._resamples.append(trees)
            left_out = np.setdiff1d(np.arange(len(rows)), drawn)
            if len(left_out) > 1 and (spread := targets[left_out].var()) > 0:
                missed = targets[left_out] - _mean_of(trees, rows[left_out])
                fits.append(1 - float((missed**2).mean() / spread))
        self.fit = float(np.median(fits)) if fits else 0.0
        """R² on trials that a resample left out; 0 or less: it has learned nothing."""

    def predict(self, rows: Floats) -> Floats:
        """Return the predicted targets (N,)."""
        predicted: Floats = self.predict_by_resample(rows).mean(axis=0)
        return predicted

    def predict_by_resample(self, rows: Floats) -> Floats:
        """Return what each resample of the trials predicts (`N_RESAMPLES`, N)."""
        predicted: Floats = np.stack([_mean_of(trees, rows) for trees in self._resamples])
        return predicted


def _mean_of(trees: Sequence[_Tree], rows: Floats) -> Floats:
    predicted: Floats = np.mean([tree.predict(rows) for tree in trees], axis=0)
    return predicted


def _reordered(rows: Floats, orders: Sequence[tuple[int, Whole]]) -> Floats:
    if not orders:
        return rows
    rows = rows.copy()
    for column, order in orders:
        rows[:, column] = order[rows[:, column].astype(np.int64)]
    return rows


def _grow(
    rows: Floats, targets: Floats, n_categories: Sequence[int], random: np.random.Generator
) -> _Tree:
    orders = tuple((i, random.permutation(n)) for i, n in enumerate(n_categories) if n)
    rows = _reordered(rows, orders)
    nodes: list[tuple[int, float, int, int, float]] = [(-1, 0.0, 0, 0, 0.0)]
    open_nodes = [(0, np.arange(len(rows)))]
    while open_nodes:
        place, own = open_nodes.pop()
        split = _best_split(rows[own], targets[own], random)
        if split is None:
            nodes[place] = (-1, 0.0, 0, 0, float(targets[own].mean()))
            continue
        column, cut = split
        goes_left = rows[own, column] <= cut
        left = len(nodes)
        nodes[place] = (column, cut, left, left + 1, 0.0)
        nodes += [(-1, 0.0, 0, 0, 0.0)] * 2
        open_nodes += [(left, own[goes_left]), (left + 1, own[~goes_left])]
    columns, cuts, lefts, rights, values = zip(*nodes, strict=True)
    children = np.array(lefts), np.array(rights)
    return _Tree(np.array(columns), np.array(cuts), *children, np.array(values), orders)


def _best_split(
    rows: Floats, targets: Floats, random: np.random.Generator
) -> tuple[int, float] | None:
    """Return column and cut of the best of some random cuts; None: the rows stay together."""
    n = len(rows)
    if n < 2 * MIN_LEAF:
        return None
    low, high = rows.min(axis=0), rows.max(axis=0)
    cuts = low + (high - low) * random.random((N_CUTS, len(low)))
    goes_left = (rows[:, None, :] <= cuts).reshape(n, -1)
    n_left = goes_left.sum(axis=0)
    is_cut = (n_left >= MIN_LEAF) & (n - n_left >= MIN_LEAF)
    if not is_cut.any():
        return None
    centred = targets - targets.mean()
    sums = centred @ goes_left
    counts = np.clip(n_left, 1, n - 1)
    gains = np.where(is_cut, sums**2 / (counts * (n - counts)), -1.0)
    best = int(gains.argmax())
    return best % len(low), float(cuts.reshape(-1)[best])
