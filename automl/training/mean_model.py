"""Several models as one: the mean of what they say (Lakshminarayanan et al., 2017,
https://arxiv.org/abs/1612.01474)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
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
        self,
        members: Sequence[Model],
        task: Task,
        weights: Sequence[float] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """`sizes`: how many members are of one trial, one after another; None: each is one. Raises
        ValueError where they do not give the same number of outputs."""
        self.members, self._task = tuple(members), task
        self._sizes = tuple(sizes or [1] * len(members))
        self.weights = tuple(weights or [1 / len(members)] * len(members))
        """How much each counts; together 1."""
        found = {model.n_outputs for model in members}
        check(len(found) == 1, "models of several numbers of outputs", found)
        (self._n_outputs,) = found

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

    def of_heaviest(self, n: int) -> MeanModel:
        """The mean of the `n` trials that count most, all their members; of equals the first."""
        ends = list(accumulate(self._sizes))
        groups = [range(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        counts = [sum(self.weights[i] for i in group) for group in groups]
        heaviest = sorted(sorted(range(len(groups)), key=lambda g: -counts[g])[:n])
        total = sum(counts[g] for g in heaviest)
        kept = [i for g in heaviest for i in groups[g]]
        return MeanModel(
            [self.members[i] for i in kept],
            self._task,
            [self.weights[i] / total for i in kept],
            [self._sizes[g] for g in heaviest],
        )

    def outputs(self, columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
        """Scores whose softmax is the mean of the members' probabilities, or mean values."""
        return self.mean([model.outputs(columns, rows) for model in self.members])

    def mean(self, each: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """The same, of what each member gives (N, C)."""
        return mean_outputs(np.stack(each), self._task, self.weights)


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
