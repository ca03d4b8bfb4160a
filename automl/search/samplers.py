"""What is tried next: Optuna's samplers, asked for a whole trial at once.

Each trial gets a fresh sampler seeded by (study seed, trial number), so that a study which was
stopped and resumed proposes what an uninterrupted one would have. QMC keeps the study's seed and
takes the point of the trial's number: seeded anew, its points would no longer be even. The grid
is ours (`grid.py`): Optuna's passes over all trials and does not know conditions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, cast

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from automl.config import (
    GridSamplerConfig,
    QMCSamplerConfig,
    RandomSamplerConfig,
    SamplerConfig,
    TPESamplerConfig,
)
from automl.search.domains import Choices, Fixed, Range
from automl.search.grid import grid
from automl.search.space import Param, Space
from automl.trial import Params, ParamValue

OpenView: TypeAlias = "Callable[[BaseSampler], optuna.Study]"
"""Opens the study for a sampler to look at; what the sampler notes down is dropped."""
_NO_STUDY = cast(optuna.Study, None)
"""For RandomSampler, which looks at none."""


class Proposer:
    """Params for trial after trial: the enqueued ones first, then the sampler's.

    All it proposes follows from the number asked for and, with TPE, from the trials before.
    """

    def __init__(
        self,
        config: SamplerConfig,
        space: Space,
        study_seed: int,
        enqueued: Sequence[Params],
        open_view: OpenView,
    ) -> None:
        """Raises ConfigError when the sampler is the grid and the space has none."""
        self._config = config
        self._space = space
        self._seed = study_seed
        self._enqueued = enqueued
        self._open_view = open_view
        self._distributions = distributions(space)
        self._grid: list[dict[str, ParamValue]] | None = None
        if isinstance(config, GridSamplerConfig):
            done = [self.complete(number, params) for number, params in enumerate(enqueued)]
            self._grid = grid(space, study_seed, done)

    def propose(self, number: int) -> dict[str, ParamValue] | None:
        """The params of trial `number`; None when a grid has no more."""
        if number < len(self._enqueued):
            return self.complete(number, self._enqueued[number])
        place = number - len(self._enqueued)
        if self._grid is not None:
            return self._grid[place] if place < len(self._grid) else None
        sampler = make_sampler(self._config, self._space, self._seed, number)
        if isinstance(sampler, NumberedQMC):
            sampler.point = place
        return self._sample(sampler, number, {})

    def complete(self, number: int, params: Params) -> dict[str, ParamValue]:
        """`params` with those missing drawn at random, as (study seed, number) decide."""
        sampler = RandomSampler(seed=trial_seed(self._seed, number))
        return self._sample(sampler, number, params)

    def _sample(self, sampler: BaseSampler, number: int, known: Params) -> dict[str, ParamValue]:
        study = _NO_STUDY if isinstance(sampler, RandomSampler) else self._open_view(sampler)
        trial = running_trial(number)
        joint = self._joint(sampler, study, trial)
        drawn = sampler.sample_relative(study, trial, joint) if joint else {}

        def choose(param: Param) -> ParamValue:
            if param.name in known:
                return param.domain.cast(known[param.name])
            if param.name in drawn:
                return param.domain.cast(drawn[param.name])
            distribution = self._distributions[param.name]
            if distribution.single():  # nothing to draw, and TPE would divide by its width
                return param.domain.ends[0]
            value = sampler.sample_independent(study, trial, param.name, distribution)
            return param.domain.cast(value)

        return self._space.fill(choose)

    def _joint(
        self, sampler: BaseSampler, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The params that the sampler draws together. Others are drawn each for itself.

        Known from the space; only TPE's `group` has to infer it from the trials, all of them.
        """
        if isinstance(sampler, NumberedQMC):
            return {name: d for name, d in self._distributions.items() if not d.single()}
        if not (isinstance(sampler, TPESampler) and isinstance(self._config, TPESamplerConfig)):
            return {}
        if self._config.group:
            return sampler.infer_relative_search_space(study, trial)
        if not self._config.multivariate:
            return {}
        always = (p.name for p in self._space.params if p.is_searched and not p.when)
        return {n: self._distributions[n] for n in always if not self._distributions[n].single()}


def make_sampler(config: SamplerConfig, space: Space, study_seed: int, number: int) -> BaseSampler:
    """Optuna's sampler for trial `number`, every argument written out."""
    seed = trial_seed(study_seed, number)
    match config:
        case RandomSamplerConfig():
            return RandomSampler(seed=seed)
        case QMCSamplerConfig(qmc_type=qmc_type, scramble=scramble):
            return NumberedQMC(
                qmc_type=qmc_type,
                scramble=scramble,
                seed=study_seed,
                independent_sampler=RandomSampler(seed=seed),
                warn_asynchronous_seeding=False,
                warn_independent_sampling=False,
            )
        case TPESamplerConfig():
            return TPESampler(
                prior_weight=config.prior_weight,
                consider_magic_clip=config.consider_magic_clip,
                consider_endpoints=config.consider_endpoints,
                n_startup_trials=config.n_startup_trials,
                n_ei_candidates=config.n_ei_candidates,
                multivariate=config.multivariate,
                group=config.group,
                constant_liar=config.constant_liar,
                seed=seed,
            )
    raise TypeError(f"no sampler for {type(config).__name__}")


class NumberedQMC(QMCSampler):
    """QMC that takes the point it is told instead of counting points in the storage.

    The count is written before the trial: a kill between the two would skip a point, and the
    resumed study would differ from an uninterrupted one.
    """

    point: int = 0

    def _find_sample_id(
        self, study: optuna.Study, search_space: dict[str, BaseDistribution]
    ) -> int:
        return self.point


def trial_seed(study_seed: int, number: int) -> int:
    """32 bits for NumPy that differ from trial to trial and from study seed to study seed."""
    return int.from_bytes(hashlib.sha256(f"{study_seed}:{number}".encode()).digest()[:4], "big")


def running_trial(
    number: int,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
    user_attrs: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """A trial as Optuna writes one down when it begins."""
    return FrozenTrial(
        number=number,
        trial_id=-1,  # the storage gives it one
        state=optuna.trial.TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs=dict(user_attrs or {}),
        system_attrs={},
        intermediate_values={},
    )


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distribution for each param that is searched."""
    return {param.name: _distribution(param) for param in space.params if param.is_searched}


def _distribution(param: Param) -> BaseDistribution:
    match param.domain:
        case Choices(values):
            return CategoricalDistribution(values)
        case Range(low=int(low), high=int(high), log=log, step=step):
            return IntDistribution(low, high, log=log, step=int(step or 1))
        case Range(low=low, high=high, log=log, step=step):
            return FloatDistribution(low, high, log=log, step=step)
        case Fixed():
            raise AssertionError(f"{param.name} is fixed and not searched")


def n_may_pend(config: SamplerConfig, n_ended: int) -> int | None:
    """How many trials may be asked for and not ended without harm; None: any number.

    A sampler that learns proposes blindly what it is asked for at once. With this rule the best of
    256 trials is within noise of asking one by one; 64 at once have lost all of TPE's lead after 64
    trials and a third after 256 (experiments/003-asking-ahead).
    """
    return max(4, n_ended // 4) if isinstance(config, TPESamplerConfig) else None
