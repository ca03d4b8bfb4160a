"""Adapter for Optuna's samplers, and the order in which params are proposed.

An Optuna sampler is asked for a whole trial at once. Each trial gets a new sampler seeded by (study
seed, trial number), so that a resumed study proposes what an uninterrupted one would have proposed.
`ParamsProposer` proposes the enqueued params first, then those of the sampler, some of them near
the values that the user expects to be good.

The samplers themselves are in the files named for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.search.domains import RangeDomain
from automl.search.samplers.sampler import (
    ChooseValue,
    OpenSampler,
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
    """A sampler of this package that a sampler of Optuna carries out, which reads a study."""

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
        self,
        draw: Callable[[], dict[str, Any]],
        study: Study,
        params: tuple[SpaceParam, ...],
        draw_alone: Callable[[SpaceParam], Any],
    ) -> dict[str, Any]:
        """Return one of the sampler's draws of the params that are drawn together.

        A draw is empty while the sampler draws at random: it then draws param by param, as
        `draw_alone` does.
        """
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

        def draw_alone(param: SpaceParam) -> Any:
            return sampler.sample_independent(study, trial, param.name, known[param.name])

        return self.choose_draw(draw, study, params, draw_alone)


class ParamsProposer:
    """Proposes the params of trial after trial: the enqueued ones, then the sampler's."""

    def __init__(
        self, sampler: Sampler, inputs: SamplerInputs, points: Sequence[Params] = ()
    ) -> None:
        """Open the sampler; the enqueued params of `inputs` may lack some. `points` are the same
        with the params that the space lacks. Raises ConfigError for a space that the sampler cannot
        take."""
        self._points = points
        self._space, self._seed = inputs.space, inputs.study_seed
        self._mixes_likely = sampler.mixes_likely and bool(self._space.likely_points)
        self._enqueued = [self.complete(n, params) for n, params in enumerate(inputs.enqueued)]
        self._proposals = sampler.open(replace(inputs, enqueued=self._enqueued))

    def propose(self, number: int) -> dict[str, ParamValue] | None:
        """Return the params of trial `number`; None: there are no more."""
        if number < len(self._enqueued):
            return self._enqueued[number]
        choose = self._proposals(number)
        if choose is not None and self._mixes_likely:
            seed = sampler_seed(self._seed, f"likely:{number}")
            choose = choose_likely(choose, number - len(self._enqueued), seed)
        return None if choose is None else self._space.fill(choose)

    def point(self, number: int) -> Params:
        """Return what the user has trial `number` try, beyond the space, too; empty: nothing."""
        return self._points[number] if number < len(self._points) else {}

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


HALF_LIFE = 3
"""Number of trials after which the probability of a trial near the likely values has halved. It
begins at 1/2, so that 2.4 trials are near them in all (experiments/024-steering)."""
WIDTH = 0.1
"""Standard deviation of the prior, as a share of the range (of its log scale, if it has one)."""
CHOICE_PROBABILITY = 0.7
"""The probability of the likely value of a choice, within a trial that is drawn near them."""


def choose_likely(choose: ChooseValue, n_before: int, seed: int) -> ChooseValue:
    """Return a function that chooses some values near the likely ones, the others by `choose`.

    After PriorBand (Mallik et al., 2023, https://arxiv.org/abs/2306.12370), a share of the trials
    is drawn from a prior around the likely values, and as in piBO (Hvarfner et al., 2022,
    https://arxiv.org/abs/2204.11051) the share falls with the number of trials, so that a wrong
    guess is forgotten. The sampler learns from these trials as from all others.

    `n_before`: the number of trials of the study that were not enqueued.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    if rng.random() >= 0.5 ** (1 + n_before / HALF_LIFE):
        return choose

    def choose_near(param: SpaceParam) -> ParamValue:
        if param.likely is None:
            return choose(param)
        if isinstance(param.domain, RangeDomain):
            assert isinstance(param.likely, int | float)
            share = rng.normal(param.domain.share(param.likely), WIDTH)
            return param.domain.at(float(np.clip(share, 0.0, 1.0)))
        return param.likely if rng.random() < CHOICE_PROBABILITY else choose(param)

    return choose_near
