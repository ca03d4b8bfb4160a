"""Fits linear models with scikit-learn, and predicts with numpy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.scoring.metrics import Floats
from automl.models.families.table_estimator import (
    ClassScoreLayout,
    FeatureHeavySide,
    FeatureModel,
    ModelGraph,
    TrialFit,
    finite_array,
    single_class_scores,
)
from automl.models.model_file import check_content

_MAX_STEPS = 1000
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class LinearModel(FeatureModel):
    """A `family.TrainedModel` that gives linear functions of the features."""

    weights: Floats
    """Weight of each feature for each output (D, K)."""
    bias: Floats
    """Constant of each output (K,)."""
    classes: ClassScoreLayout

    @property
    def n_features(self) -> int:
        return len(self.weights)

    @property
    def n_rows_at_once(self) -> int:
        return _ROWS_AT_ONCE

    def outputs_from_features(self, x: npt.NDArray[np.float32]) -> Floats:
        return self.classes.outputs(x.astype(np.float64) @ self.weights + self.bias)

    def draw(self, graph: ModelGraph) -> str:
        """Add the model's outputs to an ONNX graph, and return their name."""
        weights, bias = graph.constant(self.weights), graph.constant(self.bias)
        return graph.class_outputs(self.classes, graph.add("Gemm", graph.one_hot, weights, bias))

    def plain(self) -> dict[str, Any]:
        return {"weights": self.weights, "bias": self.bias, "classes_seen": self.classes.plain()}


class LinearHeavySide(FeatureHeavySide):
    """The `family.HeavySide` of linear models."""

    def fit_features(self, trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> LinearModel:
        from sklearn.linear_model import Ridge

        data, y, l2 = trial_fit.data, trial_fit.targets, trial_fit.params.l2
        if data.task is Task.regression:
            ridge = Ridge(alpha=l2).fit(x, y)
            weights, bias = ridge.coef_[:, None], np.atleast_1d(ridge.intercept_)
            classes = ClassScoreLayout.from_dataset(data, y[:0])
        elif len(present := np.unique(y)) < 2:
            classes, bias = single_class_scores(data)
            weights = np.zeros((x.shape[1], classes.n_fit_outputs))
        else:
            weights, bias = fit_logistic(trial_fit, x, y, l2, _MAX_STEPS)
            classes = ClassScoreLayout.from_dataset(data, present)
        return LinearModel(
            np.ascontiguousarray(weights, dtype=np.float64), bias.astype(np.float64), classes
        )

    def model_from_state(self, state: Mapping[str, Any]) -> LinearModel:
        classes = ClassScoreLayout.from_plain(state["classes_seen"])
        weights = finite_array(state, "weights", np.float64, 2)
        bias = finite_array(state, "bias", np.float64, 1)
        shape = (len(weights), classes.n_fit_outputs)
        check_content(
            weights.shape == shape and bias.shape == shape[1:], "weights of", weights.shape
        )
        return LinearModel(weights, bias, classes)


def fit_logistic(
    trial_fit: TrialFit, x: npt.NDArray[Any], y: npt.NDArray[Any], l2: float, max_steps: int
) -> tuple[Floats, Floats]:
    """Return weights (D, K) and bias (K,) of a logistic regression, converged or not."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        # A fit that has not converged is a model, too; its loss says how good it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        weight = trial_fit.class_weight
        fit = LogisticRegression(C=1 / l2, max_iter=max_steps, class_weight=weight).fit(x, y)
    return np.ascontiguousarray(fit.coef_.T, dtype=np.float64), fit.intercept_.astype(np.float64)


SIDE = LinearHeavySide()
