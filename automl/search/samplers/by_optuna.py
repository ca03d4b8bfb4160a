"""Samplers that Optuna has: asked for a whole trial at once.

Each trial gets a fresh one seeded by (study seed, trial number), so that a study which was stopped
and resumed proposes what an uninterrupted one would have.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from automl.search.samplers.sampler import Choose, Proposals, Sampler, Search
from automl.search.space import Param, Space
from automl.trial import ParamValue

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

Distributions: TypeAlias = "dict[str, BaseDistribution]"
INFERRED = None
"""Which params are drawn together is inferred by the sampler, from all trials so far."""


@dataclass
class OptunaSampler(Sampler):
    """One of Optuna's samplers that looks at a study."""

    @abstractmethod
    def make(self, search: Search, number: int) -> BaseSampler:
        """Optuna's sampler for trial `number`, every argument written out."""

    @abstractmethod
    def joint(self, params: tuple[Param, ...]) -> tuple[Param, ...] | None:
        """Those of `params` that are drawn together, or INFERRED; the others are drawn one by one.

        There is no default: a sampler that draws together and did not say so would draw each for
        itself, and nobody would notice.
        """

    def choose_draw(
        self, draw: Callable[[], dict[str, Any]], study: Study, params: tuple[Param, ...]
    ) -> dict[str, Any]:
        """One of the sampler's draws of those of `params` that are drawn together."""
        return draw()

    def open(self, search: Search) -> Proposals:
        from automl.search.distributions import distributions

        known = distributions(search.space)

        def choose_for(number: int) -> Choose:
            sampler = self.make(search, number)
            study = search.open_study(sampler)
            drawn = self._draw_together(sampler, study, number, search.space, known)
            alone = one_by_one(sampler, study, number, known)

            def choose(param: Param) -> ParamValue:
                return param.domain.cast(drawn[param.name]) if param.name in drawn else alone(param)

            return choose

        return choose_for

    def _draw_together(
        self, sampler: BaseSampler, study: Study, number: int, space: Space, known: Distributions
    ) -> dict[str, Any]:
        from automl.search.distributions import running_trial

        trial = running_trial(number)
        # One value is nothing to draw, and TPE would divide by its width.
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


def one_by_one(
    sampler: BaseSampler, study: Study, number: int, known: Distributions
) -> Callable[[Param], ParamValue]:
    """Each param drawn for itself."""
    from automl.search.distributions import running_trial

    trial = running_trial(number)

    def choose(param: Param) -> ParamValue:
        distribution = known[param.name]
        if distribution.single():
            return param.domain.ends[0]
        return param.domain.cast(sampler.sample_independent(study, trial, param.name, distribution))

    return choose


def at_random(space: Space, number: int, seed: int) -> Choose:
    """Independent draws, which look at no study."""
    from optuna.samplers import RandomSampler

    from automl.search.distributions import distributions

    no_study = cast("Study", None)
    return one_by_one(RandomSampler(seed=seed), no_study, number, distributions(space))
