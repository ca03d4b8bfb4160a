"""Data loaders cut short: the first batches, the largest and the last, read in this process."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from automl.training.survey.progress import Progress

_N_FIRST = 2
_MAX_BATCHES = 64
"""So many until steps are taken: gradients may be accumulated over many batches."""
_MAX_INDICES = 2**16
"""Batches that are looked at for the largest and the last; a sampler may have no end."""


def short_iter(
    progress: Progress, end: Callable[[], None]
) -> Callable[[DataLoader[Any]], Iterator[Any]]:
    """What `DataLoader.__iter__` is while an objective is surveyed; calls `end`, which
    raises, where enough was seen."""

    def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
        if progress.begins_pass():
            end()
        batches = _here(loader)
        indices = batches._sampler_iter
        if loader._dataset_kind == _DatasetKind.Iterable:
            batches._sampler_iter = islice(indices, _N_FIRST + 1)
        else:
            batches._sampler_iter = _cut(indices, progress)
        return batches

    return iterate


def _here(loader: DataLoader[Any]) -> _SingleProcessDataLoaderIter:
    """An iterator that loads in this process: three batches are not worth starting workers."""
    alone = copy.copy(loader)
    for name, value in (("num_workers", 0), ("timeout", 0), ("pin_memory", False)):
        object.__setattr__(alone, name, value)
    return _SingleProcessDataLoaderIter(alone)


def _cut(indices: Iterable[Any], progress: Progress) -> Iterator[Any]:
    """The first batches, more while too few steps were taken; then the largest and the last."""
    rest = iter(indices)
    for n, batch in enumerate(rest, start=1):
        yield batch
        if n >= _N_FIRST and not (progress.waits_for_steps and n < _MAX_BATCHES):
            break
    largest: list[Any] = []
    last: deque[Any] = deque(maxlen=1)
    for batch in islice(rest, _MAX_INDICES):
        last.append(batch)
        if not largest or _n_rows(batch) > _n_rows(largest[0]):
            largest = [batch]
    if largest and _n_rows(largest[0]) > _n_rows(last[0]):
        yield largest[0]
    yield from last


def _n_rows(batch: Any) -> int:
    return len(batch) if isinstance(batch, list | tuple) else 1
