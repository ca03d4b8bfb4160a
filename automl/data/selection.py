"""Which models of a study make its ensemble, and with what weights: greedy selection with
replacement (Caruana et al., 2004, https://doi.org/10.1145/1015330.1015432).

Models are known by what they say of rows that none of them has seen. One after another is added,
each time that one with which the mean of all added is best; a model that is added twice has twice
the weight. What was best on the way is kept. Few rows a selection can learn by heart: there it is
made by some of them and looked at on the others, and where the plain mean of the best five, no
two of which are of one family, does no worse on those, that is taken. After hundreds of trials the
best five of all are one model five times, found by chance, and worse on new rows than the best five
after twenty (`experiments/013-tables/peers.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from automl.config import Task
from automl.config.losses import SQUARED_ERROR, ValueLoss

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

FEW_ROWS = 1_000
N_FLOOR = 5
"""Models whose plain mean the ensemble of few rows has to be better than."""
_N_PARTS = 5
"""Of few rows: made by all but one, looked at on that."""
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
    """Log-loss, or mean squared error in the target's unit, or what the study has for it."""

    @property
    def members(self) -> tuple[int, ...]:
        """The candidates in it, the heaviest first."""
        heaviest = sorted(range(len(self.weights)), key=lambda i: -self.weights[i])
        return tuple(i for i in heaviest if self.weights[i] > 0)


def select(
    said: Array,
    y: Array,
    task: Task,
    loss: ValueLoss = SQUARED_ERROR,
    families: Sequence[Hashable] | None = None,
) -> Selection:
    """An ensemble of those who `said` (M, N): the probability of each row's own class, or its value
    (then `y` (N,) are the true ones, and `loss` judges), of these `families`; None: all are of one.
    Raises ValueError where there is nobody."""
    import numpy as np

    if not len(said):
        raise ValueError("an ensemble of no model")
    if task is not Task.regression:
        y = np.zeros(said.shape[1])  # what they say is of each row's class already
    judge: ValueLoss | None = loss if task is Task.regression else None
    make = _greedy
    if said.shape[1] < FEW_ROWS:
        floor = partial(_floor, families=families or [None] * len(said))
        both = _greedy, floor
        greedy_loss, floor_loss = (_loss_elsewhere(each, said, y, judge) for each in both)
        make = floor if floor_loss <= greedy_loss else _greedy
    weights = make(said, y, judge)
    return Selection(tuple(map(float, weights)), float(_losses(weights[None] @ said, y, judge)[0]))


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


def _floor(
    said: Array, y: Array, judge: ValueLoss | None, *, families: Sequence[Hashable]
) -> Array:
    """(M,) weights: five alike, the best of each family first, then the best of all others."""
    import numpy as np

    ranked = np.argsort(_losses(said, y, judge), kind="stable").tolist()
    firsts: dict[Hashable, int] = {}
    for place in ranked:
        firsts.setdefault(families[place], place)
    others = (place for place in ranked if place not in firsts.values())
    best = [*firsts.values(), *others][:N_FLOOR]
    weights = np.zeros(len(said))
    weights[best] = 1 / len(best)
    return weights


def _loss_elsewhere(
    make: Callable[[Array, Array, ValueLoss | None], Array],
    said: Array,
    y: Array,
    judge: ValueLoss | None,
) -> float:
    """The mean loss of ensembles on the parts of the rows that they were not made by."""
    import numpy as np

    parts = np.random.default_rng(0).permutation(len(y)) % _N_PARTS
    losses = []
    for part in range(min(_N_PARTS, len(y))):
        out = parts == part
        weights = make(said[:, ~out], y[~out], judge)
        losses.append(_losses(weights[None] @ said[:, out], y[out], judge)[0])
    return float(np.mean(losses))


def _losses(said: Array, y: Array, judge: ValueLoss | None) -> Array:
    """Of each line of (K, N); None judges probabilities."""
    import numpy as np

    if judge is None:
        losses: Array = -np.log(said.clip(_LEAST_PROBABILITY)).mean(axis=1)
    else:
        from automl.data.value_losses import per_row

        losses = per_row(judge, said, y, scale=1.0).mean(axis=1)
    return losses
