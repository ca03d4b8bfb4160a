"""What a sweep says first of a table: what was taken for what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from automl.config import Config, DataConfig, ObjectiveConfig, ObjectiveKind, StudyConfig
from automl.data.dataset import ColumnSummary
from automl.data.load import load_dataset
from automl.running.sweep_lines import MAX_COLUMNS_SHOWN, columns_table, notes_of_config
from automl.trial import Direction

STUDY = StudyConfig(name="prices")
NUMBER = ColumnSummary("n", "number", 1, "numbers", is_plain=True)
DATE = ColumnSummary("sold", "date", 5, "dates such as '2024-05-31' (ISO 8601)")


def lines(*rows: ColumnSummary) -> list[str]:
    return [*columns_table(replace(load_dataset(DataConfig()), column_rows=rows), STUDY)]


def test_each_column_is_a_line_in_the_tables_order() -> None:
    assert lines(NUMBER, DATE) == [
        "column  taken as  why",
        "n       number    numbers",
        "sold    date      dates such as '2024-05-31' (ISO 8601)",
    ]


def test_of_many_those_that_are_not_just_numbers_come_first_and_the_rest_is_elsewhere() -> None:
    said = lines(*[NUMBER] * 30, DATE)
    assert len(said) == MAX_COLUMNS_SHOWN + 2
    assert said[1].startswith("sold")
    assert said[-1] == "and 11 more columns: python -m automl plan prices"


def test_what_is_no_table_has_none_and_a_name_is_printed_in_a_line() -> None:
    assert lines() == []
    (_, line) = lines(DATE._replace(name="a\nb\x1b[31m"))
    assert line.isprintable()


def config_of(kind: ObjectiveKind, space: dict[str, Any], **study: Any) -> Config:
    objective = ObjectiveConfig(kind=kind, target="mine.py:train")
    return Config(objective=objective, space=space, study=StudyConfig(**study))


def test_an_objective_is_told_what_its_value_is_called() -> None:
    (line,) = notes_of_config(config_of(ObjectiveKind.called, {}))
    assert line == (
        "mine.py:train is judged by val_loss: the number it returns, or what it reports by that "
        "name; small values are good; metric=NAME names another, direction= turns it"
    )
    (line,) = notes_of_config(config_of(ObjectiveKind.python, {}))
    assert line.endswith("metric=NAME names another, direction= turns it")
    named = config_of(ObjectiveKind.called, {}, metric="accuracy", direction=Direction.maximize)
    (line,) = notes_of_config(named)
    assert line.endswith(
        "judged by accuracy: the number it returns, or what it reports by that "
        "name; large values are good"
    )
    assert not [*notes_of_config(Config())], "the built-in training reports its own metrics"


@pytest.mark.parametrize(
    ("choices", "kind", "line"),
    [
        ([1e-4, 0.1], "called", "space={'x': 'log:0.0001..0.1'}"),
        ([0.1, 1e-4], "builtin", "space.x=log:0.0001..0.1"),
        ([-5.0, 5.0], "called", "space={'x': '-5.0..5.0'}"),
        ([0.0, 0.5], "builtin", "space.x=0.0..0.5"),
        ([0.1, 0.2], "builtin", None),
        ([32, 512], "builtin", None),
        ([1e-4, 1e-2, 1.0], "builtin", None),
        (["a", 1.0], "builtin", None),
    ],
)
def test_two_choices_that_may_be_meant_as_a_range(
    choices: list[Any], kind: str, line: str | None
) -> None:
    found = notes_of_config(config_of(ObjectiveKind(kind), {"x": {"choices": choices}}))
    said = [note for note in found if note.startswith("space.x: ")]
    assert [note.partition("a range is ")[2] for note in said] == ([] if line is None else [line])
