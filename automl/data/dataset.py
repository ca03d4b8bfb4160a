"""The data set that a training sees: numpy arrays and plain values. No pandas, no scikit-learn.

The table is kept unencoded: numbers with NaN for missing cells, and the place of each category. A
family of models encodes its own view of the table once per process; `features.py` makes one. The
generated set, the disc, is made here, too. Of `data=python`, the file has the facts that a
user's function gives; `objectives/user_data/` reads the data.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.data.columns import NumberReading, TableColumns
from automl.data.tables.frames import Frame
from automl.data.target_encoding import TargetEncoding, fit_encoding
from automl.data.users_metric import UsersMetric

Label: TypeAlias = "str | int | float | bool"
Targets: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float64]"
"""(N,) int64 places in `Dataset.classes`, or float64 values in the target's own unit: float32 would
round away what targets far from zero differ by."""
Places: TypeAlias = "npt.NDArray[np.int64]"
"""(N,) numbers of rows."""
View = TypeVar("View")


@dataclass(frozen=True)
class RefitRows:
    """The choice of the rows that a final training has."""

    rows: str
    """A word of `config.command_arguments.ROWS`: which parts of the table are trained on."""
    hold_out: float | None = None
    """Share of these rows that is held out, to decide when the training stops; None: no row."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """The cells of some rows, in the order of their `TableColumns`."""

    numbers: npt.NDArray[np.float64]
    """(N, number columns), not scaled; NaN where a cell is missing."""
    codes: npt.NDArray[np.int32]
    """(N, category columns): places in `CategoryColumn.categories`; the place after the last stands
    for all other texts."""

    def __post_init__(self) -> None:
        assert self.numbers.ndim == self.codes.ndim == 2, "both are (N, columns)"
        assert self.numbers.dtype == np.float64, "numbers are float64"
        assert self.codes.dtype == np.int32, "codes are int32"
        assert len(self.numbers) == len(self.codes), "the same rows"

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, places: npt.NDArray[np.integer]) -> TableRows:
        """Return the rows at these places."""
        return TableRows(self.numbers[places], self.codes[places])

    def __getitem__(self, rows: slice) -> TableRows:
        return TableRows(self.numbers[rows], self.codes[rows])


@dataclass(frozen=True, eq=False)
class DatasetPart:
    """Rows and their targets, used for one purpose: training, validation or test."""

    rows: TableRows
    y: Targets
    """(N,) targets, one per row."""

    def __post_init__(self) -> None:
        assert self.y.shape == (len(self.rows),), "one target per row"
        assert self.y.dtype in (np.int64, np.float64), "y is int64 or float64"

    def __len__(self) -> int:
        return len(self.y)

    def take(self, places: npt.NDArray[np.integer]) -> DatasetPart:
        """Return the rows at these places, with their targets."""
        return DatasetPart(self.rows.take(places), self.y[places])


def spread_places(n_rows: int, n_most: int) -> Places:
    """Return at most `n_most` places, spread evenly over `n_rows` rows, so that the sample depends
    on their number alone."""
    return np.linspace(0, n_rows - 1, min(n_rows, n_most)).astype(np.int64)


def join_parts(*parts: DatasetPart) -> DatasetPart:
    """Return all rows of the parts, one part after another."""
    numbers, codes = (
        np.concatenate([getattr(part.rows, name) for part in parts])
        for name in ("numbers", "codes")
    )
    return DatasetPart(TableRows(numbers, codes), np.concatenate([part.y for part in parts]))


@dataclass(frozen=True, eq=False)
class RowFold:
    """The rows of one of the models that a trial trains.

    Both fields are places in `Dataset.train`, in rising order.
    """

    train: Places
    """The rows that the model learns from."""
    judged: Places
    """The rows that the model never sees, and by which it is judged."""
    repeat: int = 0
    """The number, from 0, of the division of the rows that this fold belongs to."""


class ColumnSummary(NamedTuple):
    """A column of the table, as people see it."""

    name: str
    kind: str
    n_features: int
    """Number of features that a network gets from the column."""
    why: str
    """The reason for the kind, in words."""
    is_plain: bool = False
    """Whether the column simply holds numbers, so that there is nothing more to say."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training and validation parts of a table, without the test part.

    In a final training the validation part may be empty. With folds it is always empty, and `train`
    has all rows except those of the test part.
    """

    name: str
    task: Task
    """classification or regression; never auto."""
    train: DatasetPart
    validation: DatasetPart
    classes: tuple[Label, ...]
    """The labels, in the order of the class numbers in `y`; empty for regression."""
    columns: TableColumns
    """The facts that were learned about each column on the training part."""
    target_mean: float
    """Regression trains on (y - target_mean) / target_scale; 0 and 1 for classification."""
    target_scale: float
    digest: str
    """SHA-256 over the table's content and all that decides its split, in hex."""
    notes: tuple[str, ...]
    """Lines for people: which columns and rows were used, grouped, left out and dropped."""
    target: str = ""
    """Name of the column that is predicted; empty: the target has no name."""
    target_reading: NumberReading | None = None
    """The way in which texts of the target column say numbers; None: the column holds plain numbers
    or classes."""
    folds: tuple[RowFold, ...] = ()
    """The folds of a trial; empty: a trial trains one model, and the validation part judges it."""
    epoch_rows: int | None = None
    """Rows of an epoch; None: all rows of `train`. Folds that train together take equally many
    steps, whatever their sizes."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kinds, by name, of the columns that detection reads as something else than plain numbers or
    categories."""
    column_rows: tuple[ColumnSummary, ...] = field(default=(), repr=False)
    """The kind of each column, for people; never sent to another process."""
    whole: Dataset | None = field(default=None, repr=False)
    """The data set that this one is a fold of; never sent to another process."""
    loss: ValueLoss = SQUARED_ERROR
    """The loss that models descend and are judged by, where numbers are predicted."""
    users_metric: UsersMetric | None = None
    """The study's metric, if it is a function of the user's."""
    encoding: TargetEncoding | None = None
    """The encoding of the rows that a model learns from; None: target-encoded columns hold levels,
    or there are none."""
    _views: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    _folds: dict[int, Dataset] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        assert self.task is not Task.auto, "the task is decided by now"
        assert bool(self.classes) == (self.task is Task.classification)
        assert not (self.folds and len(self.validation)), "folds judge by rows of the training part"

    @property
    def n_train(self) -> int:
        """Return the number of rows to learn from in an epoch."""
        return self.epoch_rows or len(self.train)

    @property
    def n_models(self) -> int:
        """Return the number of models that a trial trains."""
        return max(1, len(self.folds))

    @property
    def judged_places(self) -> Places:
        """Return the places in `train` of the rows that judge a trial with folds, each once."""
        return np.unique(np.concatenate([fold.judged for fold in self.folds]))

    @property
    def judged(self) -> DatasetPart:
        """Return the rows by which a trial is judged; no model that predicts a row has seen it."""
        return self.train.take(self.judged_places) if self.folds else self.validation

    @property
    def first_fold(self) -> Dataset:
        """Return the data set that the first of a trial's models trains on."""
        return self.fold(0) if self.folds else self

    def fold(self, number: int) -> Dataset:
        """Return the data set, without folds, of the fold with this number; the same at each call.

        The rows that judge the fold are its validation part.
        """
        if number not in self._folds:
            fold = self.folds[number]
            train, judged = self.train.take(fold.train), self.train.take(fold.judged)
            own = replace(self, train=train, validation=judged, folds=(), whole=self)
            self._folds[number] = own.encoded
        return self._folds[number]

    def part(self, n_rows: int) -> Dataset:
        """Return the data set with `n_rows` of the training rows, drawn by chance; a smaller part
        is within a larger one. With all of them, return this data set."""
        if n_rows >= len(self.train):
            return self
        order = np.random.default_rng(len(self.train)).permutation(len(self.train))
        return replace(self, train=self.train.take(np.sort(order[:n_rows])))

    def first_rows(self, n_rows: int) -> Dataset:
        """Return the data set with its first training rows, without copying them: enough to compute
        what training on so many rows takes."""
        rows, y = self.train.rows, self.train.y[:n_rows]
        first = TableRows(rows.numbers[:n_rows], rows.codes[:n_rows])
        return replace(self, train=DatasetPart(first, y))

    @property
    def encoded(self) -> Dataset:
        """Return the data set as a model learns from it: with means in target-encoded columns."""
        if not self.columns.encoded or self.encoding is not None:
            return self
        train, validation = self.train, self.validation
        encoding, numbers = fit_encoding(self.columns, train.rows.numbers, train.y)
        own = replace(self, encoding=encoding)
        return replace(
            own,
            train=replace(train, rows=replace(train.rows, numbers=numbers)),
            validation=replace(validation, rows=own.encoded_rows(validation.rows)),
        )

    def encoded_rows(self, rows: TableRows) -> TableRows:
        """Return rows with the means of this data set's `encoding`, if it has one."""
        if self.encoding is None:
            return rows
        return replace(rows, numbers=self.encoding.encode(self.columns, rows.numbers))

    @property
    def n_outputs(self) -> int:
        """Return how many numbers a model gives for a row: a score for each class, or one value."""
        return max(1, len(self.classes))

    def view(self, encode: Callable[[TableColumns, TableRows], View]) -> tuple[View, View]:
        """Return the training and the validation part as `encode` encodes them.

        They are encoded at the first call, and never sent to another process.
        """
        if encode not in self._views:
            parts = (self.train, self.validation)
            self._views[encode] = tuple(encode(self.columns, part.rows) for part in parts)
        train, validation = self._views[encode]
        return train, validation

    def learned(self, learn: Callable[[TableColumns, TableRows], View]) -> View:
        """Return what `learn` computes from the rows that the columns were learned from.

        The result is the same for all folds. It is computed at the first call.
        """
        whole = self.whole or self
        if learn not in whole._views:
            whole._views[learn] = learn(whole.columns, whole.encoded.train.rows)
        found: View = whole._views[learn]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_views": {}, "_folds": {}, "whole": None, "column_rows": ()}


RADIUS = math.sqrt(2 / math.pi)
"""The circle around the origin has half the area of the square [-1, 1]²."""
DISC_COLUMNS = ("x1", "x2")
DISC_CLASSES = (0, 1)


class DiscPart(IntEnum):
    """The part of the disc data set that points are drawn for.

    Each part has a random stream of its own, so that more training points change no validation
    point.
    """

    train = 0
    validation = 1
    test = 2


def make_disc(n_points: int, seed: int, part: DiscPart) -> DatasetPart:
    """Return (N, 2) points uniform in [-1, 1]², with label 1 for points inside the circle."""
    points = np.random.default_rng([seed, part]).uniform(-1, 1, (n_points, 2))
    inside = np.square(points).sum(axis=1) <= RADIUS**2
    # Networks get float32, so each point is rounded to it here.
    numbers = points.astype(np.float32).astype(np.float64)
    return DatasetPart(
        TableRows(numbers, np.empty((n_points, 0), np.int32)), inside.astype(np.int64)
    )


def disc_frame(points: DatasetPart) -> Frame:
    """Return the points as a table with a column for each coordinate, without labels."""
    import pandas as pd

    return pd.DataFrame(points.rows.numbers, columns=pd.Index(DISC_COLUMNS))


Size: TypeAlias = "int | tuple[int, ...]"
"""The size of a row: a number of columns, or a shape of several dimensions."""


STAYS_SHARE = 0.5
"""The largest share of a GPU's memory for a trial that its data may take: the rest is for
training."""


class NetworkOutputs(enum.Enum):
    """The kind of output that a network gives for a row; its loss decides which."""

    SCORES = "scores"
    """A score for each class: (B, C), or (B, C, …) for several targets of a row."""
    NUMBERS = "numbers"
    """Predicted numbers: (B, 1), or the shape of a row's targets."""
    ANY = "any"
    """Whatever the user's own loss takes."""


@dataclass(frozen=True)
class UserDataFacts:
    """Sizes and digest of the training and validation parts, found by calling the function.

    Instances can be pickled.
    """

    name: str
    task: Task
    outputs: NetworkOutputs
    n_train: int
    n_validation: int
    n_inputs: Size
    n_outputs: Size
    takes_integers: bool
    """Whether rows are whole numbers (tokens, bytes), which a network gets unchanged."""
    size_bytes: int | None
    """Bytes of both parts in float32; None: they are not tensors, and their size is not known."""
    digest: str
    """SHA-256 over the content of tensors; for torch Datasets over lengths and shapes alone."""
    notes: tuple[str, ...]
    loss: ValueLoss = SQUARED_ERROR
    """The loss by which predicted numbers are judged, like `Dataset.loss`."""

    def stays(self, room_bytes: int | None) -> bool:
        """Return whether both parts stay on a device with this much memory for a trial.

        None stands for main memory, where the parts are already.
        """
        if self.size_bytes is None:
            return False
        return room_bytes is None or self.size_bytes <= STAYS_SHARE * room_bytes

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that a training on this data reports."""
        by_outputs = {
            NetworkOutputs.SCORES: ("val_error",),
            NetworkOutputs.NUMBERS: ("val_rmse",),
            NetworkOutputs.ANY: (),
        }
        return ("train_loss", "val_loss", *by_outputs[self.outputs])
