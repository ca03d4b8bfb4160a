"""The sampler that fits the study: a Gaussian process, or TPE where kinds share the trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from automl.search.samplers.gp import GPSampler
from automl.search.samplers.sampler import OpenSampler, Sampler, SamplerDecision, SamplerInputs
from automl.search.samplers.tpe import TPE


@dataclass
class AutoSampler(Sampler):
    """Takes the sampler that fits the study; has no settings."""

    several_metrics: ClassVar[bool] = True

    def decide(self, choice: str | None) -> SamplerDecision:
        """Return gp, or tpe where the share of each kind of trials is decided apart."""
        if choice is not None:
            shared = f"because kinds of models (space.{choice}) share the trials"
            return SamplerDecision(TPE(), f"sampler=auto: tpe, {shared}")
        return SamplerDecision(GPSampler(), "sampler=auto: gp, which needs the fewest trials")

    def n_may_pend(self, n_ended: int) -> int | None:
        return self.decide(None).sampler.n_may_pend(n_ended)

    def open(self, search: SamplerInputs) -> OpenSampler:
        return self.decide(search.choice).sampler.open(search)
