"""The heavy side of linear models: scikit-learn solves, numpy predicts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.scoring.metrics import Floats
from automl.models.class_scores import ClassScoreLayout, single_class_scores
from automl.models.families.table_estimator import FeatureModel, FeatureSide, TrialFit, finite_array
from automl.models.model_file import check_content

if TYPE_CHECKING:
    from automl.export.table_graph import TableGraph

_MAX_STEPS = 1000
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class LinearModel(FeatureModel):
    """See `family.Model`."""

    weights: Floats
    """(D, K)."""
    bias: Floats
    """(K,)."""
    classes: ClassScoreLayout

    @property
    def n_features(self) -> int:
        return len(self.weights)

    @property
    def n_rows_at_once(self) -> int:
        return _ROWS_AT_ONCE

    def of_features(self, x: npt.NDArray[np.float32]) -> Floats:
        return self.classes.outputs(x.astype(np.float64) @ self.weights + self.bias)

    def draw(self, graph: TableGraph) -> str:
        """See `table_graph.OnnxDrawable`."""
        weights, bias = graph.constant(self.weights), graph.constant(self.bias)
        return graph.class_outputs(self.classes, graph.add("Gemm", graph.one_hot, weights, bias))

    def plain(self) -> dict[str, Any]:
        return {"weights": self.weights, "bias": self.bias, "classes_seen": self.classes.plain()}


class LinearSide(FeatureSide):
    """See `family.HeavySide`."""

    def solved(self, fitting: TrialFit, x: npt.NDArray[np.float32]) -> LinearModel:
        return _solved(fitting, x)

    def model_of(self, state: Mapping[str, Any]) -> LinearModel:
        classes = ClassScoreLayout.from_plain(state["classes_seen"])
        weights = finite_array(state, "weights", np.float64, 2)
        bias = finite_array(state, "bias", np.float64, 1)
        shape = (len(weights), classes.n_given)
        check_content(
            weights.shape == shape and bias.shape == shape[1:], "weights of", weights.shape
        )
        return LinearModel(weights, bias, classes)


def _solved(fitting: TrialFit, x: npt.NDArray[np.float32]) -> LinearModel:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    data, y, l2 = fitting.data, fitting.targets, fitting.params.l2
    if data.task is Task.regression:
        ridge = Ridge(alpha=l2).fit(x, y)
        return _model(
            ridge.coef_[None, :], np.atleast_1d(ridge.intercept_), ClassScoreLayout.of(data, y[:0])
        )
    present = np.unique(y)
    if len(present) < 2:
        every, given = single_class_scores(data)
        return _model(np.zeros((every.n_given, x.shape[1])), given, every)
    with warnings.catch_warnings():
        # One that has not come to its end is a model, too; its loss says how good.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = LogisticRegression(
            C=1 / l2, max_iter=_MAX_STEPS, class_weight=fitting.class_weight
        ).fit(x, y)
    return _model(fit.coef_, fit.intercept_, ClassScoreLayout.of(data, fit.classes_))


def _model(weights: Floats, bias: Floats, classes: ClassScoreLayout) -> LinearModel:
    return LinearModel(
        np.ascontiguousarray(weights.T, dtype=np.float64), bias.astype(np.float64), classes
    )


SIDE = LinearSide()
