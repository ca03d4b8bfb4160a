"""Trains networks on a table, written against a user's `TrialContext`: heavy side of such families.

Made ready once per process with a data set; then called for each trial, from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from automl.config import Precision, TrainingConfig
from automl.data.bins import Edges, bin_edges
from automl.data.dataset import Dataset
from automl.data.facts import Size
from automl.data.one_hot import n_features
from automl.training.family import Builder, PackKey
from automl.training.folds.pack import FoldPack
from automl.training.goal import Goal
from automl.training.judged import Judged, class_weights
from automl.training.model_file import check
from automl.training.model_state import model_state
from automl.training.network import Network, NetworkModel
from automl.training.network_family import NetworkFamily, NetworkKey
from automl.training.objective import TrialContext
from automl.training.own_data.tensors import OwnData
from automl.training.packs.pack import OpenPack
from automl.training.packs.trainer import PackTrainer
from automl.training.params import TrainingParams
from automl.training.plan import WarmUp
from automl.training.predictor import MEMBERS
from automl.training.ranks import ALONE, Ranks
from automl.training.tensors import DataOnDevices, DataTensors, TensorsOn
from automl.training.trainer import LEAST_LOSS, Problem, Trainer
from automl.training.weights import weights_of
from automl.trial import Params


class NetworkEstimator:
    """See `family.Estimator`."""

    def __init__(
        self,
        dataset: Dataset | OwnData,
        family: NetworkFamily,
        side: NetworkSide[Any, Any, Any],
        training: TrainingConfig,
        goal: Goal = LEAST_LOSS,
        *,
        packs_large: bool = False,
    ) -> None:
        """See `HeavySide.open_estimator`."""
        self._data, self._family, self._side = dataset, family, side
        self._packs_large = packs_large
        self.problem = _problem_of(dataset, family, side, training, goal)
        self.data: TensorsOn = dataset if isinstance(dataset, OwnData) else DataOnDevices(dataset)
        """Who hands out the tensors; may be replaced before the first trial."""
        self.warm_up: WarmUp | None = None
        """Of a final training with larger batches; such train alone."""
        self.data_parallel = False
        """One process takes all devices of its trial."""

    def __call__(self, trial: TrialContext) -> None:
        devices = trial.devices if self.data_parallel else ()
        with self.trainer(trial.params, trial.device, trial.seed, devices=devices) as trainer:
            self._train(trial, trainer)

    def _train(self, trial: TrialContext, trainer: Trainer) -> None:
        state = trial.restore()
        start = 0 if state is None else trainer.load_state(state)
        for epoch in range(start, self.n_epochs):
            if trainer.has_stopped:
                break
            trial.report(
                epoch,
                trainer.run_epoch(epoch),
                checkpoint=partial(trainer.state, epoch),
                best=lambda: self.best_of(trainer),
                scores=trainer.scores,
            )

    @property
    def n_epochs(self) -> int:
        """The most of a trial."""
        return self.problem.training.n_epochs

    @contextmanager
    def trainer(
        self,
        params: Params,
        device: str,
        seed: int,
        *,
        ranks: Ranks = ALONE,
        devices: Sequence[str] = (),
    ) -> Iterator[Trainer]:
        """What trains a trial, at its start, until the `with` is left."""
        checked = self.problem.params(params)
        problem = self.problem.of(Precision(checked.precision))
        with self.data.opened(device, problem.dtype) as rows:
            yield Trainer(
                problem,
                checked,
                rows,
                device=device,
                seed=seed,
                warm_up=self.warm_up,
                ranks=ranks,
                devices=devices,
            )

    def best_of(self, trainer: Trainer) -> dict[str, Any]:
        """What `best.pt` holds, should this be the best epoch."""
        return self._best(trainer.network, trainer.weights()) | trainer.beside()

    def open_pack(self, key: PackKey, device: str) -> OpenPack:
        assert isinstance(key, NetworkKey), "a network's own"
        problem = self.problem.of(key.precision)
        data = self.data.on(device, problem.dtype)
        trainer = self._side.open_pack(
            problem, key, data, device=device, packs_large=self._packs_large
        )
        if isinstance(self._data, Dataset) and self._data.folds:
            folds = FoldPack(trainer, self._data, _member, self._mean)
            return OpenPack(folds, self.n_epochs, problem.params, _never, folds.told)
        return OpenPack(
            trainer,
            self.n_epochs,
            problem.params,
            lambda number: (
                self._best(trainer.network(number), trainer.weights(number))
                | trainer.beside(number)
            ),
        )

    def _best(self, network: Network, weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """What `best.pt` holds."""
        data = self._data.facts if isinstance(self._data, OwnData) else self._data
        return model_state(self._family, data, _member(network, weights))

    def _mean(self, members: Sequence[Any]) -> dict[str, Any]:
        assert isinstance(self._data, Dataset), "folds are of a table"
        return model_state(self._family, self._data, {MEMBERS: members})


def _member(network: Network, weights: Mapping[str, torch.Tensor]) -> Mapping[str, Any]:
    """What differs among models of the same params."""
    return {"model": network.plain(), "weights": weights}


def _never(number: int) -> Mapping[str, Any]:
    raise AssertionError("a trial with folds tells its model at its end")


def _problem_of(
    data: Dataset | OwnData,
    family: NetworkFamily,
    side: NetworkSide[Any, Any, Any],
    training: TrainingConfig,
    goal: Goal,
) -> Problem:
    common = (family, side, training.precision, training, goal)
    if isinstance(data, OwnData):
        facts = data.facts
        return Problem(facts.task, facts.n_inputs, facts.n_outputs, 1.0, *common, facts)
    n_inputs = n_features(data.columns)
    return Problem(
        data.task,
        n_inputs,
        data.n_outputs,
        data.target_scale,
        *common,
        judged=Judged.of(data, goal.metric) if len(data.validation) and not data.folds else None,
        class_weights=class_weights(data),
        get_edges=partial(data.learned, bin_edges),
        epoch_rows=data.epoch_rows,
    )


FamilyT = TypeVar("FamilyT", bound=NetworkFamily, contravariant=True)
ParamsT = TypeVar("ParamsT", bound=TrainingParams, contravariant=True)
KeyT = TypeVar("KeyT", bound=PackKey, contravariant=True)


class NetworkSide(ABC, Generic[FamilyT, ParamsT, KeyT]):
    """The heavy side of a family of networks; see `family.HeavySide`."""

    @abstractmethod
    def network(
        self,
        family: FamilyT,
        params: ParamsT,
        n_inputs: Size,
        n_outputs: Size,
        get_edges: Callable[[], Edges],
    ) -> Network:
        """See `network.Networks`."""

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
        dataset: Dataset | OwnData,
        training: TrainingConfig,
        goal: Goal = LEAST_LOSS,
        *,
        packs_large: bool = False,
        n_threads: int = 1,
    ) -> NetworkEstimator:
        return NetworkEstimator(dataset, family, self, training, goal, packs_large=packs_large)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: Builder | None
    ) -> NetworkModel:
        weights = weights_of(state, file_bytes)
        plain = state["model"]
        check(isinstance(plain, Mapping), "no network", plain)
        return NetworkModel(self.network_of(plain, weights, build), weights)
