"""Regression by a Gaussian process on points of the unit cube (Rasmussen and Williams, 2006).

The kernel is Matérn's with ν = 5/2 and a length for each column. The lengths and the noise are the
most likely ones under weak priors; the variance of the process follows from them. The module knows
neither trials nor params. Optuna's sampler has a process of the same kind, by torch: a proposal
takes it some 20 times as long (experiments/022-search).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

LENGTH_SPREAD = 1.0
"""Standard deviation of the prior of a logarithmic length, around half the cube's diagonal."""
NOISE, NOISE_SPREAD = 1e-3, 2.0
"""Median of the prior of the noise, as a share of the variance, and its logarithm's deviation."""
LEAST_NOISE = 1e-6
_MAX_STEPS = 40
"""Limit of the steps of the search for the most likely lengths."""


@dataclass(frozen=True)
class ColumnDistances:
    """Computes distances of points, column by column; a column is a number or a choice."""

    are_choices: NDArray[np.bool_]
    """Whether a column is a choice, whose different values are all equally far apart."""

    def distances(self, points: Floats, others: Floats) -> Floats:
        """Return the squared distances by column, of shape (n_columns, n_points, n_others)."""
        import numpy as np

        differences = points.T[:, :, None] - others.T[:, None, :]
        choices = self.are_choices[:, None, None]
        return np.where(choices, differences != 0, np.square(differences))


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted process: the values at its points, and what it expects elsewhere."""

    columns: ColumnDistances
    points: Floats
    """The points that were seen, of shape (n_points, n_columns)."""
    values: Floats
    weights: Floats
    """One over the squared length of each column."""
    noise: float
    variance: float
    factor: Floats
    """The lower Cholesky factor of the correlations of the points, with the noise."""
    solved: Floats
    """The solution of correlations · solved = values."""

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation at points, of shape (n_points, n_columns)."""
        import numpy as np
        from scipy.linalg import solve_triangular

        covariances = _matern(self._squares(points))
        explained = solve_triangular(self.factor, covariances, lower=True, check_finite=False)
        shares = np.maximum(1.0 - np.square(explained).sum(0), 1e-12)
        return covariances.T @ self.solved, np.sqrt(self.variance * shares)

    def with_expected_at(self, points: Floats) -> GaussianProcess:
        """Return the process that has also seen, at `points`, the values that it expects there."""
        import numpy as np

        if not len(points):
            return self
        expected, _ = self.predict(points)
        seen, values = np.concatenate([self.points, points]), np.append(self.values, expected)
        return _process(self.columns, seen, values, self.weights, self.noise, self.variance)

    def _squares(self, points: Floats) -> Floats:
        import numpy as np

        return np.tensordot(self.weights, self.columns.distances(self.points, points), 1)


def fit_process(columns: ColumnDistances, points: Floats, values: Floats) -> GaussianProcess:
    """Return the most likely process of mean 0 that has `values` at `points`."""
    import numpy as np
    from scipy.optimize import minimize

    n_columns = points.shape[1]
    distances = columns.distances(points, points)
    median = math.log(0.5 * math.sqrt(n_columns))
    start = np.array([median] * n_columns + [math.log(NOISE)])
    spreads = np.array([LENGTH_SPREAD] * n_columns + [NOISE_SPREAD])

    def loss(logs: Floats) -> tuple[float, Floats]:
        value, slopes = _negative_log_likelihood(distances, values, logs)
        off = (logs - start) / spreads
        return value + 0.5 * float(off @ off), slopes + off / spreads

    bounds = [(-5.0, 5.0)] * n_columns + [(math.log(LEAST_NOISE), 1.0)]
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MAX_STEPS}
    )
    return _process(columns, points, values, np.exp(-2 * found.x[:-1]), math.exp(found.x[-1]))


def _process(
    columns: ColumnDistances,
    points: Floats,
    values: Floats,
    weights: Floats,
    noise: float,
    variance: float | None = None,
) -> GaussianProcess:
    import numpy as np
    from scipy.linalg import cho_solve, cholesky

    squares = np.tensordot(weights, columns.distances(points, points), 1)
    correlations = _matern(squares) + noise * np.eye(len(points))
    factor = cholesky(correlations, lower=True, check_finite=False)
    solved = cho_solve((factor, True), values, check_finite=False)
    if variance is None:
        variance = max(float(values @ solved) / len(values), 1e-12)
    return GaussianProcess(columns, points, values, weights, noise, variance, factor, solved)


def _negative_log_likelihood(
    distances: Floats, values: Floats, logs: Floats
) -> tuple[float, Floats]:
    """Return the negative logarithm of the likelihood, at its best variance, and its slopes.

    `logs` are the logarithms of the lengths and of the noise.
    """
    import numpy as np
    from scipy.linalg import cho_solve, cholesky

    n = len(values)
    weights, noise = np.exp(-2 * logs[:-1]), math.exp(logs[-1])
    squares = np.tensordot(weights, distances, 1)
    factor = cholesky(_matern(squares) + noise * np.eye(n), lower=True, check_finite=False)
    inverse = cho_solve((factor, True), np.eye(n), check_finite=False)
    solved = inverse @ values
    variance = max(float(values @ solved) / n, 1e-12)
    loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
    outer = inverse - np.outer(solved, solved) / variance
    by_square = outer * _matern_slope(squares)
    slopes = -weights * np.tensordot(distances, by_square, 2)
    return loss, np.append(slopes, 0.5 * noise * np.trace(outer))


def _matern(squares: Floats) -> Floats:
    """Return the correlations at squared distances."""
    import numpy as np

    roots = np.sqrt(5 * squares)
    correlations: Floats = (1 + roots + squares * (5 / 3)) * np.exp(-roots)
    return correlations


def _matern_slope(squares: Floats) -> Floats:
    """Return the derivative of the correlations by the squared distance."""
    import numpy as np

    roots = np.sqrt(5 * squares)
    slopes: Floats = (-5 / 6) * (1 + roots) * np.exp(-roots)
    return slopes


def log_expected_improvement(means: Floats, deviations: Floats, best: float) -> Floats:
    """Return the logarithm of the expected improvement below `best` (Ament et al., 2023)."""
    import numpy as np
    from scipy.special import ndtr

    z = (best - means) / deviations
    near = np.maximum(z, -6.0)
    height = np.exp(-0.5 * near**2) / math.sqrt(2 * math.pi) + near * ndtr(near)
    far = -0.5 * z**2 - 2 * np.log(np.maximum(-z, 1.0)) - 0.5 * math.log(2 * math.pi)
    found: Floats = np.where(z > -6.0, np.log(height), far) + np.log(deviations)
    return found
