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

from automl.data.dataset import Dataset
from automl.in_trial.goal import FinalReport
from automl.in_trial.trial_context import TrialContext
from automl.models.families.auto.family import FamilyKey, n_rows_of_trial, own_params
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
        self._parts: dict[int, Dataset] = {}
        self._opened: dict[tuple[str, int | None], TrialEstimator] = {}
        """The estimator of each family, for each number of rows."""

    def __call__(self, trial: TrialContext) -> FinalReport | None:
        name = str(trial.params[FAMILY_PARAM])
        estimator = self._estimator_of(name, n_rows_of_trial(trial.params))
        return estimator(trial.with_params(own_params(name, trial.params)))

    def open_pack(self, key: PackKey, device: str) -> Any:
        assert isinstance(key, FamilyKey), "a key of `model=auto`"
        pack = self._estimator_of(key.family, key.n_rows).open_pack(key.key, device)
        own = partial(own_params, key.family)
        return replace(pack, params=lambda params: pack.params(own(params)))

    def _estimator_of(self, name: str, n_rows: int | None) -> TrialEstimator:
        with self._lock:
            if (name, n_rows) not in self._opened:
                family, dataset = self._setup.family.by_choice[name], self._setup.dataset
                setup = replace(
                    self._setup,
                    family=family,
                    training=family.with_length(self._setup.training, dataset.n_train),
                    dataset=dataset if n_rows is None else self._part(n_rows),
                )
                opened = load_heavy_side(type(family)).open_estimator(setup)
                self._opened[name, n_rows] = opened
            return self._opened[name, n_rows]

    def _part(self, n_rows: int) -> Dataset:
        """Return the data set with `n_rows` of its rows, which all families share."""
        if n_rows not in self._parts:
            self._parts[n_rows] = self._setup.dataset.part(n_rows)
        return self._parts[n_rows]


class AutoHeavySide:
    """The `family.HeavySide` of `model=auto`; model files name the family that a trial chose."""

    def open_estimator(self, setup: EstimatorSetup) -> AutoEstimator:
        return AutoEstimator(setup)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> TrainedModel:
        raise ValueError("no model is of the family auto: each says its own")


SIDE = AutoHeavySide()
