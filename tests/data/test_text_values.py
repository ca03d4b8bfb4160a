"""Numbers and dates that texts say; the arithmetic of dates is the calendar's."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer

from automl.data.text_values import (
    DATE_PARTS,
    MAX_TEXT_CHARACTERS,
    count_words,
    date_part,
    detect_date_style,
    detect_number_style,
    number_of,
    parse_text_number,
    parse_text_seconds,
)


@pytest.mark.parametrize(
    ("text", "mark", "said"),
    [
        ("1,234.50 €", ".", 1234.5),
        ("1.234,50", ",", 1234.5),
        ("1'000'000.5", ".", 1e6 + 0.5),
        ("1\u202f234,5\u00a0€", ",", 1234.5),
        ("€ -5", ".", -5),
        ("−5", ".", -5),
        ("(1,000)", ".", -1000),
        ("1e-3", ".", 0.001),
        (".5", ".", 0.5),
        ("1,23", ".", None),  # no group of three
        ("5 $", ".", None),  # another unit than the column's
        ("--5", ".", None),
        ("(5", ".", None),
        ("5 €€", ".", None),
        ("1_000", ".", None),
        ("nan", ".", None),
        ("9" * 41, ".", None),
        ("", ".", None),
    ],
)
def test_numbers_in_texts(text: str, mark: str, said: float | None) -> None:
    assert parse_text_number(text, mark, "€") == said


def test_the_mark_and_the_unit_are_those_of_most_texts() -> None:
    assert detect_number_style(["1.234,50 €", "3,5", "7 €"]) == (",", "€", 1.0)
    assert detect_number_style(["1,234.50", "3"]) == (".", "", 1.0)
    assert detect_number_style(["10 kg", "7 KG", "1 lb", "x"]) == (".", "kg", 0.5)
    assert detect_number_style(["A1", "B2", "12:30", "1.2.3"])[2] == 0


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["2024-01-05", "2024-01-05T10:00:00Z"], "iso"),
        (["05.01.2024", "31.12.2023 10:30"], "%d.%m.%Y"),
        (["01/05/2024", "12/31/2023"], "%m/%d/%Y"),
        (["01/05/2024", "31/12/2023"], "%d/%m/%Y"),
        (["Jan 5, 2024", "Feb 7, 2023 1:05 PM"], "%b %d, %Y"),
    ],
)
def test_dates_are_read_by_the_format_that_fits_all(texts: list[str], form: str) -> None:
    assert detect_date_style(texts) == (form, 1.0)


def test_what_is_no_date() -> None:
    assert detect_date_style(["abc", "12:30", "1.2.3", "20240131", "2024-02-30"])[1] == 0


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2024-01-05T13:30:00+02:00", "iso"),
        ("01/05/2024 1:30 PM +0200", "%m/%d/%Y"),
        ("2024-01-05T11:30", "%m/%d/%Y"),  # ISO 8601 is read beside every format
        ("5.1.2024, 11:30:00.000 UTC", "%d.%m.%Y"),
    ],
)
def test_a_time_with_a_zone_is_that_instant(text: str, form: str) -> None:
    wanted = datetime.datetime(2024, 1, 5, 11, 30, tzinfo=datetime.UTC)
    assert parse_text_seconds(text, form) == wanted.timestamp()


@given(st.datetimes())
def test_parts_are_those_of_the_calendar(when: datetime.datetime) -> None:
    seconds = (when - datetime.datetime(1970, 1, 1)).total_seconds()
    parts = {part: date_part(seconds, part) for part in DATE_PARTS}
    assert parts == {
        "year": when.year,
        "month": when.month,
        "weekday": when.weekday(),
        "hour": when.hour,
        "since": seconds,
    }
    for part, value in parts.items():
        assert date_part(np.array([seconds, 0.0]), part)[0] == value


def test_a_cell_of_a_row_alone_is_read_as_in_a_table() -> None:
    missing = ["", "?"]
    date = {"kind": "date", "format": "%d.%m.%Y"}
    aware = datetime.datetime(2024, 1, 5, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert number_of("05.01.2024", date, "weekday", missing) == 4
    assert number_of(aware, date, "hour", missing) == 12
    assert number_of(aware.date(), date, "month", missing) == 1
    number = {"kind": "number", "mark": ",", "unit": ""}
    assert number_of("1,5", number, "number", missing) == number_of(1.5, number, "number", missing)
    for nothing in (None, " ? ", "never"):
        assert np.isnan(number_of(nothing, date, "year", missing))
        assert np.isnan(number_of(nothing, number, "number", missing))


@given(st.text(max_size=80))
@example("Ä straße, 中文 and the the İstanbul")
@example("ab" * MAX_TEXT_CHARACTERS)
def test_words_are_counted_as_training_counts_them(text: str) -> None:
    vectorizer = HashingVectorizer(n_features=4096, alternate_sign=False, norm=None)
    (counts,) = vectorizer.transform([text[:MAX_TEXT_CHARACTERS]])
    expected = dict(zip(counts.indices.tolist(), counts.data.tolist(), strict=True))
    assert count_words(text, 4096) == expected


@pytest.mark.parametrize("cell", [None, float("nan"), pd.NaT, pd.NA, "", "a ?"])
def test_a_missing_cell_has_no_words(cell: object) -> None:
    assert count_words(cell, 4096) == {}
