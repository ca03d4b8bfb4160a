"""How much a model goes by each column: its loss with the column's cells shuffled among the rows.

The cells are shuffled as they were before any encoding, a category's features together.

What predictions show of a model, as figures that are drawn: errors by class, and calibration.

Columns that tell the target by themselves, which most often are the target in other words, or
known only after it. They are named, not left out: that is for the user to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from automl.data.columns import Column, NumberColumn, TableColumns, source_of
from automl.data.dataset import DatasetPart, Label, TableRows, Targets
from automl.data.scoring.metrics import Floats
from automl.data.tables.frames import Frame, frame_of


def importances(
    columns: TableColumns,
    rows: TableRows,
    loss: Callable[[TableRows], float],
    *,
    n_repeats: int,
    seed: int,
) -> Frame:
    """By `column`: `importance`, the mean rise of the loss, and its `std`; the largest first."""
    rng, before = np.random.default_rng(seed), loss(rows)
    found: list[tuple[float, float, str]] = []
    kinds: dict[str, Sequence[Column]] = {"numbers": columns.numbers, "codes": columns.categories}
    places: dict[str, list[tuple[str, int]]] = {}
    for kind, group in kinds.items():
        for place, column in enumerate(group):
            places.setdefault(source_of(column), []).append((kind, place))
    for name, own in places.items():
        orders = (rng.permutation(len(rows)) for _ in range(n_repeats))
        rises = [loss(_shuffled(rows, own, order)) - before for order in orders]
        found.append((float(np.mean(rises)), float(np.std(rises)), name))
    found.sort(reverse=True)
    table = [{"column": name, "importance": mean, "std": std} for mean, std, name in found]
    return frame_of(table, ("column", "importance", "std"), index="column")


def _shuffled(
    rows: TableRows, places: Sequence[tuple[str, int]], order: npt.NDArray[np.int64]
) -> TableRows:
    """With all that is made of one column of the table shuffled alike."""
    cells = {kind: getattr(rows, kind).copy() for kind, _ in places}
    for kind, place in places:
        cells[kind][:, place] = cells[kind][order, place]
    return replace(rows, **cells)


OTHERS = "others"
N_BINS = 10


class ConfusionCounts(NamedTuple):
    """What rows of each class were taken for."""

    names: tuple[str, ...]
    """The classes, the most frequent of many; the last may stand for all others."""
    n_rows: npt.NDArray[np.int64]
    """(C, C): of the class by line, taken for the class by column."""

    @property
    def shares(self) -> Floats:
        """Likewise, of the rows of each class; 0 for one without rows."""
        shares: Floats = self.n_rows / np.maximum(1, self.n_rows.sum(axis=1, keepdims=True))
        return shares


def confusion(
    taken: Targets, y: Targets, classes: Sequence[Label], *, n_most: int
) -> ConfusionCounts:
    """`taken` and `y` (N,) are places in `classes`; up to `n_most` of these stand by themselves."""
    frequent = np.argsort(-np.bincount(y, minlength=len(classes)), kind="stable")[:n_most]
    kept = np.sort(frequent)
    names = [str(classes[place]) for place in kept]
    if len(classes) > len(kept):
        names.append(OTHERS)
    places = np.full(len(classes), len(kept))
    places[kept] = np.arange(len(kept))
    n_rows = np.zeros((len(names), len(names)), np.int64)
    np.add.at(n_rows, (places[y], places[taken]), 1)
    return ConfusionCounts(tuple(names), n_rows)


class CalibrationBins(NamedTuple):
    """Of rows (and classes) with like probabilities: bins of equal width, less the empty ones."""

    said: Floats
    """(B,) mean probability."""
    seen: Floats
    """(B,) share of those that are of the class."""
    n: npt.NDArray[np.int64]
    """(B,) how many they are."""


def calibration(probabilities: Floats, y: Targets) -> CalibrationBins:
    """Of two classes that of the second; of more each class against the rest, all together.
    `probabilities` (N, C)."""
    is_of = y[:, None] == np.arange(probabilities.shape[1])
    said, hit = (_told(each) for each in (probabilities, is_of))
    bins = np.minimum((said * N_BINS).astype(np.int64), N_BINS - 1)
    n = np.bincount(bins, minlength=N_BINS)
    sums = [np.bincount(bins, values, minlength=N_BINS)[n > 0] for values in (said, hit)]
    return CalibrationBins(sums[0] / n[n > 0], sums[1] / n[n > 0], n[n > 0])


def _told(each: npt.NDArray[Any]) -> Floats:
    """Of (N, C) what is looked at, as one line; of two classes the first tells nothing more."""
    told: Floats = (each[:, 1] if each.shape[1] == 2 else each).ravel().astype(np.float64)
    return told


MIN_ROWS = 50
"""Of fewer, one column in many tells the target by chance."""
MAX_ROWS = 2000
"""That are looked at."""
_SHARE = 0.999
_ALIKE = 0.9999
"""Of rank correlation."""


def find_giveaways(columns: TableColumns, part: DatasetPart) -> list[str]:
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
