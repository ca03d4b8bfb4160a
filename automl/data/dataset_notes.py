"""Lines for people about a table: what was left out, and how its rows were split.

They are printed when a sweep begins. Lines about single columns are in `column_overview.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from automl.config import DataConfig
from automl.data.columns import source_column
from automl.data.dataset import Label, RowFold, Targets
from automl.data.features import n_features
from automl.data.folds import MAX_FOLDED_ROWS, find_untrained_classes

if TYPE_CHECKING:
    from automl.data.preprocessing import Preprocessing
    from automl.data.split import RowSplit
    from automl.data.tables.table_sources import TableSource


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
        from automl.data.column_overview import column_notes

        columns = preprocessing.columns
        n_numbers = len({source_column(column) for column in columns.numbers})
        notes += column_notes(columns, preprocessing.column_readings, giveaways)
        notes.append(
            f"columns of numbers: {n_numbers}, of categories: "
            f"{len(columns.categories)}; features: {n_features(columns)}."
        )
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
    n_rows = len(split.train) + len(split.validation)
    if config.folds == "auto" and len(split.validation) and n_rows > MAX_FOLDED_ROWS:
        notes.append(
            f"data.folds=auto: a single hold-out, there being over {MAX_FOLDED_ROWS:,} rows."
        )
    notes += folds_note(source.y[split.train], split.folds, source.target.classes)
    if not split.folds and source.target.classes:
        notes += _rare_note(source.y.astype(np.int64), split.train, source.target.classes)
    if len(split.left):
        notes.append(
            f"data.sweep_rows={config.sweep_rows:.12g}: trials train on {len(split.train):,} of "
            f"{len(split.train) + len(split.left):,} training rows."
        )
    return notes


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
