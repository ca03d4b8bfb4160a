"""What each column of a table is taken for, and why: numbers, categories, dates, texts, or nothing.

Found on the training part, where `data.detect` is set; what `data.columns` says of a column goes
before. A table read without it has numbers and categories alone, as studies of before had.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.config.data import ColumnKind
from automl.data import cells
from automl.data.columns import MAX_CATEGORIES
from automl.data.making import learned_frequency, learned_text
from automl.data.readings import DateReading, NumberReading, Reading
from automl.data.said import date_style, number_in, number_style
from automl.data.verbatim import are_verbatim
from automl.errors import ConfigError

PLAIN_NUMBERS = "numbers"
"""Why a column of nothing else is one of numbers."""
MAX_TRIED = 300
"""Different cells of a column that are looked at, evenly over the table."""
_NEARLY_ALL = 0.95
_MOSTLY = 0.9
_MIN_NUMBERS = 20
"""A column with texts among its numbers is one of numbers from so many different ones on."""
_MIN_WORDS = 3.0
_MIN_TEXTS = 64
_ID_NAMES = frozenset(["id", "uuid", "guid", "key", "index", "idx", "rowid", "row_id", "nr", "no"])
_MIN_ID_ROWS = 20


@dataclass(frozen=True)
class Taken:
    """A column as it is read."""

    name: str
    kind: ColumnKind
    why: str
    """For people."""
    reading: Reading | None = None
    """What makes numbers of its cells; None: it holds plain numbers, or categories."""
    is_new: bool = False
    """Studies of before had no such columns, or took them otherwise."""
    verbatim: bool = False
    """It holds codes, which stay as they are written."""


def taken_for(
    frame: pd.DataFrame,
    choices: Mapping[str, str],
    *,
    detect: bool,
    detect_verbatim: bool = False,
) -> dict[str, Taken]:
    """By name, in the table's order. Raises ConfigError for a choice that cannot be."""
    refuse_unknown(choices, [str(name) for name in frame.columns])
    found = {}
    for name in frame.columns:
        column, chosen = frame[name], choices.get(name)
        verbatim = detect_verbatim and are_verbatim(texts_of(column))
        if chosen is not None:
            found[name] = _chosen(name, column, ColumnKind(chosen), verbatim)
        else:
            find = _found if detect else _plain
            found[name] = find(name, column, verbatim)
    return found


def texts_of(column: pd.Series[Any]) -> list[Any]:
    """The different cells of a column that may hold texts; none of numbers and times."""
    return [] if column.dtype.kind in "iufbmM" else cells.distinct(column)[1]


def refuse_unknown(choices: Mapping[str, str], names: Sequence[str]) -> None:
    """Raises ConfigError for the name of no column."""
    for name in choices:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"data.columns.{name}={choices[name]}: the table has no such column to learn from."
                f"{hint}"
            )


def _plain(name: str, column: pd.Series[Any], verbatim: bool) -> Taken:
    if verbatim:
        return _codes(name, column)
    if cells.holds_numbers(column):
        return Taken(name, ColumnKind.number, PLAIN_NUMBERS)
    return Taken(name, ColumnKind.category, "texts")


def _found(name: str, column: pd.Series[Any], verbatim: bool) -> Taken:
    if column.dtype.kind == "M":
        return Taken(name, ColumnKind.date, "times", DateReading(name, "iso"), is_new=True)
    if why := _identifier(name, column):
        return Taken(name, ColumnKind.drop, why, is_new=True)
    if column.dtype.kind in "iufm":
        return Taken(name, ColumnKind.number, PLAIN_NUMBERS)
    values = cells.distinct(column)[1]
    if not verbatim and cells.all_numbers(values):
        return Taken(name, ColumnKind.number, PLAIN_NUMBERS)
    texts, n_different = tried(values)
    has_digits = sum(any(map(str.isdigit, text[:40])) for text in texts) >= len(texts) / 2
    return (
        (has_digits and _date(name, texts))
        or (has_digits and not verbatim and _number(name, texts, n_different))
        or (not (has_digits and verbatim) and _text(name, column, texts, n_different))
        or (_codes(name, column) if verbatim else _category(name, column, n_different))
    )


def _codes(name: str, column: pd.Series[Any]) -> Taken:
    values = cells.distinct(column)[1]
    example = next((value for value in values if are_verbatim([value])), values[0])
    taken = _category(name, column, len(values), verbatim=True)
    why = f"codes such as {example!r}, as they are written: {taken.why}"
    return replace(taken, why=why, is_new=True)


def tried(values: Sequence[Any]) -> tuple[list[str], int]:
    """Some of the different cells, and how many there are."""
    places = np.linspace(0, len(values) - 1, min(MAX_TRIED, len(values))).astype(int)
    return [str(values[place]) for place in places], len(values)


def _date(name: str, texts: list[str]) -> Taken | None:
    form, share = date_style(texts)
    if share < _NEARLY_ALL or len(texts) < 3:
        return None
    why = f"dates such as {texts[0]!r} ({'ISO 8601' if form == 'iso' else form})"
    return Taken(name, ColumnKind.date, why, DateReading(name, form), is_new=True)


def _number(name: str, texts: list[str], n_different: int) -> Taken | None:
    mark, unit, share = number_style(texts)
    if share < _MOSTLY or (share < 1 and n_different <= _MIN_NUMBERS):
        return None
    beside = f" {unit}" if unit else ""
    says = {text: number_in(text, mark, unit) is not None for text in texts}
    why = f"numbers in texts such as {next(text for text in texts if says[text])!r}"
    other = next((text for text in texts if not says[text]), None)
    why += "" if other is None else f"; others, such as {other[:30]!r}, count as missing"
    why += f" (in{beside})" if beside else ""
    return Taken(name, ColumnKind.number, why, NumberReading(name, mark, unit), is_new=True)


def _text(name: str, column: pd.Series[Any], texts: list[str], n_different: int) -> Taken | None:
    n_words = float(np.mean([len(text[:1000].split()) for text in texts])) if texts else 0.0
    n_rows = int(column.notna().sum())
    if n_words < _MIN_WORDS or n_different <= _MIN_TEXTS or n_different < n_rows / 2:
        return None
    reading = learned_text(name, column)
    why = f"texts of some {n_words:.0f} words"
    return None if reading is None else Taken(name, ColumnKind.text, why, reading, is_new=True)


def _category(
    name: str, column: pd.Series[Any], n_different: int, *, verbatim: bool = False
) -> Taken:
    why, reading = f"{n_different:,} different texts", None
    if MAX_CATEGORIES < n_different < column.notna().sum():
        why += ": the most frequent, and how frequent each is"
        reading = learned_frequency(name, column, verbatim=verbatim)
    is_new = reading is not None
    return Taken(name, ColumnKind.category, why, reading, is_new=is_new, verbatim=verbatim)


def _identifier(name: str, column: pd.Series[Any]) -> str | None:
    """Why a column of numbers is none to learn from; None: it may be."""
    values = column.to_numpy() if column.dtype.kind in "iu" else None
    if values is None or len(values) < _MIN_ID_ROWS or not _all_differ(values):
        return None
    named = name.lower() in _ID_NAMES or name.lower().endswith(("_id", "-id", " id", "uuid"))
    if named or name.endswith(("Id", "ID")):
        return "identifiers: each row has its own"
    # Of a part of the rows: those between them are in other parts.
    ordered = bool((np.diff(values) > 0).all() or (np.diff(values) < 0).all())
    dense = abs(int(values[-1]) - int(values[0])) <= 3 * len(values)
    return "row numbers: each follows the one before" if ordered and dense else None


def _all_differ(values: npt.NDArray[Any]) -> bool:
    """Most columns repeat within some rows, and are not sorted for it."""
    return all(len(np.unique(some)) == len(some) for some in (values[:100], values))


def _chosen(name: str, column: pd.Series[Any], kind: ColumnKind, verbatim: bool) -> Taken:
    key, why = f"data.columns.{name}={kind.value}", "chosen"
    texts, n_different = tried(cells.distinct(column)[1])
    if kind is ColumnKind.drop:
        return Taken(name, kind, why)
    if kind is ColumnKind.date:
        form, share = ("iso", 1.0) if column.dtype.kind == "M" else date_style(texts)
        _refuse(share == 0, key, texts, "dates")
        return Taken(name, kind, why, DateReading(name, form))
    if kind is ColumnKind.text:
        reading = learned_text(name, column)
        _refuse(reading is None, key, texts, "texts with words that repeat")
        return Taken(name, kind, why, reading)
    if kind is ColumnKind.category:
        return _category(name, column, n_different, verbatim=verbatim)
    if cells.holds_numbers(column):
        return Taken(name, kind, why)
    mark, unit, share = number_style(texts)
    _refuse(share == 0, key, texts, "numbers")
    return Taken(name, kind, why, NumberReading(name, mark, unit))


def _refuse(bad: bool, key: str, texts: list[str], what: str) -> None:
    if bad:
        example = f"but for example {texts[0][:60]!r}" if texts else "being empty"
        raise ConfigError(f"{key}: the column holds no {what}, {example}: choose another kind.")
