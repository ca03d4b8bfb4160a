"""The user's own rows, handed out for training."""

from __future__ import annotations

import threading

import torch

from automl.config import Task
from automl.data.facts import DataFacts
from automl.training.own_data.parts import Arrays, Parts, is_whole
from automl.training.tensors import DataTensors, PartTensors


class OwnData:
    """Hands out the user's tensors for a device; any thread. See `tensors.TensorsOn`."""

    def __init__(self, parts: Parts, facts: DataFacts) -> None:
        self.parts, self.facts = parts, facts
        self._lock = threading.Lock()
        self._there: dict[tuple[str, torch.dtype], DataTensors] = {}

    def on(self, device: str, dtype: torch.dtype) -> DataTensors:
        """The tensors on `device`; the first call there copies, and other threads wait for it."""
        with self._lock:
            if (device, dtype) not in self._there:
                self._there[device, dtype] = DataTensors(
                    *(self._part(part, device, dtype) for part in self._both)
                )
            return self._there[device, dtype]

    @property
    def _both(self) -> tuple[Arrays, Arrays]:
        train, validation = self.parts.train, self.parts.validation
        assert isinstance(train, Arrays), "items are loaded batch by batch"
        assert isinstance(validation, Arrays), "as those of train"
        return train, validation

    def _part(self, part: Arrays, device: str, dtype: torch.dtype) -> PartTensors:
        x = part.x.to(device) if is_whole(part.x) else part.x.to(device, dtype)
        is_class = self.facts.task is Task.classification
        return PartTensors(x, part.y.to(device, torch.int64 if is_class else dtype))
