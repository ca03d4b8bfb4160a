"""Columns that tell the target by themselves, which most often are the target in other words, or
known only after it. They are named, not left out: that is for the user to say."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.data.columns import Column, Columns, NumberColumn, source_of
from automl.data.dataset import Part

MIN_ROWS = 50
"""Of fewer, one column in many tells the target by chance."""
MAX_ROWS = 2000
"""That are looked at."""
_SHARE = 0.999
_ALIKE = 0.9999
"""Of rank correlation."""


def giveaways(columns: Columns, part: Part) -> list[str]:
    """Names of the table's columns that nearly always tell the target of a row of `part`."""
    if len(part) < MIN_ROWS:
        return []
    places = np.linspace(0, len(part) - 1, min(MAX_ROWS, len(part))).astype(int)
    some = part.taking(places)
    kinds: tuple[tuple[tuple[Column, ...], npt.NDArray[np.float64]], ...] = (
        (columns.numbers, some.rows.numbers),
        (columns.categories, some.rows.codes.astype(np.float64)),
    )
    tells = _tells_class if part.y.dtype == np.int64 else _tells_value
    found = [
        source_of(column)
        for group, values in kinds
        for place, column in enumerate(group)
        if tells(values[:, place], some.y, ordered=isinstance(column, NumberColumn))
    ]
    return list(dict.fromkeys(found))


def _tells_class(
    values: npt.NDArray[np.float64], y: npt.NDArray[np.generic], *, ordered: bool
) -> bool:
    """Whether each value goes with one class, or, in order, the classes follow one another."""
    known = ~np.isnan(values)
    values, y = values[known], y[known]
    if len(values) < MIN_ROWS or len(np.unique(y)) < 2:
        return False
    order = np.lexsort((y, values))
    values, y = values[order], y[order]
    starts = np.flatnonzero(np.append(True, np.diff(values) != 0))
    if len(starts) <= len(values) / 5:  # values that repeat: the largest class of each
        _, cells = np.unique(y, return_inverse=True)
        n_classes = int(cells.max()) + 1
        group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
        counts = np.bincount(group * n_classes + cells, minlength=len(starts) * n_classes)
        right = counts.reshape(-1, n_classes).max(axis=1).sum()
        return bool(right >= _SHARE * len(y))
    return ordered and int((np.diff(y.astype(np.int64)) != 0).sum()) < len(np.unique(y))


def _tells_value(
    values: npt.NDArray[np.float64], y: npt.NDArray[np.generic], *, ordered: bool
) -> bool:
    """Whether values and targets are ordered alike, or the other way round."""
    known = ~np.isnan(values)
    targets = y.astype(np.float64)[known]
    if not ordered or len(targets) < MIN_ROWS:
        return False
    own, wanted = (np.unique(of, return_inverse=True)[1] for of in (values[known], targets))
    if min(own.max(), wanted.max()) < MIN_ROWS / 5:
        return False
    return bool(abs(np.corrcoef(own, wanted)[0, 1]) >= _ALIKE)
