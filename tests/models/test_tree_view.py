"""What trees see of a table."""

from __future__ import annotations

import numpy as np

from automl.data.columns import CategoryColumn, NumberColumn, TableColumns
from automl.data.dataset import TableRows
from automl.models.families.table_family import (
    MAX_SPREAD,
    n_spread_columns,
    n_tree_columns,
    spread_categories,
)
from automl.models.families.tree_arrays import spread_view, tree_view


def category(name: str, n_kinds: int) -> CategoryColumn:
    return CategoryColumn(name, tuple(f"{name}{i}" for i in range(n_kinds)), has_other=False)


NUMBER = NumberColumn("a", 1.0, 2.0, 0.0, has_indicator=False)
COLUMNS = TableColumns((NUMBER, category("two", 2), category("few", 3), category("many", 65)))


def test_a_category_of_few_kinds_is_a_column_for_each_and_missing_is_none_of_them() -> None:
    rows = TableRows(
        np.array([[3.0], [np.nan]]), np.array([[1, 2, 64], [2, 3, 65]], dtype=np.int32)
    )
    assert spread_categories(COLUMNS) == [1]
    assert (n_tree_columns(COLUMNS), n_spread_columns(COLUMNS)) == (4, 6)
    nan = np.nan
    np.testing.assert_array_equal(tree_view(COLUMNS, rows), [[1, 1, 2, 64], [nan, nan, nan, nan]])
    found = spread_view(COLUMNS, rows)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[1, 1, 64, 0, 0, 1], [nan, nan, nan, 0, 0, 0]])


def test_very_many_kinds_in_all_stay_codes() -> None:
    few = TableColumns(tuple(category(f"c{i}", 64) for i in range(MAX_SPREAD // 64)))
    assert n_spread_columns(few) == MAX_SPREAD
    more = TableColumns((*few.all, category("last", 3)))
    assert spread_categories(more) == []
    rows = TableRows(np.empty((1, 0)), np.zeros((1, len(more.all)), dtype=np.int32))
    np.testing.assert_array_equal(spread_view(more, rows), tree_view(more, rows))
