"""A data set as tensors on a device, put there once per process and shared by all its trials.

The user's own data has another source of tensors, in `automl/models/networks/user_tensors.py`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.data.dataset import Dataset, Targets
from automl.data.features import one_hot_features

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""A batch of rows, and the targets of the rows."""


class BatchedRows(Protocol):
    """One part of a data set, which yields batches on a device."""

    def __len__(self) -> int: ...

    def batches(self, order: torch.Tensor, n_rows: int, seed: int) -> Iterator[Pair]:
        """Yield the rows in an order (N,) that is on the CPU, `n_rows` at a time.

        Random draws while rows are loaded follow from the seed.
        """

    def pieces(self, n_rows: int) -> Iterator[Pair]:
        """Yield all rows in their stored order, `n_rows` at a time."""


class TrainingRows(Protocol):
    """The training part and the validation part that one trial trains on."""

    @property
    def train(self) -> BatchedRows: ...

    @property
    def validation(self) -> BatchedRows: ...


@dataclass(frozen=True)
class PartTensors:
    """The tensors of one part: rows `x` (N, D), and class numbers or scaled targets `y` (N,)."""

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
    """The row numbers (N,) of a fold, within the training part.

    `train` numbers the rows that train. It is on the CPU, where orders are drawn. `judged` numbers
    the rows that judge the fold. It is on the device.
    """

    train: torch.Tensor
    judged: torch.Tensor


@dataclass(frozen=True)
class DataTensors:
    """Both parts of a data set on one device; read-only, since trials share them."""

    train: PartTensors
    validation: PartTensors
    folds: tuple[FoldTensors, ...] = ()
    """The folds of the training part; without folds the validation part judges."""


def draw_epoch_order(n_rows: int, n_epoch_rows: int, generator: torch.Generator) -> torch.Tensor:
    """Return n_epoch_rows row numbers in a drawn order, in several passes if need be."""
    orders = [torch.randperm(n_rows, generator=generator)]
    while len(orders) * n_rows < n_epoch_rows:
        orders.append(torch.randperm(n_rows, generator=generator))
    return torch.cat(orders)[:n_epoch_rows]


class TensorSource(ABC):
    """A data set whose tensors are copied to each device once; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tensors: dict[tuple[str, torch.dtype], DataTensors] = {}

    @abstractmethod
    def copy_to(self, device: str, dtype: torch.dtype) -> DataTensors:
        """Return new tensors. Raises ValueError if the data is not kept on the device."""

    def tensors(self, device: str, dtype: torch.dtype) -> DataTensors:
        """Return the tensors; the first call copies, and other threads wait for it."""
        with self._lock:
            if (device, dtype) not in self._tensors:
                self._tensors[device, dtype] = self.copy_to(device, dtype)
            return self._tensors[device, dtype]

    def open_rows(self, device: str, dtype: torch.dtype) -> AbstractContextManager[TrainingRows]:
        """Return a context with the rows of a trial that trains outside packs."""
        return nullcontext(self.tensors(device, dtype))


class DataOnDevices(TensorSource):
    """The tensors of a table."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        self._dataset = dataset

    def copy_to(self, device: str, dtype: torch.dtype) -> DataTensors:
        if self._dataset.folds and self._dataset.columns.encoded:
            return self._encoded_folds(device, dtype)
        x_train, x_validation = self._dataset.view(one_hot_features)
        return DataTensors(
            self._part(x_train, self._dataset.train.y, device, dtype),
            self._part(x_validation, self._dataset.validation.y, device, dtype),
            tuple(
                FoldTensors(torch.from_numpy(fold.train), torch.from_numpy(fold.judged).to(device))
                for fold in self._dataset.folds
            ),
        )

    def _encoded_folds(self, device: str, dtype: torch.dtype) -> DataTensors:
        """Return rows of each fold's own encoding, one fold after another."""
        data = self._dataset
        folds = [data.fold(number) for number in range(len(data.folds))]
        parts = [part for fold in folds for part in (fold.train, fold.validation)]
        x = np.concatenate([view for fold in folds for view in fold.view(one_hot_features)])
        ends = np.cumsum([0, *map(len, parts)])
        rows = [torch.arange(begin, end) for begin, end in pairwise(ends.tolist())]
        return DataTensors(
            self._part(x, np.concatenate([part.y for part in parts]), device, dtype),
            self._part(x[:0], data.train.y[:0], device, dtype),
            tuple(
                FoldTensors(train, judged.to(device))
                for train, judged in zip(rows[::2], rows[1::2], strict=True)
            ),
        )

    def _part(
        self, x: npt.NDArray[np.float32], y: Targets, device: str, dtype: torch.dtype
    ) -> PartTensors:
        # Class numbers stay integers, targets are scaled before they lose digits.
        if self._dataset.task is Task.regression:
            scaled = (y - self._dataset.target_mean) / self._dataset.target_scale
            target = torch.tensor(scaled, dtype=dtype)
        else:
            target = torch.tensor(y, dtype=torch.int64)
        return PartTensors(torch.tensor(x).to(device, dtype), target.to(device))
