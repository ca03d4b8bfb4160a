"""What training sees of a data set: numpy arrays and plain values. No pandas, no scikit-learn.

The table is kept as it was before any encoding: numbers with their holes, places of categories. A
family of models makes its own view of it (`features.py` is one), once per process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.data.columns import NumberReading, TableColumns

if TYPE_CHECKING:
    from automl.data.column_overview import ColumnRow

Label: TypeAlias = "str | int | float | bool"
Targets: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32]"
"""(N,) int64 places in `Dataset.classes`, or float32 values in the target's own unit."""
Places: TypeAlias = "npt.NDArray[np.int64]"
"""(N,) numbers of rows."""
View = TypeVar("View")


@dataclass(frozen=True)
class RefitRows:
    """Which rows a final training has."""

    rows: str
    """One of `config.refit.ROWS`."""
    hold_out: float | None = None
    """Share of them that is kept to stop by."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """The cells of some rows, in the order of their `TableColumns`."""

    numbers: npt.NDArray[np.float64]
    """(N, number columns), as they came; NaN where a cell is missing."""
    codes: npt.NDArray[np.int32]
    """(N, category columns): places in `CategoryColumn.categories`, the one after the last for all
    other texts."""

    def __post_init__(self) -> None:
        assert self.numbers.ndim == self.codes.ndim == 2, "both are (N, columns)"
        assert self.numbers.dtype == np.float64, "numbers are float64"
        assert self.codes.dtype == np.int32, "codes are int32"
        assert len(self.numbers) == len(self.codes), "the same rows"

    def __len__(self) -> int:
        return len(self.numbers)

    def taking(self, places: npt.NDArray[np.integer]) -> TableRows:
        """The rows at these places."""
        return TableRows(self.numbers[places], self.codes[places])

    def __getitem__(self, some: slice) -> TableRows:
        return TableRows(self.numbers[some], self.codes[some])


@dataclass(frozen=True, eq=False)
class DatasetPart:
    """Rows that are used for one purpose: training, validation or test."""

    rows: TableRows
    y: Targets
    """(N,), one per row."""

    def __post_init__(self) -> None:
        assert self.y.shape == (len(self.rows),), "one target per row"
        assert self.y.dtype in (np.int64, np.float32), "y is int64 or float32"

    def __len__(self) -> int:
        return len(self.y)

    def taking(self, places: npt.NDArray[np.integer]) -> DatasetPart:
        """The rows at these places."""
        return DatasetPart(self.rows.taking(places), self.y[places])


def join_parts(*parts: DatasetPart) -> DatasetPart:
    """All rows of the parts, one part after another."""
    numbers, codes = (
        np.concatenate([getattr(part.rows, name) for part in parts])
        for name in ("numbers", "codes")
    )
    return DatasetPart(TableRows(numbers, codes), np.concatenate([part.y for part in parts]))


@dataclass(frozen=True, eq=False)
class RowFold:
    """One of the models that a trial trains: places in `Dataset.train`, both rising."""

    train: Places
    judged: Places
    """Those that it never saw, and is judged by."""
    repeat: int = 0
    """Which division of the rows it is of."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training and validation parts of a table. The test part is not in here.

    In a final training the validation part may be empty. With folds it is, and all rows but those
    of the test part are in `train`.
    """

    name: str
    task: Task
    """classification or regression; never auto."""
    train: DatasetPart
    validation: DatasetPart
    classes: tuple[Label, ...]
    """The labels, in the order of the class numbers in `y`; empty for regression."""
    columns: TableColumns
    """What was learned of each column on the training part."""
    target_mean: float
    """Regression trains on (y - target_mean) / target_scale; 0 and 1 for classification."""
    target_scale: float
    digest: str
    """SHA-256 over the table's content and all that decides its split, in hex."""
    notes: tuple[str, ...]
    """What was taken, grouped, left out and dropped: lines for people."""
    target: str = ""
    """Name of the column that is predicted; empty: it has none."""
    target_reading: NumberReading | None = None
    """How the texts of that column say numbers; None: it holds plain ones, or classes."""
    folds: tuple[RowFold, ...] = ()
    """Empty: a trial trains one model, and the validation part judges it."""
    epoch_rows: int | None = None
    """Rows of an epoch where these are not all that train: folds that train together take as many
    steps, whatever their sizes."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Columns that are taken otherwise than as numbers or categories because they look so."""
    taken: tuple[ColumnRow, ...] = field(default=(), repr=False)
    """What each column is taken for, for people; never sent to another process."""
    whole: Dataset | None = field(default=None, repr=False)
    """What it is a fold of; never sent to another process."""
    loss: ValueLoss = SQUARED_ERROR
    """What models of it descend and are judged by, where numbers are predicted."""
    _views: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    _folds: dict[int, Dataset] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        assert self.task is not Task.auto, "the task is decided by now"
        assert bool(self.classes) == (self.task is Task.classification)
        assert not (self.folds and len(self.validation)), "folds judge by rows of the training part"

    @property
    def n_train(self) -> int:
        """Rows to learn from in an epoch."""
        return self.epoch_rows or len(self.train)

    @property
    def n_models(self) -> int:
        """Models that a trial trains."""
        return max(1, len(self.folds))

    @property
    def judged_places(self) -> Places:
        """Places in `train` of the rows by which a trial with folds is judged, each once."""
        return np.unique(np.concatenate([fold.judged for fold in self.folds]))

    @property
    def judged(self) -> DatasetPart:
        """The rows by which a trial is judged, and which no model that predicts them saw."""
        return self.train.taking(self.judged_places) if self.folds else self.validation

    @property
    def of_one_model(self) -> Dataset:
        """What one of a trial's models trains on."""
        return self.fold(0) if self.folds else self

    def fold(self, number: int) -> Dataset:
        """What one of the folds trains on, as a data set without folds; the same at each call."""
        if number not in self._folds:
            fold = self.folds[number]
            train, judged = self.train.taking(fold.train), self.train.taking(fold.judged)
            self._folds[number] = replace(
                self, train=train, validation=judged, folds=(), whole=self
            )
        return self._folds[number]

    @property
    def n_outputs(self) -> int:
        """Numbers that a model gives for a row: a score for each class, or one value."""
        return max(1, len(self.classes))

    def view(self, encode: Callable[[TableColumns, TableRows], View]) -> tuple[View, View]:
        """The training and the validation part as `encode` makes them; made at the first call, and
        never sent to another process."""
        if encode not in self._views:
            parts = (self.train, self.validation)
            self._views[encode] = tuple(encode(self.columns, part.rows) for part in parts)
        train, validation = self._views[encode]
        return train, validation

    def learned(self, learn: Callable[[TableColumns, TableRows], View]) -> View:
        """What `learn` finds in the rows that the columns were learned from, which is the same for
        all folds; looked for at the first call."""
        of = self.whole or self
        if learn not in of._views:
            of._views[learn] = learn(of.columns, of.train.rows)
        found: View = of._views[learn]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_views": {}, "_folds": {}, "whole": None, "taken": ()}
