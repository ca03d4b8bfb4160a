"""Which models of a study make its ensemble, and with what weights: greedy selection with
replacement (Caruana et al., 2004, https://doi.org/10.1145/1015330.1015432).

Models are known by what they say of rows that none of them has seen. One after another is added,
each time that one with which the mean of all added is best; a model that is added twice has twice
the weight. What was best on the way is kept.

Few rows a selection can learn by heart, and the more trials there are the better. There it is made
for many samples of the rows, and the mean of all is taken. Where the plain mean of the best five is
better than that, on rows held back and by more than two standard errors, that is. Measured in
`experiments/013-tables/few_rows.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

FEW_ROWS = 1_000
N_FLOOR = 5
"""Models whose plain mean the ensemble of few rows has to be as good as."""
_N_SAMPLES = 20
"""Of few rows, with replacement; a selection is made for each."""
_N_PARTS = 5
"""Of few rows: made by all but one, looked at on that."""
MAX_ADDED = 50
MAX_CANDIDATES = 100
"""The best by themselves; what is behind those has not been seen to be of use, and costs time."""
_LEAST_PROBABILITY = 1e-15


@dataclass(frozen=True)
class WeightedSelection:
    """An ensemble."""

    weights: tuple[float, ...]
    """Of each candidate, 0 for those that are not in it; they sum to 1."""
    loss: float
    """Log-loss, or mean squared error in the target's unit, or what the study has for it."""

    @property
    def members(self) -> tuple[int, ...]:
        """The candidates in it, the heaviest first."""
        heaviest = sorted(range(len(self.weights)), key=lambda i: -self.weights[i])
        return tuple(i for i in heaviest if self.weights[i] > 0)


def select_ensemble(
    said: Array, y: Array, task: Task, loss: ValueLoss = SQUARED_ERROR
) -> WeightedSelection:
    """An ensemble of those who `said` (M, N): the probability of each row's own class, or its value
    (then `y` (N,) are the true ones, and `loss` judges). Raises ValueError where there is
    nobody."""
    import numpy as np

    if not len(said):
        raise ValueError("an ensemble of no model")
    if task is not Task.regression:
        y = np.zeros(said.shape[1])  # what they say is of each row's class already
    judge: ValueLoss | None = loss if task is Task.regression else None
    make = _greedy
    if said.shape[1] < FEW_ROWS:
        make = _floor if _floor_is_better(said, y, judge) else _sampled
    weights = make(said, y, judge)
    return WeightedSelection(
        tuple(map(float, weights)), float(_losses(weights[None] @ said, y, judge)[0])
    )


def _greedy(said: Array, y: Array, judge: ValueLoss | None) -> Array:
    """(M,) weights."""
    import numpy as np

    candidates = np.argsort(_losses(said, y, judge), kind="stable")[:MAX_CANDIDATES]
    counts, kept = np.zeros(len(said)), np.zeros(len(said))
    total, best = np.zeros(said.shape[1]), np.inf
    for n_added in range(1, MAX_ADDED + 1):
        losses = _losses((total + said[candidates]) / n_added, y, judge)
        added = candidates[losses.argmin()]
        counts[added] += 1
        total += said[added]
        if losses.min() < best:
            best, kept = losses.min(), counts / n_added
    return kept


def _sampled(said: Array, y: Array, judge: ValueLoss | None) -> Array:
    """(M,) weights: the mean over samples of the rows."""
    import numpy as np

    rng, n_rows = np.random.default_rng(0), said.shape[1]
    drawn = (rng.integers(0, n_rows, n_rows) for _ in range(_N_SAMPLES))
    each = [_greedy(said[:, rows], y[rows], judge) for rows in drawn]
    return np.asarray(np.mean(each, axis=0))


def _floor(said: Array, y: Array, judge: ValueLoss | None) -> Array:
    """(M,) weights: the best five alike."""
    import numpy as np

    weights = np.zeros(len(said))
    best = np.argsort(_losses(said, y, judge), kind="stable")[:N_FLOOR]
    weights[best] = 1 / len(best)
    return weights


def _floor_is_better(said: Array, y: Array, judge: ValueLoss | None) -> bool:
    """Than one selection, which takes a twentieth of the time of all: by more than two standard
    errors, on rows that neither was made by."""
    import numpy as np

    n_rows = said.shape[1]
    if n_rows < 2:
        return True
    floor, greedy = (_elsewhere(make, said, y, judge) for make in (_floor, _greedy))
    by = _row_losses(greedy[None], y, judge)[0] - _row_losses(floor[None], y, judge)[0]
    return bool(by.mean() > 2 * by.std() / np.sqrt(n_rows))


def _elsewhere(
    make: Callable[[Array, Array, ValueLoss | None], Array],
    said: Array,
    y: Array,
    judge: ValueLoss | None,
) -> Array:
    """(N,) what ensembles say of the parts of the rows that they were not made by."""
    import numpy as np

    parts = np.random.default_rng(0).permutation(len(y)) % _N_PARTS
    together = np.empty(len(y))
    for out in (parts == part for part in range(min(_N_PARTS, len(y)))):
        together[out] = make(said[:, ~out], y[~out], judge) @ said[:, out]
    return together


def _losses(said: Array, y: Array, judge: ValueLoss | None) -> Array:
    """(K,) of each line of (K, N)."""
    losses: Array = _row_losses(said, y, judge).mean(axis=1)
    return losses


def _row_losses(said: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Likewise (K, N); None judges probabilities."""
    import numpy as np

    if judge is None:
        return np.asarray(-np.log(said.clip(_LEAST_PROBABILITY)))
    from automl.data.scoring.metrics import losses_per_row

    losses: Array = losses_per_row(judge, said, y, scale=1.0)
    return losses
