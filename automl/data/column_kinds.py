"""The kind of each column of a table, and the reason: numbers, categories, dates, texts, or drop.

Kinds are detected on the training part by `DataRule.detect`; `data.columns` overrides them.
Without detection a table has numbers and categories alone, as in older studies. The file also
learns how texts and frequencies become numbers, and applies these readings to frames; the readings
themselves are plain values in `columns.py`.
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
    MAX_COUNTED_CATEGORIES,
    N_WORD_BUCKETS,
    PLAIN_NUMBERS_REASON,
    DateReading,
    FrequencyReading,
    NumberReading,
    Reading,
    TextReading,
)
from automl.data.dataset import Places, spread_places
from automl.data.text_values import (
    MAX_TEXT_CHARACTERS,
    date_part,
    detect_date_style,
    detect_number_style,
    parse_text_number,
    parse_text_seconds,
)
from automl.errors import ConfigError

Floats = npt.NDArray[np.float64]
MAX_TOPICS = 16
MAX_TEXT_ROWS = 20_000
"""Largest number of rows that topics are learned from."""


def make_numbers(reading: Reading, column: pd.Series[Any]) -> dict[str, Floats]:
    """Return (N,) numbers for each part of the reading; NaN where a cell says nothing."""
    match reading:
        case DateReading():
            return _dates(reading, column)
        case NumberReading():
            return {"number": _numbers(reading, column)}
        case FrequencyReading():
            spelled = cells.column_spellings(column, verbatim=reading.verbatim)
            return {"frequency": read_frequency(reading, *spelled)}
        case TextReading():
            topics = _topics(reading, column)
            return dict(zip(reading.parts, topics.T, strict=True))


def read_frequency(
    reading: FrequencyReading, codes: npt.NDArray[np.intp], texts: Sequence[str]
) -> Floats:
    """Return (N,) how frequent each cell is in training; the cells are `texts[codes]`."""
    logs = [math.log1p(reading.counts.get(text, 1)) for text in texts]
    return np.array(logs)[codes]


def read_levels(
    reading: FrequencyReading, codes: npt.NDArray[np.intp], texts: Sequence[str]
) -> Floats:
    """Return the (N,) levels of categories, which target-encoded columns hold."""
    levels = [reading.levels.get(text, len(reading.levels)) for text in texts]
    return np.array(levels, dtype=np.float64)[codes]


def learn_frequency(
    name: str, column: pd.Series[Any], *, verbatim: bool = False
) -> FrequencyReading:
    """Return how frequent each category is in the training part; `verbatim`: cells are codes."""
    codes, texts = cells.column_spellings(column, verbatim=verbatim)
    counts = Counter(
        dict(zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True))
    )
    most = {text: n for text, n in counts.most_common(MAX_COUNTED_CATEGORIES) if n > 1}
    return FrequencyReading(name, most, verbatim)


def _learn_text(name: str, column: pd.Series[Any]) -> TextReading | None:
    """Return the topics of the training part's texts, or None if the texts repeat no words."""
    from sklearn.decomposition import TruncatedSVD

    texts = _texts(column)
    if len(texts) > MAX_TEXT_ROWS:
        places = np.random.default_rng(0).permutation(len(texts))[:MAX_TEXT_ROWS]
        texts = [texts[place] for place in np.sort(places)]
    counts = _counted(texts)
    n_with = np.bincount(counts.indices, minlength=N_WORD_BUCKETS)
    n_words = int((n_with > 1).sum())
    n_topics = min(MAX_TOPICS, n_words - 1, len(texts) - 1)
    if n_topics < 1:
        return None
    idf = np.where(n_with > 1, np.log((1 + len(texts)) / (1 + n_with)) + 1, 0.0)
    weighed = _weighed(counts, idf)
    svd = TruncatedSVD(n_topics, random_state=0).fit(weighed)
    return TextReading.from_arrays(name, idf, svd.components_)


def _dates(reading: DateReading, column: pd.Series[Any]) -> dict[str, Floats]:
    if column.dtype.kind in "mM":
        seconds = cells.column_to_numbers(column)
    else:
        seconds = _each(column, lambda cell: parse_text_seconds(str(cell), reading.format))
    known = ~np.isnan(seconds)
    whole = np.where(known, seconds, 0.0)
    return {part: np.where(known, date_part(whole, part), np.nan) for part in reading.parts}


def _numbers(reading: NumberReading, column: pd.Series[Any]) -> Floats:
    if pd.api.types.is_numeric_dtype(column) and column.dtype.kind in "iuf":
        return cells.column_to_numbers(column)
    numbers = _each(column, lambda cell: read_cell_number(reading, cell))
    return np.where(np.abs(numbers) <= cells.LARGEST_NUMBER, numbers, np.nan)


def read_cell_number(reading: NumberReading, cell: object) -> float | None:
    """Return the number that a cell says by the reading, or None if it says none."""
    if type(cell) in (int, float):
        return float(cell)  # type: ignore[arg-type]
    return parse_text_number(str(cell), reading.mark, reading.unit)


def _each(column: pd.Series[Any], parse: Callable[[Any], float | None]) -> Floats:
    """Return the (N,) numbers of the cells; each different cell is parsed once."""
    codes, values = cells.distinct_cells(column)
    parsed = [parse(value) for value in values]
    numbers = [math.nan if number is None else number for number in [*parsed, None]]
    found: Floats = np.array(numbers, dtype=np.float64)[codes]
    return found


def _topics(reading: TextReading, column: pd.Series[Any]) -> Floats:
    idf, components = reading.arrays
    topics: Floats = np.asarray(_weighed(_counted(_texts(column)), idf) @ components.T)
    return topics


def _texts(column: pd.Series[Any]) -> list[str]:
    missing = column.isna().to_numpy()
    cells_ = zip(column.tolist(), missing.tolist(), strict=True)
    return ["" if is_missing else str(cell)[:MAX_TEXT_CHARACTERS] for cell, is_missing in cells_]


def _counted(texts: list[str]) -> Any:
    """Return (N, N_BUCKETS), sparse: how often the words of each bucket are in each text."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(n_features=N_WORD_BUCKETS, alternate_sign=False, norm=None)
    return vectorizer.transform(texts)


def _weighed(counts: Any, idf: Floats) -> Any:
    """Return term frequencies weighed by how rare the words are (Salton & Buckley 1988).

    Each text, a row, has length 1.
    """
    from sklearn.preprocessing import normalize

    weighed = counts.copy()
    weighed.data = (1 + np.log(weighed.data)) * idf[weighed.indices]
    return normalize(weighed)


MAX_TRIED = 300
"""Largest number of different cells of a column that are looked at, evenly over the table."""
_NEARLY_ALL = 0.95
_MOSTLY = 0.9
_MIN_NUMBERS = 20
"""A column with texts among its numbers is a number column only if it holds more different cells
than this."""
_MIN_WORDS = 3.0
_MIN_TEXTS = 64
_ID_NAMES = frozenset(["id", "uuid", "guid", "key", "index", "idx", "rowid", "row_id", "nr", "no"])
_MIN_ID_ROWS = 20


@dataclass(frozen=True)
class DetectedColumn:
    """The kind of a column, the reason for it, and the reading that makes numbers of its cells."""

    name: str
    kind: ColumnKind
    why: str
    """The reason for the kind, in words."""
    reading: Reading | None = None
    """The reading that makes numbers of the cells; None: they are plain numbers, or categories."""
    is_new: bool = False
    """Whether older studies, which had no detection, took the column for another kind."""
    verbatim: bool = False
    """Whether the column holds codes, which stay as they are written."""
    n_too_large: int = 0
    """Number of infinite or too large cells in a column of plain numbers; they are missing."""


def read_columns(
    frame: pd.DataFrame,
    choices: Mapping[str, str],
    *,
    detect: bool,
    detect_verbatim: bool = False,
    rows: Places | None = None,
) -> dict[str, DetectedColumn]:
    """Return how each column is read, by name, in the table's order, by the `rows` or all.

    `choices` are the kinds that the user chose, by column. Raises ConfigError for a choice that the
    cells do not allow.
    """
    refuse_unknown(choices, [str(name) for name in frame.columns])
    readings = {}
    for name in frame.columns:
        column, choice = take_rows(frame[name], rows), choices.get(name)
        verbatim = detect_verbatim and are_verbatim(distinct_texts(column))
        if choice is not None:
            readings[name] = _chosen_kind(name, column, ColumnKind(choice), verbatim)
        else:
            decide = _detected_kind if detect else _plain_kind
            readings[name] = decide(name, column, verbatim)
        if column.dtype.kind == "f" and (n_too_large := cells.count_too_large(column)):
            why = f"{readings[name].why}; {n_too_large:,} infinite or too large, so missing"
            readings[name] = replace(readings[name], why=why, n_too_large=n_too_large)
    return readings


def take_rows(column: pd.Series[Any], rows: Places | None) -> pd.Series[Any]:
    """Return the cells of a column at these places; None: all."""
    return column if rows is None else column.iloc[rows]


def distinct_texts(column: pd.Series[Any]) -> list[Any]:
    """Return the different cells of a column that may hold texts; none for numbers and times."""
    return [] if column.dtype.kind in "iufbmM" else cells.distinct_cells(column)[1]


def refuse_unknown(choices: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise ConfigError for a choice whose name is not among the columns' `names`."""
    for name in choices:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"data.columns.{name}={choices[name]}: the table has no such column to learn from."
                f"{hint}"
            )


def _plain_kind(name: str, column: pd.Series[Any], verbatim: bool) -> DetectedColumn:
    if verbatim:
        return _codes(name, column)
    if cells.holds_numbers(column):
        return DetectedColumn(name, ColumnKind.number, PLAIN_NUMBERS_REASON)
    return DetectedColumn(name, ColumnKind.category, "texts")


def _detected_kind(name: str, column: pd.Series[Any], verbatim: bool) -> DetectedColumn:
    if column.dtype.kind == "M":
        return DetectedColumn(name, ColumnKind.date, "times", DateReading(name, "iso"), is_new=True)
    if why := _identifier(name, column):
        return DetectedColumn(name, ColumnKind.drop, why, is_new=True)
    if column.dtype.kind in "iufm":
        return DetectedColumn(name, ColumnKind.number, PLAIN_NUMBERS_REASON)
    values = cells.distinct_cells(column)[1]
    if not verbatim and cells.are_all_numbers(values):
        return DetectedColumn(name, ColumnKind.number, PLAIN_NUMBERS_REASON)
    texts, n_different = sample_cell_texts(values)
    has_digits = sum(any(map(str.isdigit, text[:40])) for text in texts) >= len(texts) / 2
    return (
        (has_digits and _detect_date(name, texts))
        or (has_digits and not verbatim and _detect_number(name, texts, n_different))
        or (not (has_digits and verbatim) and _detect_text(name, column, texts, n_different))
        or (_codes(name, column) if verbatim else _category(name, column, n_different))
    )


def _codes(name: str, column: pd.Series[Any]) -> DetectedColumn:
    values = cells.distinct_cells(column)[1]
    example = next((value for value in values if are_verbatim([value])), values[0])
    taken = _category(name, column, len(values), verbatim=True)
    why = f"codes such as {example!r}, as they are written: {taken.why}"
    return replace(taken, why=why, is_new=True)


def sample_cell_texts(values: Sequence[Any]) -> tuple[list[str], int]:
    """Return at most MAX_TRIED of the different cells, as texts, and how many there are in all."""
    places = spread_places(len(values), MAX_TRIED)
    return [str(values[place]) for place in places], len(values)


def _detect_date(name: str, texts: list[str]) -> DetectedColumn | None:
    form, share = detect_date_style(texts)
    if share < _NEARLY_ALL or len(texts) < 3:
        return None
    why = f"dates such as {texts[0]!r} ({'ISO 8601' if form == 'iso' else form})"
    return DetectedColumn(name, ColumnKind.date, why, DateReading(name, form), is_new=True)


def _detect_number(name: str, texts: list[str], n_different: int) -> DetectedColumn | None:
    mark, unit, share = detect_number_style(texts)
    if share < _MOSTLY or (share < 1 and n_different <= _MIN_NUMBERS):
        return None
    beside = f" {unit}" if unit else ""
    says = {text: parse_text_number(text, mark, unit) is not None for text in texts}
    why = f"numbers in texts such as {next(text for text in texts if says[text])!r}"
    other = next((text for text in texts if not says[text]), None)
    why += "" if other is None else f"; others, such as {other[:30]!r}, count as missing"
    why += f" (in{beside})" if beside else ""
    return DetectedColumn(
        name, ColumnKind.number, why, NumberReading(name, mark, unit), is_new=True
    )


def _detect_text(
    name: str, column: pd.Series[Any], texts: list[str], n_different: int
) -> DetectedColumn | None:
    n_words = float(np.mean([len(text[:1000].split()) for text in texts])) if texts else 0.0
    n_rows = int(column.notna().sum())
    if n_words < _MIN_WORDS or n_different <= _MIN_TEXTS or n_different < n_rows / 2:
        return None
    reading = _learn_text(name, column)
    why = f"texts of some {n_words:.0f} words"
    return (
        None
        if reading is None
        else DetectedColumn(name, ColumnKind.text, why, reading, is_new=True)
    )


def _category(
    name: str, column: pd.Series[Any], n_different: int, *, verbatim: bool = False
) -> DetectedColumn:
    why, reading = f"{n_different:,} different texts", None
    if MAX_CATEGORIES < n_different < column.notna().sum():
        why += ": the most frequent, and how frequent each is"
        reading = learn_frequency(name, column, verbatim=verbatim)
    is_new = reading is not None
    return DetectedColumn(name, ColumnKind.category, why, reading, is_new=is_new, verbatim=verbatim)


def _identifier(name: str, column: pd.Series[Any]) -> str | None:
    """Return why a column of numbers is an identifier, not to learn from; None if it is not."""
    values = column.to_numpy() if column.dtype.kind in "iu" else None
    if values is None or len(values) < _MIN_ID_ROWS or not _all_differ(values):
        return None
    named = name.lower() in _ID_NAMES or name.lower().endswith(("_id", "-id", " id", "uuid"))
    if named or name.endswith(("Id", "ID")):
        return "identifiers: each row has its own"
    # These are a part of the rows, so numbers may be missing between them: they are in other parts.
    ordered = bool((np.diff(values) > 0).all() or (np.diff(values) < 0).all())
    dense = abs(int(values[-1]) - int(values[0])) <= 3 * len(values)
    return "row numbers: each follows the one before" if ordered and dense else None


def _all_differ(values: npt.NDArray[Any]) -> bool:
    """Return whether no value repeats.

    The first rows are tried first: most columns repeat there, so that the whole column need not be
    sorted.
    """
    return all(len(np.unique(part)) == len(part) for part in (values[:100], values))


def _chosen_kind(
    name: str, column: pd.Series[Any], kind: ColumnKind, verbatim: bool
) -> DetectedColumn:
    key, why = f"data.columns.{name}={kind.value}", "chosen"
    texts, n_different = sample_cell_texts(cells.distinct_cells(column)[1])
    if kind is ColumnKind.drop:
        return DetectedColumn(name, kind, why)
    if kind is ColumnKind.date:
        form, share = ("iso", 1.0) if column.dtype.kind == "M" else detect_date_style(texts)
        _refuse(share == 0, key, texts, "dates")
        return DetectedColumn(name, kind, why, DateReading(name, form))
    if kind is ColumnKind.text:
        reading = _learn_text(name, column)
        _refuse(reading is None, key, texts, "texts with words that repeat")
        return DetectedColumn(name, kind, why, reading)
    if kind is ColumnKind.category:
        return _category(name, column, n_different, verbatim=verbatim)
    if cells.holds_numbers(column):
        return DetectedColumn(name, kind, why)
    mark, unit, share = detect_number_style(texts)
    _refuse(share == 0, key, texts, "numbers")
    return DetectedColumn(name, kind, why, NumberReading(name, mark, unit))


def _refuse(bad: bool, key: str, texts: list[str], what: str) -> None:
    if bad:
        example = f"but for example {texts[0][:60]!r}" if texts else "being empty"
        raise ConfigError(f"{key}: the column holds no {what}, {example}: choose another kind.")
