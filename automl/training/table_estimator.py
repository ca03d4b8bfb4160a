"""Trains what scikit-learn fits, round by round, written against a user's `TrialContext`: what the
heavy sides of such families share. No torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from automl.config import Task, TrainingConfig
from automl.data.dataset import Dataset, Targets
from automl.data.scores import Floats, predictions
from automl.training.family import Builder, Model, PackKey
from automl.training.goal import Goal
from automl.training.judged import Judged, Scores
from automl.training.model_file import check_room, with_arrays
from automl.training.model_state import model_state
from automl.training.objective import TrialContext
from automl.training.patience import Patience
from automl.training.table_family import TableFamily


class OnCpu:
    """The part of a `family.Model` that says: numpy predicts, and no network."""

    @property
    def module(self) -> None:
        return None

    def to(self, device: str) -> None:
        """It computes on the CPU wherever it is asked to."""


@dataclass(frozen=True, eq=False)
class Fitting:
    """What one trial is to fit."""

    family: Any
    data: Dataset
    params: Any
    """As the family's `params` gave them."""
    seed: int
    n_rounds: int
    n_threads: int
    state: Mapping[str, Any] | None = None
    """Of the last checkpoint, to go on from; None: it starts anew."""

    @property
    def targets(self) -> npt.NDArray[Any]:
        """(N,) of the training rows: class numbers, or float64 in units of the target's scale;
        counts as they are."""
        data = self.data
        if data.task is Task.classification:
            return data.train.y
        if data.loss.name == "poisson":
            return data.train.y.astype(np.float64)
        return (data.train.y.astype(np.float64) - data.target_mean) / data.target_scale

    @property
    def class_weight(self) -> str | None:
        """As scikit-learn's classifiers take it."""
        weight: str = self.params.class_weight
        return None if weight == "none" else weight

    @property
    def n_done(self) -> int:
        """Rounds that were reported before the trial was interrupted."""
        return 0 if self.state is None else int(self.state["epoch"]) + 1


@dataclass(frozen=True, eq=False)
class Grown:
    """A model after another round."""

    round: int
    train: tuple[Floats, Targets]
    """Its outputs for training rows, or for some of them, and their targets."""
    validation: Floats
    """Its outputs for the validation rows."""
    get_model: Callable[[], Mapping[str, Any]]
    """What `HeavySide.read_model` takes."""
    get_state: Callable[[], Mapping[str, Any]] = dict
    """What the family needs to go on; nothing where it trains anew."""


OnRound: TypeAlias = Callable[[Grown], None]


class _Enough(Exception):
    """Raised to end a fit from within: nothing better came for too long."""


class TableEstimator:
    """See `family.Estimator`."""

    def __init__(
        self,
        side: TableSide,
        family: TableFamily,
        dataset: Dataset,
        training: TrainingConfig,
        goal: Goal,
        n_threads: int,
    ) -> None:
        self._side, self._family, self._data = side, family, dataset
        self._n_rounds = family.n_reports(training)
        self._patience = Patience(goal, None if goal.keeps_last else training.patience_epochs)
        self._n_threads = n_threads

    def __call__(self, trial: TrialContext) -> None:
        params = self._family.params(trial.params)
        state = trial.restore()
        fitting = Fitting(
            *(self._family, self._data, params, trial.seed, self._n_rounds, self._n_threads, state)
        )
        patience = self._patience.restored(state or {})
        if fitting.n_done >= self._n_rounds or patience.is_over:
            return
        with suppress(_Enough), threadpool_limits(self._n_threads):
            self._side.fit(fitting, _Reporting(trial, fitting, patience))

    def open_pack(self, key: PackKey, device: str) -> Any:
        raise NotImplementedError("such families have no key")


class _Reporting:
    """Tells a trial's rounds."""

    def __init__(self, trial: TrialContext, fitting: Fitting, patience: Patience) -> None:
        self._trial, self._fitting, self._patience = trial, fitting, patience

    def __call__(self, grown: Grown) -> None:
        """Raises what `TrialContext.report` raises, and _Enough."""
        if grown.round < self._fitting.n_done:
            return  # it trains anew what was reported before
        judged = Judged.of(self._fitting.data, self._patience.goal.metric)
        metrics = _metrics(self._fitting.data, grown, judged)
        self._patience = patience = self._patience.after(metrics)
        self._trial.report(
            grown.round,
            metrics,
            checkpoint=lambda: {"epoch": grown.round, **patience.state(), **grown.get_state()},
            best=lambda: {
                **model_state(self._fitting.family, self._fitting.data, grown.get_model()),
                **judged.beside(grown.validation),
            },
            scores=Scores(judged, lambda: grown.validation),
        )
        if patience.is_over:
            raise _Enough


def _metrics(data: Dataset, grown: Grown, judged: Judged) -> dict[str, float]:
    """As networks report them; a final training may have no validation rows."""
    unit = (data.target_mean, data.target_scale)
    outputs, targets = grown.train
    of_train = predictions(data.task, outputs, targets, *unit, data.loss).scored(["loss"])
    return {"train_loss": of_train["loss"], **judged.each_epoch(grown.validation)}


class TableSide(ABC):
    """See `family.HeavySide`."""

    def open_estimator(
        self,
        family: TableFamily,
        dataset: Dataset,
        training: TrainingConfig,
        goal: Goal,
        *,
        packs_large: bool,
        n_threads: int,
    ) -> TableEstimator:
        return TableEstimator(self, family, dataset, training, goal, n_threads)

    @abstractmethod
    def fit(self, fitting: Fitting, on_round: OnRound) -> None:
        """Fit, and call `on_round` after each round; what it raises ends the fit."""

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: Builder | None
    ) -> Model:
        check_room([state], file_bytes)  # of a torch file, whose tensors may be views of one number
        return self.model_of(with_arrays(state))

    @abstractmethod
    def model_of(self, state: Mapping[str, Any]) -> Model:
        """See `family.HeavySide.read_model`. Loads no scikit-learn."""
