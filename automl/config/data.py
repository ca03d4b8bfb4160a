"""The table to learn from."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from automl.config.checks import check, is_target


class DataKind(enum.Enum):
    disc = "disc"
    digits = "digits"
    csv = "csv"
    python = "python"


class Task(enum.Enum):
    auto = "auto"
    classification = "classification"
    regression = "regression"


class ColumnKind(enum.Enum):
    number = "number"
    category = "category"
    date = "date"
    text = "text"
    drop = "drop"


@dataclass
class DataConfig:
    """The table to learn from, and how it is split."""

    kind: DataKind = DataKind.disc
    path: str | None = None
    """CSV or Parquet file (kind csv)."""
    target: str | None = None
    """Name of the column to predict (kind csv)."""
    source: str | None = None
    """`module:function` that gives the parts (kind python), called without arguments: {"train":
    (x, y), "validation": (x, y)}, and "test" if there is one; tensors, arrays, frames, or torch
    Datasets of such pairs. It is called in every process that trains."""
    task: Task = Task.auto
    """auto: text and integers of at most 20 values are classes, all else is regression."""
    columns: dict[str, Any] = field(default_factory=dict)
    """What a column is taken for, `data.columns.NAME=number|category|date|text|drop`; the others
    as they look."""
    detect: bool = False
    """Dates, texts, numbers in texts and identifiers are found (data=csv sets it); false: columns
    are numbers or categories, as in studies of before."""
    test_path: str | None = None
    """A test table of its own; none: the test part is split off `path`."""
    validation_fraction: float = 0.2
    """Share of the rows that choose among trials."""
    test_fraction: float = 0.2
    """Share of the rows that no sweep ever sees (where `test_path` is none)."""
    split_seed: int = 0
    sweep_rows: float | None = None
    """Trials train on so many of the training rows, or on this share of them; none: on all."""
    split_to: str | None = None
    """Folder that a table's parts are written to as CSV: train, validation, test."""
    n_train: int = 1000
    """Training points (kind disc)."""
    n_validation: int = 500
    """Validation points (kind disc)."""

    def __post_init__(self) -> None:
        for key in ("validation_fraction", "test_fraction"):
            value = getattr(self, key)
            check(0 < value < 1, f"data.{key}", value, "must be between 0 and 1.")
        check(
            self.validation_fraction + self.test_fraction < 1,
            "data.validation_fraction + data.test_fraction",
            self.validation_fraction + self.test_fraction,
            "must leave rows for training: make one of them smaller.",
        )
        check(
            0 <= self.split_seed < 2**32,
            "data.split_seed",
            self.split_seed,
            "must be from 0 to 4294967295.",
        )
        if self.sweep_rows is not None:
            share, count = (
                0 < self.sweep_rows < 1,
                self.sweep_rows >= 2 and self.sweep_rows % 1 == 0,
            )
            rule = "must be a number of rows (2 or more) or a share of them (above 0, below 1)."
            check(share or count, "data.sweep_rows", self.sweep_rows, rule)
        check(self.n_train >= 1, "data.n_train", self.n_train, "must be at least 1.")
        check(self.n_validation >= 1, "data.n_validation", self.n_validation, "must be at least 1.")
        if self.kind is DataKind.python:
            check(
                self.source is not None and is_target(self.source),
                "data.source",
                self.source,
                "data=python needs data.source=module:function, or file.py:function.",
            )
        else:
            check(self.source is None, "data.source", self.source, "is for data=python: add it.")
        kinds = [kind.value for kind in ColumnKind]
        for name, kind in self.columns.items():
            check(
                kind in kinds, f"data.columns.{name}", kind, f"must be one of {', '.join(kinds)}."
            )
        check(
            self.kind is DataKind.csv or not self.columns,
            "data.columns",
            ", ".join(self.columns),
            "is for a table of yours: add data=csv, or leave it out.",
        )
        if self.kind is DataKind.csv:
            check(self.path is not None, "data.path", None, "data=csv needs data.path=FILE.")
            check(
                self.target is not None, "data.target", None, "data=csv needs data.target=COLUMN."
            )
