"""Trains networks on a table, written against a user's `TrialContext`: heavy side of such families.

Made ready once per process with a data set; then called for each trial, from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.data.one_hot import n_features
from automl.training.family import PackKey
from automl.training.network import Network
from automl.training.network_family import NetworkFamily
from automl.training.objective import TrialContext
from automl.training.packs.pack import OpenPack
from automl.training.predictor import model_state
from automl.training.tensors import DataOnDevices
from automl.training.trainer import Problem, Trainer


class NetworkEstimator:
    """See `family.Estimator`."""

    def __init__(
        self,
        dataset: Dataset,
        family: NetworkFamily,
        training: TrainingConfig,
        *,
        packs_large: bool = False,
    ) -> None:
        """`packs_large`: see `Family.open_estimator`."""
        self._dataset, self._family, self._packs_large = dataset, family, packs_large
        self._n_epochs = training.epochs
        self.problem = Problem(
            task=dataset.task,
            n_inputs=n_features(dataset.columns),
            n_outputs=dataset.n_outputs,
            target_scale=dataset.target_scale,
            family=family,
            precision=training.precision,
        )
        self._data = DataOnDevices(dataset, self.problem.dtype)

    def __call__(self, trial: TrialContext) -> None:
        params = self.problem.params(trial.params)
        data = self._data.on(trial.device)
        trainer = Trainer(self.problem, params, data, device=trial.device, seed=trial.seed)
        state = trial.restore()
        start = 0 if state is None else trainer.load_state(state)
        for epoch in range(start, self._n_epochs):
            trial.report(
                epoch,
                trainer.run_epoch(epoch),
                checkpoint=partial(trainer.state, epoch),
                best=lambda: self._best(trainer.network, trainer.model.state_dict()),
            )

    def open_pack(self, key: PackKey, device: str) -> OpenPack:
        trainer = self._family.open_pack(
            self.problem, key, self._data.on(device), device=device, packs_large=self._packs_large
        )
        return OpenPack(trainer, self._n_epochs, self.problem.params, self._best)

    def _best(self, network: Network, weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """What `best.pt` holds."""
        model = {"model": network.plain(), "weights": weights}
        return model_state(self._family, self._dataset, model)
