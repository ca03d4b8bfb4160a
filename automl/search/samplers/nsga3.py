"""NSGA-III (Deb and Jain, 2014, https://doi.org/10.1109/TEVC.2013.2281535), by Optuna's sampler.

A file of its own, as every sampler is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from automl.search.samplers.nsga2 import NSGA2, by_order_of_ends
from automl.search.samplers.sampler import SamplerInputs

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass
class NSGA3(NSGA2):
    """NSGA-III (Deb and Jain, 2014): NSGA-II for three metrics or more, spread by directions."""

    dividing_parameter: int = 3
    """Number of parts into which reference points divide each metric."""

    def make(self, search: SamplerInputs, number: int) -> BaseSampler:
        from optuna.samplers import NSGAIIISampler

        settings = self.settings(search, number)
        made: BaseSampler = by_order_of_ends(NSGAIIISampler)(
            **settings, dividing_parameter=self.dividing_parameter
        )
        return made
