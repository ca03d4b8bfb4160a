"""What each column of a table is taken for, and why: numbers, categories, dates, texts, or nothing.

Found on the training part, where `data.detect` is set; what `data.columns` says of a column goes
before. A table read without it has numbers and categories alone, as studies of before had.

Numbers made of the cells of a frame, as readings say; and readings of text columns learned.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.config.data import ColumnKind
from automl.data import cells
from automl.data.cells import are_verbatim
from automl.data.columns import (
    MAX_CATEGORIES,
    MAX_COUNTED,
    N_BUCKETS,
    DateReading,
    FrequencyReading,
    NumberReading,
    Reading,
    TextReading,
)
from automl.data.text_values import date_style, number_in, number_style, part_of_date, seconds_in
from automl.errors import ConfigError

Floats = npt.NDArray[np.float64]
MAX_TOPICS = 16
_MANY = 10
"""Different texts that say nothing: no slips, but a column that was written otherwise."""
MAX_TEXT_ROWS = 20_000
"""That topics are learned from."""
MAX_TEXT_CHARACTERS = 2000
"""Of a cell that are read: the rest of a novel tells little more of what it is about."""


def make_numbers(reading: Reading, column: pd.Series[Any]) -> dict[str, Floats]:
    """(N,) of each of the reading's parts; NaN where a cell says nothing.

    Raises ConfigError for a column of which no cell does, where they did in training.
    """
    match reading:
        case DateReading():
            return _dates(reading, column)
        case NumberReading():
            return {"number": _numbers(reading, column)}
        case FrequencyReading():
            codes, texts = cells.spellings(column, verbatim=reading.verbatim)
            logs = [math.log1p(reading.counts.get(text, 1)) for text in texts]
            return {"frequency": np.array(logs)[codes]}
        case TextReading():
            topics = _topics(reading, column)
            return dict(zip(reading.parts, topics.T, strict=True))


def learned_frequency(
    name: str, column: pd.Series[Any], *, verbatim: bool = False
) -> FrequencyReading:
    """Of the training part's cells; `verbatim`: they are codes."""
    codes, texts = cells.spellings(column, verbatim=verbatim)
    counts = Counter(
        dict(zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True))
    )
    most = {text: n for text, n in counts.most_common(MAX_COUNTED) if n > 1}
    return FrequencyReading(name, most, verbatim)


def learned_text(name: str, column: pd.Series[Any]) -> TextReading | None:
    """Of the training part's cells; None: they hold no words."""
    from sklearn.decomposition import TruncatedSVD

    texts = _texts(column)
    if len(texts) > MAX_TEXT_ROWS:
        places = np.random.default_rng(0).permutation(len(texts))[:MAX_TEXT_ROWS]
        texts = [texts[place] for place in np.sort(places)]
    counts = _counted(texts)
    n_with = np.bincount(counts.indices, minlength=N_BUCKETS)
    n_words = int((n_with > 1).sum())
    n_topics = min(MAX_TOPICS, n_words - 1, len(texts) - 1)
    if n_topics < 1:
        return None
    idf = np.where(n_with > 1, np.log((1 + len(texts)) / (1 + n_with)) + 1, 0.0)
    weighed = _weighed(counts, idf)
    svd = TruncatedSVD(n_topics, random_state=0).fit(weighed)
    return TextReading.of(name, idf, svd.components_)


def _dates(reading: DateReading, column: pd.Series[Any]) -> dict[str, Floats]:
    if column.dtype.kind in "mM":
        seconds = cells.numbers(column)
    else:
        seconds = _each(column, lambda cell: seconds_in(str(cell), reading.format))
    _check_says(column, seconds, "dates")
    known = ~np.isnan(seconds)
    whole = np.where(known, seconds, 0.0)
    return {part: np.where(known, part_of_date(whole, part), np.nan) for part in reading.parts}


def _numbers(reading: NumberReading, column: pd.Series[Any]) -> Floats:
    if pd.api.types.is_numeric_dtype(column) and column.dtype.kind in "iuf":
        return cells.numbers(column)
    numbers = _each(column, lambda cell: number_of_cell(reading, cell))
    _check_says(column, numbers, "numbers")
    return np.where(np.abs(numbers) <= cells.LARGEST, numbers, np.nan)


def number_of_cell(reading: NumberReading, cell: object) -> float | None:
    """None: it says none."""
    if type(cell) in (int, float):
        return float(cell)  # type: ignore[arg-type]
    return number_in(str(cell), reading.mark, reading.unit)


def _each(column: pd.Series[Any], say: Callable[[Any], float | None]) -> Floats:
    """(N,) of what the cells say, asked once for each different one."""
    codes, values = cells.distinct_cells(column)
    said = [say(value) for value in values]
    numbers = [math.nan if number is None else number for number in [*said, None]]
    found: Floats = np.array(numbers, dtype=np.float64)[codes]
    return found


def _check_says(column: pd.Series[Any], found: Floats, what: str) -> None:
    if not np.isnan(found).all():
        return
    seen = [text for text in cells.spellings(column)[1] if text]
    if len(seen) >= _MANY:
        raise ConfigError(
            f"Column {column.name} held {what} in training and now holds none, but for example "
            f"{seen[0][:60]!r}: give it as it was."
        )


def _topics(reading: TextReading, column: pd.Series[Any]) -> Floats:
    idf, components = reading.arrays
    topics: Floats = np.asarray(_weighed(_counted(_texts(column)), idf) @ components.T)
    return topics


def _texts(column: pd.Series[Any]) -> list[str]:
    missing = column.isna().to_numpy()
    cells_ = zip(column.tolist(), missing.tolist(), strict=True)
    return ["" if gone else str(cell)[:MAX_TEXT_CHARACTERS] for cell, gone in cells_]


def _counted(texts: list[str]) -> Any:
    """(N, N_BUCKETS) sparse: how often the words of each bucket are in a text."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(n_features=N_BUCKETS, alternate_sign=False, norm=None)
    return vectorizer.transform(texts)


def _weighed(counts: Any, idf: Floats) -> Any:
    """Term frequencies by how rare the words are, each text of length 1 (Salton & Buckley 1988)."""
    from sklearn.preprocessing import normalize

    weighed = counts.copy()
    weighed.data = (1 + np.log(weighed.data)) * idf[weighed.indices]
    return normalize(weighed)


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
class ColumnReading:
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


def read_columns(
    frame: pd.DataFrame,
    choices: Mapping[str, str],
    *,
    detect: bool,
    detect_verbatim: bool = False,
) -> dict[str, ColumnReading]:
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
    return [] if column.dtype.kind in "iufbmM" else cells.distinct_cells(column)[1]


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


def _plain(name: str, column: pd.Series[Any], verbatim: bool) -> ColumnReading:
    if verbatim:
        return _codes(name, column)
    if cells.holds_numbers(column):
        return ColumnReading(name, ColumnKind.number, PLAIN_NUMBERS)
    return ColumnReading(name, ColumnKind.category, "texts")


def _found(name: str, column: pd.Series[Any], verbatim: bool) -> ColumnReading:
    if column.dtype.kind == "M":
        return ColumnReading(name, ColumnKind.date, "times", DateReading(name, "iso"), is_new=True)
    if why := _identifier(name, column):
        return ColumnReading(name, ColumnKind.drop, why, is_new=True)
    if column.dtype.kind in "iufm":
        return ColumnReading(name, ColumnKind.number, PLAIN_NUMBERS)
    values = cells.distinct_cells(column)[1]
    if not verbatim and cells.all_numbers(values):
        return ColumnReading(name, ColumnKind.number, PLAIN_NUMBERS)
    texts, n_different = try_reading(values)
    has_digits = sum(any(map(str.isdigit, text[:40])) for text in texts) >= len(texts) / 2
    return (
        (has_digits and _date(name, texts))
        or (has_digits and not verbatim and _number(name, texts, n_different))
        or (not (has_digits and verbatim) and _text(name, column, texts, n_different))
        or (_codes(name, column) if verbatim else _category(name, column, n_different))
    )


def _codes(name: str, column: pd.Series[Any]) -> ColumnReading:
    values = cells.distinct_cells(column)[1]
    example = next((value for value in values if are_verbatim([value])), values[0])
    taken = _category(name, column, len(values), verbatim=True)
    why = f"codes such as {example!r}, as they are written: {taken.why}"
    return replace(taken, why=why, is_new=True)


def try_reading(values: Sequence[Any]) -> tuple[list[str], int]:
    """Some of the different cells, and how many there are."""
    places = np.linspace(0, len(values) - 1, min(MAX_TRIED, len(values))).astype(int)
    return [str(values[place]) for place in places], len(values)


def _date(name: str, texts: list[str]) -> ColumnReading | None:
    form, share = date_style(texts)
    if share < _NEARLY_ALL or len(texts) < 3:
        return None
    why = f"dates such as {texts[0]!r} ({'ISO 8601' if form == 'iso' else form})"
    return ColumnReading(name, ColumnKind.date, why, DateReading(name, form), is_new=True)


def _number(name: str, texts: list[str], n_different: int) -> ColumnReading | None:
    mark, unit, share = number_style(texts)
    if share < _MOSTLY or (share < 1 and n_different <= _MIN_NUMBERS):
        return None
    beside = f" {unit}" if unit else ""
    says = {text: number_in(text, mark, unit) is not None for text in texts}
    why = f"numbers in texts such as {next(text for text in texts if says[text])!r}"
    other = next((text for text in texts if not says[text]), None)
    why += "" if other is None else f"; others, such as {other[:30]!r}, count as missing"
    why += f" (in{beside})" if beside else ""
    return ColumnReading(name, ColumnKind.number, why, NumberReading(name, mark, unit), is_new=True)


def _text(
    name: str, column: pd.Series[Any], texts: list[str], n_different: int
) -> ColumnReading | None:
    n_words = float(np.mean([len(text[:1000].split()) for text in texts])) if texts else 0.0
    n_rows = int(column.notna().sum())
    if n_words < _MIN_WORDS or n_different <= _MIN_TEXTS or n_different < n_rows / 2:
        return None
    reading = learned_text(name, column)
    why = f"texts of some {n_words:.0f} words"
    return (
        None if reading is None else ColumnReading(name, ColumnKind.text, why, reading, is_new=True)
    )


def _category(
    name: str, column: pd.Series[Any], n_different: int, *, verbatim: bool = False
) -> ColumnReading:
    why, reading = f"{n_different:,} different texts", None
    if MAX_CATEGORIES < n_different < column.notna().sum():
        why += ": the most frequent, and how frequent each is"
        reading = learned_frequency(name, column, verbatim=verbatim)
    is_new = reading is not None
    return ColumnReading(name, ColumnKind.category, why, reading, is_new=is_new, verbatim=verbatim)


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


def _chosen(name: str, column: pd.Series[Any], kind: ColumnKind, verbatim: bool) -> ColumnReading:
    key, why = f"data.columns.{name}={kind.value}", "chosen"
    texts, n_different = try_reading(cells.distinct_cells(column)[1])
    if kind is ColumnKind.drop:
        return ColumnReading(name, kind, why)
    if kind is ColumnKind.date:
        form, share = ("iso", 1.0) if column.dtype.kind == "M" else date_style(texts)
        _refuse(share == 0, key, texts, "dates")
        return ColumnReading(name, kind, why, DateReading(name, form))
    if kind is ColumnKind.text:
        reading = learned_text(name, column)
        _refuse(reading is None, key, texts, "texts with words that repeat")
        return ColumnReading(name, kind, why, reading)
    if kind is ColumnKind.category:
        return _category(name, column, n_different, verbatim=verbatim)
    if cells.holds_numbers(column):
        return ColumnReading(name, kind, why)
    mark, unit, share = number_style(texts)
    _refuse(share == 0, key, texts, "numbers")
    return ColumnReading(name, kind, why, NumberReading(name, mark, unit))


def _refuse(bad: bool, key: str, texts: list[str], what: str) -> None:
    if bad:
        example = f"but for example {texts[0][:60]!r}" if texts else "being empty"
        raise ConfigError(f"{key}: the column holds no {what}, {example}: choose another kind.")
