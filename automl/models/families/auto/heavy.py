"""Trains trials of `model=auto` with the estimators of their families.

Each estimator is opened when its first trial comes. A process that gets trials of only one family
never imports the libraries of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from automl.in_trial.goal import FinalReport
from automl.in_trial.trial_context import TrialContext
from automl.models.families.auto.family import FamilyKey, own_params
from automl.models.family import (
    EstimatorSetup,
    NetworkBuilder,
    PackKey,
    TrainedModel,
    TrialEstimator,
    load_heavy_side,
)
from automl.trial import FAMILY_PARAM


class AutoEstimator:
    """A `family.TrialEstimator` that passes each trial to the estimator of the family it chose."""

    def __init__(self, setup: EstimatorSetup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._opened: dict[str, TrialEstimator] = {}

    def __call__(self, trial: TrialContext) -> FinalReport | None:
        name = str(trial.params[FAMILY_PARAM])
        return self._estimator_of(name)(trial.with_params(own_params(name, trial.params)))

    def open_pack(self, key: PackKey, device: str) -> Any:
        assert isinstance(key, FamilyKey), "a key of `model=auto`"
        pack = self._estimator_of(key.family).open_pack(key.key, device)
        own = partial(own_params, key.family)
        return replace(pack, params=lambda params: pack.params(own(params)))

    def _estimator_of(self, name: str) -> TrialEstimator:
        with self._lock:
            if name not in self._opened:
                family = self._setup.family.by_choice[name]
                training = family.with_length(self._setup.training)
                self._opened[name] = load_heavy_side(type(family)).open_estimator(
                    replace(self._setup, family=family, training=training)
                )
            return self._opened[name]


class AutoHeavySide:
    """The `family.HeavySide` of `model=auto`; model files name the family that a trial chose."""

    def open_estimator(self, setup: EstimatorSetup) -> AutoEstimator:
        return AutoEstimator(setup)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> TrainedModel:
        raise ValueError("no model is of the family auto: each says its own")


SIDE = AutoHeavySide()
