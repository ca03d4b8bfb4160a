"""Independent draws (Bergstra and Bengio, 2012, https://jmlr.org/papers/v13/bergstra12a.html).

A file of its own, as every sampler is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from automl.search.samplers.sampler import OpenSampler, Sampler, SamplerInputs, random_draws


@dataclass
class IndependentSampler(Sampler):
    """Random search: draws each trial independently; has no settings."""

    several_metrics: ClassVar[bool] = True

    def n_may_pend(self, n_ended: int) -> None:
        return None

    def open(self, search: SamplerInputs) -> OpenSampler:
        return random_draws(search)
