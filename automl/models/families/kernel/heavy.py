"""Fits kernel models with scikit-learn and scipy, and predicts with numpy.

`length_scales.py` learns the kernel; this module finds the weights of the landmarks.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from automl.config import Task
from automl.data.scoring.metrics import Floats
from automl.models.class_scores import ClassScoreLayout, single_class_scores
from automl.models.families.kernel.family import KERNEL_KINDS, RBF, KernelFamily
from automl.models.families.kernel.length_scales import (
    LearnedKernel,
    kernel_values,
    learn_kernel,
    lower_factor,
    squared_distances,
)
from automl.models.families.table_estimator import FeatureModel, FeatureSide, TrialFit, finite_array
from automl.models.model_file import check_content

if TYPE_CHECKING:
    from automl.export.table_graph import TableGraph

_MAX_STEPS = 300
_CELLS_AT_ONCE = 2**22
_MIN_NOISE = 1e-3
"""Least noise for a target whose variance is 1. Rows that occur twice make the learned noise too
small."""
_JITTER = 1e-6
"""Share that is added to a landmark's similarity to itself, so that landmarks may be nearly
equal."""


@dataclass(frozen=True, eq=False)
class KernelModel(FeatureModel):
    """A `family.TrainedModel` that adds a linear part to weights of landmarks near a row."""

    kind: str
    per_length: Floats
    """Reciprocal of each feature's length (D,)."""
    landmarks: npt.NDArray[np.float32]
    """Features of the rows that others are compared with (M, D)."""
    weights: Floats
    """Weights of the landmarks for each output (M, K)."""
    slopes: Floats
    """Weights of the linear part (D, K)."""
    bias: Floats
    """Constant of each output (K,)."""
    classes: ClassScoreLayout

    @property
    def n_features(self) -> int:
        return len(self.per_length)

    @property
    def n_rows_at_once(self) -> int:
        return max(1, _CELLS_AT_ONCE // max(len(self.landmarks), len(self.per_length)))

    def outputs_from_features(self, x: npt.NDArray[np.float32]) -> Floats:
        near = kernel_values(self.kind, squared_distances(x * self.per_length, self._scaled))[0]
        return self.classes.outputs(near @ self.weights + x @ self.slopes + self.bias)

    @property
    def _scaled(self) -> Floats:
        return self.landmarks * self.per_length

    def draw(self, graph: TableGraph) -> str:
        """Add the model's outputs to an ONNX graph, and return their name."""
        x, scaled = graph.one_hot, self._scaled
        z = graph.add("Mul", x, graph.constant(self.per_length))
        ones = graph.constant(np.ones((len(self.per_length), 1)))
        own = graph.add("MatMul", graph.add("Mul", z, z), ones)
        crossed = graph.add("MatMul", z, graph.constant(-2 * scaled.T))
        apart = graph.add("Add", own, graph.constant((scaled * scaled).sum(1)))
        near = self._draw_kernel(
            graph, graph.add("Max", graph.add("Add", apart, crossed), graph.constant(0))
        )
        smooth = graph.add("MatMul", near, graph.constant(self.weights))
        linear = graph.add("Gemm", x, graph.constant(self.slopes), graph.constant(self.bias))
        return graph.class_outputs(self.classes, graph.add("Add", smooth, linear))

    def _draw_kernel(self, graph: TableGraph, apart: str) -> str:
        """Add the arithmetic of `kernel_values` for squared distances to a graph."""
        if self.kind == RBF:
            return graph.add("Exp", graph.add("Mul", apart, graph.constant(-0.5)))
        r = graph.add("Sqrt", graph.add("Mul", apart, graph.constant(5)))
        third = graph.add("Mul", apart, graph.constant(5 / 3))
        polynomial = graph.add("Add", graph.add("Add", r, third), graph.constant(1))
        return graph.add("Mul", polynomial, graph.add("Exp", graph.add("Neg", r)))

    def plain(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "per_length": self.per_length,
            "landmarks": self.landmarks,
            "weights": self.weights,
            "slopes": self.slopes,
            "bias": self.bias,
            "classes_seen": self.classes.plain(),
        }


class KernelSide(FeatureSide):
    """The `family.HeavySide` of kernel models."""

    def fit_features(self, trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
        from sklearn import linear_model  # noqa: F401  loads its BLAS before threads are limited

        # One thread, because several would add in another order and find slightly other lengths.
        with threadpool_limits(1):
            return _fit_model(trial_fit, x)

    def model_from_state(self, state: Mapping[str, Any]) -> KernelModel:
        classes, kind = ClassScoreLayout.from_plain(state["classes_seen"]), state["kind"]
        check_content(kind in KERNEL_KINDS, "an unknown kernel", kind)
        arrays = [
            finite_array(state, name, np.float64, n_dimensions)
            for name, n_dimensions in (
                ("per_length", 1),
                ("weights", 2),
                ("slopes", 2),
                ("bias", 1),
            )
        ]
        per_length, weights, slopes, bias = arrays
        landmarks = finite_array(state, "landmarks", np.float32, 2)
        width, n_fit_outputs = len(per_length), classes.n_fit_outputs
        check_content(landmarks.shape[1] == width, "landmarks of", landmarks.shape)
        check_content(weights.shape == (len(landmarks), n_fit_outputs), "weights of", weights.shape)
        check_content(slopes.shape == (width, n_fit_outputs), "slopes of", slopes.shape)
        check_content(bias.shape == (n_fit_outputs,), "a bias of", bias.shape)
        return KernelModel(kind, per_length, landmarks, weights, slopes, bias, classes)


def _fit_model(trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
    data, y, params = trial_fit.data, trial_fit.targets, trial_fit.params
    assert isinstance(trial_fit.family, KernelFamily), "the family of this module"
    if data.task is Task.regression:
        classes = ClassScoreLayout.from_dataset(data, y[:0])
        targets = y[:, None]
    else:
        present = np.unique(y)
        if len(present) < 2:
            return _constant_model(trial_fit, x)
        classes = ClassScoreLayout.from_dataset(data, present)
        targets = (y[:, None] == present[-classes.n_fit_outputs :]).astype(np.float64)
    wide = x.astype(np.float64)
    kernel = learn_kernel(wide, targets, params.kind, params.spread, trial_fit.seed)
    random = np.random.default_rng([trial_fit.seed, 1])
    places = np.sort(random.permutation(len(x))[: trial_fit.family.landmarks])
    features, back = _features(kernel, wide, wide[places])
    variance = max(float(targets.var(axis=0).mean()), 1e-12)
    if data.task is Task.regression:
        inner, bias = _ridge(features, targets, params.l2 * max(kernel.noise, _MIN_NOISE))
    else:
        inner, bias = _logistic(trial_fit, features, params.l2 * variance)
    weights = back @ inner
    return KernelModel(
        kernel.kind,
        kernel.per_length,
        x[places],
        kernel.smooth * weights,
        kernel.linear * (wide[places].T @ weights),
        bias,
        classes,
    )


def _features(kernel: LearnedKernel, x: Floats, landmarks: Floats) -> tuple[Floats, Floats]:
    """Return features (N, M) whose products approximate the kernel, and a matrix (M, M) from
    weights of features to weights of landmarks (Williams and Seeger, 2001).

    The approximation is exact if all rows are landmarks.
    """
    from scipy.linalg import solve_triangular

    among = kernel.between(landmarks, landmarks)
    among[np.diag_indices_from(among)] += _JITTER * (1 + among.diagonal())
    lower = lower_factor(among)
    back: Floats = solve_triangular(
        lower, np.eye(len(lower)), trans="T", lower=True, check_finite=False
    )
    return kernel.between(x, landmarks) @ back, back


def _ridge(features: Floats, targets: Floats, l2: float) -> tuple[Floats, Floats]:
    mean = targets.mean(0)
    squared = features.T @ features
    squared[np.diag_indices_from(squared)] += l2
    return np.linalg.solve(squared, features.T @ (targets - mean)), mean


def _logistic(trial_fit: TrialFit, features: Floats, l2: float) -> tuple[Floats, Floats]:
    """Return weights and bias of a logistic regression on the kernel's features.

    The logarithm of odds changes by about as much as shares do, divided by the variance of the
    classes; the caller scales `l2` by it.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        # A fit that has not converged is a model, too; its loss says how good it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = LogisticRegression(
            C=1 / l2, max_iter=_MAX_STEPS, class_weight=trial_fit.class_weight
        ).fit(features, trial_fit.targets)
    return np.ascontiguousarray(fit.coef_.T, dtype=np.float64), fit.intercept_.astype(np.float64)


def _constant_model(trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
    """Return a model with constant outputs, for training rows of one class."""
    classes, bias = single_class_scores(trial_fit.data)
    width, n_fit_outputs = x.shape[1], classes.n_fit_outputs
    nothing = np.zeros((1, n_fit_outputs))
    slopes = np.zeros((width, n_fit_outputs))
    return KernelModel(trial_fit.params.kind, np.ones(width), x[:1], nothing, slopes, bias, classes)


SIDE = KernelSide()
