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

    def on(self, device: str) -> DataTensors:
        """Those to train with on `device`; any thread."""


class DataOnDevices:
    """Hands out the tensors of a data set for a device; any thread."""

    def __init__(self, dataset: Dataset, dtype: torch.dtype) -> None:
        self._dataset, self._dtype = dataset, dtype
        self._lock = threading.Lock()
        self._by_device: dict[str, DataTensors] = {}

    def on(self, device: str) -> DataTensors:
        """The tensors on `device`; the first call there copies, and other threads wait for it."""
        with self._lock:
            if device not in self._by_device:
                x_train, x_validation = self._dataset.view(one_hot)
                self._by_device[device] = DataTensors(
                    self._part(x_train, self._dataset.train.y, device),
                    self._part(x_validation, self._dataset.validation.y, device),
                )
            return self._by_device[device]

    def _part(self, x: npt.NDArray[np.float32], y: Targets, device: str) -> PartTensors:
        # Class numbers stay integers, targets are scaled before they lose digits.
        if self._dataset.task is Task.regression:
            scaled = (y.astype(np.float64) - self._dataset.target_mean) / self._dataset.target_scale
            target = torch.tensor(scaled, dtype=self._dtype)
        else:
            target = torch.tensor(y, dtype=torch.int64)
        return PartTensors(torch.tensor(x).to(device, self._dtype), target.to(device))
