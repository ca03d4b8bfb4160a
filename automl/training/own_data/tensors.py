"""The user's own rows, handed out for training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from automl.config import Task
from automl.data.facts import DataFacts
from automl.training.own_data.loader import Loading, loading
from automl.training.own_data.parts import Arrays, Parts, is_whole
from automl.training.tensors import DataTensors, PartTensors, Rows, TrainingRows


class _Loaded(NamedTuple):
    """See `tensors.TrainingRows`."""

    train: Rows
    validation: Rows


class OwnData:
    """Hands out the user's tensors for a device; any thread. See `tensors.TensorsOn`."""

    def __init__(
        self, parts: Parts, facts: DataFacts, *, n_workers: int = 0, room_bytes: int | None = None
    ) -> None:
        """`room_bytes`: what a trial was declared to want of a GPU; None: nothing was, and it may
        have the whole one."""
        self.parts, self.facts = parts, facts
        self._n_workers, self._room_bytes = n_workers, room_bytes
        self._lock = threading.Lock()
        self._there: dict[tuple[str, torch.dtype], DataTensors] = {}

    def on(self, device: str, dtype: torch.dtype) -> DataTensors:
        """The tensors on `device`; the first call there copies, and other threads wait for it.

        Raises ValueError where they do not stay there.
        """
        if not self._stays(device):
            raise ValueError("its rows are loaded batch by batch, and not kept on the device")
        with self._lock:
            if (device, dtype) not in self._there:
                train, validation = (self._part(part, device, dtype) for part in self._both)
                self._there[device, dtype] = DataTensors(train, validation)
            return self._there[device, dtype]

    @contextmanager
    def opened(self, device: str, dtype: torch.dtype) -> Iterator[TrainingRows]:
        """On the device where they stay there, else loaded."""
        if self._stays(device):
            yield self.on(device, dtype)
            return
        how = Loading(torch.device(device), dtype, self._n_workers)
        with loading(self.parts, self.facts, how) as rows:
            yield _Loaded(*rows)

    def _stays(self, device: str) -> bool:
        if device == "cpu":
            return self.facts.stays(None)
        total_bytes: int = torch.cuda.get_device_properties(device).total_memory
        return self.facts.stays(self._room_bytes or total_bytes)

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
