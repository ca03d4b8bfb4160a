"""Edges of the bins of number columns."""

from __future__ import annotations

import numpy as np
import pandas as pd

from automl.data.columns import TableColumns
from automl.data.dataset import TableRows
from automl.data.features import N_COLUMN_BINS, bin_edges
from automl.data.preprocessing import Preprocessing


def read(frame: pd.DataFrame) -> tuple[TableColumns, TableRows]:
    preprocessing = Preprocessing.fit(frame)
    return preprocessing.columns, preprocessing.read(frame)


def test_bins_hold_as_many_rows_each_in_the_unit_of_the_feature() -> None:
    values = np.random.default_rng(0).exponential(size=1600)
    (edges,) = bin_edges(*read(pd.DataFrame({"a": values})))
    assert len(edges) == N_COLUMN_BINS + 1
    scaled = (values - values.mean()) / values.std()
    counts, _ = np.histogram(scaled, bins=[edges[0] - 1, *edges[1:-1], edges[-1] + 1])
    assert counts.min() >= 99
    assert counts.max() <= 101


def test_cells_that_repeat_make_fewer_bins_and_missing_ones_none() -> None:
    frame = pd.DataFrame(
        {
            "few": [1.0, 2.0, 4.0] * 30,
            "same_or_missing": [3.0, None, 3.0] * 30,
            "mostly_missing": [None, None, *range(28)] * 3,
        }
    )
    columns, rows = read(frame)
    few, same, mostly = bin_edges(columns, rows)
    assert len(few) == 3, "two bins between three values"
    assert same == ()
    whole = bin_edges(columns, rows.take(np.flatnonzero(~np.isnan(rows.numbers[:, 2]))))
    assert mostly == whole[2], "what stands for missing cells is no quantile"
    assert [len(edges) for edges in bin_edges(columns, rows.take(np.array([1])))][1:] == [0, 0]


def test_edges_differ_as_float32_numbers() -> None:
    values = 1.0 + np.arange(100) * 1e-9
    values[:50] = 0.0
    (edges,) = bin_edges(*read(pd.DataFrame({"a": values})))
    assert np.unique(np.array(edges, dtype=np.float32)).tolist() == list(edges)
