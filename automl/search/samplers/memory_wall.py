"""Where in a space the trials begin that fit on no device, learned from those that did not.

Optuna's TPE knows that such trials are bad, not by how much: it sorts by excess only while next to
nothing fits (`_split_trials` in its `_tpe/sampler.py`). But how far each was beyond the wall says
where the wall is. The excess, log(needed / room), is taken to be linear in the params, those on a
log scale by their logarithm: memory is near a product of powers. What is beyond the wall by that is
drawn again (experiments/006-packing/wall.md).

What Optuna keeps of a trial that fits on no device: constraints that it violates, by its excess.

Samplers pass over failed trials and would propose the same again; from one that is pruned and
violates a constraint they learn. Earlier versions told a bare 1.0, and counted it as failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.search.domains import ChoiceDomain, RangeDomain
from automl.search.search_space import SpaceParam

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

EXCESS_KEY = "memory_excess"
AT_LEAST_KEY = "memory_excess_at_least"
BARE_KEY = "memory"


def stored_excess(trial: FrozenTrial) -> tuple[float, bool] | None:
    """A trial's excess, and whether it is only known to be no less; None: it was not too large, or
    an earlier version told it."""
    for key in (EXCESS_KEY, AT_LEAST_KEY):
        if key in trial.constraints:
            return trial.constraints[key], key == AT_LEAST_KEY
    return None


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
class OversizedTrial:
    """A trial that fits on no device."""

    values: Values
    excess: float
    at_least: bool
    """It may be more."""


@dataclass(frozen=True)
class ExcessBoundary:
    """A linear excess."""

    params: tuple[SpaceParam, ...]
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


def draw_fitting_params(
    draw: Callable[[], dict[str, Any]], params: Sequence[SpaceParam], ended: Sequence[FrozenTrial]
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


def _wall_of(params: tuple[SpaceParam, ...], ended: Sequence[FrozenTrial]) -> ExcessBoundary | None:
    """None where no trial was too large, or none of the params tells anything of it."""
    names = {param.name for param in params}
    whole = [trial for trial in ended if names <= trial.params.keys()]  # another program's may lack
    told = [(trial.params, stored_excess(trial)) for trial in whole]
    beyond = [OversizedTrial(values, *found) for values, found in told if found is not None]
    if not beyond or not params:
        return None
    return learn_boundary(params, [values for values, found in told if found is None], beyond)


def learn_boundary(
    params: tuple[SpaceParam, ...], fitted: Sequence[Values], beyond: Sequence[OversizedTrial]
) -> ExcessBoundary:
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
    return ExcessBoundary(params, slopes, min(trial.excess for trial in beyond))


def _features(params: Sequence[SpaceParam], values: Values) -> Vector:
    import numpy as np

    return np.array(
        [1.0, *(at for param in params for at in _coordinates(param, values[param.name]))]
    )


def _coordinates(param: SpaceParam, value: Any) -> list[float]:
    """One number for a range, a 1 among zeros for one of the choices."""
    if isinstance(param.domain, ChoiceDomain):
        return [float(value == choice) for choice in param.domain.values]
    return [unit_position(param, value)]


def unit_position(param: SpaceParam, value: Any) -> float:
    """Where in its range a value is, from 0 to 1; by its logarithm on a log scale."""
    domain = param.domain
    assert isinstance(domain, RangeDomain), "a fixed param is not drawn"
    low, high, at = float(domain.low), float(domain.high), float(value)
    if domain.log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    return (at - low) / (high - low) if high > low else 0.0
