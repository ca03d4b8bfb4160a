"""The heavy side of the families of networks: the estimator that trains a trial's network.

The estimator is made once per process with a data set, and then called for each trial, from any
thread. It reports by a `TrialContext`, as a user's function does; the training itself is in
`trainer.py` and `packs/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from automl.config import Precision
from automl.data.dataset import Dataset
from automl.data.features import bin_edges, n_features
from automl.in_trial.trial_context import TrialContext
from automl.models.family import EstimatorSetup, NetworkBuilder, PackKey
from automl.models.judged_rows import JudgedTargets, ReportScores, class_weights
from automl.models.model_file import check_content, make_model_state
from automl.models.networks.folds.fold_pack import FoldPack
from automl.models.networks.network import NetworkDescription, NetworkModel, parse_weights
from automl.models.networks.network_family import NetworkKey, WarmUp
from automl.models.networks.packs.pack import PackSetup
from automl.models.networks.packs.trainer import PackTrainer
from automl.models.networks.tensors import DataOnDevices, DataTensors, TensorSource
from automl.models.networks.trainer import SINGLE_RANK, NetworkTrainer, RankGroup, TrainingProblem
from automl.models.networks.user_tensors import UserTensors
from automl.models.predictor import MEMBERS_KEY
from automl.trial import Params


class NetworkEstimator:
    """A `family.TrialEstimator` that trains one network per trial, alone or in packs."""

    def __init__(self, setup: EstimatorSetup, side: NetworkHeavySide) -> None:
        self._setup, self._side, data = setup, side, setup.dataset
        self.problem = _problem_of(setup, side)
        self.data: TensorSource = data if isinstance(data, UserTensors) else DataOnDevices(data)
        """The source of the tensors; it may be replaced before the first trial."""
        self.warm_up: WarmUp | None = None
        """The warm-up of a final training with larger batches, which trains outside packs."""
        self.data_parallel = False
        """Whether one process trains on all devices of its trial."""

    def __call__(self, trial: TrialContext) -> None:
        devices = trial.devices if self.data_parallel else ()
        with self.trainer(trial.params, trial.device, trial.seed, devices=devices) as trainer:
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
        problem = self.problem.with_precision(Precision(checked.precision))
        with self.data.open_rows(device, problem.dtype) as rows:
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
        return self._model_state(trainer.network, trainer.weights(), trainer.scores)

    def open_pack(self, key: PackKey, device: str) -> PackSetup:
        assert isinstance(key, NetworkKey), "a network's own"
        problem, dataset = self.problem.with_precision(key.precision), self._setup.dataset
        data = self.data.tensors(device, problem.dtype)
        trainer = self._side.open_pack(problem, key, data, device=device)
        if trainer.no_gain_reason is not None and not self._setup.packs_large:
            raise ValueError(trainer.no_gain_reason)
        if isinstance(dataset, Dataset) and dataset.folds:
            folds = FoldPack(trainer, dataset, _member, self._mean)
            return PackSetup(folds, self.n_epochs, problem.params, None, folds.final_report)
        return PackSetup(
            trainer,
            self.n_epochs,
            problem.params,
            lambda number: self._model_state(
                trainer.network(number), trainer.weights(number), trainer.scores(number)
            ),
        )

    def _model_state(
        self,
        network: NetworkDescription,
        weights: Mapping[str, torch.Tensor],
        scores: ReportScores | None,
    ) -> dict[str, Any]:
        """Return the content of `best.pt` for a network with these weights."""
        data = self._setup.dataset
        facts = data.facts if isinstance(data, UserTensors) else data
        state = make_model_state(self._setup.family, facts, _member(network, weights))
        return state if scores is None else state | scores.threshold_entry()

    def _mean(self, members: Sequence[Any]) -> dict[str, Any]:
        return make_model_state(self._setup.family, self._setup.dataset, {MEMBERS_KEY: members})


def _member(network: NetworkDescription, weights: Mapping[str, torch.Tensor]) -> Mapping[str, Any]:
    """Return the part of a model file that differs among models of the same params."""
    return {"model": network.plain(), "weights": weights}


def _problem_of(setup: EstimatorSetup, side: NetworkHeavySide) -> TrainingProblem:
    data, training, goal = setup.dataset, setup.training, setup.goal
    common = (setup.family, side, training.precision, training, goal)
    if isinstance(data, UserTensors):
        facts = data.facts
        return TrainingProblem(facts.task, facts.n_inputs, facts.n_outputs, 1.0, *common, facts)
    judged = None
    if len(data.validation) and not data.folds:
        judged = JudgedTargets.from_part(data, data.validation, goal.metric)
    return TrainingProblem(
        data.task,
        n_features(data.columns),
        data.n_outputs,
        data.target_scale,
        *common,
        judged=judged,
        class_weights=class_weights(data),
        target_mean=data.target_mean,
        get_edges=partial(data.learned, bin_edges),
        epoch_rows=data.epoch_rows,
    )


class NetworkHeavySide(ABC):
    """The heavy side of a family of networks, a `family.HeavySide` and a `NetworkFactory`.

    Each family has one instance, `SIDE`, in the module that its light side names.
    """

    @abstractmethod
    def network(self, problem: TrainingProblem, params: Any) -> NetworkDescription: ...

    @abstractmethod
    def network_of(
        self,
        plain: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        build: NetworkBuilder | None,
    ) -> NetworkDescription:
        """Return the network of a `best.pt` from its `plain`; `build` is as in `read_model`."""

    def open_pack(
        self, problem: TrainingProblem, key: Any, data: DataTensors, *, device: str
    ) -> PackTrainer:
        """Return the trainer of an empty pack, or raise anything: such trials must train alone."""
        raise NotImplementedError("such a family has no key")

    def open_estimator(self, setup: EstimatorSetup) -> NetworkEstimator:
        return NetworkEstimator(setup, self)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> NetworkModel:
        weights = parse_weights(state, file_bytes)
        plain = state["model"]
        check_content(isinstance(plain, Mapping), "no network", plain)
        return NetworkModel(self.network_of(plain, weights, build), weights)
