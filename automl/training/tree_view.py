"""The view of a table that trees take: a column each, numbers scaled and categories as codes.

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
from automl.errors import AutoMLError

MAX_COLUMNS = 2**15 - 1
"""Nodes name them by int16."""
LARGEST = 1e30
"""Scaled numbers end here: scikit-learn refuses infinite ones."""


def n_columns(columns: Columns) -> int:
    """F, the width of what `tree_view` gives."""
    return len(columns.all)


def check_width(columns: Columns) -> None:
    """Raises AutoMLError for more columns than a node can name."""
    if n_columns(columns) > MAX_COLUMNS:
        raise AutoMLError(
            f"{n_columns(columns):,} columns: trees take {MAX_COLUMNS:,} at most. Take fewer, or "
            "model=linear."
        )


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
