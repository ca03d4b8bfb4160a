"""What lives on the device: births and deaths of storages, replayed through the allocator model."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from automl.training.survey.allocator import Block, CachingAllocator


class Storages:
    """The storages of device tensors; each is freed in the model when its last tensor is gone."""

    def __init__(self) -> None:
        self.memory = CachingAllocator()
        self._live: dict[int, tuple[weakref.ref[Any], Block]] = {}
        """By address; a weak reference has to be kept to be called."""

    def see(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, if it is not counted yet."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key, n_bytes = storage._cdata, storage.nbytes()
        if key in self._live or not n_bytes:
            return
        block = self.memory.allocate(n_bytes)

        def died(_: object) -> None:
            self._live.pop(key, None)
            self.memory.free(block)

        self._live[key] = weakref.ref(storage, died), block

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether its storage is counted."""
        return self.key(tensor) in self._live

    @staticmethod
    def key(tensor: torch.Tensor) -> int:
        """Which storage it is, while that lives."""
        return int(tensor.untyped_storage()._cdata)


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """What their storages hold, each counted once."""
    storages = {Storages.key(t): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
