"""Gaussian process: proposes the params whose expected improvement is largest (Jones et al., 1998).

The process learns from all trials that have ended: a pruned one has its best report, one that
fitted on no device the worst value of all. A pending trial counts as if it had ended with the value
that the process expects, so that trials side by side differ. The first trials are points of a Sobol
sequence. A trial that lacks a param, because its condition does not hold, has the middle of the
range, or a choice of its own: draws that differ in such a param alone are the same to the process.

The regression is in `gaussian_process.py`, the space as points in `point_space.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from automl.config import check_setting
from automl.search.samplers.gaussian_process import (
    GaussianProcess,
    fit_process,
    log_expected_improvement,
)
from automl.search.samplers.memory_wall import ExcessBoundary, learn_from_trials
from automl.search.samplers.point_space import PointSpace
from automl.search.samplers.qmc import QMC
from automl.search.samplers.sampler import (
    ChooseValue,
    OpenSampler,
    Sampler,
    SamplerInputs,
    sampler_seed,
)
from automl.search.samplers.tpe import TPE
from automl.trial import ParamValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from optuna import Study
    from optuna.trial import FrozenTrial

    Floats: TypeAlias = NDArray[np.float64]

N_DRAWS = 512
"""Number of points from the whole space that are compared."""
N_ROUNDS, N_KEPT, N_NEAR = 6, 8, 16
"""Number of rounds, of points that go on to the next round, and of points near each of these."""
FIRST_WIDTH, NARROWER = 0.5, 2.5
"""Distance of the near points in the first round, as a share of a range, and the factor by which
each round is narrower."""
MAX_FITTED = 200
"""The process is fitted to the better half of so many trials, and a sample of the others."""


N_WEIGHTS = 8
"""Number of weightings of several metrics that take turns, each with a process of its own."""


@dataclass
class GPSampler(Sampler):
    """Gaussian process: learns most from few trials, also of spaces with choices and `when`."""

    several_metrics: ClassVar[bool] = True

    n_startup_trials: int = 10
    """Number of ended trials before the process is fitted; until then, points of sampler=qmc."""
    max_pending: int = 32
    """Number of trials that may be pending once the process is fitted; each counts with the value
    that the process expects."""

    def __post_init__(self) -> None:
        for key in ("n_startup_trials", "max_pending"):
            value = getattr(self, key)
            check_setting(value >= 1, f"sampler.{key}", value, "must be at least 1.")

    def n_may_pend(self, n_ended: int) -> int:
        """Return the startup trials, which do not learn from each other, then a full pack."""
        n_startup = self.n_startup_trials
        return min(n_startup, self.max_pending) if n_ended < n_startup else self.max_pending

    def open(self, search: SamplerInputs) -> OpenSampler:
        first, searcher = QMC().open(search), ImprovementSearch(PointSpace(search.space))

        def choose_for(number: int) -> ChooseValue | None:
            from optuna.samplers import RandomSampler

            study = search.open_study(RandomSampler())
            weights = metric_weights(len(study.directions), number)
            trials = ComparableTrials.of(study, searcher.space, weights)
            if len(trials.ended) < self.n_startup_trials or not searcher.space.axes:
                return first(number)
            drawn = searcher.best_params(trials, sampler_seed(search.study_seed, number))
            return lambda param: drawn[param.name]

        return choose_for

    def open_for_one_param(self, search: SamplerInputs) -> OpenSampler:
        """Open TPE, since all params would have the same first points in one dimension."""
        return TPE().open_for_one_param(search)


@dataclass(frozen=True)
class ComparableTrials:
    """The trials of a study that have all params which the space has for every trial."""

    ended: Sequence[FrozenTrial]
    """The trials that have ended and not failed, by number."""
    keys: Floats
    """The value of each, or its best report; a lower one is better, infinite: it has none."""
    pending: Sequence[FrozenTrial]
    weights: tuple[float, ...] = ()
    """The weight of each metric in the keys; empty: there is one."""

    @classmethod
    def of(
        cls, study: Study, space: PointSpace, weights: tuple[float, ...] = ()
    ) -> ComparableTrials:
        from optuna.trial import TrialState

        names = {param.name for param in space.common}
        own = (t for t in study.get_trials(deepcopy=False) if t.number >= 0)  # not of earlier ones
        trials = [t for t in own if names <= t.params.keys()]
        ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        pending = [t for t in trials if t.state is TrialState.RUNNING]
        return cls(ended, trial_keys(study, ended, weights), pending, weights)


def trial_keys(study: Study, ended: Sequence[FrozenTrial], weights: tuple[float, ...]) -> Floats:
    """Return a key of each trial; a lower key is better, and an infinite one means that it has
    none.

    Several metrics, each scaled to 0 to 1 over the finished trials, become one key by the augmented
    Tchebycheff function (ParEGO, Knowles, 2006, https://doi.org/10.1109/TEVC.2005.851274). A trial
    beyond a limit has no key, nor has a pruned one of several metrics.
    """
    import numpy as np
    from optuna.study import StudyDirection

    signs = [-1.0 if d is StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
    none = [math.inf] * len(signs)
    beyond = [any(excess > 0 for excess in t.constraints.values()) for t in ended]
    pairs = zip(ended, beyond, strict=True)
    values = np.array([none if off or not t.values else t.values for t, off in pairs])
    values = values.reshape(len(ended), len(signs))
    keys = np.where(np.isfinite(values), values * signs, math.inf)
    if not weights or not np.isfinite(keys).any():
        first: Floats = keys[:, 0]
        return first
    finite = keys[np.isfinite(keys).all(axis=1)]
    low, high = finite.min(axis=0), finite.max(axis=0)
    ranges = np.maximum(high - low, np.spacing(np.maximum(np.abs(low), np.abs(high))))
    shares = np.array(weights) * (keys - low) / ranges
    joined: Floats = shares.max(axis=1) + 0.05 * shares.sum(axis=1)
    return joined


def metric_weights(n_metrics: int, number: int) -> tuple[float, ...]:
    """Return the weights of metrics for the proposal of a trial, which take turns; empty for one
    metric."""
    import numpy as np

    if n_metrics == 1:
        return ()
    turn = number % N_WEIGHTS
    if n_metrics == 2:  # evenly over all compromises, near ones apart in time
        share = ((turn * 3) % N_WEIGHTS + 0.5) / N_WEIGHTS
        return share, 1 - share
    return tuple(np.random.default_rng(turn).dirichlet(np.ones(n_metrics)))


@dataclass(frozen=True)
class FittedProcess:
    """A Gaussian process that was fitted to the ended trials, and their number."""

    n_ended: int
    process: GaussianProcess
    """Its values are keys of mean 0 and deviation 1; a lower one is better."""
    wall: ExcessBoundary | None
    """Where trials begin that fit on no device; None: all have fitted."""


class ImprovementSearch:
    """Searches a space for the largest expected improvement."""

    def __init__(self, space: PointSpace) -> None:
        self.space = space
        self._fitted: dict[tuple[float, ...], FittedProcess] = {}
        """The newest process by the weights of several metrics."""

    def best_params(self, trials: ComparableTrials, seed: int) -> dict[str, ParamValue]:
        """Return the params to try next.

        On one thread: trials use the other cores, and threads that wait for each other there made a
        proposal ten times as long.
        """
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return self.space.params(self._best_point(trials, seed))

    def _best_point(self, trials: ComparableTrials, seed: int) -> Floats:
        import numpy as np

        fitted = self._fitted.get(trials.weights)
        if fitted is None or fitted.n_ended != len(trials.ended):
            fitted = self._fitted[trials.weights] = self._fit(trials)
        others = self.space.points([trial.params for trial in trials.pending])
        process = fitted.process.with_expected_at(others)
        least = float(process.values.min())

        def gains(points: Floats) -> Floats:
            found = log_expected_improvement(*process.predict(points), least)
            return found if fitted.wall is None else found - self.space.penalty(fitted.wall, points)

        rng = np.random.default_rng(seed)
        best = self.space.nearest(_largest(fitted.process.points, -fitted.process.values))
        draws = self.space.draw(rng, N_DRAWS)
        # The draws compete among themselves, so that the search does not begin at the best alone.
        kept = np.concatenate([best, _largest(draws, gains(draws))])
        width = FIRST_WIDTH
        for _ in range(N_ROUNDS):
            points = np.concatenate([kept, self.space.near(rng, kept, N_NEAR, width)])
            kept = _largest(points, gains(points))
            width /= NARROWER
        best_point: Floats = kept[0]
        return best_point

    def _fit(self, trials: ComparableTrials) -> FittedProcess:
        wall = learn_from_trials(self.space.common, trials.ended)
        chosen = choose_fitted(trials.keys)
        points = self.space.points([trials.ended[i].params for i in chosen])
        values = _standardized(trials.keys[chosen])
        process = fit_process(self.space.columns, points, values)
        return FittedProcess(len(trials.ended), process, wall)


def _largest(points: Floats, gains: Floats) -> Floats:
    import numpy as np

    return points[np.argsort(-gains, kind="stable")[:N_KEPT]]


def choose_fitted(keys: Floats) -> NDArray[np.int64]:
    """Return the positions of at most MAX_FITTED trials: the best ones, and others evenly."""
    import numpy as np

    order = np.argsort(keys, kind="stable")
    if len(keys) <= MAX_FITTED:
        return np.sort(order)
    half = MAX_FITTED // 2
    others = order[half:][np.linspace(0, len(keys) - half - 1, half).astype(int)]
    return np.sort(np.concatenate([order[:half], others]))


def _standardized(keys: Floats) -> Floats:
    """Return keys of mean 0 and deviation 1, with all bad ones alike.

    A key is at most as much worse than the median as the best one is better. Without this, some
    trials that diverged would make all others look the same.
    """
    import numpy as np

    finite = keys[np.isfinite(keys)]
    if not len(finite):
        return np.zeros(len(keys))
    median = float(np.median(np.minimum(keys, finite.max())))
    clipped = np.minimum(keys, median + (median - finite.min()))
    rounding = np.spacing(np.abs(clipped).max())
    standardized: Floats = (clipped - clipped.mean()) / np.maximum(clipped.std(), rounding)
    return standardized
