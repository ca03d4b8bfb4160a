"""What families share that fit one-hot features in one go, and report once. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.data.one_hot import n_features, one_hot
from automl.data.scores import Floats
from automl.training.class_scores import ClassScores
from automl.training.model_file import check
from automl.training.table_estimator import Fitting, Grown, OnCpu, OnRound, TableSide


class FeatureModel(OnCpu, ABC):
    """See `family.Model`."""

    classes: ClassScores

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs

    @property
    @abstractmethod
    def n_features(self) -> int:
        """D."""

    @property
    @abstractmethod
    def n_rows_at_once(self) -> int:
        """As many as are encoded together: all may be too many."""

    def check_columns(self, columns: Columns) -> None:
        check(n_features(columns) == self.n_features, "not its columns", len(columns.all))

    def outputs(self, columns: Columns, rows: Rows) -> Floats:
        at_once = self.n_rows_at_once
        begins = range(0, max(1, len(rows)), at_once)
        parts = [one_hot(columns, rows[begin:][:at_once]) for begin in begins]
        return np.concatenate([self.of_features(part) for part in parts])

    @abstractmethod
    def of_features(self, x: npt.NDArray[np.float32]) -> Floats:
        """(N, n_outputs) of (N, D)."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """For a checkpoint."""


class FeatureSide(TableSide):
    """See `family.HeavySide`."""

    def fit(self, fitting: Fitting, on_round: OnRound) -> None:
        data = fitting.data
        x, x_validation = data.view(one_hot)
        model = self.solved(fitting, x)
        on_round(
            Grown(
                round=0,
                train=(model.of_features(x), data.train.y),
                validation=model.of_features(x_validation),
                get_model=model.plain,
            )
        )

    @abstractmethod
    def solved(self, fitting: Fitting, x: npt.NDArray[np.float32]) -> FeatureModel:
        """The model of the training rows' features (N, D)."""


def array_of(state: Mapping[str, Any], name: str, dtype: type, n_dimensions: int) -> Any:
    """Of finite numbers. Raises ValueError."""
    array = state[name]
    fits = isinstance(array, np.ndarray) and array.dtype == dtype
    check(fits and array.ndim == n_dimensions, f"no {name}", type(array))
    check(bool(np.isfinite(array).all()), f"{name} that are no numbers", array.shape)
    return array
