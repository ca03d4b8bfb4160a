"""The memory wall: learn from trials that fit on no device where further ones would not fit.

Optuna's TPE knows that these trials are bad, not by how much: it sorts by excess only while almost
nothing fits (`_split_trials` in its `_tpe/sampler.py`). The excess of each trial, log(needed /
room), tells where the wall is. The excess is taken to be linear in the params (in the logarithm of
those on a log scale), since memory is nearly a product of powers. A draw beyond the wall is drawn
again (experiments/006-packing/wall.md).

Optuna keeps the excess of a trial as a constraint that the trial violates. Samplers ignore failed
trials and would propose the same again, but they learn from a pruned trial that violates a
constraint. Earlier versions stored a bare 1.0, and counted the trial as failed.
"""

from __future__ import annotations

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
    """Return a trial's excess, and whether it is only a lower bound.

    None: the trial was not too large, or an earlier version stored it.
    """
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
"""Limit of draws for one trial; if all are beyond the wall, the nearest one is taken."""
_RIDGE = 1e-2
"""Weight of the squared slopes in the least squares: slopes that few trials do not determine stay
near 0."""
_MAX_ROUNDS = 30


@dataclass(frozen=True)
class OversizedTrial:
    """A trial that fits on no device, with its excess."""

    values: Values
    excess: float
    at_least: bool
    """The excess is only a lower bound."""


@dataclass(frozen=True)
class ExcessBoundary:
    """A linear model of the excess; tells which params are expected not to fit."""

    params: tuple[SpaceParam, ...]
    slopes: Vector
    """The coefficients of the model; the first one is the constant."""
    least: float
    """The least excess of all oversized trials."""

    def excess(self, values: Values) -> float:
        return float(self.slopes @ _features(self.params, values))

    def is_beyond(self, values: Values) -> bool:
        """Return whether a trial is expected to be nearer to oversized than to fitting ones."""
        return self.excess(values) > self.least / 2


def draw_fitting_params(
    draw: Callable[[], dict[str, Any]],
    params: Sequence[SpaceParam],
    ended: Sequence[FrozenTrial],
    draw_alone: Callable[[SpaceParam], Any],
) -> dict[str, Any]:
    """Return the first draw that is expected to fit, judged by how trials ended.

    `params` are the params that every trial has. Where a draw is empty, each of them is drawn by
    `draw_alone`, if a wall is known.
    """
    drawn = draw()
    params = tuple(param for param in params if param.name in drawn or not drawn)
    wall = learn_from_trials(params, ended)
    if wall is None:
        return drawn

    def draw_each() -> dict[str, Any]:
        return draw() or {param.name: draw_alone(param) for param in params}

    best = drawn or draw_each()
    for _ in range(MAX_DRAWS - 1):
        if not wall.is_beyond(best):
            break
        best = min(best, draw_each(), key=wall.excess)
    return best


def learn_from_trials(
    params: tuple[SpaceParam, ...], ended: Sequence[FrozenTrial]
) -> ExcessBoundary | None:
    """Return the wall; None: no trial was too large, or there are no params."""
    names = {param.name for param in params}
    whole = [
        trial for trial in ended if names <= trial.params.keys()
    ]  # a trial of another program may lack params
    excesses = [(trial.params, stored_excess(trial)) for trial in whole]
    beyond = [OversizedTrial(values, *excess) for values, excess in excesses if excess is not None]
    if not beyond or not params:
        return None
    return learn_boundary(params, [values for values, excess in excesses if excess is None], beyond)


def learn_boundary(
    params: tuple[SpaceParam, ...], fitted: Sequence[Values], beyond: Sequence[OversizedTrial]
) -> ExcessBoundary:
    """Return the wall between trials that fitted and one or more beyond it.

    The excess of the trials beyond is fitted by least squares. A trial that fitted is known only to
    have an excess of at most 0, and some others have only a lower bound. Such a bound counts only
    while the fit contradicts it. The problem is convex, so repeating the fit until the same trials
    count ends at the minimum.
    """
    import numpy as np

    n = len(beyond)
    all_values = [trial.values for trial in beyond] + list(fitted)
    rows = np.array([_features(params, values) for values in all_values])
    targets = np.array([trial.excess for trial in beyond] + [0.0] * len(fitted))
    exact = np.array([not trial.at_least for trial in beyond])
    ridge = np.diag([1e-9] + [_RIDGE] * (rows.shape[1] - 1))  # the constant is free
    counts = np.ones(len(rows), dtype=bool)
    for _ in range(_MAX_ROUNDS):
        chosen = rows[counts]
        slopes = np.linalg.solve(chosen.T @ chosen + ridge, chosen.T @ targets[counts])
        expected, before = rows @ slopes, counts
        counts = expected > 0
        counts[:n] = exact | (expected[:n] < targets[:n])
        if (before == counts).all():
            break
    return ExcessBoundary(params, slopes, min(trial.excess for trial in beyond))


def _features(params: Sequence[SpaceParam], values: Values) -> Vector:
    import numpy as np

    return np.array(
        [1.0, *(at for param in params for at in _coordinates(param, values[param.name]))]
    )


def _coordinates(param: SpaceParam, value: Any) -> list[float]:
    """Return one number for a range, and a one-hot vector for a choice."""
    if isinstance(param.domain, ChoiceDomain):
        return [float(value == choice) for choice in param.domain.values]
    assert isinstance(param.domain, RangeDomain), "a fixed param is not drawn"
    return [param.domain.share(value)]
