"""Fits kernel models with scikit-learn and scipy, and predicts with numpy.

A column's length is how far it has to change until the target does. Lengths are learned by the
gradient of a Gaussian process's likelihood (Rasmussen and Williams, 2006, chapter 5,
https://gaussianprocess.org/gpml/) on a sample of the rows; classes are numbers there, 0 and 1. They
are drawn towards a common length, so that they stay similar where few rows determine them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from automl.config import Task
from automl.data.scoring.metrics import Floats
from automl.models.families.kernel.family import KERNEL_KINDS, MAX_OWN, MAX_ROWS, RBF, KernelFamily
from automl.models.families.linear.heavy import fit_logistic
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

_SHORTER = (0.0, 1.5)
"""Logarithms by which the common length is shortened for each start of the search. A search that
starts only from long lengths takes a wave for noise."""
_FIRST_STEPS, _STEPS = 10, 60
_LEAST_GAIN = 0.01
"""A search ends when a step raises the logarithm of the likelihood by less than this: lengths with
which the rows are as likely predict the same."""
_LEAST_NOISE = 1e-6
_LINEAR, _NOISE = -2.0, -1.0
"""Logarithms of the linear part's weight and of the noise, at the start."""
_REACH = 15.0
"""Largest distance of a logarithm from the centre of the penalty. Farther out, the likelihood of
this distance is taken: the search may try any point, and exponentials would overflow."""
_DIAGONAL_SHARES: tuple[float, ...] = (0.0, *10.0 ** np.arange(-10, 3))
"""Shares of the mean diagonal that `lower_factor` adds, one after another."""


@dataclass(frozen=True, eq=False)
class LearnedKernel:
    """A kernel that says how similar two rows are, by a smooth part and a linear part."""

    kind: str
    per_length: Floats
    """Reciprocal of each column's length (D,)."""
    smooth: float
    """Weight of the smooth part, for a target whose variance is 1."""
    linear: float
    """Weight of the linear part, for a target whose variance is 1."""
    noise: float = _LEAST_NOISE
    """Variance that the columns do not explain, for a target whose variance is 1."""

    def between(self, rows: Floats, others: Floats) -> Floats:
        """Return the similarities (N, M) of rows (N, D) and others (M, D)."""
        near = kernel_values(
            self.kind, squared_distances(rows * self.per_length, others * self.per_length)
        )[0]
        return self.smooth * near + self.linear * (rows @ others.T)


def squared_distances(a: Floats, b: Floats) -> Floats:
    """Return the squared distances (N, M) of rows (N, D) and (M, D)."""
    found: Floats = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return found.clip(0)


def kernel_values(kind: str, distances: Floats) -> tuple[Floats, Floats]:
    """Return similarities for squared distances, and minus twice their derivative by these.

    The similarity is 1 for equal rows, and falls to 0 with the distance.
    """
    if kind == RBF:
        near = np.exp(-distances / 2)
        return near, near
    r = np.sqrt(5 * distances)
    near = np.exp(-r)
    return (1 + r + r * r / 3) * near, 5 / 3 * (1 + r) * near


def learn_kernel(x: Floats, targets: Floats, kind: str, spread: float, seed: int) -> LearnedKernel:
    """Return the kernel that is learned from rows (N, D) and targets (N, K)."""
    from scipy.optimize import minimize

    if len(x) > MAX_ROWS:
        sample = np.random.default_rng(seed).permutation(len(x))[:MAX_ROWS]
        x, targets = x[sample], targets[sample]
    likelihood = _KernelLikelihood.from_rows(x, targets, kind, spread)

    def search(start: Floats, n_steps: int, value: float) -> Any:
        options = {"maxiter": n_steps, "ftol": _LEAST_GAIN / max(1.0, abs(value))}
        return minimize(likelihood, start, jac=True, method="L-BFGS-B", options=options)

    results = [search(start, _FIRST_STEPS, float(len(x))) for start in likelihood.starts()]
    first = min(results, key=lambda result: float(result.fun))
    return likelihood.kernel(search(first.x, _STEPS, float(first.fun)).x)


@dataclass(frozen=True, eq=False)
class _KernelLikelihood:
    """The function that is minimised: minus the logarithm of the likelihood, with its gradient.

    Its argument has logarithms: each column's length relative to the common one (if columns have
    their own), the common length, the weights of both parts, and the noise.
    """

    x: Floats
    alike: Floats
    """Products (N, N) of the rows, the linear part's similarities."""
    targets: Floats
    """Targets (N, K), of mean 0 and variance 1."""
    kind: str
    spread: float
    common: float
    """Logarithm of the median distance of rows."""

    @classmethod
    def from_rows(cls, x: Floats, targets: Floats, kind: str, spread: float) -> _KernelLikelihood:
        centred = targets - targets.mean(0)
        variance = max(float(np.mean(centred**2)), 1e-12)
        apart = float(np.median(squared_distances(x[:200], x[:200])))
        common = math.log(max(apart, 1e-3)) / 2
        return cls(x, x @ x.T, centred / math.sqrt(variance), kind, spread, common)

    @property
    def n_own(self) -> int:
        width = self.x.shape[1]
        return width if width <= MAX_OWN else 0

    def starts(self) -> list[Floats]:
        own = np.zeros(self.n_own)
        return [
            np.concatenate([own, [self.common - less, 0.0, _LINEAR, _NOISE]]) for less in _SHORTER
        ]

    @property
    def centre(self) -> Floats:
        """Logarithms that the penalty draws the search towards."""
        return np.concatenate([np.zeros(self.n_own), [self.common, 0.0, _LINEAR, _NOISE]])

    def kernel(self, place: Floats) -> LearnedKernel:
        place = place.clip(self.centre - _REACH, self.centre + _REACH)
        own = place[: self.n_own] if self.n_own else np.zeros(self.x.shape[1])
        common, smooth, linear, noise = map(float, place[self.n_own :])
        return LearnedKernel(
            self.kind,
            np.exp(-(own + common)),
            math.exp(smooth),
            math.exp(linear) / max(1, self.x.shape[1]),
            math.exp(noise) + _LEAST_NOISE,
        )

    def __call__(self, place: Floats) -> tuple[float, Floats]:
        kernel, x, y = self.kernel(place), self.x, self.targets
        z = x * kernel.per_length
        near, slope = kernel_values(self.kind, squared_distances(z, z))
        both = kernel.smooth * near
        both += kernel.linear * self.alike
        both[np.diag_indices_from(both)] += kernel.noise
        inverse, log_determinant = _invert(both)
        weights = inverse @ y
        value = (y * weights).sum() / 2 + y.shape[1] * log_determinant / 2
        # Minus twice the derivative of the value by each cell of the matrix that was inverted.
        by_cell = weights @ weights.T
        by_cell -= y.shape[1] * inverse
        by_distance = by_cell * slope
        by_length = (z * (by_distance @ z)).sum(0) - by_distance.sum(1) @ (z * z)
        by_length *= kernel.smooth
        by_part = [
            -kernel.smooth * np.vdot(by_cell, near) / 2,
            -kernel.linear * np.vdot(by_cell, self.alike) / 2,
            -(kernel.noise - _LEAST_NOISE) * np.trace(by_cell) / 2,
        ]
        own = by_length if self.n_own else by_length[:0]
        gradient = np.concatenate([own, [by_length.sum()], by_part])
        gradient[np.abs(place - self.centre) > _REACH] = 0.0
        return self._add_penalty(place, float(value), gradient)

    def _add_penalty(self, place: Floats, value: float, gradient: Floats) -> tuple[float, Floats]:
        """Add the penalty that draws lengths together, and all logarithms towards their start."""
        widths = np.concatenate([np.full(self.n_own, self.spread), [1.5, 2.0, 2.0, np.inf]])
        away = (place - self.centre) / widths
        return value + float(away @ away) / 2, gradient + away / widths


def lower_factor(matrix: Floats) -> Floats:
    """Return the Cholesky factor of a symmetric matrix. If rounding made the matrix indefinite, its
    diagonal is raised by the least of `_DIAGONAL_SHARES` of its mean that makes it definite."""
    from scipy.linalg import LinAlgError, cholesky

    mean = matrix.diagonal().mean()
    for share in _DIAGONAL_SHARES:
        raised = matrix + share * mean * np.eye(len(matrix)) if share else matrix
        with suppress(LinAlgError):
            lower: Floats = cholesky(raised, lower=True, check_finite=False)
            return lower
    raise LinAlgError(f"{len(matrix)} rows whose likeness is no positive definite matrix")


def _invert(matrix: Floats) -> tuple[Floats, float]:
    """Return the inverse of a positive definite matrix, and the logarithm of its determinant."""
    from scipy.linalg import lapack

    lower = lower_factor(matrix)
    half, _ = lapack.dpotri(lower, lower=1)  # its upper part is 0; cho_solve takes 3 times as long
    inverse: Floats = half + half.T
    inverse[np.diag_indices_from(inverse)] /= 2
    return inverse, 2 * float(np.log(np.diag(lower)).sum())


_MAX_STEPS = 300
_CELLS_AT_ONCE = 2**22
_MIN_NOISE = 1e-3
"""Least noise for a target whose variance is 1. Rows that occur twice make the learned noise too
small."""
_JITTER = 1e-6
"""Share added to a landmark's similarity to itself, because landmarks may be nearly equal."""


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

    def draw(self, graph: ModelGraph) -> str:
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

    def _draw_kernel(self, graph: ModelGraph, apart: str) -> str:
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


class KernelHeavySide(FeatureHeavySide):
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
        # Logarithms of odds change by about as much as shares do, divided by their variance.
        l2 = params.l2 * variance
        inner, bias = fit_logistic(trial_fit, features, trial_fit.targets, l2, _MAX_STEPS)
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


def _constant_model(trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> KernelModel:
    """Return a model with constant outputs, for training rows of one class."""
    classes, bias = single_class_scores(trial_fit.data)
    width, n_fit_outputs = x.shape[1], classes.n_fit_outputs
    nothing = np.zeros((1, n_fit_outputs))
    slopes = np.zeros((width, n_fit_outputs))
    return KernelModel(trial_fit.params.kind, np.ones(width), x[:1], nothing, slopes, bias, classes)


SIDE = KernelHeavySide()
