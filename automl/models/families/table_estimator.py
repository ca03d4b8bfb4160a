"""Trains what scikit-learn fits, round by round, written against a user's `TrialContext`: what the
heavy sides of such families share. No torch.

What families share that fit one-hot features in one go, and report once. No torch.
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
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, TableRows, Targets
from automl.data.features import n_features, one_hot_features
from automl.data.scoring.metrics import Floats, make_predictions
from automl.models.class_scores import ClassScoreLayout
from automl.models.families.table_family import TableFamily
from automl.models.family import NetworkBuilder, PackKey, TrainedModel
from automl.models.judged_rows import JudgedTargets, ReportScores
from automl.models.model_file import (
    check_content,
    check_unpacked_size,
    make_model_state,
    tensors_to_arrays,
)
from automl.objectives.goal import Patience, StudyGoal
from automl.objectives.trial_context import TrialContext


class CpuModel:
    """The part of a `family.TrainedModel` that says: numpy predicts, and no network."""

    @property
    def module(self) -> None:
        return None

    def to(self, device: str) -> None:
        """It computes on the CPU wherever it is asked to."""


@dataclass(frozen=True, eq=False)
class TrialFit:
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
class FittedRound:
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


OnRound: TypeAlias = Callable[[FittedRound], None]


class _FitStoppedError(Exception):
    """Raised to end a fit from within: nothing better came for too long."""


class TableEstimator:
    """See `family.TrialEstimator`."""

    def __init__(
        self,
        side: TableSide,
        family: TableFamily,
        dataset: Dataset,
        training: TrainingConfig,
        goal: StudyGoal,
        n_threads: int,
    ) -> None:
        self._side, self._family, self._data = side, family, dataset
        self._n_rounds = family.n_reports(training)
        self._patience = Patience(goal, None if goal.keeps_last else training.patience_epochs)
        self._n_threads = n_threads

    def __call__(self, trial: TrialContext) -> None:
        params = self._family.params(trial.params)
        state = trial.restore()
        fitting = TrialFit(
            *(self._family, self._data, params, trial.seed, self._n_rounds, self._n_threads, state)
        )
        patience = self._patience.restored(state or {})
        if fitting.n_done >= self._n_rounds or patience.is_over:
            return
        with suppress(_FitStoppedError), threadpool_limits(self._n_threads):
            self._side.fit(fitting, _RoundReporter(trial, fitting, patience))

    def open_pack(self, key: PackKey, device: str) -> Any:
        raise NotImplementedError("such families have no key")


class _RoundReporter:
    """Tells a trial's rounds."""

    def __init__(self, trial: TrialContext, fitting: TrialFit, patience: Patience) -> None:
        self._trial, self._fitting, self._patience = trial, fitting, patience

    def __call__(self, grown: FittedRound) -> None:
        """Raises what `TrialContext.report` raises, and _Enough."""
        if grown.round < self._fitting.n_done:
            return  # it trains anew what was reported before
        judged = JudgedTargets.of(self._fitting.data, self._patience.goal.metric)
        metrics = _metrics(self._fitting.data, grown, judged)
        self._patience = patience = self._patience.after(metrics)
        self._trial.report(
            grown.round,
            metrics,
            checkpoint=lambda: {"epoch": grown.round, **patience.state(), **grown.get_state()},
            best=lambda: {
                **make_model_state(self._fitting.family, self._fitting.data, grown.get_model()),
                **judged.beside(grown.validation),
            },
            scores=ReportScores(judged, lambda: grown.validation),
        )
        if patience.is_over:
            raise _FitStoppedError


def _metrics(data: Dataset, grown: FittedRound, judged: JudgedTargets) -> dict[str, float]:
    """As networks report them; a final training may have no validation rows."""
    unit = (data.target_mean, data.target_scale)
    outputs, targets = grown.train
    of_train = make_predictions(data.task, outputs, targets, *unit, data.loss).scored(["loss"])
    return {"train_loss": of_train["loss"], **judged.each_epoch(grown.validation)}


class TableSide(ABC):
    """See `family.HeavySide`."""

    def open_estimator(
        self,
        family: TableFamily,
        dataset: Dataset,
        training: TrainingConfig,
        goal: StudyGoal,
        *,
        packs_large: bool,
        n_threads: int,
    ) -> TableEstimator:
        return TableEstimator(self, family, dataset, training, goal, n_threads)

    @abstractmethod
    def fit(self, fitting: TrialFit, on_round: OnRound) -> None:
        """Fit, and call `on_round` after each round; what it raises ends the fit."""

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> TrainedModel:
        check_unpacked_size(
            [state], file_bytes
        )  # of a torch file, whose tensors may be views of one number
        return self.model_of(tensors_to_arrays(state))

    @abstractmethod
    def model_of(self, state: Mapping[str, Any]) -> TrainedModel:
        """See `family.HeavySide.read_model`. Loads no scikit-learn."""


class FeatureModel(CpuModel, ABC):
    """See `family.Model`."""

    classes: ClassScoreLayout

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs

    @property
    @abstractmethod
    def n_features(self) -> int:
        """D."""

    @property
    @abstractmethod
    def n_rows_at_once(self) -> int:
        """As many as are encoded together: all may be too many."""

    def check_columns(self, columns: TableColumns) -> None:
        check_content(n_features(columns) == self.n_features, "not its columns", len(columns.all))

    def outputs(self, columns: TableColumns, rows: TableRows) -> Floats:
        at_once = self.n_rows_at_once
        begins = range(0, max(1, len(rows)), at_once)
        parts = [one_hot_features(columns, rows[begin:][:at_once]) for begin in begins]
        return np.concatenate([self.of_features(part) for part in parts])

    @abstractmethod
    def of_features(self, x: npt.NDArray[np.float32]) -> Floats:
        """(N, n_outputs) of (N, D)."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """For a checkpoint."""


class FeatureSide(TableSide):
    """See `family.HeavySide`."""

    def fit(self, fitting: TrialFit, on_round: OnRound) -> None:
        data = fitting.data
        x, x_validation = data.view(one_hot_features)
        model = self.solved(fitting, x)
        on_round(
            FittedRound(
                round=0,
                train=(model.of_features(x), data.train.y),
                validation=model.of_features(x_validation),
                get_model=model.plain,
            )
        )

    @abstractmethod
    def solved(self, fitting: TrialFit, x: npt.NDArray[np.float32]) -> FeatureModel:
        """The model of the training rows' features (N, D)."""


def finite_array(state: Mapping[str, Any], name: str, dtype: type, n_dimensions: int) -> Any:
    """Of finite numbers. Raises ValueError."""
    array = state[name]
    fits = isinstance(array, np.ndarray) and array.dtype == dtype
    check_content(fits and array.ndim == n_dimensions, f"no {name}", type(array))
    check_content(bool(np.isfinite(array).all()), f"{name} that are no numbers", array.shape)
    return array
