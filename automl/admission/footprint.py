"""Learns from measured trials how the peak of a trial follows from its structure. Pure.

    peak  ≈  base + Σ factor · part                             by non-negative least squares
    bound =  (base + Σ factor · part) · exp(m + t·s·√(1 + 2/n))       m, s of log(peak / estimate)

The parts (weights, activations) come from arithmetic or from a survey; the base and the factors are
what those cannot know: workspaces of libraries, rounding, fragments. t is Student's one-sided 99 %
quantile, and s counts a prior worth four trials, so that three trials are enough to trust. One
number multiplies all estimates, so a larger structure never gets a smaller bound.

Only sums are kept, so learning and asking cost the same after three trials and after a million.
Measured in `experiments/006-packing/learning.md`.

The two pieces of statistics that it needs are in plain Python, as admission loads no library:
non-negative least squares for a handful of features, and a quantile of Student's t.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from automl.trial import RequestSource

_Z_99 = 2.3263478740408408
"""The 99 % quantile of the normal distribution."""


def student_t_quantile_99(degrees: float) -> float:
    """Return the 99 % quantile of Student's t, within 0.2 % from 4 degrees of freedom on.

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
    """Return the x ≥ 0 with the least xᵀ·gram·x − 2·moments·x, for a positive definite gram (p, p).

    All subsets of features that may be above zero are tried, and the best is taken: p is 4 at most
    here. The whole set comes first, since it is nearly always the answer.
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
    """Return x of matrix·x = right, for a positive definite matrix, by Cholesky's method without
    roots.

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


SMALL_BYTES = 8 * 2**20
"""Added to peaks and estimates alike. Torch takes memory in pieces of 2 and 20 MiB, so a ratio of
the two says nothing below this size."""
_PRIOR_TRIALS, _PRIOR_SPREAD = 4, 0.08
"""The prior spread of log(peak / estimate), and the number of trials that it is worth."""
_PRIOR_FACTOR, _PRIOR_FACTOR_TRIALS = 1.12, 0.5
"""Peaks are a little above what structure tells, until trials say otherwise."""
_ALIKE_TRIALS, _NO_BASE_TRIALS = 0.5, 0.1
"""The weights of the rules "all parts have one factor" and "there is no base", between which few
trials of one size cannot decide."""
_N_FITTED = 2
"""Number of fitted values, a base and a factor, that widen each bound."""
_LEAST_RATIO = 1e-3
"""Peaks below a thousandth of their structure count as a thousandth; without this the square of
such a row may overflow."""
_ONE = 1 << 128
"""The number 1 in fixed point. Whole numbers add up without rounding, so the order of trials does
not count, and what was added can be taken back."""


@dataclass(frozen=True)
class MemoryStructure:
    """The parts of a trial's memory that are known before it runs, and that need not grow alike."""

    parts_bytes: tuple[float, ...]
    source: RequestSource = RequestSource.ESTIMATED
    """How the parts are known: ESTIMATED or SURVEYED."""

    def __post_init__(self) -> None:
        assert 1 <= len(self.parts_bytes) <= 3, self
        assert all(0 <= part < math.inf for part in self.parts_bytes), self

    @property
    def total_bytes(self) -> float:
        return sum(self.parts_bytes)

    def times(self, n_lanes: int) -> MemoryStructure:
        """Return the structure of a pack with this many lanes."""
        return replace(self, parts_bytes=tuple(n_lanes * part for part in self.parts_bytes))


class MemoryFootprint:
    """What was learned of trials of one sort: on one kind of device, with the same parts."""

    def __init__(self) -> None:
        self._sums: _FitSums | None = None
        self._fitted: tuple[float, ...] | None = None

    def add(self, structure: MemoryStructure, peak_bytes: int) -> None:
        """Take what one more trial was seen to hold."""
        sums = self._sums or _FitSums.empty(1 + len(structure.parts_bytes))
        self._sums, self._fitted = sums.plus(structure, peak_bytes, 1), None

    def remove(self, structure: MemoryStructure, peak_bytes: int) -> None:
        """Forget a trial that was added with these figures."""
        assert self._sums is not None, "nothing was added"
        sums = self._sums.plus(structure, peak_bytes, -1)
        self._sums, self._fitted = sums if sums.n else None, None

    def bound_bytes(self, structure: MemoryStructure) -> int | None:
        """Return the most that a trial will hold with 99 % certainty; None while no trial was
        measured."""
        if self._sums is None:
            return None
        if self._fitted is None:
            self._fitted = _fit(self._sums)
        held = _dot(self._fitted, (SMALL_BYTES, *structure.parts_bytes))
        return max(0, math.ceil(held - SMALL_BYTES))


@dataclass(frozen=True)
class _FitSums:
    """Sums over trials, in fixed point.

    Each trial is a row of its features divided by its peak, so that all trials count alike.
    """

    n: int
    gram: tuple[tuple[int, ...], ...]
    """Gram matrix (p, p) of the features: the base, then the parts."""
    moments: tuple[int, ...]
    """Sums of the rows, with shape (p,)."""
    log_ratio: int
    """Sum of the logarithms of peak / structure."""
    log_size: int

    @classmethod
    def empty(cls, p: int) -> _FitSums:
        return cls(0, ((0,) * p,) * p, (0,) * p, 0, 0)

    def plus(self, structure: MemoryStructure, peak_bytes: int, sign: int) -> _FitSums:
        size = structure.total_bytes + SMALL_BYTES
        peak = max(peak_bytes + SMALL_BYTES, _LEAST_RATIO * size)
        row = [part / peak for part in (SMALL_BYTES, *structure.parts_bytes)]
        gram = tuple(
            tuple(g + sign * _fixed(a * b) for g, b in zip(line, row, strict=True))
            for line, a in zip(self.gram, row, strict=True)
        )
        moments = tuple(h + sign * _fixed(a) for h, a in zip(self.moments, row, strict=True))
        log_ratio = self.log_ratio + sign * _fixed(math.log(peak / size))
        log_size = self.log_size + sign * _fixed(math.log(size))
        return _FitSums(self.n + sign, gram, moments, log_ratio, log_size)


def _fixed(value: float) -> int:
    return int(value * _ONE)


def _floats(fixed: Sequence[int]) -> list[float]:
    return [value / _ONE for value in fixed]


def _fit(sums: _FitSums) -> tuple[float, ...]:
    """Return base (in units of SMALL_BYTES) and factors, already multiplied up to the bound."""
    gram, moments = [_floats(line) for line in sums.gram], _floats(sums.moments)
    factors = nonnegative_least_squares(*_with_prior(sums, gram, moments))
    mean = _dot(factors, moments) / sums.n  # of estimate / peak, and of its square
    square = sum(f * _dot(line, factors) for f, line in zip(factors, gram, strict=True))
    # The variance and mean of its logarithm, if estimate / peak is lognormal with these moments.
    variance = max(0.0, math.log(square / sums.n / mean**2))
    middle = variance / 2 - math.log(mean)
    degrees = _PRIOR_TRIALS + sums.n - 1
    spread = math.sqrt((_PRIOR_TRIALS * _PRIOR_SPREAD**2 + sums.n * variance) / degrees)
    width = student_t_quantile_99(degrees) * spread * math.sqrt(1 + _N_FITTED / sums.n)
    return tuple(f * math.exp(middle + width) for f in factors)


def _with_prior(
    sums: _FitSums, gram: Sequence[Sequence[float]], moments: Sequence[float]
) -> tuple[Sequence[Sequence[float]], Sequence[float]]:
    """Return gram and moments with rows for what holds until trials tell otherwise.

    Each part has the factor of the trials as a whole, and the base is no more than SMALL_BYTES.
    """
    log_ratio, log_size = _floats((sums.log_ratio, sums.log_size))
    prior = _PRIOR_FACTOR_TRIALS * math.log(_PRIOR_FACTOR)
    factor = math.exp((log_ratio + prior) / (sums.n + _PRIOR_FACTOR_TRIALS))
    typical = math.exp(log_size / sums.n)
    weights = [_NO_BASE_TRIALS * (SMALL_BYTES / typical) ** 2]
    weights += [_ALIKE_TRIALS] * (len(moments) - 1)
    with_prior = [[*line] for line in gram]
    for i, weight in enumerate(weights):
        with_prior[i][i] += weight / factor**2
    return with_prior, [h + weight / factor for h, weight in zip(moments, weights, strict=True)]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
