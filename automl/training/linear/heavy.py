"""The heavy side of linear models: scikit-learn solves, numpy predicts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.data.one_hot import n_features, one_hot
from automl.data.scores import Floats
from automl.training.class_scores import ClassScores, shares
from automl.training.model_file import check
from automl.training.table_estimator import Fitting, Grown, OnCpu, OnRound, TableSide

if TYPE_CHECKING:
    from automl.training.export.table_graph import TableGraph

_MAX_STEPS = 1000
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class LinearModel(OnCpu):
    """See `family.Model`."""

    weights: Floats
    """(D, K)."""
    bias: Floats
    """(K,)."""
    classes: ClassScores

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs

    def check_columns(self, columns: Columns) -> None:
        check(n_features(columns) == len(self.weights), "not its columns", len(columns.all))

    def outputs(self, columns: Columns, rows: Rows) -> Floats:
        begins = range(0, max(1, len(rows)), _ROWS_AT_ONCE)  # encoded, all may be too many
        parts = [one_hot(columns, rows[begin:][:_ROWS_AT_ONCE]) for begin in begins]
        return np.concatenate([self.of_features(part) for part in parts])

    def of_features(self, x: npt.NDArray[np.float32]) -> Floats:
        """(N, n_outputs) of (N, D)."""
        return self.classes.outputs(x.astype(np.float64) @ self.weights + self.bias)

    def draw(self, graph: TableGraph) -> str:
        """See `table_graph.Drawable`."""
        weights, bias = graph.constant(self.weights), graph.constant(self.bias)
        return graph.class_outputs(self.classes, graph.add("Gemm", graph.one_hot, weights, bias))

    def plain(self) -> dict[str, Any]:
        return {"weights": self.weights, "bias": self.bias, "classes_seen": self.classes.plain()}


class LinearSide(TableSide):
    """See `family.HeavySide`."""

    def fit(self, fitting: Fitting, on_round: OnRound) -> None:
        data = fitting.data
        x, x_validation = data.view(one_hot)
        model = _solved(fitting, x)
        on_round(
            Grown(
                round=0,
                train=(model.of_features(x), data.train.y),
                validation=model.of_features(x_validation),
                get_model=model.plain,
            )
        )

    def model_of(self, state: Mapping[str, Any]) -> LinearModel:
        classes = ClassScores.from_plain(state["classes_seen"])
        weights, bias = state["weights"], state["bias"]
        for name, array, n_dimensions in (("weights", weights, 2), ("bias", bias, 1)):
            fits = isinstance(array, np.ndarray) and array.dtype == np.float64
            check(fits and array.ndim == n_dimensions, f"no {name}", type(array))
            check(bool(np.isfinite(array).all()), f"{name} that are no numbers", array.shape)
        shape = (len(weights), classes.n_given)
        check(weights.shape == shape and bias.shape == shape[1:], "weights of", weights.shape)
        return LinearModel(weights, bias, classes)


def _solved(fitting: Fitting, x: npt.NDArray[np.float32]) -> LinearModel:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    data, y, l2 = fitting.data, fitting.targets, fitting.params.l2
    if data.task is Task.regression:
        ridge = Ridge(alpha=l2).fit(x, y)
        return _model(
            ridge.coef_[None, :], np.atleast_1d(ridge.intercept_), ClassScores.of(data, y[:0])
        )
    present = np.unique(y)
    if len(present) < 2:
        every = ClassScores.of(data, np.arange(data.n_outputs))
        logs = shares(data)
        bias = logs[1:] - logs[:1] if every.n_given == 1 else logs
        return _model(np.zeros((every.n_given, x.shape[1])), bias, every)
    with warnings.catch_warnings():
        # One that has not come to its end is a model, too; its loss says how good.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = LogisticRegression(
            C=1 / l2, max_iter=_MAX_STEPS, class_weight=fitting.class_weight
        ).fit(x, y)
    return _model(fit.coef_, fit.intercept_, ClassScores.of(data, fit.classes_))


def _model(weights: Floats, bias: Floats, classes: ClassScores) -> LinearModel:
    return LinearModel(
        np.ascontiguousarray(weights.T, dtype=np.float64), bias.astype(np.float64), classes
    )


SIDE = LinearSide()
