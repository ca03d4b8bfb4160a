"""Independent draws (Bergstra and Bengio, 2012, https://jmlr.org/papers/v13/bergstra12a.html).

A file of its own, as every sampler is.
"""

from __future__ import annotations

from dataclasses import dataclass

from automl.search.samplers.by_optuna import random_chooser
from automl.search.samplers.sampler import OpenSampler, Sampler, SamplerInputs, sampler_seed


@dataclass
class IndependentSampler(Sampler):
    """Random search: draws each trial independently; has no settings."""

    def n_may_pend(self, n_ended: int) -> None:
        return None

    def open(self, search: SamplerInputs) -> OpenSampler:
        return lambda number: random_chooser(
            search.space, number, sampler_seed(search.study_seed, number)
        )

    def open_for_one_param(self, search: SamplerInputs) -> OpenSampler:
        return self.open(search)
