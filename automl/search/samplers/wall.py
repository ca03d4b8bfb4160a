"""Where in a space the trials begin that fit on no device, learned from those that did not.

Optuna's TPE knows that such trials are bad, not by how much: it sorts by excess only while next to
nothing fits (`_split_trials` in its `_tpe/sampler.py`). But how far each was beyond the wall says
where the wall is. The excess, log(needed / room), is taken to be linear in the params, those on a
log scale by their logarithm: memory is near a product of powers. What is beyond the wall by that is
drawn again (experiments/006-packing, The wall).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.search.domains import Choices, Range
from automl.search.excess import excess_of
from automl.search.space import Param

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from optuna.trial import FrozenTrial

    Vector: TypeAlias = NDArray[np.float64]

Values: TypeAlias = Mapping[str, Any]
MAX_DRAWS = 16
"""More proposals than that are not looked at for one trial; the least beyond is taken then."""
_RIDGE = 1e-2
"""Of the slopes, against the sum of squares: what few trials do not tell apart stays level."""
_MAX_ROUNDS = 30


@dataclass(frozen=True)
class Beyond:
    """A trial that fits on no device."""

    values: Values
    excess: float
    at_least: bool
    """It may be more."""


@dataclass(frozen=True)
class Wall:
    """A linear excess."""

    params: tuple[Param, ...]
    slopes: Vector
    """The level first."""
    least: float
    """The least excess that was seen."""

    def excess(self, values: Values) -> float:
        """What is expected."""
        return float(self.slopes @ _features(self.params, values))

    def is_beyond(self, values: Values) -> bool:
        """Whether it is expected to be nearer to those beyond than to those that fitted."""
        return self.excess(values) > self.least / 2


def draw_within(
    draw: Callable[[], dict[str, Any]], params: Sequence[Param], ended: Sequence[FrozenTrial]
) -> dict[str, Any]:
    """The first draw that is thought to fit, by how trials ended; `params` are in every trial."""
    drawn = draw()
    params = tuple(param for param in params if param.name in drawn)
    wall = _wall_of(params, ended)
    if wall is None:
        return drawn
    best = drawn
    for _ in range(MAX_DRAWS - 1):
        if not wall.is_beyond(best):
            break
        best = min(best, draw(), key=wall.excess)
    return best


def _wall_of(params: tuple[Param, ...], ended: Sequence[FrozenTrial]) -> Wall | None:
    """None where no trial was too large, or none of the params tells anything of it."""
    names = {param.name for param in params}
    whole = [trial for trial in ended if names <= trial.params.keys()]  # another program's may lack
    told = [(trial.params, excess_of(trial)) for trial in whole]
    beyond = [Beyond(values, *found) for values, found in told if found is not None]
    if not beyond or not params:
        return None
    return learn_wall(params, [values for values, found in told if found is None], beyond)


def learn_wall(
    params: tuple[Param, ...], fitted: Sequence[Values], beyond: Sequence[Beyond]
) -> Wall:
    """The wall between trials that fitted and one or more beyond it.

    Least squares to the excess of those beyond; of those that fitted it is known only that theirs
    is no more than 0, and of some beyond that it is no less: they count where more, or less, is
    expected of them. That is convex, so going round until the same ones count ends at the least.
    """
    import numpy as np

    n = len(beyond)
    every = [trial.values for trial in beyond] + list(fitted)
    rows = np.array([_features(params, values) for values in every])
    wanted = np.array([trial.excess for trial in beyond] + [0.0] * len(fitted))
    exact = np.array([not trial.at_least for trial in beyond])
    ridge = np.diag([1e-9] + [_RIDGE] * (rows.shape[1] - 1))  # the level is free
    counts = np.ones(len(rows), dtype=bool)
    for _ in range(_MAX_ROUNDS):
        chosen = rows[counts]
        slopes = np.linalg.solve(chosen.T @ chosen + ridge, chosen.T @ wanted[counts])
        expected, before = rows @ slopes, counts
        counts = expected > 0
        counts[:n] = exact | (expected[:n] < wanted[:n])
        if (before == counts).all():
            break
    return Wall(params, slopes, min(trial.excess for trial in beyond))


def _features(params: Sequence[Param], values: Values) -> Vector:
    import numpy as np

    return np.array(
        [1.0, *(at for param in params for at in _coordinates(param, values[param.name]))]
    )


def _coordinates(param: Param, value: Any) -> list[float]:
    """One number for a range, a 1 among zeros for one of the choices."""
    if isinstance(param.domain, Choices):
        return [float(value == choice) for choice in param.domain.values]
    return [place(param, value)]


def place(param: Param, value: Any) -> float:
    """Where in its range a value is, from 0 to 1; by its logarithm on a log scale."""
    domain = param.domain
    assert isinstance(domain, Range), "a fixed param is not drawn"
    low, high, at = float(domain.low), float(domain.high), float(value)
    if domain.log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    return (at - low) / (high - low) if high > low else 0.0
