"""Numbers made of the cells of a frame, as readings say; and readings of text columns learned."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.data import cells
from automl.data.readings import (
    MAX_COUNTED,
    N_BUCKETS,
    DateReading,
    FrequencyReading,
    NumberReading,
    Reading,
    TextReading,
)
from automl.data.said import number_in, part_of_date, seconds_in
from automl.errors import ConfigError

Floats = npt.NDArray[np.float64]
MAX_TOPICS = 16
_MANY = 10
"""Different texts that say nothing: no slips, but a column that was written otherwise."""
MAX_TEXT_ROWS = 20_000
"""That topics are learned from."""
MAX_TEXT_CHARACTERS = 2000
"""Of a cell that are read: the rest of a novel tells little more of what it is about."""


def made(reading: Reading, column: pd.Series[Any]) -> dict[str, Floats]:
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
    codes, values = cells.distinct(column)
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
