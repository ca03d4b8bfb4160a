"""Which models of a study make its ensemble, and with what weights: greedy selection with
replacement (Caruana et al., 2004, https://doi.org/10.1145/1015330.1015432).

Models are known by what they say of rows that none of them has seen. One after another is added,
each time that one with which the mean of all added is best; a model that is added twice has twice
the weight. What was best on the way is kept. On few rows the selection would learn these by heart:
there it begins with the best five, each once, and so is never less than their plain mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from automl.config import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

FEW_ROWS = 1_000
N_FLOOR = 5
"""Models whose plain mean the ensemble of few rows begins with."""
MAX_ADDED = 50
MAX_CANDIDATES = 100
"""The best by themselves; what is behind those has not been seen to be of use, and costs time."""
_LEAST_PROBABILITY = 1e-15


@dataclass(frozen=True)
class Selection:
    """An ensemble."""

    weights: tuple[float, ...]
    """Of each candidate, 0 for those that are not in it; they sum to 1."""
    loss: float
    """Log-loss, or mean squared error in the target's unit."""

    @property
    def members(self) -> tuple[int, ...]:
        """The candidates in it, the heaviest first."""
        heaviest = sorted(range(len(self.weights)), key=lambda i: -self.weights[i])
        return tuple(i for i in heaviest if self.weights[i] > 0)


def select(said: Array, y: Array, task: Task) -> Selection:
    """An ensemble of those who `said` (M, N): the probability of each row's own class, or its value
    (then `y` (N,) are the true ones). Raises ValueError where there is nobody."""
    import numpy as np

    if not len(said):
        raise ValueError("an ensemble of no model")
    alone = _losses(said, y, task)
    candidates = np.argsort(alone, kind="stable")[:MAX_CANDIDATES]
    counts = np.zeros(len(said))
    total = np.zeros(said.shape[1])
    first = candidates[: N_FLOOR if said.shape[1] < FEW_ROWS else 1]
    counts[first] += 1
    total += said[first].sum(axis=0)
    best = _losses((total / counts.sum())[None], y, task)[0]
    kept = counts.copy()
    for _ in range(MAX_ADDED - len(first)):
        losses = _losses((total + said[candidates]) / (counts.sum() + 1), y, task)
        added = candidates[losses.argmin()]
        counts[added] += 1
        total += said[added]
        if losses.min() < best:
            best, kept = losses.min(), counts.copy()
    return Selection(tuple(float(n) for n in kept / kept.sum()), float(best))


def _losses(said: Array, y: Array, task: Task) -> Array:
    """Of each line of (K, N)."""
    import numpy as np

    if task is Task.regression:
        losses: Array = np.square(said - y).mean(axis=1)
    else:
        losses = -np.log(said.clip(_LEAST_PROBABILITY)).mean(axis=1)
    return losses
