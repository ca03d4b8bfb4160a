"""A table for people: a row for each column, and the lines that a sweep begins with.

The lines say what was left out, and how the rows were split. `column_kinds.py` decides which kind a
column has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from automl.config import ColumnKind, DataConfig
from automl.data.columns import (
    PLAIN_NUMBERS_REASON,
    CategoryColumn,
    CombinedColumn,
    TableColumns,
    source_column,
)
from automl.data.dataset import ColumnSummary, Label, RowFold, Targets
from automl.data.features import are_digits_lost, n_features
from automl.data.folds import MAX_FOLDED_ROWS, find_untrained_classes

if TYPE_CHECKING:
    from automl.data.column_kinds import DetectedColumn
    from automl.data.preprocessing import Preprocessing
    from automl.data.split import RowSplit
    from automl.data.tables.table_sources import TableSource

_MAX_NAMED = 10


def column_overviews(
    columns: TableColumns, readings: Mapping[str, DetectedColumn], giveaways: Sequence[str]
) -> list[ColumnSummary]:
    """Return all columns in the table's order.

    `giveaways` names the columns that give the target away.
    """
    n_features = dict.fromkeys(readings, 0)
    for column in columns.own.all:
        own = column.n_codes if isinstance(column, CategoryColumn) else 1 + column.has_indicator
        n_features[source_column(column)] += own
    return [
        ColumnSummary(
            name,
            *_kind(column_reading, n_features[name]),
            f"{_why(column_reading, n_features[name])}{_GIVEAWAY_NOTE * (name in giveaways)}",
            column_reading.why == PLAIN_NUMBERS_REASON
            and n_features[name] > 0
            and name not in giveaways,
        )
        for name, column_reading in readings.items()
    ]


_GIVEAWAY_NOTE = "; gives the target away"


def _why(column_reading: DetectedColumn, n_features: int) -> str:
    left_out = column_reading.kind is not ColumnKind.drop and n_features == 0
    is_plain = column_reading.why == PLAIN_NUMBERS_REASON
    return "constant or empty" if left_out and is_plain else column_reading.why


def _kind(column_reading: DetectedColumn, n_features: int) -> tuple[str, int]:
    left_out = column_reading.kind is not ColumnKind.drop and n_features == 0
    return ("left out" if left_out else column_reading.kind.value), n_features


def column_notes(
    columns: TableColumns, readings: Mapping[str, DetectedColumn], giveaways: Sequence[str]
) -> list[str]:
    """Return the lines about columns that a sweep begins with.

    `giveaways` names the columns that give the target away.
    """
    dropped = [name for name, r in readings.items() if r.kind is ColumnKind.drop and r.is_new]
    by_user = [name for name, r in readings.items() if r.kind is ColumnKind.drop and not r.is_new]
    used = set(columns.sources)
    silent = [n for n, r in readings.items() if r.kind is not ColumnKind.drop and n not in used]
    lines = [
        *_line("left out, being row numbers or identifiers", dropped, _KEEP_REMEDY),
        *_line("left out, as data.columns says", by_user),
        *_line("left out, being constant, empty, or texts that do not repeat", silent),
    ]
    made = {r.name: readings[r.name] for r in columns.readings}
    for word, kind in (("dates", "date"), ("texts", "text"), ("numbers in texts", "number")):
        names = [name for name, r in made.items() if r.reading and r.reading.kind == kind]
        lines += _line(f"taken as {word}", names, _OTHER_KIND_REMEDY)
    frequent = [name for name, r in made.items() if r.reading and r.reading.kind == "frequency"]
    grouped = [c.name for c in columns.own.categories if c.has_other]
    lines += _line("rare categories are taken together in", grouped)
    lines += _line("of many categories, how frequent each is counts too", frequent)
    large = [name for name, r in readings.items() if r.n_too_large]
    lines += _line("infinite or too large numbers, which count as missing, are in", large)
    far = [c.name for c in columns.own.numbers if are_digits_lost(c.mean, c.scale)]
    lines += _line("too far from zero for 64 bits to tell all their values apart", far, _FAR_REMEDY)
    question = "gives the target away by itself: is it known beforehand?"
    lines += _line(question, giveaways, _DROP_REMEDY)
    return lines


def pair_notes(
    columns: TableColumns, giveaways: Sequence[CombinedColumn], target: str
) -> list[str]:
    """Return the lines about combined columns: those that models get, and those that give the
    target away."""
    names = columns.combined_names(target)
    lines = _line("combined columns", names, "data.combine=none leaves them out")
    if giveaways:
        sources = {column.name: source_column(column) for column in columns.own.all}
        question = "two columns together give the target away: are both known beforehand?"
        names, remedy = [pair.name for pair in giveaways], _DROP_REMEDY
        lines += _line(question, names, remedy, sources[giveaways[0].left])
    return lines


def _line(
    what: str, names: Sequence[str], remedy: str | None = None, remedied: str | None = None
) -> list[str]:
    """Return a line that names the columns; none without columns.

    `remedied` is the column that the remedy names; None: the first of `names`.
    """
    if not names:
        return []
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    hint = "" if remedy is None else f" ({remedy.format(remedied or names[0])})"
    return [f"{what}: {', '.join(names[:_MAX_NAMED])}{more}{hint}."]


_KEEP_REMEDY = "data.columns.{}=number takes it"
_OTHER_KIND_REMEDY = "data.columns.{}=category, drop, … decides otherwise"
_DROP_REMEDY = "data.columns.{}=drop leaves it out"
_FAR_REMEDY = "take a constant off {} in the table"
_TOLD_SHARE = 0.5
"""Share of a target's different values that 32 bits must tell apart, or it is worth a line."""


def digits_notes(target: str, y: Targets, mean: float, scale: float) -> list[str]:
    """Return the line about a target of values whose digits are lost in 64 bits as they stand, or
    in the 32 bits that models compute in, once they are centred and scaled; none for others."""
    if y.dtype == np.int64:
        return []
    if are_digits_lost(mean, scale):
        return [
            f"{target}: values of about {mean:.3g} that differ by {scale:.1g}, which 64 bits hold "
            f"in steps of {np.spacing(abs(mean)):.1g}: take a constant off them in the table."
        ]
    values = np.unique(y)
    n_told = len(np.unique(((values - mean) / scale).astype(np.float32)))
    if n_told >= _TOLD_SHARE * len(values):
        return []
    return [
        f"{target}: of {len(values):,} different values, models tell {n_told:,} apart, because "
        f"some lie far out (from {values[0]:.3g} to {values[-1]:.3g}): mend or remove those rows, "
        "or predict a logarithm."
    ]


MAX_NAMED = 8


def dataset_notes(
    source: TableSource,
    split: RowSplit,
    preprocessing: Preprocessing,
    config: DataConfig,
    giveaways: Sequence[str],
) -> list[str]:
    """Return what was left out and grouped of a table, and how its rows were split.

    `giveaways` names the columns that give the target away.
    """
    notes = []
    if source.preprocessing is None:
        columns = preprocessing.columns
        readings = preprocessing.column_readings
        notes += column_notes(columns, readings, giveaways)
        notes.append(_counts_note(columns, readings))
    parts = f"{len(split.train):,} train, {len(split.validation):,} validation"
    if split.folds:
        parts = f"{len(split.train):,} train and judge"
    test = f"{len(split.test):,} test" if len(split.test) else "none kept for a test"
    if config.test_path:
        test = f"test from {config.test_path}"
    stratified = ", each class in its share" if split.stratified else ""
    how = (
        "in order of data.time" if config.time else f"split by data.split_seed={config.split_seed}"
    )
    notes.append(f"{how}: {parts}, {test}{stratified}.")
    groups = source.related.groups
    if groups is not None and len(np.unique(groups)) == len(groups):
        notes.append(
            f"data.group={config.group}: each row is a group of its own, so that no rows are kept "
            "together. Name the column of what several rows share, or leave data.group out."
        )
    n_rows = len(split.train) + len(split.validation)
    if config.folds == "auto" and len(split.validation):
        why = f"over {MAX_FOLDED_ROWS:,} rows."
        if n_rows <= MAX_FOLDED_ROWS:
            why = "so many columns that a model takes minutes; data.folds=5 divides the rows."
        notes.append(f"data.folds=auto: a single hold-out, there being {why}")
    notes += folds_note(source.y[split.train], split.folds, source.target.classes)
    if not split.folds and source.target.classes:
        notes += _rare_note(source.y.astype(np.int64), split.train, source.target.classes)
    if len(split.left):
        notes.append(
            f"data.sweep_rows={config.sweep_rows:.12g}: trials train on {len(split.train):,} of "
            f"{len(split.train) + len(split.left):,} training rows."
        )
    return notes


_PLURALS = {
    ColumnKind.number: "numbers",
    ColumnKind.date: "dates",
    ColumnKind.text: "texts",
    ColumnKind.category: "categories",
}
_ALWAYS_COUNTED = (ColumnKind.number, ColumnKind.category)


def _counts_note(columns: TableColumns, readings: Mapping[str, DetectedColumn]) -> str:
    """Return the line that counts the file's columns by kind, and the features made of them."""
    counts = Counter(readings[name].kind for name in columns.sources)
    counted = [
        f"of {word}: {counts[kind]}"
        for kind, word in _PLURALS.items()
        if counts[kind] or kind in _ALWAYS_COUNTED
    ]
    return f"columns {', '.join(counted)}; features: {n_features(columns)}."


def _rare_note(
    y: npt.NDArray[np.int64], train: npt.NDArray[np.int64], classes: Sequence[Label]
) -> list[str]:
    """Return a line about the classes that no training row has, which can only be missed."""
    absent = np.setdiff1d(np.unique(y), np.unique(y[train]))
    if not len(absent):
        return []
    named = _named(absent.tolist(), classes)
    return [f"classes without a row that trains, having too few rows or groups: {named}."]


def _named(numbers: Sequence[int], classes: Sequence[Label]) -> str:
    names = ", ".join(str(classes[number]) for number in numbers[:MAX_NAMED])
    return f"{names}{', …' * (len(numbers) > MAX_NAMED)}"


def folds_note(y: Targets, folds: Sequence[RowFold], classes: Sequence[Label]) -> list[str]:
    """Return lines about the folds of a trial; none where there are no folds."""
    if not folds:
        return []
    n_repeats = folds[-1].repeat + 1
    n_folds = len(folds) // n_repeats
    divided = f"{n_folds} folds" + (f", from {n_repeats} divisions of the rows" * (n_repeats > 1))
    n_judged = len(np.unique(np.concatenate([fold.judged for fold in folds])))
    notes = [
        f"{divided}: a trial trains {len(folds)} models, and its value is out-of-fold: "
        f"{n_judged:,} rows are judged, each by a model that never saw it."
    ]
    if classes and (unknown := find_untrained_classes(folds, y.astype(np.int64))):
        notes.append(
            "classes that some folds are judged by and not trained on, having too few rows or "
            f"groups: {_named(unknown, classes)}."
        )
    return notes
