"""Averages several models into one (Lakshminarayanan et al., 2017, https://arxiv.org/abs/1612.01474),
and computes outputs of models with all cores that the process may use.

It chooses no members; `mean_model_file.py` does.
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
from automl.data.dataset import Dataset, TableRows
from automl.models.family import TrainedModel
from automl.models.model_file import check_content


class MeanModel:
    """A `family.TrainedModel` that gives the mean of its members' probabilities or values."""

    def __init__(
        self,
        members: Sequence[TrainedModel],
        task: Task,
        weights: Sequence[float] | None = None,
        sizes: Sequence[int] | None = None,
        sharpness: float = 1.0,
    ) -> None:
        """Join `members`, which have `weights`; None: all weights are the same.

        `sizes` are the numbers of members of one trial each, which stand one after another; None:
        each member is a trial of its own. `sharpness` is the factor of the mean's class scores.
        Raises ValueError if the members differ in their number of outputs.
        """
        self.members, self._task = tuple(members), task
        self._sizes = tuple(sizes or [1] * len(members))
        self.weights = tuple(weights or [1 / len(members)] * len(members))
        """Weight of each member; they sum to 1."""
        self.sharpness = sharpness if task is Task.classification else 1.0
        found = {model.n_outputs for model in members}
        check_content(len(found) == 1, "models of several numbers of outputs", found)
        (self._n_outputs,) = found

    @property
    def n_outputs(self) -> int:
        return self._n_outputs

    @property
    def module(self) -> list[Any] | None:
        """The modules of the members; None if a member is no network."""
        modules = [model.module for model in self.members]
        return None if None in modules else modules

    def to(self, device: str) -> None:
        for model in self.members:
            model.to(device)

    def check_columns(self, columns: TableColumns) -> None:
        for model in self.members:
            model.check_columns(columns)

    def of_heaviest(self, n: int) -> MeanModel:
        """Return the mean of the `n` trials of the largest weight, with all their members."""
        ends = list(accumulate(self._sizes))
        groups = [range(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        group_weights = [sum(self.weights[i] for i in group) for group in groups]
        heaviest = sorted(sorted(range(len(groups)), key=lambda g: -group_weights[g])[:n])
        total = sum(group_weights[g] for g in heaviest)
        kept = [i for g in heaviest for i in groups[g]]
        return MeanModel(
            [self.members[i] for i in kept],
            self._task,
            [self.weights[i] / total for i in kept],
            [self._sizes[g] for g in heaviest],
            self.sharpness,
        )

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        """Return scores whose softmax is the mean of the members' probabilities, or mean values.

        The scores are multiplied by `sharpness`.
        """
        return self.mean([model.outputs(columns, rows) for model in self.members])

    def mean(self, member_outputs: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """Return the model's outputs (N, C) for those of each member (N, C)."""
        return self.sharpness * mean_outputs(np.stack(member_outputs), self._task, self.weights)


def mean_outputs(
    stacked: npt.NDArray[np.float64], task: Task, weights: Sequence[float] | None = None
) -> npt.NDArray[np.float64]:
    """Return the mean (N, C) of several models' outputs (M, N, C), as `MeanModel.outputs` does."""
    shares = np.full(len(stacked), 1 / len(stacked)) if weights is None else np.asarray(weights)
    if task is Task.regression:
        mean: npt.NDArray[np.float64] = np.average(stacked, axis=0, weights=shares)
        return mean
    log_p = stacked - np.logaddexp.reduce(stacked, axis=2, keepdims=True)
    log_shares = np.log(shares)[:, None, None]
    scores: npt.NDArray[np.float64] = np.logaddexp.reduce(log_p + log_shares, axis=0)
    return scores


def judged_outputs(model: TrainedModel, dataset: Dataset) -> npt.NDArray[np.float64]:
    """Return the outputs (N, C) for the rows of `dataset.judged`, as `TrainedModel.outputs`.

    In a trial with folds each row gets the mean output of the models that never saw it, one per
    division of the rows. An ensemble of trials with folds returns the weighted mean of the trials'
    outputs. Raises ValueError for a model that was not trained on these folds.
    """
    if not dataset.folds:
        return model.outputs(dataset.columns, dataset.validation.rows)
    members, n_folds = (model.members if isinstance(model, MeanModel) else ()), len(dataset.folds)
    if not members or len(members) % n_folds:
        raise ValueError(f"{max(1, len(members))} models for {n_folds} folds")
    begins = range(0, len(members), n_folds)
    by_trial = [_outputs_of_trial(members[begin : begin + n_folds], dataset) for begin in begins]
    assert isinstance(model, MeanModel), "it has members"
    if len(by_trial) == 1:
        return model.sharpness * by_trial[0]
    weights = [sum(model.weights[begin : begin + n_folds]) for begin in begins]
    return model.sharpness * mean_outputs(np.stack(by_trial), dataset.task, weights)


def _outputs_of_trial(members: Sequence[TrainedModel], dataset: Dataset) -> npt.NDArray[np.float64]:
    """Return the outputs (N, C) of one trial's models, one model per fold."""
    n_repeats = max(fold.repeat for fold in dataset.folds) + 1
    outputs = np.empty((n_repeats, len(dataset.train), dataset.n_outputs))
    for fold, member in zip(dataset.folds, members, strict=True):
        rows = dataset.train.rows.take(fold.judged)
        outputs[fold.repeat, fold.judged] = member.outputs(dataset.columns, rows)
    judged = outputs[:, dataset.judged_places]  # the same in each division
    return mean_outputs(judged, dataset.task)


def class_probabilities(outputs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the probabilities (N, C, …) of the classes with these scores (N, C, …)."""
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf))
    probabilities: npt.NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
    return probabilities


def usable_threads() -> int:
    """Return how many threads OpenMP takes: OMP_NUM_THREADS, or the cores of this process."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def use_threads(n_threads: int) -> Iterator[None]:
    """Give torch `n_threads` threads, and restore their former number at the end."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def leave_one_core() -> Iterator[None]:
    """Take one thread from torch, so that a thread that reads rows meanwhile has a core.

    torch's threads spin while they wait for each other. If one of them has no core, the CPU time is
    ten times as long. Without torch in the process (a model of trees) there is nothing to do.
    """
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    with use_threads(max(1, torch.get_num_threads() - 1)):
        yield


ROWS_PER_THREAD = 16384
"""Least rows of a thread. With fewer, a second thread made trees slower: the threads wait for each
other between small steps."""


def outputs_by_threads(
    model: TrainedModel, columns: TableColumns, rows: TableRows
) -> npt.NDArray[np.float64]:
    """Return the outputs (N, C) of a model, computed on all cores that the process may use.

    torch uses them by itself for a network. For any other model each thread takes a part of the
    rows, because numpy lets other threads compute meanwhile.
    """
    if isinstance(model, MeanModel):
        return model.mean([outputs_by_threads(member, columns, rows) for member in model.members])
    n_threads = min(usable_threads(), len(rows) // ROWS_PER_THREAD)
    if model.module is not None or n_threads < 2:
        return model.outputs(columns, rows)
    ends = [len(rows) * number // n_threads for number in range(n_threads + 1)]
    parts = [rows[begin:end] for begin, end in pairwise(ends)]
    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate([*pool.map(lambda part: model.outputs(columns, part), parts)])
