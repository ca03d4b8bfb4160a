"""Independent draws (Bergstra and Bengio, 2012, https://jmlr.org/papers/v13/bergstra12a.html)."""

from __future__ import annotations

from dataclasses import dataclass

from automl.search.samplers.by_optuna import random_chooser
from automl.search.samplers.sampler import OpenSampler, Sampler, SamplerInputs, sampler_seed


@dataclass
class IndependentSampler(Sampler):
    """Independent draws; needs no argument."""

    def n_may_pend(self, n_ended: int) -> None:
        return None

    def open(self, search: SamplerInputs) -> OpenSampler:
        return lambda number: random_chooser(
            search.space, number, sampler_seed(search.study_seed, number)
        )

    def one(self, search: SamplerInputs) -> OpenSampler:
        return self.open(search)
