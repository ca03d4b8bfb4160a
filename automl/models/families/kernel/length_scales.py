"""Learns from the rows how far each column has to change until the target does: its length.

The likelihood of a Gaussian process (Rasmussen and Williams, 2006, chapter 5,
https://gaussianprocess.org/gpml/) is maximised by its gradient on a sample of the rows, because it
costs the cube of their number. Classes are numbers there, 0 and 1. A column's length is drawn
towards a common length, so that lengths stay similar where few rows determine them.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from automl.data.scoring.metrics import Floats
from automl.models.families.kernel.family import MAX_OWN, MAX_ROWS, RBF

_SHORTER = (0.0, 1.5)
"""Logarithms by which the common length is shortened for each start of the search. A search that
starts only from long lengths takes a wave for noise."""
_FIRST_STEPS, _STEPS = 10, 60
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
    """Return the kernel that is learned from rows (N, D) and targets (N, K).

    `spread` is about how much the logarithms of lengths differ.
    """
    from scipy.optimize import minimize

    if len(x) > MAX_ROWS:
        sample = np.random.default_rng(seed).permutation(len(x))[:MAX_ROWS]
        x, targets = x[sample], targets[sample]
    likelihood = _KernelLikelihood.of(x, targets, kind, spread)
    results = [
        minimize(likelihood, start, jac=True, method="L-BFGS-B", options={"maxiter": _FIRST_STEPS})
        for start in likelihood.starts()
    ]
    first = min(results, key=lambda result: float(result.fun))
    best = minimize(likelihood, first.x, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return likelihood.kernel(best.x)


@dataclass(frozen=True, eq=False)
class _KernelLikelihood:
    """The function that is minimised: minus the logarithm of the likelihood, with its gradient.

    Its argument has logarithms: each column's length relative to the common one (if columns have
    their own), the common length, the weights of both parts, and the noise.
    """

    x: Floats
    targets: Floats
    """Targets (N, K), of mean 0 and variance 1."""
    kind: str
    spread: float
    common: float
    """Logarithm of the median distance of rows."""

    @classmethod
    def of(cls, x: Floats, targets: Floats, kind: str, spread: float) -> _KernelLikelihood:
        centred = targets - targets.mean(0)
        variance = max(float(np.mean(centred**2)), 1e-12)
        apart = float(np.median(squared_distances(x[:200], x[:200])))
        common = math.log(max(apart, 1e-3)) / 2
        return cls(x, centred / math.sqrt(variance), kind, spread, common)

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
        alike = x @ x.T
        both = kernel.smooth * near + kernel.linear * alike
        inverse, log_determinant = _invert(both + kernel.noise * np.eye(len(x)))
        weights = inverse @ y
        value = (y * weights).sum() / 2 + y.shape[1] * log_determinant / 2
        # Minus twice the derivative of the value by each cell of the matrix that was inverted.
        by_cell = weights @ weights.T - y.shape[1] * inverse
        by_distance = kernel.smooth * by_cell * slope
        by_length = -((by_distance.sum(1) @ (z * z)) - (z * (by_distance @ z)).sum(0))
        by_part = [
            -kernel.smooth * (by_cell * near).sum() / 2,
            -kernel.linear * (by_cell * alike).sum() / 2,
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
    from scipy.linalg import cho_solve

    lower = lower_factor(matrix)
    inverse: Floats = cho_solve((lower, True), np.eye(len(matrix)), check_finite=False)
    return inverse, 2 * float(np.log(np.diag(lower)).sum())
