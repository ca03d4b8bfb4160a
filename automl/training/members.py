"""Trains the members of an ensemble again, each at its own length (`plan.MemberPlan`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from automl.training.family import PackKey
from automl.training.folds.estimator import open_estimator
from automl.training.objective import TrialContext
from automl.training.plan import TrainingPlan


class MembersEstimator:
    """See `family.Estimator`: one is opened for each trial, since no two are of a length."""

    def __init__(self, plan: TrainingPlan, data: Any, *, n_threads: int) -> None:
        self._plan, self._data, self._n_threads = plan, data, n_threads

    def __call__(self, trial: TrialContext) -> object:
        refit = self._plan.refit
        assert refit is not None, "the caller looked"
        training = refit.training_of_trial(trial.number, self._plan.training)
        plan = replace(self._plan, training=training)
        estimator = open_estimator(plan, self._data, packs_large=False, n_threads=self._n_threads)
        return estimator(trial)

    def open_pack(self, key: PackKey, device: str) -> Any:
        raise NotImplementedError("members have no key")
