"""CMA-ES (Hansen, 2016, https://arxiv.org/abs/1604.00772), by the `cmaes` package.

Optuna's own sampler keeps the state of the evolution as a pickle in the storage, and loads it. Here
there is none to keep: it is made anew from the ended trials, in the order in which they ended. So a
resumed study proposes what an uninterrupted one would have, one that another sampler began goes on
with all it knows, and nothing is unpickled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from automl.config import check
from automl.errors import ConfigError
from automl.search.domains import RangeDomain
from automl.search.samplers.by_optuna import random_chooser
from automl.search.samplers.sampler import (
    ChooseValue,
    OpenSampler,
    Sampler,
    SamplerInputs,
    sampler_seed,
)
from automl.search.search_space import SpaceParam
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from cmaes import CMA
    from optuna.trial import FrozenTrial

Point: TypeAlias = tuple[float, ...]
"""The numeric params, each from 0 to 1 over its range (on its log scale, where it has one)."""


@dataclass
class CMAES(Sampler):
    """Covariance matrix adaptation: for spaces of numbers, and some hundred trials."""

    population_size: int | None = None
    """Trials from which each generation learns; none: 4 + ⌊3 ln D⌋ for D numeric params."""
    sigma: float = 1 / 6
    """Standard deviation of the first generation, as a share of each range."""

    def __post_init__(self) -> None:
        size = self.population_size
        check(size is None or size >= 2, "sampler.population_size", size, "must be at least 2.")
        check(0 < self.sigma <= 1, "sampler.sigma", self.sigma, "must be above 0 and at most 1.")

    def n_may_pend(self, n_ended: int) -> int:
        """A generation: its trials do not learn from each other."""
        return self.population_size or 8

    def open(self, search: SamplerInputs) -> OpenSampler:
        axes = tuple(_NumericAxis(param) for param in search.space.params if _is_number(param))
        if not axes:
            raise ConfigError(
                "sampler=cmaes needs at least one param that is a range without `when`; take "
                "another sampler, such as tpe."
            )
        evolution = _CMAESEvolution(self, axes)

        def choose_for(number: int) -> ChooseValue:
            evolution.take(_ended(search))
            seed = sampler_seed(search.study_seed, number)
            together = evolution.params(seed)
            alone = random_chooser(search.space, number, seed)

            def choose(param: SpaceParam) -> ParamValue:
                return together[param.name] if param.name in together else alone(param)

            return choose

        return choose_for

    def one(self, search: SamplerInputs) -> OpenSampler:
        """At random, as all that is not in every trial."""
        return lambda number: random_chooser(
            search.space, number, sampler_seed(search.study_seed, number)
        )


def _is_number(param: SpaceParam) -> bool:
    """A number that every trial has; all else is drawn at random, each for itself."""
    span = param.domain
    return isinstance(span, RangeDomain) and span.low < span.high and not param.when


@dataclass(frozen=True)
class _NumericAxis:
    """A numeric param as a number from 0 to 1, half a step beyond its ends included."""

    param: SpaceParam

    @property
    def _range(self) -> RangeDomain:
        assert isinstance(self.param.domain, RangeDomain)
        return self.param.domain

    @property
    def _ends(self) -> tuple[float, float]:
        span = self._range
        step = 1 if span.step is None and span.is_integer else span.step
        half = 0.0 if step is None else step / 2
        low, high = span.low - half, span.high + half
        return (math.log(low), math.log(high)) if span.log else (low, high)

    def place(self, value: float) -> float:
        low, high = self._ends
        return ((math.log(value) if self._range.log else value) - low) / (high - low)

    def value(self, place: float) -> ParamValue:
        low, high = self._ends
        number = low + place * (high - low)
        number = math.exp(number) if self._range.log else number
        if self._range.is_integer:
            number = round(number)
        return self._range.cast(min(max(number, self._range.low), self._range.high))


class _CMAESEvolution:
    """The evolution as the trials that have ended make it."""

    def __init__(self, sampler: CMAES, axes: tuple[_NumericAxis, ...]) -> None:
        self._sampler, self._axes = sampler, axes
        self._optimizer = self._begin((0.5,) * len(axes))
        self._n_taken = 0
        self._generation: list[tuple[float, Point]] = []
        self._best: tuple[float, Point] = (math.inf, (0.5,) * len(axes))

    def take(self, ended: list[tuple[float, Params]]) -> None:
        """Learn from all ended trials, as (key, params), the lower key the better; those taken
        before come first."""
        for key, params in ended[self._n_taken :]:
            self._n_taken += 1
            values = [params.get(axis.param.name) for axis in self._axes]
            numbers = [value for value in values if isinstance(value, int | float)]
            if len(numbers) == len(self._axes):  # a trial of another program's may lack one
                places = zip(self._axes, numbers, strict=True)
                self._learn(key, tuple(axis.place(number) for axis, number in places))

    def params(self, seed: int) -> Params:
        """A draw from the distribution as it stands."""
        self._optimizer.reseed_rng(seed)
        point = self._optimizer.ask()
        return {
            axis.param.name: axis.value(float(place))
            for axis, place in zip(self._axes, point, strict=True)
        }

    def _learn(self, key: float, point: Point) -> None:
        import numpy as np

        self._generation.append((key, point))
        self._best = min(self._best, (key, point), key=lambda pair: pair[0])
        if len(self._generation) < self._optimizer.population_size:
            return
        # Ranks are all that CMA-ES takes from values; so one that is infinite does no harm.
        ranked = sorted(self._generation, key=lambda pair: pair[0])
        self._optimizer.tell([(np.array(p), float(rank)) for rank, (_, p) in enumerate(ranked)])
        self._generation = []
        if self._optimizer.should_stop():  # it has converged, or its numbers have run away
            self._optimizer = self._begin(self._best[1])

    def _begin(self, mean: Point) -> CMA:
        import numpy as np
        from cmaes import CMA

        return CMA(
            mean=np.array(mean),
            sigma=self._sampler.sigma,
            bounds=np.array([[0.0, 1.0]] * len(self._axes)),
            population_size=self._sampler.population_size,
        )


def _ended(search: SamplerInputs) -> list[tuple[float, Params]]:
    """(key, params) of trials that ended with a value or did not fit, as they ended."""
    from optuna.samplers import RandomSampler
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    study = search.open_study(RandomSampler())
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0

    def when(trial: FrozenTrial) -> tuple[float, int]:
        assert trial.datetime_complete is not None
        return trial.datetime_complete.timestamp(), trial.number

    trials = sorted(study.get_trials(deepcopy=False, states=states), key=when)
    return [(sign * t.values[0] if t.values else math.inf, t.params) for t in trials]
