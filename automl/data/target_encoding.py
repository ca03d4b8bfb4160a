"""Target encoding: a category of many values becomes a number, the mean target of its rows.

The cells of a target-encoded column are levels, whole numbers that stand for categories. Each model
has a table of means of its own, learned from its own training rows, and so never from a row that
judges it. A training row gets the mean of rows of other parts (cross-fitting), so that its own
target does not reach its cell either. Means of few rows are drawn to the mean of all (Micci-Barreca
2001), by as much as the spread within and between categories tells. The module needs numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.columns import FrequencyReading, NumberColumn, TableColumns

Floats: TypeAlias = "npt.NDArray[np.float64]"
ENCODING_KEY = "target_encoding"
"""Key of the means with which one model, a member of a mean too, reads target-encoded columns."""
N_PARTS = 5
"""Number of parts of the training rows; each part is encoded by the others."""
MAX_CLASSES = 4
"""Classes whose share in each category is a column; of more the most frequent ones."""
TAIL = 0.02
"""Share of the smallest and of the largest target values that count as less extreme ones: few rows
far out would else decide the mean of a category."""


@dataclass(frozen=True)
class TargetEncoding:
    """The tables of means with which one model reads the target-encoded columns of a table."""

    tables: tuple[tuple[float, ...], ...]
    """Table of each encoded column: by level, the mean less that of all rows."""

    def encode(self, columns: TableColumns, numbers: Floats) -> Floats:
        """Return number cells (N, number columns) with means in place of levels."""
        encoded = numbers.copy()
        for (place, _), table in zip(columns.encoded, self.tables, strict=True):
            encoded[:, place] = np.array(table)[numbers[:, place].astype(np.int64)]
        return encoded

    def check(self, columns: TableColumns) -> None:
        """Raise ValueError unless the tables have a mean of each level of these columns."""
        sizes = [count_levels(columns, column) for _, column in columns.encoded]
        if [len(table) for table in self.tables] != sizes:
            raise ValueError("tables of means that are not those of its columns")

    def plain(self) -> list[list[float]]:
        """Return the tables as plain values for a checkpoint."""
        return [list(table) for table in self.tables]

    @classmethod
    def from_plain(cls, plain: Any) -> TargetEncoding:
        """Read what `plain` returned. Raises ValueError for anything else."""
        is_plain = isinstance(plain, list | tuple) and all(isinstance(t, list) for t in plain)
        if not is_plain or not all(type(x) is float for table in plain for x in table):
            raise ValueError("no tables of means")
        if not all(np.isfinite(table).all() for table in plain):
            raise ValueError("means that are no numbers")
        return cls(tuple(map(tuple, plain)))


def encoding_entry(encoding: TargetEncoding | None) -> dict[str, Any]:
    """Return the entry of a model's state for its encoding, if it has one."""
    return {} if encoding is None else {ENCODING_KEY: encoding.plain()}


def fit_encoding(
    columns: TableColumns, numbers: Floats, y: npt.NDArray[Any]
) -> tuple[TargetEncoding, Floats]:
    """Return the encoding that training rows give, and the encoded cells of these very rows.

    `numbers` are their cells (N, number columns), and `y` their targets (N,).
    """
    parts = np.random.default_rng(0).permutation(len(y)) % N_PARTS
    encoded, tables = numbers.copy(), []
    for place, column in columns.encoded:
        levels, n_levels = numbers[:, place].astype(np.int64), count_levels(columns, column)
        assert column.encoded_class is not None, "it is encoded"
        target = class_target(y, column.encoded_class)
        tables.append(tuple(_level_means(levels, target, n_levels).tolist()))
        for part in range(N_PARTS):
            own, others = parts == part, parts != part
            means = _level_means(levels[others], target[others], n_levels)
            encoded[own, place] = means[levels[own]]
    return TargetEncoding(tuple(tables)), encoded


def count_levels(columns: TableColumns, column: NumberColumn) -> int:
    """Return the number of levels that the cells of a target-encoded column have."""
    counts = {r.name: r.counts for r in columns.readings if isinstance(r, FrequencyReading)}
    return len(counts[column.made_of]) + 1


def encoded_classes(y: npt.NDArray[Any]) -> Sequence[int]:
    """Return the classes that get a column each for a table with these targets (`class_target`)."""
    if y.dtype != np.int64:
        return (0,)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 3:
        return (1,)
    most = np.argsort(-counts, kind="stable")[:MAX_CLASSES]
    return tuple(int(number) for number in np.sort(classes[most]))


def class_target(y: npt.NDArray[Any], number: int) -> Floats:
    """Return 1 for the rows (N,) of a class and 0 for others, or targets without their tails."""
    if y.dtype == np.int64:
        hits: Floats = (y == number).astype(np.float64)
        return hits
    return y.clip(*np.quantile(y, (TAIL, 1 - TAIL))) if len(y) else y


def _level_means(levels: npt.NDArray[np.int64], target: Floats, n_levels: int) -> Floats:
    """Return the mean target (n_levels,) of each level, less that of all rows, and shrunk.

    All are 0 if the levels differ no more than by chance.
    """
    counts = np.bincount(levels, minlength=n_levels)
    centred = target - target.mean() if len(target) else target
    sums = np.bincount(levels, centred, minlength=n_levels)
    n_rows, n_found = len(target), int((counts > 0).sum())
    if n_found < 2 or n_rows <= n_found:
        return np.zeros(n_levels)
    # The random effects of a one-way analysis of variance, by the method of moments.
    explained = float((np.square(sums) / np.maximum(1, counts)).sum())
    within = (float(np.square(centred).sum()) - explained) / (n_rows - n_found)
    mean_size = (n_rows - np.square(counts).sum() / n_rows) / (n_found - 1)
    between = (explained / (n_found - 1) - within) / mean_size
    if between <= 0:
        return np.zeros(n_levels)
    means: Floats = sums / np.maximum(counts + max(0.0, within) / between, 1e-9)
    return means
