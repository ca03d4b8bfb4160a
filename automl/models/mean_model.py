"""Several models as one: the mean of what they say (Lakshminarayanan et al., 2017,
https://arxiv.org/abs/1612.01474).

What a model gives, by all cores.

How many cores a model computes with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import TableRows
from automl.models.family import TrainedModel
from automl.models.model_file import check_content


class MeanModel:
    """See `family.TrainedModel`: the mean of the members' probabilities, or of their values."""

    def __init__(
        self,
        members: Sequence[TrainedModel],
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
        check_content(len(found) == 1, "models of several numbers of outputs", found)
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

    def check_columns(self, columns: TableColumns) -> None:
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

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
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


def usable_threads() -> int:
    """As many as OpenMP takes: OMP_NUM_THREADS, else the cores that this process may use."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def use_threads(n_threads: int) -> Iterator[None]:
    """So many threads of torch, and in the end as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def leave_one_core() -> Iterator[None]:
    """One fewer than there are, for a thread that reads beside: torch's threads wait for each other
    by turning round, and where one of them has no core that costs ten times the CPU.

    Where nobody has loaded torch (a model of trees) there are none of its threads."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    with use_threads(max(1, torch.get_num_threads() - 1)):
        yield


ROWS_PER_THREAD = 16384
"""Of fewer a second thread made trees slower: they wait for each other between small steps."""


def outputs_by_threads(
    model: TrainedModel, columns: TableColumns, rows: TableRows
) -> npt.NDArray[np.float64]:
    """(N, C) what it gives. torch takes the cores for a network; of any other model each thread has
    a part of the rows, for numpy lets others compute meanwhile."""
    if isinstance(model, MeanModel):
        return model.mean([outputs_by_threads(one, columns, rows) for one in model.members])
    n_threads = min(usable_threads(), len(rows) // ROWS_PER_THREAD)
    if model.module is not None or n_threads < 2:
        return model.outputs(columns, rows)
    ends = [len(rows) * number // n_threads for number in range(n_threads + 1)]
    parts = [rows[begin:end] for begin, end in pairwise(ends)]
    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate([*pool.map(lambda part: model.outputs(columns, part), parts)])
