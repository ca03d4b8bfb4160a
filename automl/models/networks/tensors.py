"""A data set as tensors on a device: put there once per process, shared by all its trials."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.data.dataset import Dataset, Targets
from automl.data.features import one_hot_features

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Rows and their targets."""


class BatchedRows(Protocol):
    """One part of a data set, as batches on a device."""

    def __len__(self) -> int: ...

    def batches(self, order: torch.Tensor, n_rows: int, seed: int) -> Iterator[Pair]:
        """All rows in an order (N,), that stands on the CPU, so many at once. What rows draw as
        they are loaded follows from the seed."""

    def pieces(self, n_rows: int) -> Iterator[Pair]:
        """All rows as they come, so many at once."""


class TrainingRows(Protocol):
    """Both parts."""

    @property
    def train(self) -> BatchedRows: ...

    @property
    def validation(self) -> BatchedRows: ...


@dataclass(frozen=True)
class PartTensors:
    """Rows `x` (N, D), and `y` (N,): class numbers, or targets as (y - mean) / scale."""

    x: torch.Tensor
    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, order: torch.Tensor, n_rows: int, seed: int) -> Iterator[Pair]:
        for rows in torch.split(order.to(self.x.device), n_rows):
            yield self.x.index_select(0, rows), self.y.index_select(0, rows)

    def pieces(self, n_rows: int) -> Iterator[Pair]:
        return zip(torch.split(self.x, n_rows), torch.split(self.y, n_rows), strict=True)


@dataclass(frozen=True)
class FoldTensors:
    """Places (N,) of rows in the training part: of what trains in a fold, on the CPU, where orders
    are drawn, and of what judges it, on the device."""

    train: torch.Tensor
    judged: torch.Tensor


@dataclass(frozen=True)
class DataTensors:
    """Both parts of a data set on one device. Nobody writes to them."""

    train: PartTensors
    validation: PartTensors
    folds: tuple[FoldTensors, ...] = ()
    """Empty: all rows of the training part train, and those of the validation part judge."""


def draw_epoch_order(n_rows: int, n_epoch_rows: int, drawn: torch.Generator) -> torch.Tensor:
    """(n_epoch_rows,) all rows in an order that is drawn. Where an epoch has fewer, some are left
    out; where it has more, they begin anew in another order."""
    orders = [torch.randperm(n_rows, generator=drawn)]
    while len(orders) * n_rows < n_epoch_rows:
        orders.append(torch.randperm(n_rows, generator=drawn))
    return torch.cat(orders)[:n_epoch_rows]


class TensorSource(Protocol):
    """Hands out the tensors of a data set."""

    def on(self, device: str, dtype: torch.dtype) -> DataTensors:
        """Those to train with on `device`, numbers of this type; any thread. Raises ValueError
        where they are not kept there."""

    def opened(self, device: str, dtype: torch.dtype) -> AbstractContextManager[TrainingRows]:
        """The rows that a trial trains on alone, until the `with` is left."""


class DataOnDevices:
    """Hands out the tensors of a data set for a device; any thread."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._there: dict[tuple[str, torch.dtype], DataTensors] = {}

    def on(self, device: str, dtype: torch.dtype) -> DataTensors:
        """The tensors on `device`; the first call there copies, and other threads wait for it."""
        with self._lock:
            if (device, dtype) not in self._there:
                x_train, x_validation = self._dataset.view(one_hot_features)
                self._there[device, dtype] = DataTensors(
                    self._part(x_train, self._dataset.train.y, device, dtype),
                    self._part(x_validation, self._dataset.validation.y, device, dtype),
                    tuple(
                        FoldTensors(
                            torch.from_numpy(fold.train), torch.from_numpy(fold.judged).to(device)
                        )
                        for fold in self._dataset.folds
                    ),
                )
            return self._there[device, dtype]

    def opened(self, device: str, dtype: torch.dtype) -> AbstractContextManager[TrainingRows]:
        return nullcontext(self.on(device, dtype))

    def _part(
        self, x: npt.NDArray[np.float32], y: Targets, device: str, dtype: torch.dtype
    ) -> PartTensors:
        # Class numbers stay integers, targets are scaled before they lose digits.
        if self._dataset.task is Task.regression:
            scaled = (y.astype(np.float64) - self._dataset.target_mean) / self._dataset.target_scale
            target = torch.tensor(scaled, dtype=dtype)
        else:
            target = torch.tensor(y, dtype=torch.int64)
        return PartTensors(torch.tensor(x).to(device, dtype), target.to(device))
