"""Rows that are not kept on the device: a DataLoader brings them, batch by batch.

What a row becomes may be drawn (an augmentation): each batch is seeded by the trial's seed, its
epoch and its place in it. So it does not depend on how many processes load, nor on an interruption.

The user's own rows, handed out for training.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from automl.config import Task
from automl.data.data_facts import NetworkOutputs, UserDataFacts
from automl.errors import ConfigError
from automl.models.networks.tensors import BatchedRows, DataTensors, PartTensors, TrainingRows
from automl.objectives.user_data.parts import (
    ArrayRows,
    DatasetItems,
    SourcePart,
    SourceParts,
    holds_whole_numbers,
)

_Batch: TypeAlias = "tuple[int, int, Sequence[int]]"
"""The place of its part, a seed, and numbers of rows."""
_Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


class RowsError(ValueError):
    """Raised for rows that cannot be trained on."""


@dataclass(frozen=True)
class LoadingSettings:
    """How rows come to a device."""

    device: torch.device
    dtype: torch.dtype
    n_workers: int


@dataclass(frozen=True)
class LoadedRows:
    """One part; see `tensors.Rows`."""

    loader: _PartsLoader
    place: int

    def __len__(self) -> int:
        return len(self.loader.parts[self.place])

    def batches(self, order: torch.Tensor, n_rows: int, seed: int) -> Iterator[_Pair]:
        pieces = torch.split(order, n_rows)
        # Lists, because a tensor would go to a process by a file descriptor.
        made = ((self.place, seed + n, piece.tolist()) for n, piece in enumerate(pieces))
        return self.loader.load(made)

    def pieces(self, n_rows: int) -> Iterator[_Pair]:
        if not len(self):  # the validation part of a final training
            return iter(())
        return self.batches(torch.arange(len(self)), n_rows, seed=0)


class _PartsLoader:
    """Both parts through the same processes, which begin at the first batch and stay."""

    def __init__(self, parts: SourceParts, facts: UserDataFacts, loading: LoadingSettings) -> None:
        self.parts = (parts.train, parts.validation)
        self._loading, self._batches = loading, _FreshBatchSampler()
        self._pins = loading.device.type == "cuda"
        is_class = facts.task is Task.classification
        self._y_dtype = torch.int64 if is_class else loading.dtype
        several = loading.n_workers > 0
        self._loader: DataLoader[_Pair | str] = DataLoader(
            _BatchDataset(self.parts, facts),
            batch_sampler=self._batches,
            num_workers=loading.n_workers,
            collate_fn=_as_it_is,
            pin_memory=self._pins,
            persistent_workers=several,
            multiprocessing_context="fork" if several else None,
            generator=torch.Generator(),  # else torch's global one, from which a network may draw
        )

    def load(self, batches: Iterator[_Batch]) -> Iterator[_Pair]:
        """A pass; another may begin before it has ended."""
        self._batches.made = batches
        for batch in self._loader:
            if isinstance(batch, str):
                raise RowsError(batch)
            x, y = batch
            to = partial(torch.Tensor.to, device=self._loading.device, non_blocking=self._pins)
            x = to(x, dtype=self._loading.dtype) if x.is_floating_point() else to(x)
            yield x, to(y, dtype=self._y_dtype)

    def close(self) -> None:
        """End its processes. torch ends them when the iterator is collected, which the traceback of
        an exception puts off."""
        iterator: Any = self._loader._iterator
        if iterator is not None:
            iterator._shutdown_workers()


@contextmanager
def open_loaded_rows(
    parts: SourceParts, facts: UserDataFacts, how: LoadingSettings
) -> Iterator[tuple[LoadedRows, LoadedRows]]:
    """The training and the validation part; leaving the `with` ends the processes."""
    loader = _PartsLoader(parts, facts, how)
    try:
        yield LoadedRows(loader, 0), LoadedRows(loader, 1)
    finally:
        loader.close()


class _FreshBatchSampler:
    """A batch sampler whose batches are made anew for each pass, in this process."""

    made: Iterator[_Batch] = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self.made


class _BatchDataset(Dataset[Any]):
    """What a loader's process asks for whole batches."""

    def __init__(self, parts: Sequence[SourcePart], facts: UserDataFacts) -> None:
        self._parts, self._facts = parts, facts

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError("asked for batches")

    def __getitems__(self, batch: _Batch) -> _Pair | str:
        """What is wrong with a row comes as words: what is raised in another process reaches the
        training as a traceback."""
        try:
            return self.batch(batch)
        except (ConfigError, RowsError) as error:
            return str(error)

    def batch(self, batch: _Batch) -> _Pair:
        """Those rows. Raises RowsError where they are not alike, ConfigError for one that is no
        pair."""
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
    """All rows with their targets, once, in this process. Raises RowsError, ConfigError, and
    whatever a Dataset of the user's raises."""
    if isinstance(part, ArrayRows):
        sides = (torch.split(side, n_at_once) for side in (part.x, part.y))
        yield from zip(*sides, strict=True)
        return
    rows = _BatchDataset([part], facts)
    for begin in range(0, len(part), n_at_once):
        yield rows.batch((0, 0, range(begin, min(begin + n_at_once, len(part)))))


def _stacked(part: DatasetItems, numbers: Sequence[int]) -> _Pair:
    """Raises RowsError where rows are not alike."""
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
    """Here, because a GPU that meets such a one is lost to its process."""
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
    """What rows draw follows from the seed; nobody else's draws change, in this process either."""
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


def _as_it_is(batch: Any) -> Any:
    return batch


class _LoadedParts(NamedTuple):
    """See `tensors.TrainingRows`."""

    train: BatchedRows
    validation: BatchedRows


class UserTensors:
    """Hands out the user's tensors for a device; any thread. See `tensors.TensorSource`."""

    def __init__(
        self,
        parts: SourceParts,
        facts: UserDataFacts,
        *,
        n_workers: int = 0,
        room_bytes: int | None = None,
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
        how = LoadingSettings(torch.device(device), dtype, self._n_workers)
        with open_loaded_rows(self.parts, self.facts, how) as rows:
            yield _LoadedParts(*rows)

    def _stays(self, device: str) -> bool:
        if device == "cpu":
            return self.facts.stays(None)
        total_bytes: int = torch.cuda.get_device_properties(device).total_memory
        return self.facts.stays(self._room_bytes or total_bytes)

    @property
    def _both(self) -> tuple[ArrayRows, ArrayRows]:
        train, validation = self.parts.train, self.parts.validation
        assert isinstance(train, ArrayRows), "items are loaded batch by batch"
        assert isinstance(validation, ArrayRows), "as those of train"
        return train, validation

    def _part(self, part: ArrayRows, device: str, dtype: torch.dtype) -> PartTensors:
        x = part.x.to(device) if holds_whole_numbers(part.x) else part.x.to(device, dtype)
        is_class = self.facts.task is Task.classification
        return PartTensors(x, part.y.to(device, torch.int64 if is_class else dtype))
