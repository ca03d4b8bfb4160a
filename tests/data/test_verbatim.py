"""Codes such as `007` stay what was written, from the table through the model to what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from automl.config import ColumnKind, DataConfig, Task
from automl.data.cells import are_verbatim
from automl.data.column_kinds import read_columns
from automl.data.columns import TableColumns
from automl.data.load import load_dataset
from automl.data.preprocessing import Preprocessing
from automl.data.tables.chunked_table import ChunkedTable
from automl.data.tables.table_file import TableFile
from automl.errors import ConfigError
from tests.data.conftest import WriteTable
from tests.features import load_test

CODES = ["007", "00", "-01", "+01", "01e5", "05 kg", "+4930123456", "+49 301 2345", "1" * 17]
NUMBERS = ["0", "-0", "0.5", "00.5", "-00.5", "0e5", "+5", "1e5", "1234567890123456"]
TEXTS = ["01/02/2024", "01.02.2024", "08:30", "A7", "0x1F", "", "00,5"]
DETECT: dict[str, Any] = {"rules": 3}


@pytest.fixture
def coded(table: WriteTable) -> DataConfig:
    """A table whose column `code` decides the target: `1` is u, `01` is v."""
    return table("code,a,y", "1,5,u", "01,5,v", "1,6,u", "01,7,v", n_times=15, **DETECT)


@pytest.mark.parametrize("text", CODES)
def test_codes(text: str) -> None:
    assert are_verbatim(["12", text, "x"])


@pytest.mark.parametrize("text", [*NUMBERS, *TEXTS, 7, 2**60, 0.5, True])
def test_what_is_no_code(text: Any) -> None:
    assert not are_verbatim(["12", text, "x"])


def test_an_exponent_among_hexadecimal_texts_is_a_code() -> None:
    assert are_verbatim(["3fa", "1e5", "77"])
    assert not are_verbatim(["1e5", "2e7", "77"])
    assert not are_verbatim(["1e5", "unknown", "77"])


@pytest.mark.parametrize(
    "before", ["5.5,1,{},2\n", "{},1,2,3\n", '5.5,1,2,"{}"\n', "5.5, {},1,2\n"]
)
@pytest.mark.parametrize("text", [*CODES[:5], "+4930123456"])
def test_codes_are_found_in_a_file(tmp_path: Path, before: str, text: str) -> None:
    path = tmp_path / "table.csv"
    rest = "0.05,-0.5e-05,10,0\n2024,01.02,100.01,-0\n" * 3

    def n_text_columns(rows: str) -> int:
        path.write_text(rows)
        frame = TableFile.at("data.path", str(path)).read("a", detect_verbatim=True)
        return sum(dtype.kind not in "iuf" for dtype in frame.dtypes)

    assert n_text_columns(f"a,b,c,d\n{rest}") == 0
    for rows in (f"{before.format(text)}{rest}", f"{rest}{before.format(text)}"):
        content = f"a,b,c,d\n{rows}"
        assert n_text_columns(content) == 1
        windows = content.rstrip().replace(",", ";").replace("\n", "\r\n")
        assert n_text_columns(windows) == 1


def test_labels_with_leading_zeros_stay_distinct(table: WriteTable) -> None:
    data = load_dataset(table("a,y", "1,1", "2,01", "3,002", "4,", n_times=20, **DETECT))
    assert data.classes == ("002", "01", "1")
    assert np.bincount(data.train.y)[0] > 0
    assert any(
        "y: codes, taken as 3 classes as they are written (002, 01, 1); data.task" in n
        for n in data.notes
    )
    assert any(note.startswith("dropped 20 rows without a value of y") for note in data.notes)


def test_codes_can_be_predicted_as_numbers(table: WriteTable) -> None:
    lines = [f"{i},{i:03}" for i in range(30)]
    data = load_dataset(table("a,y", *lines, n_times=2, task=Task.regression, **DETECT))
    assert data.task is Task.regression
    assert {7.0, 12.0} <= {*data.train.y.tolist(), *data.validation.y.tolist()}


def test_large_labels_with_missing_ones_stay_exact(table: WriteTable) -> None:
    first, second = "1234567890123456789", "1234567890123456788"
    data = load_dataset(table("a,y", f"1,{first}", f"2,{second}", "3,", n_times=20, **DETECT))
    assert data.classes == (second, first)


def test_a_test_table_is_read_as_the_training_table(coded: DataConfig, tmp_path: Path) -> None:
    later = tmp_path / "later.csv"
    later.write_text("code,a,y\n1,5,u\n1,6,v\n")  # on its own, a column of numbers
    coded.test = str(later)
    test = load_test(coded)
    assert test.rows.codes[:, 0].tolist() == [1, 1]


def test_labels_of_a_test_table_are_as_they_are_written(table: WriteTable, tmp_path: Path) -> None:
    config = table("a,y", "1,1", "2,01", n_times=30, **DETECT)
    later = tmp_path / "later.csv"
    later.write_text("a,y\n1,1\n2,1\n")
    config.test = str(later)
    assert load_test(config).y.tolist() == [1, 1]
    later.write_text("a,y\n1,1\n2,001\n")
    with pytest.raises(ConfigError, match=r"'001', which is none of the classes .*\(01, 1\)"):
        load_test(config)


def test_a_column_of_codes_decides_the_target(coded: DataConfig) -> None:
    data = load_dataset(coded)
    (code,) = data.columns.categories
    assert (code.name, code.categories, code.verbatim) == ("code", ("01", "1"), True)
    assert data.kinds == {"code": "category"}
    (row,) = [row for row in data.column_rows if row.name == "code"]
    assert row.why.startswith("codes such as '01', as they are written")


def test_a_study_of_before_reads_numbers(table: WriteTable) -> None:
    stored = {"rules": 2}
    data = load_dataset(table("code,a,y", "1,5,1", "01,6,01", "2,7,2", n_times=20, **stored))
    assert data.columns.categories == ()
    assert data.classes == (1, 2)
    assert data.kinds == {}


@pytest.mark.parametrize("kind", [ColumnKind.number, ColumnKind.category])
def test_what_a_column_of_codes_is_can_be_chosen(table: WriteTable, kind: ColumnKind) -> None:
    lines = [f"0{i % 5},{'uv'[i % 2]}" for i in range(60)]
    data = load_dataset(table("plz,y", *lines, columns={"plz": kind.value}, **DETECT))
    assert len(data.columns.numbers) == (kind is ColumnKind.number)
    assert data.columns.verbatim == (("plz",) if kind is ColumnKind.category else ())


def test_dates_and_decimals_stay_what_they_are() -> None:
    frame = pd.DataFrame(
        {
            "day": [f"{1 + i % 28:02}.05.2024" for i in range(60)],
            "half": [f"00.{i % 9}" for i in range(60)],
            "phone": [f"030 {i % 7}23 456" for i in range(60)],
            "paid": [f"{i},000.50 €" for i in range(60)],
        }
    )
    taken = read_columns(frame, {}, detect=True, detect_verbatim=True)
    assert {name: one.kind.value for name, one in taken.items()} == {
        "day": "date",
        "half": "number",
        "phone": "category",
        "paid": "number",
    }


@pytest.fixture
def many() -> pd.DataFrame:
    """So many codes that the frequency of each counts, too."""
    codes = [f"{i % 90:05}" for i in range(900)]
    return pd.DataFrame({"plz": codes, "a": range(900)})


def learned(frame: pd.DataFrame) -> Preprocessing:
    return Preprocessing.fit(frame, read_columns(frame, {}, detect=True, detect_verbatim=True))


def test_codes_go_to_plain_values_and_back(many: pd.DataFrame) -> None:
    columns = learned(many).columns
    assert columns.verbatim == ("plz",)
    plain = columns.plain()
    assert plain["format"] == "automl-columns-3"
    assert TableColumns.from_plain(plain) == columns


def test_codes_that_are_given_as_numbers_are_refused(many: pd.DataFrame) -> None:
    preprocessing = learned(many)
    remedy = r"Column plz held codes, .* for example 0: give it as texts .*dtype=\{'plz': str\}"
    with pytest.raises(ConfigError, match=remedy):
        preprocessing.read(many.astype({"plz": int}))
    nothing = preprocessing.read(many.assign(plz=np.nan))
    assert len(nothing) == len(many)


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_chunk_of_a_table_to_score_keeps_codes(
    tmp_path: Path, many: pd.DataFrame, quote: str
) -> None:
    path = tmp_path / "rows.csv"
    lines = [f"{quote}{code}{quote},{a}\n" for code, a in many.itertuples(index=False)]
    path.write_text("".join(["plz,a\n", *lines]))
    preprocessing = learned(many)
    columns = preprocessing.columns
    table = ChunkedTable.at("table", str(path), columns.sources)
    categories = [column.name for column in columns.categories]
    (chunk,) = table.chunks(columns.plain_numbers, categories, columns.verbatim)
    expected, rows = preprocessing.read(many), preprocessing.read(chunk.frame)
    assert (rows.codes == expected.codes).all()
    assert (rows.numbers == expected.numbers).all()


def test_numbers_of_a_table_with_codes_are_read_as_before(table: WriteTable) -> None:
    lines = [f"0{i % 3},{i}.5,{i % 4},{'uv'[i % 2]}" for i in range(40)]
    path = table("plz,a,b,y", *lines).path
    assert path is not None
    file = TableFile.at("data.path", path)
    plain, frame = file.read("y"), file.read("y", detect_verbatim=True)
    assert frame["plz"].tolist()[:3] == ["00", "01", "02"]
    rest = ["a", "b", "y"]
    pd.testing.assert_frame_equal(frame[rest], plain[rest])
