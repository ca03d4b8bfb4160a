"""A data set as tensors on a device: put there once per process, shared by all its trials."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.data.dataset import Dataset, Targets
from automl.data.one_hot import one_hot


@dataclass(frozen=True)
class PartTensors:
    """Rows `x` (N, D), and `y` (N,): class numbers, or targets as (y - mean) / scale."""

    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True)
class DataTensors:
    """Both parts of a data set on one device. Nobody writes to them."""

    train: PartTensors
    validation: PartTensors


class TensorsOn(Protocol):
    """Hands out the tensors of a data set."""

    def on(self, device: str, dtype: torch.dtype) -> DataTensors:
        """Those to train with on `device`, numbers of this type; any thread."""


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
                x_train, x_validation = self._dataset.view(one_hot)
                self._there[device, dtype] = DataTensors(
                    self._part(x_train, self._dataset.train.y, device, dtype),
                    self._part(x_validation, self._dataset.validation.y, device, dtype),
                )
            return self._there[device, dtype]

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
