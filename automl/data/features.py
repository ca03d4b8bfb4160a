"""The encoding of a table that networks take: every cell as finite numbers. numpy only.

Missing numbers get the median, all numbers are standardised and clipped, and an indicator says
which were missing. Each category has a feature. Numbers are float64 until the end, then float32.

Networks that embed each number column piece by piece use bins of its values (Gorishniy et al.,
2022, https://arxiv.org/abs/2203.05556). Their edges are quantiles of the rows that the columns
were learned from.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.columns import TableColumns
from automl.data.dataset import TableRows

STANDARDISED_LIMIT = 10.0
"""Standardised numbers are clipped to ±CLIP: a single absurd cell in production must not decide the
result."""


def n_features(columns: TableColumns) -> int:
    """Return D, the number of features that `one_hot_features` gives."""
    marked = sum(1 + column.has_indicator for column in columns.numbers)
    return marked + sum(column.n_codes for column in columns.categories)


def scaled_numbers(columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
    """Return (N, number columns): missing cells filled, all standardised and clipped."""
    fill, mean, scale = (
        np.array([getattr(column, name) for column in columns.numbers])
        for name in ("fill", "mean", "scale")
    )
    filled = np.where(np.isnan(rows.numbers), fill, rows.numbers)
    scaled: npt.NDArray[np.float64] = ((filled - mean) / scale).clip(
        -STANDARDISED_LIMIT, STANDARDISED_LIMIT
    )
    return scaled


def one_hot_features(columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float32]:
    """Return (N, D): numbers, indicators of missing numbers, categories."""
    features = np.zeros((len(rows), n_features(columns)), dtype=np.float32)
    n_numbers = len(columns.numbers)
    features[:, :n_numbers] = scaled_numbers(columns, rows)
    marked = [i for i, column in enumerate(columns.numbers) if column.has_indicator]
    begin = n_numbers + len(marked)
    features[:, n_numbers:begin] = np.isnan(rows.numbers[:, marked])
    for place, column in enumerate(columns.categories):
        codes = rows.codes[:, place]
        known = np.flatnonzero(codes < column.n_codes)
        features[known, begin + codes[known]] = 1
        begin += column.n_codes
    return features


_FAR_STEP = 0.01
"""Steps between numbers at a column's mean, in its standard deviations, that are worth a line."""


def are_digits_lost(
    mean: Any, scale: Any, kind: type[np.float32] | type[np.float64] = np.float64
) -> bool:
    """Return whether numbers of this kind at `mean` are too coarse for values that differ by
    `scale`; of arrays, whether any are."""
    steps = np.spacing(np.abs(mean).astype(kind))
    return bool(((scale > 0) & (steps > _FAR_STEP * scale)).any())


N_COLUMN_BINS = 16
"""Largest number of bins of a column."""
Edges: TypeAlias = tuple[tuple[float, ...], ...]
"""Rising bin edges of each number column, in the unit of its feature; empty where all its cells
are equal."""


def bin_edges(columns: TableColumns, rows: TableRows) -> Edges:
    """Return the edges of bins that hold about equally many of these rows.

    A column whose cells repeat has fewer bins. Edges are float32 numbers, because networks divide
    by their distances.
    """
    numbers, quantiles = scaled_numbers(columns, rows), np.linspace(0, 1, N_COLUMN_BINS + 1)
    edges = []
    for column, is_missing in zip(numbers.T, np.isnan(rows.numbers).T, strict=True):
        found = np.quantile(column[~is_missing], quantiles) if not is_missing.all() else []
        rising = np.unique(np.asarray(found, dtype=np.float32)).tolist()
        edges.append(tuple(rising) if len(rising) > 1 else ())
    return tuple(edges)
