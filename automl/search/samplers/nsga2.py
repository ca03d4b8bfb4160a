"""NSGA-II (Deb et al., 2002, https://doi.org/10.1109/4235.996017), by Optuna's sampler.

Optuna counts generations in notes that its sampler writes into trials. Here they follow from the
order in which trials ended, so that a resumed study proposes what an uninterrupted one would have.
Parents are chosen from all trials of the earlier generations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import check_setting
from automl.search.samplers.by_optuna import OptunaSampler
from automl.search.samplers.sampler import SamplerInputs, sampler_seed
from automl.search.search_space import SpaceParam

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


@dataclass
class NSGA2(OptunaSampler):
    """NSGA-II (Deb et al., 2002): crosses and mutates finished trials of the best fronts."""

    several_metrics: ClassVar[bool] = True

    population_size: int = 20
    """Number of trials of a generation, in the order in which they end; those of the first are
    random."""
    mutation_prob: float | None = None
    """Probability that a param is drawn anew; auto: 1 divided by the number of params."""
    crossover_prob: float = 0.9
    """Probability that a trial has two parents."""
    swapping_prob: float = 0.5
    """Probability that a param comes from the second of two parents."""

    def __post_init__(self) -> None:
        n = self.population_size
        check_setting(n >= 2, "sampler.population_size", n, "must be at least 2.")
        for name in ("mutation_prob", "crossover_prob", "swapping_prob"):
            value = getattr(self, name)
            is_share = value is None or 0 <= value <= 1
            check_setting(is_share, f"sampler.{name}", value, "must be from 0 to 1.")

    def n_may_pend(self, n_ended: int) -> int:
        """Return the size of a generation, whose trials do not learn from each other."""
        return self.population_size

    def joint(self, params: tuple[SpaceParam, ...]) -> tuple[SpaceParam, ...]:
        return tuple(param for param in params if not param.when)

    def make(self, search: SamplerInputs, number: int) -> BaseSampler:
        from optuna.samplers import NSGAIISampler

        made: BaseSampler = by_order_of_ends(NSGAIISampler)(**self.settings(search, number))
        return made

    def settings(self, search: SamplerInputs, number: int) -> dict[str, Any]:
        """Return the arguments that Optuna's genetic samplers share."""
        return {
            "population_size": self.population_size,
            "mutation_prob": self.mutation_prob,
            "crossover_prob": self.crossover_prob,
            "swapping_prob": self.swapping_prob,
            "seed": sampler_seed(search.study_seed, number),
        }


@functools.cache
def by_order_of_ends(sampler: type[Any]) -> type[Any]:
    """Return a genetic sampler of Optuna whose generations follow from the order of ends."""

    class OrderedGenerations(sampler):  # type: ignore[misc]  # Optuna's class, by its public methods
        """Proposes one trial, whose generation is the number of full ones before it."""

        _selects = False

        def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
            return len(_finished(study)) // int(self.population_size)

        def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
            """Return the trials of this generation and of all before it."""
            return _finished(study)[: (generation + 1) * self.population_size]

        def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
            if self._selects or generation == 0:
                return []
            self._selects = True
            parents: list[FrozenTrial] = self.select_parent(study, generation)
            return parents

    return OrderedGenerations


def _finished(study: Study) -> list[FrozenTrial]:
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: (trial.datetime_complete, trial.number))
