"""Adapter for Optuna's samplers, and the order in which params are proposed.

An Optuna sampler is asked for a whole trial at once. Each trial gets a new sampler seeded by (study
seed, trial number), so that a resumed study proposes what an uninterrupted one would have proposed.
`ParamsProposer` proposes the enqueued params first, then those of the sampler.

The samplers themselves are in the files named for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.search.samplers.sampler import (
    ChooseValue,
    OpenSampler,
    OpenStudy,
    Sampler,
    SamplerInputs,
    independent_chooser,
    random_chooser,
    sampler_seed,
)
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

Distributions: TypeAlias = "dict[str, BaseDistribution]"
INFERRED = None
"""The sampler infers from all trials so far which params are drawn together."""


@dataclass
class OptunaSampler(Sampler):
    """A sampler of ours that is carried out by one of Optuna's, which reads a study."""

    @abstractmethod
    def make(self, search: SamplerInputs, number: int) -> BaseSampler:
        """Return Optuna's sampler for trial `number`, with every argument written out."""

    @abstractmethod
    def joint(self, params: tuple[SpaceParam, ...]) -> tuple[SpaceParam, ...] | None:
        """Return the params that are drawn together, or INFERRED; the others are drawn one by one.

        There is no default: a sampler that draws params together and forgot to say so would draw
        them one by one, unnoticed.
        """

    def choose_draw(
        self, draw: Callable[[], dict[str, Any]], study: Study, params: tuple[SpaceParam, ...]
    ) -> dict[str, Any]:
        """Return one of the sampler's draws of the params that are drawn together."""
        return draw()

    def open(self, search: SamplerInputs) -> OpenSampler:
        from automl.search.optuna_trials import optuna_distributions

        known = optuna_distributions(search.space)

        def choose_for(number: int) -> ChooseValue:
            sampler = self.make(search, number)
            study = search.open_study(sampler)
            drawn = self._draw_together(sampler, study, number, search.space, known)
            choose_alone = independent_chooser(sampler, study, number, known)

            def choose(param: SpaceParam) -> ParamValue:
                if param.name in drawn:
                    return param.domain.cast(drawn[param.name])
                return choose_alone(param)

            return choose

        return choose_for

    def _draw_together(
        self,
        sampler: BaseSampler,
        study: Study,
        number: int,
        space: SearchSpace,
        known: Distributions,
    ) -> dict[str, Any]:
        from automl.search.optuna_trials import optuna_running_trial

        trial = optuna_running_trial(number)
        # A single value needs no draw, and TPE would divide by its width.
        params = tuple(p for p in space.params if p.name in known and not known[p.name].single())
        together = self.joint(params)
        if together is INFERRED:
            joint = sampler.infer_relative_search_space(study, trial)
        else:
            joint = {param.name: known[param.name] for param in together}
        if not joint:
            return {}

        def draw() -> dict[str, Any]:
            return sampler.sample_relative(study, trial, joint)

        return self.choose_draw(draw, study, params)


class ParamsProposer:
    """Proposes the params of trial after trial: the enqueued ones, then the sampler's."""

    def __init__(
        self,
        sampler: Sampler,
        space: SearchSpace,
        study_seed: int,
        enqueued: Sequence[Params],
        open_study: OpenStudy,
        choice: str | None = None,
        earlier: Sequence[Params] = (),
    ) -> None:
        """Open the sampler. Raises ConfigError for a space that it cannot take."""
        self._space, self._seed = space, study_seed
        self._enqueued = [self.complete(number, params) for number, params in enumerate(enqueued)]
        self._proposals = sampler.open(
            SamplerInputs(space, study_seed, self._enqueued, open_study, choice, earlier)
        )

    def propose(self, number: int) -> dict[str, ParamValue] | None:
        """Return the params of trial `number`; None: there are no more."""
        if number < len(self._enqueued):
            return self._enqueued[number]
        choose = self._proposals(number)
        return None if choose is None else self._space.fill(choose)

    def complete(self, number: int, params: Params) -> dict[str, ParamValue]:
        """Return `params` with missing ones drawn at random, seeded by (study seed, number)."""
        return complete_params(self._space, self._seed, number, params)


def complete_params(
    space: SearchSpace, study_seed: int, number: int, params: Params
) -> dict[str, ParamValue]:
    """Return `params` with missing ones drawn at random, seeded by (study seed, number)."""
    draw = random_chooser(space, number, sampler_seed(study_seed, number))

    def choose(param: SpaceParam) -> ParamValue:
        return param.domain.cast(params[param.name]) if param.name in params else draw(param)

    return space.fill(choose)
