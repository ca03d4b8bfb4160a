"""The built-in objective: trains an MLP, written against the same `TrialContext` as a user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from automl.config import ModelConfig, Task, TrainingConfig
from automl.data.dataset import Dataset
from automl.training.models import MLPShape
from automl.training.objective import TrialContext
from automl.training.pack_trainer import PackTrainer
from automl.training.packing import PackKey
from automl.training.params import MLPParams
from automl.training.predictor import FORMAT
from automl.training.tensors import DataOnDevices
from automl.training.trainer import Problem, Trainer


class BuiltinObjective:
    """Made ready once per process with a data set; then called for each trial, from any thread."""

    def __init__(self, dataset: Dataset, model: ModelConfig, training: TrainingConfig) -> None:
        self._dataset, self.n_epochs = dataset, training.epochs
        self._problem = Problem(
            task=dataset.task,
            n_inputs=dataset.n_features,
            n_outputs=1 if dataset.task is Task.regression else len(dataset.classes),
            target_scale=dataset.target_scale,
            growth=model.growth,
            precision=training.precision,
        )
        self._data = DataOnDevices(dataset, self._problem.dtype)

    def __call__(self, trial: TrialContext) -> None:
        """Train one trial to its end, or on from its checkpoint."""
        params = MLPParams.of(trial.params)
        data = self._data.on(trial.device)
        trainer = Trainer(self._problem, params, data, device=trial.device, seed=trial.seed)
        state = trial.restore()
        start = 0 if state is None else trainer.load_state(state)
        for epoch in range(start, self.n_epochs):
            trial.report(
                epoch,
                trainer.run_epoch(epoch),
                checkpoint=partial(trainer.state, epoch),
                best=lambda: self.predictor_state(trainer.shape, trainer.model.state_dict()),
            )

    def open_pack(self, params: MLPParams, key: PackKey, device: str) -> PackTrainer:
        """A pack without trials yet; `params` are those of any trial of its key."""
        data = self._data.on(device)
        return PackTrainer(self._problem, key.batch_size, key.width, data, device=device)

    def predictor_state(
        self, shape: MLPShape, weights: Mapping[str, torch.Tensor]
    ) -> dict[str, Any]:
        """What `automl.load` needs, as plain values."""
        return {
            "format": FORMAT,
            "task": self._dataset.task.value,
            "model": asdict(shape),
            "weights": weights,
            "preprocessing": self._dataset.preprocessing,
            "classes": self._dataset.classes,
            "target_mean": self._dataset.target_mean,
            "target_scale": self._dataset.target_scale,
        }
