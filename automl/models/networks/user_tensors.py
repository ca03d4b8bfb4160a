"""Brings the user's own rows to a device: all at once, or batch by batch with a DataLoader.

Loading a row may draw random numbers (an augmentation). Each batch is seeded by the trial, its
epoch and its place, and so depends neither on the number of loading processes nor on an
interruption.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from automl.config import Task
from automl.data.dataset import NetworkOutputs, UserDataFacts
from automl.errors import ConfigError
from automl.in_trial.source_parts import (
    ArrayRows,
    DatasetItems,
    SourcePart,
    SourceParts,
    holds_whole_numbers,
)
from automl.models.networks.tensors import DataTensors, PartTensors, TensorSource, TrainingRows

_Batch: TypeAlias = "tuple[int, int, Sequence[int]]"
"""The place of a part, a seed, and the numbers of rows."""
_Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


class RowsError(ValueError):
    """Raised when the user's rows cannot be trained on."""


@dataclass(frozen=True)
class LoadedRows:
    """The rows of one part, loaded batch by batch; implements `tensors.BatchedRows`."""

    loader: PartsLoader
    place: int

    def __len__(self) -> int:
        return len(self.loader.parts[self.place])

    def batches(self, order: torch.Tensor, n_rows: int, seed: int) -> Iterator[_Pair]:
        pieces = torch.split(order, n_rows)
        # Lists, because a tensor would need a file descriptor to reach another process.
        batches = ((self.place, seed + n, piece.tolist()) for n, piece in enumerate(pieces))
        return self.loader.load(batches)

    def pieces(self, n_rows: int) -> Iterator[_Pair]:
        if not len(self):  # the validation part of a final training may be empty
            return iter(())
        return self.batches(torch.arange(len(self)), n_rows, seed=0)


class PartsLoader:
    """Loads both parts with the same processes, which start at the first batch and stay.

    It implements `tensors.TrainingRows`.
    """

    def __init__(
        self,
        parts: SourceParts,
        facts: UserDataFacts,
        device: str,
        dtype: torch.dtype,
        *,
        n_workers: int,
    ) -> None:
        self.parts = (parts.train, parts.validation)
        self.train, self.validation = LoadedRows(self, 0), LoadedRows(self, 1)
        self._device, self._dtype = torch.device(device), dtype
        self._pins, self._sampler = self._device.type == "cuda", _FreshBatchSampler()
        self._y_dtype = torch.int64 if facts.task is Task.classification else dtype
        several = n_workers > 0
        self._loader: DataLoader[_Pair | str] = DataLoader(
            _BatchDataset(self.parts, facts),
            batch_sampler=self._sampler,
            num_workers=n_workers,
            collate_fn=_identity,
            pin_memory=self._pins,
            persistent_workers=several,
            multiprocessing_context="fork" if several else None,
            generator=torch.Generator(),  # else torch's global one, from which a network may draw
        )

    def load(self, batches: Iterator[_Batch]) -> Iterator[_Pair]:
        """Yield the batches of one pass. Another pass may begin before this one has ended."""
        self._sampler.batches = batches
        for batch in self._loader:
            if isinstance(batch, str):
                raise RowsError(batch)
            x, y = batch
            move = partial(torch.Tensor.to, device=self._device, non_blocking=self._pins)
            x = move(x, dtype=self._dtype) if x.is_floating_point() else move(x)
            yield x, move(y, dtype=self._y_dtype)

    def close(self) -> None:
        """End the loading processes now. A traceback may hold the iterator for long."""
        iterator: Any = self._loader._iterator
        if iterator is not None:
            iterator._shutdown_workers()


class _FreshBatchSampler:
    """A batch sampler whose batches are set anew for each pass, in this process."""

    batches: Iterator[_Batch] = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self.batches


class _BatchDataset(Dataset[Any]):
    """The Dataset in a loading process, which returns whole batches."""

    def __init__(self, parts: Sequence[SourcePart], facts: UserDataFacts) -> None:
        self._parts, self._facts = parts, facts

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError("asked for batches")

    def __getitems__(self, batch: _Batch) -> _Pair | str:
        """Return a batch; for a wrong row a text, because an exception would become a traceback."""
        try:
            return self.batch(batch)
        except (ConfigError, RowsError) as error:
            return str(error)

    def batch(self, batch: _Batch) -> _Pair:
        """Return the rows of a batch. Raises RowsError or ConfigError for wrong rows."""
        place, seed, numbers = batch
        part = self._parts[place]
        if isinstance(part, ArrayRows):
            rows = torch.tensor(numbers)
            return part.x.index_select(0, rows), part.y.index_select(0, rows)
        with _seeded(seed):
            x, y = _stacked(part, numbers)
        if self._facts.outputs is NetworkOutputs.SCORES:
            _check_classes(part, y, self._facts)
        return x, y


def read_rows_in_order(part: SourcePart, facts: UserDataFacts, n_at_once: int) -> Iterator[_Pair]:
    """Yield all rows once in order. Raises RowsError, ConfigError, and what a Dataset raises."""
    if isinstance(part, ArrayRows):
        sides = (torch.split(side, n_at_once) for side in (part.x, part.y))
        yield from zip(*sides, strict=True)
        return
    rows = _BatchDataset([part], facts)
    for begin in range(0, len(part), n_at_once):
        yield rows.batch((0, 0, range(begin, min(begin + n_at_once, len(part)))))


def _stacked(part: DatasetItems, numbers: Sequence[int]) -> _Pair:
    """Return the rows of these numbers, stacked. Raises RowsError if they differ in shape."""
    pairs = [part.pair(number) for number in numbers]
    sides = []
    for at, letter in enumerate("xy"):
        tensors = [pair[at] for pair in pairs]
        shapes = {tuple(tensor.shape) for tensor in tensors}
        if len(shapes) > 1:
            raise RowsError(
                f"{part.where}: rows of a batch have {letter} of the shapes "
                f"{', '.join(map(str, sorted(shapes)))}; cut or pad them to one."
            )
        sides.append(torch.stack(tensors))
    return sides[0], sides[1]


def _check_classes(part: DatasetItems, y: torch.Tensor, facts: UserDataFacts) -> None:
    """Raise RowsError for an invalid class number, which would lose a GPU to its process."""
    assert isinstance(facts.n_outputs, int), "a number of classes"
    least, most = (int(end) for end in y.long().aminmax())
    if least < 0 or most >= facts.n_outputs:
        bad = least if least < 0 else most
        raise RowsError(
            f"{part.where}: a target is {bad}; with {facts.n_outputs} classes they are numbers "
            f"from 0 to {facts.n_outputs - 1}. Mend it, or say how many there are by n_outputs."
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators for the block, and restore their states afterwards."""
    generator = torch.default_generator
    states = random.getstate(), np.random.get_state(), generator.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        generator.set_state(states[2])


def _identity(batch: Any) -> Any:
    return batch


class UserTensors(TensorSource):
    """The tensors of the user's own data, which may also be loaded batch by batch."""

    def __init__(
        self,
        parts: SourceParts,
        facts: UserDataFacts,
        *,
        n_workers: int = 0,
        room_bytes: int | None = None,
    ) -> None:
        """Keep the parts; nothing is copied yet.

        `room_bytes` is the GPU memory that a trial was declared to need; None: it was not declared,
        and a trial may have the whole GPU.
        """
        super().__init__()
        self.parts, self.facts = parts, facts
        self._n_workers, self._room_bytes = n_workers, room_bytes

    def copy_to(self, device: str, dtype: torch.dtype) -> DataTensors:
        if not self._stays(device):
            raise ValueError("its rows are loaded batch by batch, and not kept on the device")
        train, validation = (
            self._part(part, device, dtype) for part in (self.parts.train, self.parts.validation)
        )
        return DataTensors(train, validation)

    def open_rows(self, device: str, dtype: torch.dtype) -> AbstractContextManager[TrainingRows]:
        """Return the rows, on the device if they stay there, else loaded batch by batch."""
        if self._stays(device):
            return super().open_rows(device, dtype)
        return closing(
            PartsLoader(self.parts, self.facts, device, dtype, n_workers=self._n_workers)
        )

    def _stays(self, device: str) -> bool:
        if device == "cpu":
            return self.facts.stays(None)
        total_bytes: int = torch.cuda.get_device_properties(device).total_memory
        return self.facts.stays(self._room_bytes or total_bytes)

    def _part(self, part: SourcePart, device: str, dtype: torch.dtype) -> PartTensors:
        assert isinstance(part, ArrayRows), "items are loaded batch by batch"
        x = part.x.to(device) if holds_whole_numbers(part.x) else part.x.to(device, dtype)
        is_class = self.facts.task is Task.classification
        return PartTensors(x, part.y.to(device, torch.int64 if is_class else dtype))
