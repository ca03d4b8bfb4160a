"""A frame of Python is taken as the CSV that is written of it, or refused with a column's name."""

from __future__ import annotations

import datetime
import hashlib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.config import DataConfig, DataKind
from automl.data.cells import column_to_numbers
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.data.preprocessing import Preprocessing
from automl.data.tables.frames import write_frame
from automl.data.tables.table_file import TableFile
from automl.errors import ConfigError

N = 16
whole = st.integers(-(10**9), 10**9)
numbers = st.floats(-1e12, 1e12).map(lambda number: round(number, 6))
words = st.sampled_from(["a", "b c", " d", 'e"f', "1", "2.50", "007", "true", "NA", "?", "é", ""])
mixed = st.one_of(
    *(whole, numbers, words, st.booleans(), st.none()),
    st.sampled_from([10**400, Decimal("1.5"), (1, 2), ["a"], np.int64(3), datetime.time(1, 2)]),
)


def cells(cell: st.SearchStrategy[Any], dtype: Any = object) -> st.SearchStrategy[Any]:
    column = st.lists(cell, min_size=N, max_size=N)
    return column.map(lambda values: pd.Series(values, dtype=dtype))


few = st.one_of(st.none(), st.sampled_from([1, 2.5, "a", True]))
columns = st.one_of(
    cells(mixed),
    cells(words),
    cells(st.one_of(whole, st.none())),
    cells(st.one_of(numbers, st.just(float("inf")), st.none()), float),
    cells(st.one_of(whole, st.none()), "Int64"),
    cells(st.one_of(st.booleans(), st.none()), "boolean"),
    cells(words, "string"),
    cells(few, "category"),
    cells(whole.map(lambda number: number % 5), pd.SparseDtype(int)),
    cells(numbers, "longdouble"),
    cells(numbers, float).map(lambda column: pd.cut(column + np.arange(N), 3)),
    cells(whole.map(lambda n: pd.Interval(n % 4, n % 4 + 1)), None),
    cells(whole.map(lambda n: pd.Period(f"20{10 + n % 9}", "Y")), None),
)


def table(path: Path) -> DataConfig:
    detected = {"rules": 3}
    return DataConfig(kind=DataKind.csv, path=str(path), target="y", **detected)  # type: ignore[arg-type]


def learned(path: Path) -> Dataset | None:
    try:
        return load_dataset(table(path))
    except ConfigError:
        return None


@settings(max_examples=30)
@given(st.lists(columns, min_size=1, max_size=3))
def test_a_frame_is_taken_as_its_csv_is(given_columns: list[pd.Series[Any]]) -> None:
    frame = pd.DataFrame({f"c{n}": column for n, column in enumerate(given_columns)})
    frame["y"] = ["u", "v"] * (N // 2)
    with TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "t.csv", index=False)
        file = write_frame(frame, Path(folder))
        by_csv, by_frame = learned(Path(folder) / "t.csv"), learned(file)
        written = TableFile.at("data.path", str(file)).read("y", detect_verbatim=True)
    if by_csv is None or by_frame is None:
        assert by_csv is by_frame
        return
    assert by_frame.columns == by_csv.columns
    np.testing.assert_array_equal(by_frame.train.rows.numbers, by_csv.train.rows.numbers)
    np.testing.assert_array_equal(by_frame.train.rows.codes, by_csv.train.rows.codes)
    preprocessing = Preprocessing(by_frame.columns)
    if not by_frame.columns.verbatim:  # where numbers are refused
        of_file, of_frame = (preprocessing.read_cells(rows)[0] for rows in (written, frame))
        np.testing.assert_array_equal(of_file.numbers, of_frame.numbers)
        np.testing.assert_array_equal(of_file.codes, of_frame.codes)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ([1 + 2j, 3j], "table: column odd holds complex numbers"),
        (np.array([1, 2 + 1j, None], dtype=object)[1:], "table: column odd holds complex numbers"),
        (np.array(["\ud800", "a"], dtype=object), "table: column odd holds no Unicode"),
    ],
)
def test_what_no_file_holds_is_refused_by_its_column(
    tmp_path: Path, column: Any, reason: str
) -> None:
    frame = pd.DataFrame({"odd": pd.Series(column, dtype=getattr(column, "dtype", None))})
    with pytest.raises(ConfigError, match=reason):
        write_frame(frame, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_plain_frame_has_the_file_that_it_had_before(tmp_path: Path) -> None:
    """Its name is the digest of its content, by which a study knows its table again."""
    days = pd.date_range("2024-01-01", periods=3, tz="UTC")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": days, "d": [0.5, None, 2]})
    frame["e"] = frame["b"].astype("category")
    frame.attrs["source"] = "here"
    digest = hashlib.sha256(frame.to_parquet(None, index=False)).hexdigest()
    assert write_frame(frame, tmp_path).name == f"table-{digest[:8]}.parquet"


def test_fractions_are_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [Fraction(1, 4), 2], "y": [1, 2]})
    written = pd.read_parquet(write_frame(frame, tmp_path))
    for rows in (frame, written):
        assert column_to_numbers(rows["a"]).tolist() == [0.25, 2]
