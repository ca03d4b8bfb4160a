"""The built-in objective: trains a network on a table, written against a user's `TrialContext`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from automl.config import ModelConfig, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.one_hot import n_features
from automl.training.models import Network
from automl.training.objective import TrialContext
from automl.training.packs.key import PackKey
from automl.training.packs.mlp_trainer import MLPPackTrainer
from automl.training.packs.module_trainer import MAX_WEIGHTS_ON_HOST, ModulePackTrainer
from automl.training.packs.trainer import PackTrainer
from automl.training.predictor import predictor_format
from automl.training.tensors import DataOnDevices
from automl.training.trainer import Problem, Trainer


class BuiltinObjective:
    """Made ready once per process with a data set; then called for each trial, from any thread."""

    def __init__(
        self,
        dataset: Dataset,
        model: ModelConfig,
        training: TrainingConfig,
        *,
        packs_large: bool = False,
    ) -> None:
        """`packs_large`: see `SessionSetup`."""
        self._dataset, self.n_epochs, self._packs_large = dataset, training.epochs, packs_large
        self.problem = Problem(
            task=dataset.task,
            n_inputs=n_features(dataset.columns),
            n_outputs=dataset.n_outputs,
            target_scale=dataset.target_scale,
            model=model,
            precision=training.precision,
        )
        self._data = DataOnDevices(dataset, self.problem.dtype)

    def __call__(self, trial: TrialContext) -> None:
        """Train one trial to its end, or on from its checkpoint."""
        params = self.problem.params(trial.params)
        data = self._data.on(trial.device)
        trainer = Trainer(self.problem, params, data, device=trial.device, seed=trial.seed)
        state = trial.restore()
        start = 0 if state is None else trainer.load_state(state)
        for epoch in range(start, self.n_epochs):
            trial.report(
                epoch,
                trainer.run_epoch(epoch),
                checkpoint=partial(trainer.state, epoch),
                best=lambda: self.predictor_state(trainer.network, trainer.model.state_dict()),
            )

    def open_pack(self, key: PackKey, device: str) -> PackTrainer:
        """A pack without trials yet. Raises whatever says that such trials must train alone."""
        data = self._data.on(device)
        if key.arguments is None:
            return MLPPackTrainer(self.problem, key.batch_size, key.width, data, device=device)
        trainer = ModulePackTrainer(self.problem, key, data, device=device)
        if key.on_host and trainer.n_weights > MAX_WEIGHTS_ON_HOST and not self._packs_large:
            raise ValueError(
                f"{trainer.n_weights:,} weights; on a CPU networks of more than "
                f"{MAX_WEIGHTS_ON_HOST:,} gain nothing together (execution.pack=N packs them)"
            )
        return trainer

    def predictor_state(
        self, network: Network, weights: Mapping[str, torch.Tensor]
    ) -> dict[str, Any]:
        """What `automl.load` needs, as plain values."""
        return {
            "format": predictor_format(network),
            "task": self._dataset.task.value,
            "model": network.plain(),
            "weights": weights,
            "preprocessing": self._dataset.columns.plain(),
            "classes": self._dataset.classes,
            "target_mean": self._dataset.target_mean,
            "target_scale": self._dataset.target_scale,
        }
