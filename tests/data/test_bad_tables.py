"""Each table that cannot be used gives one ConfigError: the setting, its value, the remedy."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from automl.config import DataConfig, DataKind, Task
from automl.data.load import load_dataset
from automl.data.tables.frames import write_frame
from automl.errors import ConfigError
from tests.data.conftest import WriteTable
from tests.features import load_test, width
from tests.flips import one_bit_flipped, torn_ends

GOOD = ("a,y", "1,u", "2,v")


def refusal(config: DataConfig) -> str:
    """The message; one that names its setting and says what to do."""
    with pytest.raises(ConfigError) as caught:
        load_dataset(config)
    message = str(caught.value)
    assert message.startswith(("data.path=", "data.target=", "data.test="))
    assert "\n" not in message
    return message


def at(path: Path) -> DataConfig:
    return DataConfig(kind=DataKind.csv, path=str(path), target="y")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    message = refusal(at(tmp_path / "none.csv"))
    assert f"data.path={tmp_path / 'none.csv'}: there is no such file" in message


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder: name the CSV or Parquet file in it" in refusal(at(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert "is empty" in refusal(at(tmp_path / "t.csv"))


def test_a_header_and_no_rows(table: WriteTable) -> None:
    assert "a header and no rows" in refusal(table("a,y"))


@pytest.mark.parametrize("target", ["incom", "INCOME"])
def test_a_target_that_is_no_column_gets_the_list_and_the_close_one(
    table: WriteTable, target: str
) -> None:
    message = refusal(table("age,income", "1,u", "2,v", target=target))
    assert f"data.target={target}" in message
    assert "Did you mean 'income'?" in message
    assert "Its columns: age, income." in message


def test_a_target_like_no_column_gets_no_guess(table: WriteTable) -> None:
    message = refusal(table("age,income", "1,u", target="zzz"))
    assert "Did you mean" not in message
    assert "Its columns: age, income." in message


def test_many_columns_are_not_all_listed(table: WriteTable) -> None:
    names = [f"c{i}" for i in range(100)]
    message = refusal(table(",".join(names), ",".join("1" for _ in names), target="zzz"))
    assert "c39 and 60 more" in message


def test_one_class_only(table: WriteTable) -> None:
    message = refusal(table("a,y", "1,u", "2, u", n_times=10))
    assert "data.target=y: there is one class only: every row holds 'u'" in message


def test_one_value_only_for_regression(table: WriteTable) -> None:
    message = refusal(table("a,y", "1,0.5", "2,0.50", n_times=10, task=Task.regression))
    assert "every row holds 0.5" in message


def test_text_that_is_not_utf8(table: WriteTable) -> None:
    for header in ("a,y", "ä,y"):
        message = refusal(table(header, "1,ü", "2,v", n_times=10, encoding="latin-1"))
        assert "is not UTF-8 text: save it as UTF-8, for example with iconv" in message


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
def test_utf16(table: WriteTable, name: str) -> None:
    header, *rows = GOOD
    message = refusal(table(f"\ufeff{header}", *rows, encoding=name))
    assert "is UTF-16 text: save it as UTF-8, for example with iconv -f UTF-16 -t UTF-8" in message


@pytest.mark.parametrize("header", ["a,a,y", "a, a ,y", "y,a,y"])
def test_headers_that_repeat(table: WriteTable, header: str) -> None:
    message = refusal(table(header, "1,2,u", "2,3,v"))
    assert "stands 2 times in the header: rename or remove" in message


def test_rows_longer_than_the_header(table: WriteTable) -> None:
    message = refusal(table("a,y", "1,u,3", "2,v,4"))
    assert "its first row has 3 cells and its header 2 names" in message
    assert "is no proper CSV (line 3: cells: 3, and 2 columns): mend that place" in refusal(
        table("a,y", "1,u", "2,v,4")
    )


def test_a_quote_that_is_never_closed(table: WriteTable) -> None:
    message = refusal(table("a,y", '1,"u', "2,v"))
    assert "is no proper CSV (line 2: has a quote that is never closed): mend" in message


def test_too_few_rows_to_split(table: WriteTable) -> None:
    message = refusal(table("a,y", "1,u", "2,v", "3,u"))
    assert "3 rows with a target cannot be split into training, validation and test" in message
    assert "4 are the least" in message
    assert width(load_dataset(table("a,y", "1,u", "2,v", "3,u", "4,v"))) == 1


def test_a_target_that_is_missing_in_every_row(table: WriteTable) -> None:
    message = refusal(table("a,y", "1,", "2,?", "3, NA ", "4,?"))
    assert "data.target=y: the column is empty in all 4 rows" in message


def test_a_text_target_for_regression_shows_the_text(table: WriteTable) -> None:
    message = refusal(table("a,y", "1,3.5", "2,much", n_times=5, task=Task.regression))
    assert "numbers are needed (data.task=regression), and 5 of 10 rows hold something" in message
    assert "such as 'much' (rows 2, 4, 6, 8, 10): mend" in message


def test_amounts_with_some_texts_among_them_are_no_classes(table: WriteTable) -> None:
    rows = [f"{i},{'n.a.' if i in (3, 7) else i / 8}" for i in range(60)]
    message = refusal(table("a,y", *rows))
    assert "2 of 60 rows hold something else, such as 'n.a.' (rows 4, 8): mend" in message
    assert load_dataset(table("a,y", *rows, *rows, task=Task.classification)).classes


def test_a_cell_longer_than_pythons_csv_reads(table: WriteTable) -> None:
    novel = "word " * 40_000
    data = load_dataset(table("a,t,y", *(f"{i},{novel}{i},{i % 2}" for i in range(30))))
    assert [column.name for column in data.columns.all] == ["a"]


def test_a_text_target_that_never_repeats(table: WriteTable) -> None:
    rows = [f"{i},name{i}" for i in range(30)]
    assert "each of the 30 rows holds a text of its own" in refusal(table("a,y", *rows))


def test_no_column_to_learn_from(table: WriteTable) -> None:
    assert "no column but data.target=y" in refusal(table("y", "u", "v", n_times=10))
    assert "no column but data.target=y" in refusal(table("a,b,y", "1,,u", "1,,v", n_times=10))


def test_a_broken_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    assert "is no proper Parquet" in refusal(at(tmp_path / "t.parquet"))


@pytest.mark.parametrize("metadata", ["{", "[1]", '{"index_columns": 1}', "[" * 100_000, "\xff"])
def test_a_parquet_whose_row_labels_are_none(tmp_path: Path, metadata: str) -> None:
    rows = pa.table({"a": [*range(30)], "y": [*range(30)]})
    rows = rows.replace_schema_metadata({"pandas": metadata.encode("latin-1")})
    pq.write_table(rows, tmp_path / "t.parquet")
    assert "is no proper Parquet" in refusal(at(tmp_path / "t.parquet"))


def test_a_flipped_bit_in_the_frame_of_a_fit_is_is_named_or_seen(tmp_path: Path) -> None:
    rows = {"a": [n / 7 for n in range(60)], "b": [*"xyz"] * 20, "y": [n % 9 for n in range(60)]}
    path = write_frame(pd.DataFrame(rows), tmp_path)
    whole, content, found = load_dataset(at(path)), path.read_bytes(), set[str]()
    for damaged in (*one_bit_flipped(content, 60), *torn_ends(content, 20)):
        path.write_bytes(damaged)
        try:
            data = load_dataset(at(path))
        except ConfigError as error:
            found.add("named" if path.name in str(error) else str(error))
            continue
        is_same = data.digest == whole.digest  # else no sweep of the study takes it
        found.add("the same" if is_same else "known by its digest")
    assert {"named", "known by its digest"} <= found <= {"named", "known by its digest", "the same"}


def test_the_test_table_is_looked_at_before_the_sweep(table: WriteTable, tmp_path: Path) -> None:
    def message(content: str) -> str:
        (tmp_path / "test.csv").write_text(content)
        return refusal(table(*GOOD, n_times=10, test=str(tmp_path / "test.csv")))

    assert "there is no such file" in refusal(
        table(*GOOD, n_times=10, test=str(tmp_path / "none.csv"))
    )
    assert "data.target=y: must be a column of data.test" in message("a,z\n1,u\n")
    config = table(*GOOD, n_times=10)
    config.test = config.path
    assert "is the training table itself" in refusal(config)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a,y\n1,w\n", "holds 'w', which is none of the classes of data.path (u, v)"),
        ("a,y\n1,\n", "no row has a value of y"),
        ("b,y\n1,u\n", "The table lacks the columns a"),
        ("a,y\nlow,u\nhigh,v\n", "held numbers in training and now holds none"),
    ],
)
def test_a_test_table_that_does_not_match(
    table: WriteTable, tmp_path: Path, content: str, problem: str
) -> None:
    (tmp_path / "test.csv").write_text(content)
    config = table(*GOOD, n_times=10, test=str(tmp_path / "test.csv"))
    load_dataset(config)
    with pytest.raises(ConfigError) as caught:
        load_test(config)
    assert problem in str(caught.value)


def test_too_many_texts_to_be_classes(table: WriteTable) -> None:
    message = refusal(table("a,y", *(f"{i},name{i % 40}" for i in range(100))))
    assert "40 different texts in 100 rows, such as 'name0': too many to be classes" in message
    assert load_dataset(table("a,y", *(f"{i},name{i % 40}" for i in range(120)))).classes


def test_a_class_that_no_row_trains_is_named(table: WriteTable) -> None:
    rows = [f"{i},{'uv'[i % 2]}" for i in range(40)]
    told = [
        note
        for seed in range(8)
        for note in load_dataset(table("a,y", *rows, "99,solo", split_seed=seed)).notes
        if note.startswith("classes without a row that trains")
    ]
    assert 0 < len(told) < 8
    assert set(told) == {"classes without a row that trains, having too few rows or groups: solo."}


def test_one_cell_that_is_no_number(table: WriteTable) -> None:
    message = refusal(table("a,y", *(f"{i},{i / 8}" for i in range(60)), "61,n.a."))
    assert "and 1 of 61 rows holds something else, such as 'n.a.' (row 61): mend" in message
