"""The folds of a trial: which rows train each of its models, and which judge it. numpy only.

A trial with k folds trains k models, each on all rows except those that judge it. Nearly every row
is judged by a model that never saw it. The folds follow from the rows, the settings and
`data.split_seed` alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Places, RowFold
from automl.errors import ConfigError

AUTO = 5
FEW_ROWS, N_REPEATS = 1_000, 3
"""Below FEW_ROWS rows, auto makes N_REPEATS divisions: a single one is a matter of luck."""
MAX_FOLDED_ROWS = 20_000
"""Above this many rows, a tenth of them tells trials apart, and five models cost more than they
gain."""
MAX_REPEATED_SECONDS, MAX_FOLDED_SECONDS = 10, 60
"""Where a boosted model takes longer than this by estimate, auto makes one division of the rows, or
a single hold-out. For 500 rows that is from some 300 columns, or some 1,900."""
_CELL_SECONDS, _COLUMN_ROWS = 8e-6, 3_500
"""Seconds of one core for a cell and 400 trees, and number of rows that cost as much as a column's
histograms (experiments/020-long)."""
_MIN_TRAIN = 2

Kinds = npt.NDArray[np.int64]
"""(N,) numbers of the rows' classes or groups, from 0."""


@dataclass(frozen=True)
class TableSize:
    """The size of the rows that train and judge, which decides how many models a trial trains."""

    n_rows: int
    n_columns: int = 0
    """Number of columns, if they count; 0: only the rows count."""

    @property
    def model_seconds(self) -> float:
        """About how many seconds of one core a boosted model takes; 0 if columns do not count."""
        return self.n_columns * (self.n_rows + _COLUMN_ROWS) * _CELL_SECONDS

    def n_folds(self, setting: int | str, n_most: int) -> int:
        """Return the number of folds of one division of the rows, by `data.folds`.

        1 means a single hold-out. `n_most` is the largest possible number, since groups stay
        together.
        """
        if setting != "auto":
            return int(setting)
        is_large = self.n_rows > MAX_FOLDED_ROWS or self.model_seconds > MAX_FOLDED_SECONDS
        return 1 if is_large else max(2, min(AUTO, n_most))

    def n_repeats(self, setting: int | str) -> int:
        """Return the number of divisions of the rows, by `data.folds`."""
        is_small = self.n_rows < FEW_ROWS and self.model_seconds <= MAX_REPEATED_SECONDS
        return N_REPEATS if setting == "auto" and is_small else 1


def folds_at_random(strata: Kinds, n_folds: int, seed: int) -> list[RowFold]:
    """Return folds whose rows are dealt out like cards, class by class.

    Folds differ by one row at most, in total and in each class. Raises ConfigError where there are
    too few rows.
    """
    n_rows = len(strata)
    _check_enough(n_rows, n_folds, "rows")
    if n_rows - math.ceil(n_rows / n_folds) < _MIN_TRAIN:
        raise _too_few(n_rows, n_folds, "rows")
    shuffled = np.random.default_rng([seed, n_folds]).permutation(n_rows)
    dealt = shuffled[np.argsort(strata[shuffled], kind="stable")]
    fold_of = np.empty(n_rows, np.int64)
    fold_of[dealt] = np.arange(n_rows) % n_folds
    return _leaving_out(fold_of, n_folds)


def folds_of_groups(groups: Kinds, strata: Kinds, n_folds: int, seed: int) -> list[RowFold]:
    """Return folds in which each group is whole in one fold.

    The largest group is placed first. Each group goes to the fold in which its classes are rarest.

    Raises ConfigError where there are fewer groups than folds.
    """
    counts = np.zeros((int(groups.max()) + 1, int(strata.max()) + 1))
    np.add.at(counts, (groups, strata), 1)
    sizes = counts.sum(1)
    _check_enough(int((sizes > 0).sum()), n_folds, "groups")
    shares = counts / np.maximum(counts.sum(0), 1)
    order = np.random.default_rng([seed, n_folds]).permutation(len(sizes))
    held, n_held = np.zeros((n_folds, counts.shape[1])), np.zeros(n_folds)
    fold_of_group = np.empty(len(sizes), np.int64)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        load = held @ shares[group]
        fold = np.lexsort((n_held, load))[0]
        fold_of_group[group] = fold
        held[fold] += counts[group]
        n_held[fold] += sizes[group]
    return _leaving_out(fold_of_group[groups], n_folds)


def folds_in_order(times: npt.NDArray[np.float64], n_folds: int) -> list[RowFold]:
    """Return folds that are judged by rows later than all rows that they train on.

    The rows are cut, in order, into n + 1 blocks of about equal size. The first block trains the
    model that the second judges, the first two train the model that the third judges, and so on.
    Rows of one time are in one block. Raises ConfigError where there are fewer times than blocks.
    """
    order = np.argsort(times, kind="stable")
    cuts = cuts_in_order(times[order], [k / (n_folds + 1) for k in range(1, n_folds + 1)])
    ends = [*cuts, len(times)]
    return [
        RowFold(np.sort(order[:begin]), np.sort(order[begin:end])) for begin, end in pairwise(ends)
    ]


def cuts_in_order(times: npt.NDArray[np.float64], shares: list[float]) -> list[int]:
    """Return the places in sorted `times` that are nearest to these shares of the rows.

    A new time begins at each place, and the places differ. Raises ConfigError where there are too
    few times.
    """
    begins = np.flatnonzero(np.diff(times)) + 1
    if len(begins) < len(shares):
        raise ConfigError(
            f"data.time: {len(begins) + 1} different times cannot be divided into "
            f"{len(shares) + 1} parts in order: name a finer column, or give fewer data.folds."
        )
    found: list[int] = []
    for place, share in enumerate(shares):
        least = 0 if not found else int(np.searchsorted(begins, found[-1], side="right"))
        most = len(begins) - (len(shares) - place)
        nearest = int(np.abs(begins[least : most + 1] - share * len(times)).argmin()) + least
        found.append(int(begins[nearest]))
    return found


def find_untrained_classes(folds: Sequence[RowFold], strata: Kinds) -> list[int]:
    """Return the classes that some fold is judged by and does not train on."""
    found = set[int]()
    for fold in folds:
        found |= set(strata[fold.judged].tolist()) - set(strata[fold.train].tolist())
    return sorted(found)


def _leaving_out(fold_of: Places, n_folds: int) -> list[RowFold]:
    return [
        RowFold(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold))
        for fold in range(n_folds)
    ]


def _check_enough(n: int, n_folds: int, what: str) -> None:
    if n < n_folds:
        raise _too_few(n, n_folds, what)


def _too_few(n: int, n_folds: int, what: str) -> ConfigError:
    return ConfigError(
        f"data.folds={n_folds}: there {'is' if n == 1 else 'are'} only {n} "
        f"{what[:-1] if n == 1 else what} to train on and to judge by, those of the test left out. "
        f"Give fewer folds, data.folds=1 for a single hold-out, or more {what}."
    )
