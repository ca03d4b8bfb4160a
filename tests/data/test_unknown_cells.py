"""Later rows whose cells the model does not know are said or refused, whatever the column holds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.config import Task
from automl.data.column_kinds import read_columns
from automl.data.columns import TableColumns
from automl.data.preprocessing import Preprocessing
from automl.data.target import decide_target
from automl.data.unknown_cells import CellCounter, unknown_shares
from automl.errors import ConfigError, UnreadableCellWarning

N = 200
DAYS = pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y")
WORDS = ["good old bread", "fresh sweet apples", "cold dark beer", "bread and beer"]
FRAME = pd.DataFrame(
    {
        "level": np.arange(N) * 1.5,
        "flag": [True, False] * (N // 2),
        "pet": ["cat", "dog"] * (N // 2),
        "day": DAYS,
        "paid": [f"{n},000.50 €" for n in range(N)],
        "note": [f"{WORDS[n % 4]} number{n}" for n in range(N)],
        "plz": [f"0{n % 7}" for n in range(N)],
        "city": [f"city {n % 90}" for n in range(N)],
    }
)
FOREIGN = {
    "level": ["low", "high"],
    "flag": ["ja", "nein"],
    "pet": ["Katze", "Hund"],
    "day": ["Montag", "Dienstag"],
    "paid": ["much", "little"],
    "note": ["völlig anderes", "ganz fremd"],
    "plz": ["1", "2"],
    "city": ["Wien", "Graz"],
}


@pytest.fixture(scope="module")
def learned() -> Preprocessing:
    """What training learned of the columns and counted in them, from a model file."""
    readings = read_columns(FRAME, {}, detect=True, detect_verbatim=True)
    kinds = {name: r.reading.kind if r.reading else r.kind.value for name, r in readings.items()}
    assert set(kinds.values()) == {"number", "category", "date", "text", "frequency"}
    fitted = Preprocessing.fit(FRAME, readings)
    _, tally = fitted.read_cells(FRAME)
    plain = {**fitted.columns.plain(), "unknown": {}}
    assert fitted.columns.unknown_share("city") is None
    plain["unknown"] = unknown_shares(tally)
    again = Preprocessing.from_plain(json.loads(json.dumps(plain)))
    assert again.columns.plain() == plain
    return again


def with_column(name: str, cells: list[Any]) -> pd.DataFrame:
    return FRAME.assign(**{name: np.resize(np.array(cells, dtype=object), N)})


def notes(learned: Preprocessing, *frames: pd.DataFrame) -> list[str]:
    counter = CellCounter(learned.columns, learned.read_cells)
    for frame in frames:
        counter.read(frame)
    return counter.notes()


def test_rows_like_those_of_training_say_nothing(learned: Preprocessing) -> None:
    assert notes(learned, FRAME, FRAME[:50]) == []
    learned.read(FRAME)


@pytest.mark.parametrize("name", FRAME.columns)
def test_a_column_without_a_known_cell_is_refused(learned: Preprocessing, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^Column {name} held .* and now holds none of them"):
        learned.read(with_column(name, FOREIGN[name]))
    learned.read(with_column(name, [None]))


@pytest.mark.parametrize("name", FRAME.columns)
def test_some_unknown_cells_are_counted_over_all_chunks(learned: Preprocessing, name: str) -> None:
    half = with_column(name, FOREIGN[name])
    (note,) = notes(learned, FRAME, half[:50], half[:0], half[50:])
    assert note.startswith(f"{name}: {N} of {2 * N} cells (50 %) are no known ")
    assert f"{FOREIGN[name][0]!r}, {FOREIGN[name][1]!r}; in training 0 %" in note


def test_cells_that_are_no_numbers_or_dates_are_warned_of_in_one_line(
    learned: Preprocessing,
) -> None:
    rows = FRAME.astype({"level": object}).rename(lambda place: f"r{place}")
    rows.loc[["r7", "r9"], "level"] = "low", "high"
    rows.loc["r8", "day"] = "Montag"
    rows.loc["r3", "pet"] = "fox"  # a new category is nothing odd
    rows.loc["r4", "level"] = None
    with pytest.warns(UnreadableCellWarning) as warned:
        read = learned.read(rows)
    assert [str(warning.message) for warning in warned] == [
        "level: 2 of 199 cells cannot be read as numbers, first 'low' in row r7; day: 1 of 200 "
        "cells cannot be read as dates, first 'Montag' in row r8. They count as missing."
    ]
    assert np.isnan(read.numbers[[4, 7, 9], 0]).all()
    assert not np.isnan(read.numbers[[6, 8, 10], 0]).any()


def test_one_new_category_is_said_and_taken(learned: Preprocessing) -> None:
    rows = with_column("pet", ["cow"])
    learned.read(rows)
    assert notes(learned, rows) == [
        "pet: 200 of 200 cells (100 %) are no known categories, such as 'cow'; in training 0 %"
    ]


def test_unknown_cells_that_training_had_as_well_are_nothing_new() -> None:
    frame = pd.DataFrame({"name": ["a", "b", *(f"once {n}" for n in range(8))] * 1, "x": range(10)})
    frame = pd.concat([frame, frame.replace(regex="once", value="twice")], ignore_index=True)
    fitted = Preprocessing.fit(frame)
    columns = fitted.columns.plain() | {"unknown": {"name": 0.8}}
    known = Preprocessing.from_plain(columns)
    later = frame.assign(name=[f"new {n}" for n in range(20)])[:5]
    assert known.columns.unknown_share("name") == 0.8
    known.read(later)  # five unknown cells in five rows may well be chance
    assert notes(known, later) == []
    with pytest.raises(ConfigError, match="'new 0', 'new 1', 'new 2': give it as it was in train"):
        Preprocessing.from_plain({**columns, "unknown": {}}).read(later)


truths = st.lists(st.booleans(), min_size=2, max_size=20)
spellings = st.sampled_from([int, float, str, lambda t: str(int(t)), lambda t: f"{float(t)}"])


@settings(deadline=None)
@given(truths, spellings)
def test_truth_values_may_be_given_as_numbers(
    learned: Preprocessing, given_truths: list[bool], spelling: Any
) -> None:
    rows = FRAME[: len(given_truths)]
    as_truths = learned.read(rows.assign(flag=given_truths))
    again = learned.read(rows.assign(flag=[spelling(truth) for truth in given_truths]))
    np.testing.assert_array_equal(as_truths.codes, again.codes)


def test_a_target_of_truth_values_may_be_given_as_numbers() -> None:
    column = pd.Series([True, False, True, True])
    target = decide_target(column, "y", Task.auto)
    assert target.encode(column.astype(float), "data.test").tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_that_no_float_holds_is_too_large(learned: Preprocessing, digits: int) -> None:
    large = [1.0, 10**digits, -(10**digits)]
    rows = FRAME[:3].assign(level=large, paid=large, pet=["cat", "dog", 10**digits])
    with pytest.warns(UnreadableCellWarning, match="level: 2 of 3 .*; paid: 2 of 3 "):
        found = learned.read(rows)
    names = [column.name for column in learned.columns.numbers]
    assert np.isnan(found.numbers[1:, names.index("level")]).all()
    assert np.isnan(found.numbers[1:, names.index("paid.number")]).all()


@pytest.mark.parametrize("unknown", [[], {"a": 2.0}, {"a": "1"}, {1: 0.5}])
def test_shares_of_a_damaged_file_are_refused(unknown: object) -> None:
    plain = TableColumns(()).plain() | {"unknown": unknown}
    with pytest.raises((TypeError, ValueError), match="shares of unknown cells"):
        TableColumns.from_plain(plain)
