"""Independent draws (Bergstra and Bengio, 2012, https://jmlr.org/papers/v13/bergstra12a.html)."""

from __future__ import annotations

from dataclasses import dataclass

from automl.search.samplers.by_optuna import at_random
from automl.search.samplers.sampler import Proposals, Sampler, Search, seed_of


@dataclass
class Random(Sampler):
    """Independent draws; needs no argument."""

    def n_may_pend(self, n_ended: int) -> None:
        return None

    def open(self, search: Search) -> Proposals:
        return lambda number: at_random(search.space, number, seed_of(search.study_seed, number))

    def one(self, search: Search) -> Proposals:
        return self.open(search)
