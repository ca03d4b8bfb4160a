"""The view of a table that networks take: every cell as finite numbers. numpy only.

Numbers: missing cells get the median, all are standardised and clipped; an indicator says which
were missing. Categories: a feature each. Float64 until the end, then float32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.data.columns import Columns
from automl.data.dataset import Rows

CLIP = 10.0
"""Standardised numbers end here: one absurd cell in production must not decide alone."""


def n_features(columns: Columns) -> int:
    """D, the width of what `one_hot` gives."""
    marked = sum(1 + column.has_indicator for column in columns.numbers)
    return marked + sum(column.n_codes for column in columns.categories)


def scaled_numbers(columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
    """(N, number columns): missing cells filled, all standardised and clipped."""
    fill, mean, scale = (
        np.array([getattr(column, name) for column in columns.numbers])
        for name in ("fill", "mean", "scale")
    )
    filled = np.where(np.isnan(rows.numbers), fill, rows.numbers)
    scaled: npt.NDArray[np.float64] = ((filled - mean) / scale).clip(-CLIP, CLIP)
    return scaled


def one_hot(columns: Columns, rows: Rows) -> npt.NDArray[np.float32]:
    """(N, D): numbers, indicators of missing ones, categories."""
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
