"""Trains networks on a table, written against a user's `TrialContext`: heavy side of such families.

Made ready once per process with a data set; then called for each trial, from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.data.one_hot import n_features
from automl.training import model_file
from automl.training.family import Builder, PackKey
from automl.training.network import Network, NetworkModel
from automl.training.network_family import NetworkFamily
from automl.training.objective import TrialContext
from automl.training.packs.pack import OpenPack
from automl.training.packs.trainer import PackTrainer
from automl.training.params import TrainingParams
from automl.training.plan import WarmUp
from automl.training.predictor import model_state
from automl.training.ranks import ALONE, Ranks
from automl.training.tensors import DataOnDevices, DataTensors, TensorsOn
from automl.training.trainer import Problem, Trainer
from automl.trial import Params


class NetworkEstimator:
    """See `family.Estimator`."""

    def __init__(
        self,
        dataset: Dataset,
        family: NetworkFamily,
        side: NetworkSide[Any, Any, Any],
        training: TrainingConfig,
        *,
        packs_large: bool = False,
    ) -> None:
        """`packs_large`: see `HeavySide.open_estimator`."""
        self._dataset, self._family, self._side = dataset, family, side
        self._packs_large = packs_large
        self.n_epochs = training.epochs
        self.problem = Problem(
            task=dataset.task,
            n_inputs=n_features(dataset.columns),
            n_outputs=dataset.n_outputs,
            target_scale=dataset.target_scale,
            family=family,
            networks=side,
            precision=training.precision,
        )
        self.data: TensorsOn = DataOnDevices(dataset, self.problem.dtype)
        """Who hands out the tensors; may be replaced before the first trial."""
        self.warm_up: WarmUp | None = None
        """Of a final training with larger batches; such train alone."""
        self.data_parallel = False
        """One process takes all devices of its trial."""

    def __call__(self, trial: TrialContext) -> None:
        devices = trial.devices if self.data_parallel else ()
        trainer = self.trainer(trial.params, trial.device, trial.seed, devices=devices)
        state = trial.restore()
        start = 0 if state is None else trainer.load_state(state)
        for epoch in range(start, self.n_epochs):
            trial.report(
                epoch,
                trainer.run_epoch(epoch),
                checkpoint=partial(trainer.state, epoch),
                best=lambda: self.best_of(trainer),
            )

    def trainer(
        self,
        params: Params,
        device: str,
        seed: int,
        *,
        ranks: Ranks = ALONE,
        devices: Sequence[str] = (),
    ) -> Trainer:
        """What trains a trial, at its start."""
        return Trainer(
            self.problem,
            self.problem.params(params),
            self.data.on(device),
            device=device,
            seed=seed,
            warm_up=self.warm_up,
            ranks=ranks,
            devices=devices,
        )

    def best_of(self, trainer: Trainer) -> dict[str, Any]:
        """What `best.pt` holds, should this be the best epoch."""
        return self._best(trainer.network, trainer.model.state_dict())

    def open_pack(self, key: PackKey, device: str) -> OpenPack:
        trainer = self._side.open_pack(
            self.problem, key, self.data.on(device), device=device, packs_large=self._packs_large
        )
        return OpenPack(trainer, self.n_epochs, self.problem.params, self._best)

    def _best(self, network: Network, weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """What `best.pt` holds."""
        model = {"model": network.plain(), "weights": weights}
        return model_state(self._family, self._dataset, model)


FamilyT = TypeVar("FamilyT", bound=NetworkFamily, contravariant=True)
ParamsT = TypeVar("ParamsT", bound=TrainingParams, contravariant=True)
KeyT = TypeVar("KeyT", bound=PackKey, contravariant=True)


class NetworkSide(ABC, Generic[FamilyT, ParamsT, KeyT]):
    """The heavy side of a family of networks; see `family.HeavySide`."""

    @abstractmethod
    def network(self, family: FamilyT, params: ParamsT, n_inputs: int, n_outputs: int) -> Network:
        """The network that a trial's params ask for."""

    @abstractmethod
    def network_of(
        self, plain: Mapping[str, Any], weights: Mapping[str, torch.Tensor], build: Builder | None
    ) -> Network:
        """The network of a `best.pt`, from what its `plain` gave; see `HeavySide.read_model`."""

    @abstractmethod
    def open_pack(
        self, problem: Problem, key: KeyT, data: DataTensors, *, device: str, packs_large: bool
    ) -> PackTrainer:
        """A pack without trials yet. Raises whatever says that such trials must train alone."""

    def open_estimator(
        self,
        family: NetworkFamily,
        dataset: Dataset,
        training: TrainingConfig,
        *,
        packs_large: bool = False,
    ) -> NetworkEstimator:
        return NetworkEstimator(dataset, family, self, training, packs_large=packs_large)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: Builder | None
    ) -> NetworkModel:
        weights = model_file.weights_of(state, file_bytes)
        plain = state["model"]
        model_file.check(isinstance(plain, Mapping), "no network", plain)
        return NetworkModel(self.network_of(plain, weights, build), weights)
