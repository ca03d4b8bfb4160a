"""One cell means the same however it was read."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from automl.data import cells


def texts(column: pd.Series[Any]) -> list[str]:
    codes, different = cells.column_spellings(column)
    return [different[code] for code in codes]


@pytest.mark.parametrize("column", [["1", "2", None], [1, 2, None], [1.0, 2.0, np.nan]])
@pytest.mark.parametrize("dtype", [None, object])
def test_one_spelling(column: list[Any], dtype: Any) -> None:
    assert texts(pd.Series(column, dtype=dtype)) == ["1", "2", ""]


def test_one_spelling_of_texts() -> None:
    column = pd.Series([" a", "a", "a ", "1.50", "1.5", "true", "TRUE", "?", " NA "])
    assert texts(column) == ["a", "a", "a", "1.5", "1.5", "True", "True", "", ""]
    assert texts(pd.Series([True, False])) == ["True", "False"]
    assert texts(pd.Series([True, None, False])) == ["True", "", "False"]


def test_long_identifiers_stay_different() -> None:
    column = pd.Series(["12345678901234567890", "12345678901234567891"])
    assert len(set(texts(column))) == 2


def test_what_pandas_takes_for_missing_is_missing() -> None:
    words = sorted(cells.MISSING_TEXTS - {"?", ""})
    read = pd.read_csv(io.StringIO("\n".join(["a", *words])))["a"]
    assert read.isna().all()
    assert texts(pd.Series(words)) == [""] * len(words)


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ([" 1 ", "2.5", "-1e3", "? "], [1, 2.5, -1000, np.nan]),
        ([1, 2, 3], [1, 2, 3]),
        ([Decimal("1.5"), None], [1.5, np.nan]),
        ([np.inf, -np.inf, 1e39, 3e38], [np.nan, np.nan, np.nan, 3e38]),
        (["inf", "1"], [np.nan, 1]),
        (pd.array([1, None], dtype="Int64"), [1, np.nan]),
        (pd.to_datetime(["1970-01-02", "NaT"]), [86400, np.nan]),
        (pd.to_timedelta(["1s", None]), [1, np.nan]),
    ],
)
def test_numbers(column: Any, numbers: list[float]) -> None:
    series = pd.Series(column)
    assert cells.holds_numbers(series)
    np.testing.assert_array_equal(cells.column_to_numbers(series), numbers)


@pytest.mark.parametrize("column", [["1", "b"], ["1_000"], [True, False], [True, None, False]])
def test_no_numbers(column: list[Any]) -> None:
    assert not cells.holds_numbers(pd.Series(column))


def test_flags_in_a_column_of_numbers_are_0_and_1() -> None:
    np.testing.assert_array_equal(cells.column_to_numbers(pd.Series([True, False])), [1, 0])


@pytest.mark.parametrize("cells_", [[True, 1, False, 0], [1, True, 0, False], [1.0, True, 0, None]])
def test_truths_and_numbers_are_told_apart(cells_: list[Any]) -> None:
    """As an export's reader does, who sees one cell after another."""
    alone = [texts(pd.Series([cell], dtype=object))[0] for cell in cells_]
    assert texts(pd.Series(cells_, dtype=object)) == alone
    assert len(set(alone)) == 4
    assert not cells.holds_numbers(pd.Series(cells_, dtype=object))


def test_truths_among_numbers_are_0_and_1() -> None:
    column = pd.Series([True, 2.5, False, 1], dtype=object)
    np.testing.assert_array_equal(cells.column_to_numbers(column), [1, 2.5, 0, 1])
