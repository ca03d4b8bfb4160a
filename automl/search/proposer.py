"""What is tried next: the enqueued params first, then what the sampler proposes."""

from __future__ import annotations

from collections.abc import Sequence

from automl.search.samplers.by_optuna import at_random
from automl.search.samplers.sampler import OpenStudy, Sampler, Search, seed_of
from automl.search.space import Param, Space
from automl.trial import Params, ParamValue


class Proposer:
    """Params for trial after trial."""

    def __init__(
        self,
        sampler: Sampler,
        space: Space,
        study_seed: int,
        enqueued: Sequence[Params],
        open_study: OpenStudy,
        choice: str | None = None,
    ) -> None:
        """Raises ConfigError for a space that the sampler cannot take."""
        self._space, self._seed = space, study_seed
        self._enqueued = [self.complete(number, params) for number, params in enumerate(enqueued)]
        self._proposals = sampler.open(
            Search(space, study_seed, self._enqueued, open_study, choice)
        )

    def propose(self, number: int) -> dict[str, ParamValue] | None:
        """The params of trial `number`; None when there are no more."""
        if number < len(self._enqueued):
            return self._enqueued[number]
        choose = self._proposals(number)
        return None if choose is None else self._space.fill(choose)

    def complete(self, number: int, params: Params) -> dict[str, ParamValue]:
        """`params` with those missing drawn at random, as (study seed, number) decide."""
        draw = at_random(self._space, number, seed_of(self._seed, number))

        def choose(param: Param) -> ParamValue:
            return param.domain.cast(params[param.name]) if param.name in params else draw(param)

        return self._space.fill(choose)
