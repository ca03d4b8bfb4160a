"""Data that stays in main memory, and goes to the device batch by batch: what loaders of data do
where it is not kept there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch

from automl.training.tensors import DataTensors, PartTensors, TensorsOn, TrainingRows


class CopiedEachStep:
    """In place of `DataOnDevices`; the validation part is kept on the device all the same."""

    def __init__(self, data: TensorsOn) -> None:
        self._data = data

    def on(self, device: str, dtype: torch.dtype) -> DataTensors:
        """Of the training part, rows are copied as they are asked for."""
        here, there = self._data.on("cpu", dtype), self._data.on(device, dtype)
        x, y = (cast(torch.Tensor, HostRows(t, device)) for t in (here.train.x, here.train.y))
        return DataTensors(PartTensors(x, y), there.validation)

    def opened(self, device: str, dtype: torch.dtype) -> AbstractContextManager[TrainingRows]:
        return nullcontext(self.on(device, dtype))


class HostRows:
    """What a trainer does with a tensor of training rows: their number, and some of them.

    Which rows are asked for stands on the device, and reading it would wait for the device, as no
    loader does: others are given, as many, from an order drawn once. Both tensors of a part give
    the same ones.
    """

    def __init__(self, rows: torch.Tensor, device: str) -> None:
        self._rows, self._device = rows, device
        self._order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        self._at = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def device(self) -> str:
        """Where what is asked for goes."""
        return self._device

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """As many rows as `index` names, in pageable memory first, then on the device."""
        if self._at + len(index) > len(self._order):
            self._at = 0
        chosen = self._order[self._at : self._at + len(index)]
        self._at += len(index)
        return self._rows.index_select(dim, chosen).to(self._device, copy=True)
