"""What training sees of a data set: numpy arrays and plain values. No pandas, no scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.config import Task

Label: TypeAlias = "str | int | float | bool"


Targets: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32]"
"""(N,) int64 places in `Dataset.classes`, or float32 values in the target's own unit."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows that are used for one purpose: training, validation or test."""

    x: npt.NDArray[np.float32]
    """(N, D), preprocessed: finite, scaled, encoded."""
    y: Targets
    """(N,), one per row."""

    def __post_init__(self) -> None:
        assert self.x.ndim == 2, "x is (N, D)"
        assert self.x.dtype == np.float32, "x is float32"
        assert self.y.shape == self.x.shape[:1], "one target per row"
        assert self.y.dtype in (np.int64, np.float32), "y is int64 or float32"

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training and validation parts of a table. The test part is not in here."""

    name: str
    task: Task
    """classification or regression; never auto."""
    train: Part
    validation: Part
    classes: tuple[Label, ...]
    """The labels, in the order of the class numbers in `y`; empty for regression."""
    preprocessing: Mapping[str, Any]
    """How raw rows become `x`, as plain values: see `Preprocessing.from_plain`."""
    target_mean: float
    """Regression trains on (y - target_mean) / target_scale; 0 and 1 for classification."""
    target_scale: float
    digest: str
    """SHA-256 over the table's content and all that decides its split, in hex."""
    notes: tuple[str, ...]
    """What was taken, grouped, left out and dropped: lines for people."""

    def __post_init__(self) -> None:
        assert self.task is not Task.auto, "the task is decided by now"
        assert bool(self.classes) == (self.task is Task.classification)

    @property
    def n_features(self) -> int:
        """D, the width of `x`."""
        return int(self.train.x.shape[1])
