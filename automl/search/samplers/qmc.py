"""Quasi-Monte Carlo: points that cover the space more evenly than random ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import check_setting
from automl.search.samplers.by_optuna import OptunaSampler
from automl.search.samplers.sampler import SamplerInputs, sampler_seed
from automl.search.search_space import SpaceParam

if TYPE_CHECKING:
    from optuna.samplers import QMCSampler


@dataclass
class QMC(OptunaSampler):
    """Quasi-Monte Carlo: covers the space more evenly than random draws."""

    mixes_likely: ClassVar[bool] = False
    several_metrics: ClassVar[bool] = True

    qmc_type: str = "sobol"
    """The sequence of points: sobol or halton."""
    scramble: bool = True
    """Whether the sequence is made random by the seed; else it is the same in all studies."""

    def __post_init__(self) -> None:
        check_setting(
            self.qmc_type in ("sobol", "halton"),
            "sampler.qmc_type",
            self.qmc_type,
            "must be sobol or halton.",
        )

    def n_may_pend(self, n_ended: int) -> None:
        return None

    def joint(self, params: tuple[SpaceParam, ...]) -> tuple[SpaceParam, ...]:
        return params

    def make(self, search: SamplerInputs, number: int) -> QMCSampler:
        """Return the sampler with the study's seed; seeds per trial would spoil evenness."""
        from optuna.samplers import RandomSampler

        point = number - len(search.enqueued)
        return _numbered_qmc()(
            point,
            qmc_type=self.qmc_type,
            scramble=self.scramble,
            seed=search.study_seed,
            independent_sampler=RandomSampler(seed=sampler_seed(search.study_seed, number)),
            warn_asynchronous_seeding=False,
            warn_independent_sampling=False,
        )


@functools.cache
def _numbered_qmc() -> Callable[..., QMCSampler]:
    """Return Optuna's sampler with the number of the point from outside, as its first argument."""
    from optuna.samplers import QMCSampler

    class NumberedQMC(QMCSampler):
        """Takes the point with a given number instead of counting points in the storage.

        Optuna writes the count before the trial: a kill between the two would skip a point, and the
        resumed study would differ from an uninterrupted one.
        """

        def __init__(self, point: int, **settings: Any) -> None:
            super().__init__(**settings)
            self._point = point

        def _find_sample_id(self, *_: object) -> int:
            return self._point

    return NumberedQMC
