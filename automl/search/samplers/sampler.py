"""The contract of samplers: one class per option, in a file named for it.

The fields of the class are the option's arguments (`sampler.n_startup_trials=5`), so it is Hydra's
schema as well; hence plain dataclasses, and no import of Optuna before a study is opened. To add a
sampler is to add a file here and one in `conf/sampler/`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, cast

from automl.config import SamplerConfig
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

ChooseValue: TypeAlias = Callable[[SpaceParam], ParamValue]
"""Returns the value of an active, searched param of a trial, in the type of its domain."""
OpenStudy: TypeAlias = "Callable[[BaseSampler], optuna.Study]"
"""Opens the study in its current state for a sampler to read; notes that it writes are dropped."""


@dataclass(frozen=True)
class SamplerInputs:
    """The study for which a sampler is opened."""

    space: SearchSpace
    study_seed: int
    enqueued: Sequence[Params]
    """Complete params that are tried before the first proposal of the sampler."""
    open_study: OpenStudy
    choice: str | None = None
    """The param that tells the kind of a trial, on which other params depend; None: one kind."""
    earlier: Sequence[Params] = ()
    """Params of the trials that were asked for in an earlier space, as the present one has them."""
    slow_kinds: Collection[str] = frozenset()
    """Kinds that are not proposed, since this sweep has too little time for them."""


class OpenSampler(Protocol):
    """An open sampler, whose proposals follow only from the trial number and the ended trials."""

    def __call__(self, number: int) -> ChooseValue | None:
        """Return the function that chooses the params of trial `number`; None: no more trials."""


@dataclass(frozen=True)
class SamplerDecision:
    """The sampler of a study, and why it is that one."""

    sampler: Sampler
    reason: str | None = None
    """A line for the user; None: the user chose the sampler."""


@dataclass
class Sampler(SamplerConfig, ABC):
    """Proposes the params of trials; the base class of all samplers."""

    extends: ClassVar[bool] = True
    """The space may grow when an objective asks for params that it lacks."""
    mixes_likely: ClassVar[bool] = True
    """Some trials get params near the likely values in place of the sampler's."""

    def decide(self, choice: str | None) -> SamplerDecision:
        """Return the sampler of a study; `choice` is the param that tells the kind of a trial."""
        return SamplerDecision(self)

    several_metrics: ClassVar[bool] = False
    """Takes studies of several metrics, or with limits."""

    @abstractmethod
    def n_may_pend(self, n_ended: int) -> int | None:
        """Return how many trials may be pending without harm to proposals; None: any number."""

    @abstractmethod
    def open(self, search: SamplerInputs) -> OpenSampler:
        """Open the sampler for a study. Raises ConfigError for a space that it cannot take."""

    def open_for_one_param(self, search: SamplerInputs) -> OpenSampler:
        """Open the sampler for a space of one param, which an objective asks for while it runs.

        It has a value for each trial, drawn at random unless the sampler does better: a grid has
        only written params, and in one dimension all params of QMC would have the same point.
        """
        return random_draws(search)


def sampler_seed(study_seed: int, name: int | str) -> int:
    """Return 32 bits for NumPy from the study seed and a trial's number or a param's name."""
    return int.from_bytes(hashlib.sha256(f"{study_seed}:{name}".encode()).digest()[:4], "big")


def independent_chooser(
    sampler: BaseSampler, study: optuna.Study, number: int, known: Mapping[str, BaseDistribution]
) -> Callable[[SpaceParam], ParamValue]:
    from automl.search.optuna_trials import optuna_running_trial

    trial = optuna_running_trial(number)

    def choose(param: SpaceParam) -> ParamValue:
        distribution = known[param.name]
        if distribution.single():
            return param.domain.ends[0]
        return param.domain.cast(sampler.sample_independent(study, trial, param.name, distribution))

    return choose


def random_chooser(space: SearchSpace, number: int, seed: int) -> ChooseValue:
    """Return a function that draws each param at random, without a study."""
    from optuna.samplers import RandomSampler

    from automl.search.optuna_trials import optuna_distributions

    no_study = cast("optuna.Study", None)
    return independent_chooser(
        RandomSampler(seed=seed), no_study, number, optuna_distributions(space)
    )


def random_draws(search: SamplerInputs) -> OpenSampler:
    """Return proposals that are drawn at random, seeded by (study seed, trial number)."""
    return lambda number: random_chooser(
        search.space, number, sampler_seed(search.study_seed, number)
    )
