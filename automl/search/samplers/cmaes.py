"""CMA-ES (Hansen, 2016, https://arxiv.org/abs/1604.00772), by the `cmaes` package.

Optuna's own sampler keeps the state of the evolution as a pickle in the storage. Here the state is
made anew from the ended trials, in the order in which they ended. A resumed study thus proposes
what an uninterrupted one would have proposed, a study that another sampler began goes on with all
its trials, and nothing is unpickled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from automl.config import check_setting
from automl.errors import ConfigError
from automl.search.domains import RangeDomain
from automl.search.samplers.sampler import (
    ChooseValue,
    OpenSampler,
    Sampler,
    SamplerInputs,
    random_chooser,
    sampler_seed,
)
from automl.search.search_space import SpaceParam
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from cmaes import CMA
    from optuna.trial import FrozenTrial

Point: TypeAlias = tuple[float, ...]
"""The numeric params, each from 0 to 1 over its range (on its log scale, if it has one)."""


@dataclass
class CMAES(Sampler):
    """Covariance matrix adaptation: for spaces of numbers, and some hundred trials."""

    mixes_likely: ClassVar[bool] = False

    population_size: int | None = None
    """Trials from which each generation learns; auto: 4 + ⌊3 ln D⌋ for D numeric params."""
    sigma: float = 1 / 6
    """Standard deviation of the first generation, as a share of each range."""

    def __post_init__(self) -> None:
        size = self.population_size
        check_setting(
            size is None or size >= 2, "sampler.population_size", size, "must be at least 2."
        )
        check_setting(
            0 < self.sigma <= 1, "sampler.sigma", self.sigma, "must be above 0 and at most 1."
        )

    def n_may_pend(self, n_ended: int) -> int:
        """Return the size of a generation, whose trials do not learn from each other."""
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
            drawn = evolution.params(seed)
            choose_alone = random_chooser(search.space, number, seed)

            def choose(param: SpaceParam) -> ParamValue:
                return drawn[param.name] if param.name in drawn else choose_alone(param)

            return choose

        return choose_for


def _is_number(param: SpaceParam) -> bool:
    """Return whether a param is a number that every trial has; others are drawn at random."""
    span = param.domain
    return isinstance(span, RangeDomain) and span.low < span.high and not param.when


@dataclass(frozen=True)
class _NumericAxis:
    """Maps a numeric param to 0 … 1, where its range reaches half a step beyond its ends."""

    param: SpaceParam

    @property
    def _range(self) -> RangeDomain:
        assert isinstance(self.param.domain, RangeDomain)
        return self.param.domain

    @property
    def _wide_range(self) -> RangeDomain:
        half = (self._range.spacing or 0.0) / 2
        return RangeDomain(self._range.low - half, self._range.high + half, self._range.log)

    def place(self, value: float) -> float:
        return self._wide_range.share(value)

    def value(self, place: float) -> ParamValue:
        number = self._wide_range.at(place)
        assert isinstance(number, float)
        return self._range.nearest(number)


class _CMAESEvolution:
    """The state of the evolution, made from the trials that have ended."""

    def __init__(self, sampler: CMAES, axes: tuple[_NumericAxis, ...]) -> None:
        self._sampler, self._axes = sampler, axes
        likely = [axis.param.likely for axis in axes]
        middle = tuple(
            axis.place(value) if isinstance(value, int | float) else 0.5
            for axis, value in zip(axes, likely, strict=True)
        )
        self._optimizer = self._begin(middle)
        self._n_taken = 0
        self._generation: list[tuple[float, Point]] = []
        self._best: tuple[float, Point] = (math.inf, middle)

    def take(self, ended: list[tuple[float, Params]]) -> None:
        """Learn from the new ones of all ended trials, given as (key, params).

        A lower key is better. Trials that were taken before come first.
        """
        for key, params in ended[self._n_taken :]:
            self._n_taken += 1
            values = [params.get(axis.param.name) for axis in self._axes]
            numbers = [value for value in values if isinstance(value, int | float)]
            if len(numbers) == len(self._axes):  # a trial of another program may lack one
                places = zip(self._axes, numbers, strict=True)
                point = tuple(axis.place(number) for axis, number in places)
                if all(0 <= place <= 1 for place in point):  # the range was wider before
                    self._learn(key, point)

    def params(self, seed: int) -> Params:
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
        # CMA-ES uses only the ranks of values, so an infinite one does no harm.
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
    """Return (key, params) of trials that ended with a value or did not fit, in order of end."""
    from optuna.samplers import RandomSampler
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    study = search.open_study(RandomSampler())
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0

    def end_order(trial: FrozenTrial) -> tuple[float, int]:
        assert trial.datetime_complete is not None
        return trial.datetime_complete.timestamp(), trial.number

    own = (t for t in study.get_trials(deepcopy=False, states=states) if t.number >= 0)
    trials = sorted(own, key=end_order)
    return [(sign * t.values[0] if t.values else math.inf, t.params) for t in trials]
