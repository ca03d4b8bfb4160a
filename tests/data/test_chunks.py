"""A table in chunks is the table, and a row that cannot be read is named, and costs no other."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.data.cells import column_spellings, column_to_numbers
from automl.data.tables.chunked_table import ChunkedTable, TableChunk, _texts
from automl.errors import ConfigError

cells = st.one_of(st.sampled_from(["", "x", " y", "é", '"', 'a"b', "a,b", "1", "l\ni\nne"]))
tables = st.lists(st.tuples(cells, cells, cells), max_size=12)


def chunks_of(path: Path, block_bytes: int = 40, numbers: tuple[str, ...] = ()) -> list[TableChunk]:
    table = ChunkedTable.at("table", str(path), ["a", "b", "c"], ["a", "b", "c"])
    small = ChunkedTable(table.file, table.columns, table.texts, block_bytes)
    chunks = list(small.chunks(numbers))
    for chunk in chunks:
        assert len(chunk.frame) == len(chunk.places) == chunk.n_rows - len(chunk.unread)
        assert list(chunk.places) == sorted({*chunk.places})
        assert set(chunk.places) <= set(range(chunk.n_rows))
    return chunks


def rows_of(chunks: list[TableChunk]) -> list[tuple[str, ...]]:
    return [tuple(row) for c in chunks for row in c.frame.itertuples(index=False)]


def unread_of(chunks: list[TableChunk]) -> list[tuple[str, str]]:
    return [(row.where, row.reason) for chunk in chunks for row in chunk.unread]


@given(tables, st.integers(1, 60), st.sampled_from(["\n", "\r\n"]))
def test_chunks_are_the_rows_that_were_written(
    rows: list[tuple[str, str, str]], block_bytes: int, end: str
) -> None:
    """Quotes, newlines and separators in cells among them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL)
            writer.writerows([("a", "b", "c"), *rows])
        chunks = chunks_of(path, block_bytes)
    assert unread_of(chunks) == []
    assert rows_of(chunks) == rows


lines = st.lists(st.sampled_from(["1,2,3", "1,2", "1,2,3,4", "", '5",6,7', '"x,y",2,3']))


@given(lines, st.integers(1, 30))
@example(['5",6,7', "1,2,3", '5",6,7', '"x,y",2,3'], 1000)
@example(["1,2", "1,2,3,4"], 1000)  # together as many cells as two rows have
@example(["1,2,3", "", "1,2,3"], 1000)
def test_a_bad_row_costs_no_other(body: list[str], block_bytes: int) -> None:
    good = [next(csv.reader([line])) for line in body if line]
    good = [row for row in good if len(row) == 3]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text("\n".join(["a,b,c", "9,9,9", *body, ""]))
        chunks = chunks_of(path, block_bytes)
    assert rows_of(chunks) == [("9", "9", "9"), *map(tuple, good)]
    unread = unread_of(chunks)
    assert len(unread) == sum(bool(line) for line in body) - len(good)
    for where, reason in unread:
        line = body[int(where.removeprefix("line ")) - 3]
        assert reason == f"cells: {len(next(csv.reader([line])))}, and 3 columns"


def test_spaces_before_cells_are_skipped_outside_quotes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a, b,c\n1, "x, y", z\n" 1",2,"q, ""r"""\n')
    assert rows_of(chunks_of(path)) == [("1", "x, y", "z"), (" 1", "2", 'q, "r"')]


def test_a_line_is_counted_with_the_newlines_in_cells(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b,c\n"1\n1",2,3\n\n1,2\n', "utf-8")
    assert unread_of(chunks_of(path)) == [("line 5", "cells: 2, and 3 columns")]


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b,c\n1,2,3\n\xff,2,3\n4,5,6")
    chunks = chunks_of(path)
    assert rows_of(chunks) == [("1", "2", "3"), ("4", "5", "6")]
    assert unread_of(chunks) == [("line 3", "is not UTF-8")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_text_where_a_number_was_is_named(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"a": ["1", "old", "?", " 3"], "b": ["x"] * 4, "c": ["", "", "", ""]})
    path = tmp_path / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    table = ChunkedTable.at("table", str(path), ["a", "b"])
    chunks = list(table.chunks(["a"]))
    where = "line 3" if kind == "csv" else "row 2"
    assert unread_of(chunks) == [(where, "a='old' is no number")]
    assert np.concatenate([chunk.places for chunk in chunks]).tolist() == [0, 2, 3]
    assert chunks[-1].share == 1


def test_parquet_comes_in_its_types_and_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"b": pd.date_range("2026-01-01", periods=10), "a": range(10)})
    frame.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr("automl.data.tables.chunked_table.CELLS_AT_ONCE", 8)
    table = ChunkedTable.at("table", str(tmp_path / "t.parquet"), ["a", "b"])
    chunks = list(table.chunks(["a", "b"]))
    assert [chunk.n_rows for chunk in chunks] == [4, 4, 2]
    read = pd.concat([chunk.frame for chunk in chunks], ignore_index=True)
    assert read["a"].tolist() == list(range(10))
    assert read["b"].dtype.kind == "M"


def test_kept_whole_numbers_stay_whole_beside_gaps(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": pd.array([64, None, 7], dtype="Int64"), "b": [0.5, None, 2]})
    frame.to_parquet(tmp_path / "t.parquet")
    table = ChunkedTable.at("table", str(tmp_path / "t.parquet"), ["a"], ["a", "b"])
    (chunk,) = table.chunks(["a"])
    assert _texts(chunk.frame["a"]).to_pylist() == ["64", None, "7"]
    assert _texts(chunk.frame["b"]).to_pylist() == ["0.5", None, "2.0"]
    np.testing.assert_array_equal(column_to_numbers(chunk.frame["a"]), [64, np.nan, 7])


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,x\n1,2\n")
    with pytest.raises(ConfigError, match=r"table=.*: lacks the columns b, c: a model"):
        ChunkedTable.at("table", str(tmp_path / "t.csv"), ["a", "b", "c"])


@pytest.mark.parametrize("before", ["1,2,3", '5",6,7'])
@pytest.mark.parametrize("block_bytes", [10, 1000])
def test_a_quote_that_is_never_closed_is_named(
    tmp_path: Path, before: str, block_bytes: int
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'a,b,c\n{before}\n"x,2,3\n1,2,3\n"y,z",5,6\n')
    chunks = chunks_of(path, block_bytes)
    assert unread_of(chunks) == [("line 3", "cells: 1, and 3 columns")]
    assert [row[0] for row in rows_of(chunks)] == [before.split(",")[0], "1", "y,z"]


def test_a_row_of_several_lines_with_a_cell_too_many_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b,c\n4,5,6\n1,"x\ny",2,3\n')
    chunks = chunks_of(path)
    assert unread_of(chunks) == [("line 3", "cells: 4, and 3 columns")]
    assert rows_of(chunks) == [("4", "5", "6")]


def test_a_quote_that_is_never_closed_does_not_take_the_rest(tmp_path: Path) -> None:
    """However long the file is: Python's csv gives up after 131,072 letters."""
    body = ["1,2,3"] * 40_000
    body[5] = '"1,2,3'
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *body]))
    chunks = chunks_of(tmp_path / "t.csv", 2**16)
    assert unread_of(chunks) == [("line 7", "cells: 1, and 3 columns")]
    assert sum(len(chunk.frame) for chunk in chunks) == len(body) - 1


said = st.sampled_from(["", "?", "NA", "nan", "1", " 2", "2.50", "1e3", "-inf", "007", "9" * 17])
texts = st.one_of(
    said, st.sampled_from(["x", "true", "TRUE", " y", "é", "1_0", "+1", "0x1", "a b"])
)


@given(st.lists(st.tuples(said, texts, texts), max_size=12), st.integers(1, 60))
@example([("x", "1", "1"), ("1", "1", "1")], 60)  # no number
def test_a_cell_means_the_same_however_its_block_is_parsed(
    rows: list[tuple[str, str, str]], block_bytes: int
) -> None:
    """As a type of Arrow's, or, where a cell of the block has another type, as a text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text("\n".join(["a,b,c", *map(",".join, rows), ""]), "utf-8")
        whole = ChunkedTable.at("table", str(path), ["a", "b", "c"], ["c"])
        table = ChunkedTable(whole.file, whole.columns, whole.texts, block_bytes)
        both = zip(table.chunks(["a"], ["b"]), table.chunks(["a"]), strict=True)
        for one, other in both:
            assert list(one.places) == list(other.places)
            assert one.unread == other.unread
            np.testing.assert_array_equal(
                column_to_numbers(one.frame["a"]), column_to_numbers(other.frame["a"])
            )
            assert spelt(one.frame["b"]) == spelt(other.frame["b"])
            assert list(one.frame["c"]) == list(other.frame["c"])


def spelt(column: pd.Series[Any]) -> list[str]:
    codes, different = column_spellings(column)
    return [different[code] for code in codes]


def test_what_is_plain_is_parsed_by_arrow(tmp_path: Path) -> None:
    """Else what takes less time and no lock of Python's is never used, and nobody sees it."""
    (tmp_path / "t.csv").write_text("a,b,c\n1,x,7\n 2,?,8\n", "utf-8")
    table = ChunkedTable.at("table", str(tmp_path / "t.csv"), ["a", "b"], ["c"])
    (chunk,) = table.chunks(["a"], ["b"])
    assert isinstance(chunk.frame["b"].dtype, pd.CategoricalDtype)
    assert chunk.frame["a"].tolist() == [1, 2]
    assert spelt(chunk.frame["b"]) == ["x", ""]
    assert chunk.frame["c"].tolist() == ["7", "8"]


def test_blank_lines_are_counted_where_nothing_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n\n1,x\n\nold,y\n", "utf-8")
    table = ChunkedTable.at("table", str(tmp_path / "t.csv"), ["a", "b"], ["a"])
    assert unread_of(list(table.chunks(["a"], ["b"]))) == [("line 5", "a='old' is no number")]
