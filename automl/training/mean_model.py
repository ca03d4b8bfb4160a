"""Several models as one: the mean of what they say (Lakshminarayanan et al., 2017,
https://arxiv.org/abs/1612.01474)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.training.family import Model
from automl.training.model_file import check


class MeanModel:
    """See `family.Model`: the mean of the members' probabilities, or of their values."""

    def __init__(
        self, members: Sequence[Model], task: Task, weights: Sequence[float] | None = None
    ) -> None:
        """Raises ValueError where they do not give the same number of outputs."""
        self.members, self._task = tuple(members), task
        self.weights = tuple(weights or [1 / len(members)] * len(members))
        """How much each counts; together 1."""
        sizes = {model.n_outputs for model in members}
        check(len(sizes) == 1, "models of several numbers of outputs", sizes)
        (self._n_outputs,) = sizes

    @property
    def n_outputs(self) -> int:
        return self._n_outputs

    @property
    def module(self) -> list[Any] | None:
        """Those of the members; None: they are no networks."""
        modules = [model.module for model in self.members]
        return None if None in modules else modules

    def to(self, device: str) -> None:
        for model in self.members:
            model.to(device)

    def check_columns(self, columns: Columns) -> None:
        for model in self.members:
            model.check_columns(columns)

    def outputs(self, columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
        """Scores whose softmax is the mean of the members' probabilities, or mean values."""
        each = np.stack([model.outputs(columns, rows) for model in self.members])
        return mean_outputs(each, self._task, self.weights)


def mean_outputs(
    each: npt.NDArray[np.float64], task: Task, weights: Sequence[float] | None = None
) -> npt.NDArray[np.float64]:
    """Of what several models give (M, N, C): see `MeanModel.outputs`."""
    shares = np.full(len(each), 1 / len(each)) if weights is None else np.asarray(weights)
    if task is Task.regression:
        mean: npt.NDArray[np.float64] = np.average(each, axis=0, weights=shares)
        return mean
    log_p = each - np.logaddexp.reduce(each, axis=2, keepdims=True)
    log_shares = np.log(shares)[:, None, None]
    scores: npt.NDArray[np.float64] = np.logaddexp.reduce(log_p + log_shares, axis=0)
    return scores
