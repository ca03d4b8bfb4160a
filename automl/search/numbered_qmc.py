"""Optuna's QMC sampler, told which point to take; `samplers/qmc.py` itself loads no Optuna."""

from __future__ import annotations

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import QMCSampler


class NumberedQMC(QMCSampler):
    """Takes the point it is told instead of counting points in the storage.

    The count is written before the trial: a kill between the two would skip a point, and the
    resumed study would differ from an uninterrupted one.
    """

    point: int = 0

    def _find_sample_id(self, study: Study, search_space: dict[str, BaseDistribution]) -> int:
        return self.point
