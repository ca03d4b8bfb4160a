"""A family that is no network: it predicts the shares of the classes, or the mean target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task, TrainingConfig
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, TableRows
from automl.in_trial.trial_context import TrialContext
from automl.models.family import EstimatorSetup, Family, NetworkBuilder
from automl.models.model_file import make_model_state
from automl.trial import Params, ParamValue, RequestSource, ResourceRequest


@dataclass
class MeanFamily(Family):
    """The light side of the toy family."""

    heavy = "tests.models.toy_family"

    @property
    def users_target(self) -> None:
        return None

    def param_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("shrink",), ()

    def check_value(self, name: str, value: ParamValue) -> None:
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"{name}={value!r}: must be a number from 0 to below 1.")

    def check_space(self, names: tuple[str, ...]) -> None:
        return None

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        return ResourceRequest(1024, RequestSource.ESTIMATED)

    def pack_key(self, params: Params, training: TrainingConfig, *, on_host: bool) -> None:
        return None

    def identity(self) -> Mapping[str, Any]:
        return {"family": "mean"}


class MeanModel:
    def __init__(self, scores: npt.NDArray[np.float64]) -> None:
        self._scores = scores

    @property
    def n_outputs(self) -> int:
        return len(self._scores)

    @property
    def module(self) -> None:
        return None

    def to(self, device: str) -> None:
        return None

    def check_columns(self, columns: TableColumns) -> None:
        return None

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        return np.tile(self._scores, (len(rows), 1))


class MeanEstimator:
    def __init__(self, family: MeanFamily, dataset: Dataset, n_epochs: int) -> None:
        self._family, self._dataset, self._n_epochs = family, dataset, n_epochs

    def __call__(self, trial: TrialContext) -> None:
        state = trial.restore()
        keep = 1 - float(trial.params.get("shrink", 0.0))
        for epoch in range(0 if state is None else state["epoch"] + 1, self._n_epochs):
            scores = self._scores() * keep
            loss = 1 - keep + 1 / (epoch + 2)
            metrics = {"train_loss": loss, "val_loss": loss}
            model = {"scores": torch.tensor(scores)}
            trial.report(
                epoch,
                metrics,
                checkpoint=partial(dict, epoch=epoch),
                best=partial(make_model_state, self._family, self._dataset, model),
            )

    def open_pack(self, key: object, device: str) -> None:
        raise NotImplementedError("has no key")

    def _scores(self) -> npt.NDArray[np.float64]:
        y = self._dataset.train.y
        if self._dataset.task is Task.regression:
            return np.array([0.0])
        return np.log(np.bincount(y, minlength=self._dataset.n_outputs) / len(y))


class MeanHeavySide:
    """The heavy side of the toy family."""

    def open_estimator(self, setup: EstimatorSetup) -> MeanEstimator:
        return MeanEstimator(setup.family, setup.dataset, setup.training.n_epochs)

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> MeanModel:
        return MeanModel(state["scores"].numpy())


SIDE = MeanHeavySide()
