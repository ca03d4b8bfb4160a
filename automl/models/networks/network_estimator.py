"""The heavy side of the families of networks: the estimator that trains a trial's network.

The estimator is made once per process with a data set, and then called for each trial, from any
thread. It reports by a `TrialContext`, as a user's function does; the training itself is in
`trainer.py` and `packs/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from automl.config import Precision, TrainingConfig
from automl.data.dataset import Dataset, Size
from automl.data.features import Edges, bin_edges, n_features
from automl.models.family import NetworkBuilder, PackKey
from automl.models.judged_rows import JudgedTargets, class_weights
from automl.models.model_file import check_content, make_model_state
from automl.models.networks.folds.fold_pack import FoldPack
from automl.models.networks.network import NetworkDescription, NetworkModel, parse_weights
from automl.models.networks.network_family import NetworkFamily, NetworkKey, TrainingParams
from automl.models.networks.packs.pack import PackSetup
from automl.models.networks.packs.trainer import PackTrainer
from automl.models.networks.parallel.process_group import SINGLE_RANK, RankGroup
from automl.models.networks.tensors import DataOnDevices, DataTensors, TensorSource
from automl.models.networks.trainer import MIN_LOSS_GOAL, NetworkTrainer, TrainingProblem
from automl.models.predictor import MEMBERS_KEY
from automl.objectives.goal import StudyGoal
from automl.objectives.training_plan import WarmUp
from automl.objectives.trial_context import TrialContext
from automl.objectives.user_data.loader import UserTensors
from automl.trial import Params


class NetworkEstimator:
    """A `family.TrialEstimator` that trains one network per trial, alone or in packs."""

    def __init__(
        self,
        dataset: Dataset | UserTensors,
        family: NetworkFamily,
        side: NetworkSide[Any, Any, Any],
        training: TrainingConfig,
        goal: StudyGoal = MIN_LOSS_GOAL,
        *,
        packs_large: bool = False,
    ) -> None:
        self._data, self._family, self._side = dataset, family, side
        self._packs_large = packs_large
        self.problem = _problem_of(dataset, family, side, training, goal)
        self.data: TensorSource = (
            dataset if isinstance(dataset, UserTensors) else DataOnDevices(dataset)
        )
        """The source of the tensors; it may be replaced before the first trial."""
        self.warm_up: WarmUp | None = None
        """The warm-up of a final training with larger batches, which trains outside packs."""
        self.data_parallel = False
        """Whether one process trains on all devices of its trial."""

    def __call__(self, trial: TrialContext) -> None:
        devices = trial.devices if self.data_parallel else ()
        with self.trainer(trial.params, trial.device, trial.seed, devices=devices) as trainer:
            self._train(trial, trainer)

    def _train(self, trial: TrialContext, trainer: NetworkTrainer) -> None:
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
        """The most epochs that a trial trains."""
        return self.problem.training.n_epochs

    @contextmanager
    def trainer(
        self,
        params: Params,
        device: str,
        seed: int,
        *,
        ranks: RankGroup = SINGLE_RANK,
        devices: Sequence[str] = (),
    ) -> Iterator[NetworkTrainer]:
        """Yield a trainer that stands at the start of a trial; its data is open in the `with`."""
        checked = self.problem.params(params)
        problem = self.problem.of(Precision(checked.precision))
        with self.data.opened(device, problem.dtype) as rows:
            yield NetworkTrainer(
                problem,
                checked,
                rows,
                device=device,
                seed=seed,
                warm_up=self.warm_up,
                ranks=ranks,
                devices=devices,
            )

    def best_of(self, trainer: NetworkTrainer) -> dict[str, Any]:
        """Return the content of `best.pt` for the trainer's last epoch."""
        return self._model_state(trainer.network, trainer.weights()) | trainer.beside()

    def open_pack(self, key: PackKey, device: str) -> PackSetup:
        assert isinstance(key, NetworkKey), "a network's own"
        problem = self.problem.of(key.precision)
        data = self.data.on(device, problem.dtype)
        trainer = self._side.open_pack(
            problem, key, data, device=device, packs_large=self._packs_large
        )
        if isinstance(self._data, Dataset) and self._data.folds:
            folds = FoldPack(trainer, self._data, _member, self._mean)
            return PackSetup(
                folds, self.n_epochs, problem.params, _refuse_model, folds.final_report
            )
        return PackSetup(
            trainer,
            self.n_epochs,
            problem.params,
            lambda number: (
                self._model_state(trainer.network(number), trainer.weights(number))
                | trainer.beside(number)
            ),
        )

    def _model_state(
        self, network: NetworkDescription, weights: Mapping[str, torch.Tensor]
    ) -> dict[str, Any]:
        """Return the content of `best.pt` for a network with these weights."""
        data = self._data.facts if isinstance(self._data, UserTensors) else self._data
        return make_model_state(self._family, data, _member(network, weights))

    def _mean(self, members: Sequence[Any]) -> dict[str, Any]:
        assert isinstance(self._data, Dataset), "folds are of a table"
        return make_model_state(self._family, self._data, {MEMBERS_KEY: members})


def _member(network: NetworkDescription, weights: Mapping[str, torch.Tensor]) -> Mapping[str, Any]:
    """Return the part of a model file that differs among models of the same params."""
    return {"model": network.plain(), "weights": weights}


def _refuse_model(number: int) -> Mapping[str, Any]:
    raise AssertionError("a trial with folds tells its model at its end")


def _problem_of(
    data: Dataset | UserTensors,
    family: NetworkFamily,
    side: NetworkSide[Any, Any, Any],
    training: TrainingConfig,
    goal: StudyGoal,
) -> TrainingProblem:
    common = (family, side, training.precision, training, goal)
    if isinstance(data, UserTensors):
        facts = data.facts
        return TrainingProblem(facts.task, facts.n_inputs, facts.n_outputs, 1.0, *common, facts)
    n_inputs = n_features(data.columns)
    return TrainingProblem(
        data.task,
        n_inputs,
        data.n_outputs,
        data.target_scale,
        *common,
        judged=JudgedTargets.of(data, goal.metric)
        if len(data.validation) and not data.folds
        else None,
        class_weights=class_weights(data),
        get_edges=partial(data.learned, bin_edges),
        epoch_rows=data.epoch_rows,
    )


FamilyT = TypeVar("FamilyT", bound=NetworkFamily, contravariant=True)
ParamsT = TypeVar("ParamsT", bound=TrainingParams, contravariant=True)
KeyT = TypeVar("KeyT", bound=PackKey, contravariant=True)


class NetworkSide(ABC, Generic[FamilyT, ParamsT, KeyT]):
    """The heavy side of a family of networks, a `family.HeavySide`. A family implements the rest.

    Each family has one instance, `SIDE`, in the module that its light side names.
    """

    @abstractmethod
    def network(
        self,
        family: FamilyT,
        params: ParamsT,
        n_inputs: Size,
        n_outputs: Size,
        get_edges: Callable[[], Edges],
    ) -> NetworkDescription:
        """Return the network that a trial's params ask for, as a `network.NetworkFactory`."""

    @abstractmethod
    def network_of(
        self,
        plain: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        build: NetworkBuilder | None,
    ) -> NetworkDescription:
        """Return the network of a `best.pt`, from the result of its `plain`.

        `build` is the user's builder as in `HeavySide.read_model`.
        """

    @abstractmethod
    def open_pack(
        self,
        problem: TrainingProblem,
        key: KeyT,
        data: DataTensors,
        *,
        device: str,
        packs_large: bool,
    ) -> PackTrainer:
        """Return the trainer of a pack that has no trials yet.

        Any exception means that trials with this key must train alone.
        """

    def open_estimator(
        self,
        family: NetworkFamily,
        dataset: Dataset | UserTensors,
        training: TrainingConfig,
        goal: StudyGoal = MIN_LOSS_GOAL,
        *,
        packs_large: bool = False,
        n_threads: int = 1,
    ) -> NetworkEstimator:
        return NetworkEstimator(dataset, family, self, training, goal, packs_large=packs_large)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> NetworkModel:
        weights = parse_weights(state, file_bytes)
        plain = state["model"]
        check_content(isinstance(plain, Mapping), "no network", plain)
        return NetworkModel(self.network_of(plain, weights, build), weights)
