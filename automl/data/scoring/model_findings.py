"""Findings about a model and its table: important columns, confusion, calibration, giveaways.

The importance of a column is the rise of the loss when its cells, unencoded, are shuffled among the
rows. Giveaways are columns that tell the target by themselves: mostly the target in other words, or
facts known only after it. They are named and not left out; the user decides. Nothing is drawn here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from automl.data.columns import (
    CROSSING,
    Column,
    CombinedColumn,
    NumberColumn,
    TableColumns,
    source_column,
)
from automl.data.combined_columns import (
    candidate_cells,
    candidate_pairs,
    combine_rows,
    own_rows,
)
from automl.data.dataset import DatasetPart, Label, TableRows, Targets, spread_places
from automl.data.scoring.metrics import Floats
from automl.data.tables.frames import Frame, frame_from_records

MIN_REPEATS = 2
"""Fewest times that each column is shuffled in a limited time: one alone has no deviation."""
MIN_SHUFFLED_ROWS = 500
"""Fewest rows that are shuffled in a limited time, if there are as many."""


def repeats_in_time(
    n_repeats: int, seconds: float, now: Callable[[], float] = time.monotonic
) -> Iterator[int]:
    """Yield the numbers of at most `n_repeats` repeats, as long as another one fits into the time.

    `MIN_REPEATS` are yielded however long they take.
    """
    begun_seconds = now()
    for repeat in range(n_repeats):
        elapsed = now() - begun_seconds
        if repeat >= MIN_REPEATS and elapsed + elapsed / repeat > seconds:
            return
        yield repeat


def n_rows_in_time(n_rows: int, repeat_seconds: float, seconds: float) -> int:
    """Return how many of the rows can be shuffled `MIN_REPEATS` times, if one repeat with all rows
    takes `repeat_seconds`."""
    share = seconds / max(MIN_REPEATS * repeat_seconds, 1e-9)
    return int(min(n_rows, max(MIN_SHUFFLED_ROWS, share * n_rows)))


def permutation_importances(
    columns: TableColumns,
    rows: TableRows,
    loss: Callable[[TableRows], float],
    *,
    repeats: Iterable[int],
    seed: int,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Frame:
    """Return the mean rise of the loss by shuffling each column, and its standard deviation.

    Every column is shuffled once for each of the `repeats`, their numbers from 0. `on_progress` is
    called with the column's place, such as `column 3 of 8, repeat 1`. The frame has the columns
    `importance` and `std`, and the index `column`; the largest is first.
    """
    rng, before = np.random.default_rng(seed), loss(rows)
    own, before_pairs = columns.own, own_rows(columns, rows)
    kinds: dict[str, Sequence[Column]] = {"numbers": own.numbers, "codes": own.categories}
    places: dict[str, list[tuple[str, int]]] = {}
    for kind, group in kinds.items():
        for place, column in enumerate(group):
            places.setdefault(source_column(column), []).append((kind, place))
    rises: dict[str, list[float]] = {name: [] for name in places}
    for repeat in repeats:
        for number, (name, cells) in enumerate(places.items(), 1):
            on_progress(f"column {number} of {len(places)}, repeat {repeat + 1}")
            changed = _shuffled(before_pairs, cells, rng.permutation(len(rows)))
            rises[name].append(loss(combine_rows(columns, changed)) - before)
    found = [(float(np.mean(own)), float(np.std(own)), name) for name, own in rises.items()]
    found.sort(reverse=True)
    table = [{"column": name, "importance": mean, "std": std} for mean, std, name in found]
    return frame_from_records(table, ("column", "importance", "std"), index="column")


def _shuffled(
    rows: TableRows, places: Sequence[tuple[str, int]], order: npt.NDArray[np.int64]
) -> TableRows:
    """Return the rows with all that is made of one column of the table shuffled in one order."""
    cells = {kind: getattr(rows, kind).copy() for kind, _ in places}
    for kind, place in places:
        cells[kind][:, place] = cells[kind][order, place]
    return replace(rows, **cells)


OTHERS = "others"
N_BINS = 10


class ConfusionCounts(NamedTuple):
    """The numbers of rows of each class by the class that a model predicts for them."""

    names: tuple[str, ...]
    """The classes, or the most frequent of many; the last name may stand for all others."""
    n_rows: npt.NDArray[np.int64]
    """(C, C) numbers of rows: lines are true classes, columns predicted classes."""

    @property
    def shares(self) -> Floats:
        """Return (C, C) shares of the rows of each true class; 0 for a class without rows."""
        shares: Floats = self.n_rows / np.maximum(1, self.n_rows.sum(axis=1, keepdims=True))
        return shares


def confusion_matrix(
    predicted: Targets, y: Targets, classes: Sequence[Label], *, n_most: int
) -> ConfusionCounts:
    """Count the rows of each class by the class that a model predicts for them.

    `predicted` and `y` (N,) are places in `classes`. The `n_most` most frequent classes stand by
    themselves; all others are counted together.
    """
    frequent = np.argsort(-np.bincount(y, minlength=len(classes)), kind="stable")[:n_most]
    kept = np.sort(frequent)
    names = [str(classes[place]) for place in kept]
    if len(classes) > len(kept):
        names.append(OTHERS)
    places = np.full(len(classes), len(kept))
    places[kept] = np.arange(len(kept))
    n_rows = np.zeros((len(names), len(names)), np.int64)
    np.add.at(n_rows, (places[y], places[predicted]), 1)
    return ConfusionCounts(tuple(names), n_rows)


class CalibrationBins(NamedTuple):
    """The rows (and classes) in B bins of equal width by predicted probability; empty bins are left
    out."""

    predicted: Floats
    """(B,) mean predicted probability of a bin."""
    observed: Floats
    """(B,) share of a bin's rows that are of the class."""
    n_rows: npt.NDArray[np.int64]
    """(B,) number of rows (and classes) in a bin."""


def calibration_curve(probabilities: Floats, y: Targets) -> CalibrationBins:
    """Return the calibration of `probabilities` (N, C) for the true classes `y` (N,).

    With two classes, only the second is looked at. With more, each class against the rest is, all
    in the same bins.
    """
    is_class = y[:, None] == np.arange(probabilities.shape[1])
    predicted, hit = (_in_one_line(values) for values in (probabilities, is_class))
    bins = np.minimum((predicted * N_BINS).astype(np.int64), N_BINS - 1)
    n = np.bincount(bins, minlength=N_BINS)
    sums = [np.bincount(bins, values, minlength=N_BINS)[n > 0] for values in (predicted, hit)]
    return CalibrationBins(sums[0] / n[n > 0], sums[1] / n[n > 0], n[n > 0])


def _in_one_line(by_class: npt.NDArray[Any]) -> Floats:
    """Return the values (N, C) in one line; of two classes only the second, which says it all."""
    second = by_class[:, 1] if by_class.shape[1] == 2 else by_class
    line: Floats = second.ravel().astype(np.float64)
    return line


MIN_ROWS = 50
"""Fewest rows to look for giveaways in: with fewer, one column in many tells the target by
chance."""
MAX_ROWS = 2000
"""Largest number of rows that are looked at for giveaways."""
_SHARE = 0.999
"""Share of rows whose class a giveaway tells."""
_ALIKE = 0.9999
"""Rank correlation of a giveaway with a target of values."""


def find_giveaways(columns: TableColumns, part: DatasetPart) -> list[str]:
    """Return the names of the table's columns that nearly always tell the target of a row."""
    if len(part) < MIN_ROWS:
        return []
    sample = part.take(spread_places(len(part), MAX_ROWS))
    kinds: tuple[tuple[tuple[Column, ...], npt.NDArray[np.float64]], ...] = (
        (columns.own.numbers, sample.rows.numbers),
        (columns.own.categories, sample.rows.codes.astype(np.float64)),
    )
    tells = _tells_class if part.y.dtype == np.int64 else _tells_value
    found = [
        source_column(column)
        for group, values in kinds
        for place, column in enumerate(group)
        if tells(values[:, place], sample.y, ordered=isinstance(column, NumberColumn))
    ]
    return list(dict.fromkeys(found))


MAX_PAIRED = 16
"""Largest number of columns of each kind whose pairs are looked at for giveaways."""
N_FIRST_ROWS = 500
"""Rows that a pair has to tell first, which is faster than all of them."""


def find_pair_giveaways(
    columns: TableColumns, part: DatasetPart, giveaways: Sequence[str]
) -> list[CombinedColumn]:
    """Return the pairs of columns that together nearly always tell the target of a row.

    `giveaways` names the columns that do so by themselves, whose pairs are left out.
    """
    if len(part) < MIN_ROWS:
        return []
    names: set[str] = set()
    for kind in (columns.own.numbers, columns.own.categories):
        left = [column.name for column in kind if source_column(column) not in giveaways]
        names |= {*left[:MAX_PAIRED]}
    tells = _tells_class if part.y.dtype == np.int64 else _tells_value
    pairs = [pair for pair in candidate_pairs(columns) if {pair.left, pair.right} <= names]
    for n_rows in (N_FIRST_ROWS, MAX_ROWS):
        sample = part.take(spread_places(len(part), n_rows))
        pairs = [
            pair
            for pair, values in candidate_cells(columns, sample.rows, pairs)
            if tells(values, sample.y, ordered=pair.operation != CROSSING)
        ]
    return pairs


def _tells_class(
    values: npt.NDArray[np.float64], y: npt.NDArray[np.generic], *, ordered: bool
) -> bool:
    """Return whether each value goes with one class.

    Ordered values that hardly repeat tell the class if each class is one range of them.
    """
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
    """Return whether values and targets have the same order, or the reverse."""
    known = ~np.isnan(values)
    targets = y.astype(np.float64)[known]
    if not ordered or len(targets) < MIN_ROWS:
        return False
    ranks, target_ranks = (np.unique(v, return_inverse=True)[1] for v in (values[known], targets))
    if min(ranks.max(), target_ranks.max()) < MIN_ROWS / 5:
        return False
    return bool(abs(np.corrcoef(ranks, target_ranks)[0, 1]) >= _ALIKE)
