"""How sure scores are: resampled rows, the same for all that are compared. numpy only.

Percentile intervals of the bootstrap over rows (Efron & Tibshirani 1993, chapter 13). All
predictions are scored on the same samples, so that the difference of two has an interval of its
own, which is far narrower than theirs: a row that is hard for one is mostly hard for the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from automl.config.metrics import LARGER_IS_BETTER
from automl.data.scores import Floats, Predictions
from automl.trial import Difference, Interval

CONFIDENCE = 0.95
_CELLS_AT_ONCE = 2**20
"""Of the weights of samples, 8 bytes each."""


def bootstrap(
    named: Mapping[str, Predictions], n_resamples: int, seed: int
) -> dict[str, dict[str, Floats]]:
    """(n_resamples,) of each metric of each, by the same samples of the same rows."""
    n_rows = next(iter(named.values())).n_rows
    assert all(predictions.n_rows == n_rows for predictions in named.values()), "the same rows"
    parts: dict[str, dict[str, list[Floats]]] = {name: {} for name in named}
    for weights in _samples(n_rows, n_resamples, seed):
        for name, predictions in named.items():
            for metric, values in predictions.scores(weights).items():
                parts[name].setdefault(metric, []).append(values)
    return {
        name: {metric: np.concatenate(values) for metric, values in metrics.items()}
        for name, metrics in parts.items()
    }


def interval(value: float, resampled: Floats, n_compared: int = 1) -> Interval:
    """The score and where it lies with 95 %, of `n_compared` of them together (Bonferroni)."""
    known = resampled[np.isfinite(resampled)]
    if not len(known):
        return Interval(value, math.nan, math.nan)
    beyond = (1 - CONFIDENCE) / n_compared / 2
    low, high = np.quantile(known, [beyond, 1 - beyond])
    return Interval(value, float(low), float(high))


def difference(metric: str, value: float, resampled: Floats, n_compared: int = 1) -> Difference:
    """By how much a metric is above another's, of the same samples; `n_compared` as above."""
    found = interval(value, resampled, n_compared)
    if not found.low > 0 and not found.high < 0:
        return Difference(*found, "may be chance")
    better = (found.low > 0) == (metric in LARGER_IS_BETTER)
    return Difference(*found, "better" if better else "worse")


def _samples(n_rows: int, n_resamples: int, seed: int) -> Iterator[Floats]:
    """(B, N) how often each row is drawn, in as many pieces as memory asks for."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // n_rows)
    for begin in range(0, n_resamples, at_once):
        n = min(at_once, n_resamples - begin)
        drawn = rng.integers(0, n_rows, (n, n_rows))
        drawn += n_rows * np.arange(n)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=n * n_rows)
        yield counts.reshape(n, n_rows).astype(np.float64)
