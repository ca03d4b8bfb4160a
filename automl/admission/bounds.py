"""The two pieces of statistics that a footprint needs, in plain Python: admission loads no library.

Non-negative least squares for a handful of features, and a quantile of Student's t.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_Z_99 = 2.3263478740408408
"""The 99 % quantile of the normal distribution."""


def student_99(degrees: float) -> float:
    """The 99 % quantile of Student's t, within 0.2 % from 4 degrees of freedom on.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z, v = _Z_99, degrees
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / v**power for power, term in enumerate(terms))


def nonnegative_least_squares(
    gram: Sequence[Sequence[float]], moments: Sequence[float]
) -> tuple[float, ...]:
    """The x ≥ 0 with the least xᵀ·gram·x − 2·moments·x, for a positive definite gram (p, p).

    Of all subsets of features that may be above zero the best is taken: p is 4 at most here. The
    whole set comes first, since nearly always it is the answer.
    """
    everything = range(len(moments))
    best, least = (0.0,) * len(moments), 0.0
    for n_chosen in range(len(moments), 0, -1):
        for chosen in itertools.combinations(everything, n_chosen):
            part = [[gram[i][j] for j in chosen] for i in chosen]
            found = _solve(part, [moments[i] for i in chosen])
            if min(found) < 0:
                continue
            value = -sum(moments[i] * x for i, x in zip(chosen, found, strict=True))
            if value < least:
                least, best = value, _spread(chosen, found, len(moments))
            if n_chosen == len(moments):
                return best
    return best


def _spread(chosen: Sequence[int], found: Sequence[float], n: int) -> tuple[float, ...]:
    values = dict(zip(chosen, found, strict=True))
    return tuple(values.get(i, 0.0) for i in range(n))


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x of matrix·x = right, for a positive definite matrix, by Cholesky's way without roots.

    Features may differ by many orders of magnitude, so each is scaled to a diagonal of 1 first.
    """
    n = len(right)
    scales = [matrix[i][i] ** -0.5 for i in range(n)]
    rows = [
        [matrix[i][j] * scales[i] * scales[j] for j in range(n)] + [right[i] * scales[i]]
        for i in range(n)
    ]
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            for j in range(i, n + 1):
                row[j] -= factor * pivot[j]
    x = [0.0] * n
    for i in reversed(range(n)):
        known = sum(rows[i][j] * x[j] for j in range(i + 1, n))
        x[i] = (rows[i][n] - known) / rows[i][i]
    return [value * scale for value, scale in zip(x, scales, strict=True)]
