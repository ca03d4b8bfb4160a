"""What is read from files, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from automl.config import DataConfig, DataKind, Task
from automl.data.load import load_dataset
from automl.data.tables.table_file import TableFile
from tests.data.conftest import WriteTable
from tests.features import load_test, width, x_of


def read(path: str | None, target: str = "y") -> pd.DataFrame:
    assert path is not None
    return TableFile.at("data.path", path).read(target)


def notes(config: DataConfig) -> str:
    return "\n".join(load_dataset(config).notes)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_separators_and_byte_order_marks(table: WriteTable, separator: str, encoding: str) -> None:
    lines = [line.replace(",", separator) for line in ("", " größe ,y", "1.5,ü", "2.5,v")]
    frame = read(table(*lines, encoding=encoding).path)
    assert list(frame.columns) == ["größe", "y"]
    assert frame["größe"].tolist() == [1.5, 2.5]
    assert frame["y"].tolist() == ["ü", "v"]


def test_quoted_names_and_cells_may_hold_separators_and_line_ends(table: WriteTable) -> None:
    frame = read(table('"a,b",y', '"1,\n2",u', "3,v").path)
    assert list(frame.columns) == ["a,b", "y"]
    assert frame["a,b"].tolist() == ["1,\n2", "3"]


def test_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,y\r\n1,u\r\n2,v\r\n")
    frame = read(str(tmp_path / "t.csv"))
    assert frame["y"].tolist() == ["u", "v"]


def test_row_numbers_without_a_name_are_left_out(table: WriteTable) -> None:
    rows = [f"{i},{i % 3},{'uv'[i % 2]}" for i in range(20)]
    config = table(",a,y", *rows)
    assert width(load_dataset(config)) == 1
    assert "left out, being row numbers: Unnamed: 0." in notes(config)


def test_other_columns_without_a_name_are_kept(table: WriteTable) -> None:
    rows = [f"{i % 3},{i},{'uv'[i % 2]}" for i in range(20)]
    assert width(load_dataset(table(",a,y", *rows))) == 2


def test_parquet_gives_what_csv_gives(table: WriteTable, tmp_path: Path) -> None:
    config = table("n,c,y", "1,a,u", "2.5,b,v", ",a,u", "4,,v", n_times=20)
    assert config.path is not None
    frame = pd.read_csv(config.path)
    frame.index = pd.Index([f"row {i}" for i in frame.index], name="label")
    frame.to_parquet(tmp_path / "named_by_nothing")
    parquet = DataConfig(kind=DataKind.csv, path=str(tmp_path / "named_by_nothing"), target="y")
    a, b = load_dataset(config), load_dataset(parquet)
    assert a.columns == b.columns
    np.testing.assert_array_equal(x_of(a, a.train), x_of(b, b.train))
    np.testing.assert_array_equal(a.train.y, b.train.y)


def test_parquet_types_beyond_csv(tmp_path: Path) -> None:
    times = pd.to_datetime(["2020-01-01", "NaT", "2022-01-01", "2023-01-01"] * 5)
    frame = pd.DataFrame(
        {
            "time": times,
            "zone": times.tz_localize("Europe/Berlin"),
            "day": times.date,
            "span": times - times[0],
            "flag": pd.array([True, False, None, True] * 5, dtype="boolean"),
            "count": pd.array([1, None, 3, 4] * 5, dtype="Int64"),
            "kind": pd.Categorical(["a", "b", "a", None] * 5),
            "list": [[1], [2], None, [1]] * 5,
            "y": [True, False] * 10,
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    config = DataConfig(kind=DataKind.csv, path=str(tmp_path / "t.parquet"), target="y")
    data = load_dataset(config)
    assert data.classes == (False, True)
    numbers = {column.name for column in data.columns.numbers}
    assert numbers == {"time", "zone", "day", "span", "count"}
    assert all(np.isfinite(x_of(data, part)).all() for part in (data.train, data.validation))


def test_rows_without_a_target_are_dropped_and_counted(table: WriteTable) -> None:
    config = table("a,y", "1,u", "2,", "3,v", "4, ? ", "5,NA", n_times=10)
    data, test = load_dataset(config), load_test(config)
    assert len(data.train) + len(data.validation) + len(test) == 20
    assert "dropped 30 rows without a value of y (rows 2, 4, 5, 7, 9, 10, 12, 14, …)." in data.notes


def test_notes_say_what_was_taken(table: WriteTable) -> None:
    config = table("n,c,same,y", "1,a,x,u", "2,b,x,v", n_times=30)
    assert load_dataset(config).notes == (
        "table.csv: 60 rows, 3 columns.",
        "y: text, taken as 2 classes (u, v).",
        "left out, being constant, empty, or texts that do not repeat: same.",
        "columns of numbers: 1, of categories: 1; features: 3.",
        "split by data.split_seed=0: 36 train, 12 validation, 12 test, each class in its share.",
    )


def test_the_columns_of_the_file_are_counted_by_kind(table: WriteTable) -> None:
    rows = [f"{n},2024-01-{n:02d},{'ab'[n % 2]},{'uv'[n % 2]}" for n in range(1, 29)]
    config = table("n,day,c,y", *rows, n_times=3, columns={"day": "date"})
    notes = load_dataset(config).notes
    (line,) = (note for note in notes if note.startswith("columns of"))
    assert line.startswith("columns of numbers: 1, of dates: 1, of categories: 1; features: ")


def test_the_digest_knows_content_and_split_but_not_the_place(
    table: WriteTable, tmp_path: Path
) -> None:
    rows = ("a,y", "1,0", "2,1", "3,0")
    config = table(*rows, n_times=10)
    digest = load_dataset(config).digest
    moved = tmp_path / "elsewhere.csv"
    assert config.path is not None
    moved.write_bytes(Path(config.path).read_bytes())
    assert load_dataset(DataConfig(kind=DataKind.csv, path=str(moved), target="y")).digest == digest
    others = [
        table(*rows, n_times=10, split_seed=1),
        table(*rows, n_times=10, validation_fraction=0.3),
        table(*rows, n_times=10, test=0.3),
        table(*rows, n_times=10, test=str(moved)),
        table(*rows, n_times=10, task=Task.regression),
        table(*rows, n_times=10, target="a"),
    ]
    digests = {digest, *(load_dataset(other).digest for other in others)}
    digests.add(load_dataset(table(*rows, n_times=11)).digest)
    assert len(digests) == 8


def test_a_test_table_of_its_own(table: WriteTable, tmp_path: Path) -> None:
    # Columns in another order, one more, categories and labels never seen, cells missing.
    (tmp_path / "test.csv").write_text("y,extra,c,n\nv,1,new,?\nu,2,,100\n,3,a,1\n")
    config = table("n,c,y", "1,a,u", "2,b,v", "?,a,u", n_times=20, test=str(tmp_path / "test.csv"))
    data, test = load_dataset(config), load_test(config)
    assert len(data.train) + len(data.validation) == 60
    assert test.y.tolist() == [1, 0]
    assert x_of(data, test).shape == (2, width(data))
    np.testing.assert_array_equal(x_of(data, test)[:, 1], [1, 0])  # the indicator of n
    np.testing.assert_array_equal(x_of(data, test)[:, 2:], 0)  # neither a nor b


LATE_CELLS = {
    "decimal": ("3", "3.5"),
    "text": ("3", "three"),
    "code": ("3", "007"),
    "huge": ("3", str(2**63 + 2**40)),
    "gap": (str(2**60 + 1), ""),
    "truth": ("true", "0"),
    "late_number": ("", "1.5"),
    "signed": ("3", "+5"),
    "zero": ("-0", "0.5"),
    "hexadecimal": ("3", "0x10"),
    "y": ("0", "null"),
}
"""The cells of each column in all rows but the last, and in the last row."""


def test_a_cell_far_behind_decides_about_its_column_as_one_nearby(tmp_path: Path) -> None:
    first, last = (",".join(cells[i] for cells in LATE_CELLS.values()) for i in (0, 1))
    rows = [",".join(LATE_CELLS), *[first] * 20_000, last]
    filling = ["filling", *["x" * 1_000] * (len(rows) - 1)]  # 20 MB are parsed in several blocks
    frames = []
    for name, lines in (
        ("short", rows),
        ("long", [f"{row},{text}" for row, text in zip(rows, filling, strict=True)]),
    ):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(lines))
        frames.append(TableFile.at("data.path", str(path)).read("y", detect_verbatim=True))
    short, long = frames
    pd.testing.assert_frame_equal(long.drop(columns="filling"), short)
    assert [str(cell) for cell in short.iloc[-1]][1:4] == ["three", "007", str(2**63 + 2**40)]
