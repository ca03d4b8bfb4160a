"""What a sweep says first of a table: what was taken for what."""

from __future__ import annotations

from dataclasses import replace

from automl.config import DataConfig, StudyConfig
from automl.data.column_overview import ColumnRow
from automl.data.load import load_dataset
from automl.running.finish.result_tables import MOST_COLUMNS, columns_table

STUDY = StudyConfig(name="prices")
NUMBER = ColumnRow("n", "number", 1, "numbers", is_plain=True)
DATE = ColumnRow("sold", "date", 5, "dates such as '2024-05-31' (ISO 8601)")


def lines(*rows: ColumnRow) -> list[str]:
    return [*columns_table(replace(load_dataset(DataConfig()), column_rows=rows), STUDY)]


def test_each_column_is_a_line_in_the_tables_order() -> None:
    assert lines(NUMBER, DATE) == [
        "column  taken as  why",
        "n       number    numbers",
        "sold    date      dates such as '2024-05-31' (ISO 8601)",
    ]


def test_of_many_those_that_are_not_just_numbers_come_first_and_the_rest_is_elsewhere() -> None:
    said = lines(*[NUMBER] * 30, DATE)
    assert len(said) == MOST_COLUMNS + 2
    assert said[1].startswith("sold")
    assert said[-1] == "and 11 more columns: python -m automl columns study.name=prices"


def test_what_is_no_table_has_none_and_a_name_is_printed_in_a_line() -> None:
    assert lines() == []
    (_, line) = lines(DATE._replace(name="a\nb\x1b[31m"))
    assert line.isprintable()
