"""The views of a table that trees take: a column each, numbers scaled and categories as codes; or
categories of few kinds spread, a column of 0 and 1 for each kind.

Float32, as scikit-learn's forests compare in: what a threshold tells apart in training it tells
apart in every later row. Numbers are scaled in float64 first, which changes no tree and keeps of a
time in seconds since 1970 what float32 would round away. Missing cells, and texts that training
never saw, are NaN; trees learn where to send it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.training.tree_width import n_columns, spread

LARGEST = 1e30
"""Scaled numbers end here: scikit-learn refuses infinite ones."""


def tree_view(columns: Columns, rows: Rows) -> npt.NDArray[np.float32]:
    """(N, F): numbers, then codes of categories."""
    n_numbers = len(columns.numbers)
    view = np.empty((len(rows), n_columns(columns)), dtype=np.float32)
    mean, scale = (
        np.array([getattr(column, name) for column in columns.numbers])
        for name in ("mean", "scale")
    )
    view[:, :n_numbers] = ((rows.numbers - mean) / scale).clip(-LARGEST, LARGEST)
    known = np.array([column.n_codes for column in columns.categories])
    view[:, n_numbers:] = np.where(rows.codes < known, rows.codes, np.nan)
    return view


def spread_view(columns: Columns, rows: Rows) -> npt.NDArray[np.float32]:
    """(N, F'): numbers, codes of the categories that stay, then the kinds of each other one, all of
    them 0 where its cell is missing."""
    places = spread(columns)
    plain = np.delete(tree_view(columns, rows), [len(columns.numbers) + i for i in places], axis=1)
    kinds = [rows.codes[:, [i]] == np.arange(columns.categories[i].n_codes) for i in places]
    return np.concatenate([plain, *kinds], axis=1, dtype=np.float32)
