"""Optuna's QMC sampler with the number of the point set from outside.

A file of its own, because it imports Optuna and `samplers/qmc.py` must not: that file is loaded for
its settings before a study is opened.
"""

from __future__ import annotations

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import QMCSampler


class NumberedQMC(QMCSampler):
    """Takes the point with the number `point` instead of counting points in the storage.

    Optuna writes the count before the trial: a kill between the two would skip a point, and the
    resumed study would differ from an uninterrupted one.
    """

    point: int = 0

    def _find_sample_id(self, study: Study, search_space: dict[str, BaseDistribution]) -> int:
        return self.point
