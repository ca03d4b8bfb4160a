"""Bins of a table's number columns, for networks that take each of them apart. numpy only.

After Gorishniy et al. (2022, https://arxiv.org/abs/2203.05556): the edges are quantiles of the rows
that the columns were learned from.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.data.one_hot import scaled_numbers

N_BINS = 16
"""Of a column, at most."""
Edges: TypeAlias = tuple[tuple[float, ...], ...]
"""Of each number column, in the unit of its feature and rising; none where its cells are the
same."""


def bin_edges(columns: Columns, rows: Rows) -> Edges:
    """Those of bins that hold about as many of these rows; where cells repeat there are fewer.
    They are float32 numbers, by which networks divide."""
    numbers, quantiles = scaled_numbers(columns, rows), np.linspace(0, 1, N_BINS + 1)
    edges = []
    for column, is_missing in zip(numbers.T, np.isnan(rows.numbers).T, strict=True):
        found = np.quantile(column[~is_missing], quantiles) if not is_missing.all() else []
        rising = np.unique(np.asarray(found, dtype=np.float32)).tolist()
        edges.append(tuple(rising) if len(rising) > 1 else ())
    return tuple(edges)
