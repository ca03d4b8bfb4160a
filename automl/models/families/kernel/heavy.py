"""The heavy side of kernel models: scikit-learn and scipy solve, numpy predicts."""

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
_LEAST_RIDGE = 1e-3
"""Of a target whose variance is 1: rows that are there twice say that nothing is by chance."""
_JITTER = 1e-6
"""Of a landmark's likeness to itself: so that landmarks may be all but the same."""


@dataclass(frozen=True, eq=False)
class KernelModel(FeatureModel):
    """See `family.Model`: a linear part, and weights of landmarks by how near a row is to them."""

    kind: str
    per_length: Floats
    """(D,)."""
    landmarks: npt.NDArray[np.float32]
    """(M, D)."""
    weights: Floats
    """(M, K)."""
    slopes: Floats
    """(D, K)."""
    bias: Floats
    """(K,)."""
    classes: ClassScoreLayout

    @property
    def n_features(self) -> int:
        return len(self.per_length)

    @property
    def n_rows_at_once(self) -> int:
        return max(1, _CELLS_AT_ONCE // max(len(self.landmarks), len(self.per_length)))

    def of_features(self, x: npt.NDArray[np.float32]) -> Floats:
        near = kernel_values(self.kind, squared_distances(x * self.per_length, self._scaled))[0]
        return self.classes.outputs(near @ self.weights + x @ self.slopes + self.bias)

    @property
    def _scaled(self) -> Floats:
        return self.landmarks * self.per_length

    def draw(self, graph: TableGraph) -> str:
        """See `table_graph.OnnxDrawable`."""
        x, scaled = graph.one_hot, self._scaled
        z = graph.add("Mul", x, graph.constant(self.per_length))
        ones = graph.constant(np.ones((len(self.per_length), 1)))
        own = graph.add("MatMul", graph.add("Mul", z, z), ones)
        crossed = graph.add("MatMul", z, graph.constant(-2 * scaled.T))
        apart = graph.add("Add", own, graph.constant((scaled * scaled).sum(1)))
        near = self._near(
            graph, graph.add("Max", graph.add("Add", apart, crossed), graph.constant(0))
        )
        smooth = graph.add("MatMul", near, graph.constant(self.weights))
        linear = graph.add("Gemm", x, graph.constant(self.slopes), graph.constant(self.bias))
        return graph.class_outputs(self.classes, graph.add("Add", smooth, linear))

    def _near(self, graph: TableGraph, apart: str) -> str:
        """As `kernel_values` has it."""
        if self.kind == RBF:
            return graph.add("Exp", graph.add("Mul", apart, graph.constant(-0.5)))
        r = graph.add("Sqrt", graph.add("Mul", apart, graph.constant(5)))
        third = graph.add("Mul", apart, graph.constant(5 / 3))
        begun = graph.add("Add", graph.add("Add", r, third), graph.constant(1))
        return graph.add("Mul", begun, graph.add("Exp", graph.add("Neg", r)))

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
    """See `family.HeavySide`."""

    def solved(self, fitting: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
        from sklearn import linear_model  # noqa: F401  its BLAS is there before it is limited

        # In one thread: several add up in another order, and lengths come out a little different.
        with threadpool_limits(1):
            return _solved(fitting, x)

    def model_of(self, state: Mapping[str, Any]) -> KernelModel:
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
        width, n_given = len(per_length), classes.n_given
        check_content(landmarks.shape[1] == width, "landmarks of", landmarks.shape)
        check_content(weights.shape == (len(landmarks), n_given), "weights of", weights.shape)
        check_content(slopes.shape == (width, n_given), "slopes of", slopes.shape)
        check_content(bias.shape == (n_given,), "a bias of", bias.shape)
        return KernelModel(kind, per_length, landmarks, weights, slopes, bias, classes)


def _solved(fitting: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
    data, y, params = fitting.data, fitting.targets, fitting.params
    assert isinstance(fitting.family, KernelFamily), "its own"
    if data.task is Task.regression:
        classes = ClassScoreLayout.of(data, y[:0])
        targets = y[:, None]
    else:
        present = np.unique(y)
        if len(present) < 2:
            return _constant(fitting, x)
        classes = ClassScoreLayout.of(data, present)
        targets = (y[:, None] == present[-classes.n_given :]).astype(np.float64)
    wide = x.astype(np.float64)
    kernel = learn_kernel(wide, targets, params.kind, params.spread, fitting.seed)
    random = np.random.default_rng([fitting.seed, 1])
    places = np.sort(random.permutation(len(x))[: fitting.family.landmarks])
    features, back = _features(kernel, wide, wide[places])
    variance = max(float(targets.var(axis=0).mean()), 1e-12)
    if data.task is Task.regression:
        inner, bias = _ridge(features, targets, params.l2 * max(kernel.noise, _LEAST_RIDGE))
    else:
        inner, bias = _logistic(fitting, features, params.l2 * variance)
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
    """(N, M) whose products are how alike rows are, and (M, M) that brings weights of them back to
    landmarks (Williams and Seeger, 2001); of all rows as landmarks without loss."""
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


def _logistic(fitting: TrialFit, features: Floats, l2: float) -> tuple[Floats, Floats]:
    """The logarithm of odds changes by about as much as shares do, over the variance of classes."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        # One that has not come to its end is a model, too; its loss says how good.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = LogisticRegression(
            C=1 / l2, max_iter=_MAX_STEPS, class_weight=fitting.class_weight
        ).fit(features, fitting.targets)
    return np.ascontiguousarray(fit.coef_.T, dtype=np.float64), fit.intercept_.astype(np.float64)


def _constant(fitting: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
    """The training rows are of one class."""
    classes, bias = single_class_scores(fitting.data)
    width, n_given = x.shape[1], classes.n_given
    nothing = np.zeros((1, n_given))
    slopes = np.zeros((width, n_given))
    return KernelModel(fitting.params.kind, np.ones(width), x[:1], nothing, slopes, bias, classes)


SIDE = KernelSide()
