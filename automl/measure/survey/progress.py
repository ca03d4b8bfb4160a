"""How far a surveyed objective has come, and when enough was seen.

Data loaders cut short: the first batches, the largest and the last, read in this process.
"""

from __future__ import annotations

import copy
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

N_STEPS = 3
"""The first makes the optimizer's state, the second trains beside it, the third repeats that."""
_N_PASSES = 3
"""Passes over the training data after which an objective that never reports was seen."""


@dataclass
class _SteppedOptimizer:
    """An optimizer, and how often its parameters were stepped."""

    name: str
    n_steps: int = 0


class SurveyProgress:
    """Counts optimizer steps, reports and passes over data."""

    def __init__(self, metric: str) -> None:
        self.n_steps = 0
        self.n_reports = 0
        self._metric = metric
        self._n_looks = 0
        self._living: weakref.WeakKeyDictionary[Any, _SteppedOptimizer] = (
            weakref.WeakKeyDictionary()
        )
        self._made: list[_SteppedOptimizer] = []
        """All optimizers, those that are gone included."""
        self._n_passes = self._n_steps_at_pass = 0

    def made(self, optimizer: Any) -> None:
        self._living[optimizer] = _SteppedOptimizer(type(optimizer).__name__)
        self._made.append(self._living[optimizer])

    def stepped(self, optimizer: Any) -> None:
        """Counts for all that have its parameters: some optimizers step others."""
        self.n_steps += 1
        own = {id(p) for p in parameters_of(optimizer)}
        for other, made in self._living.items():
            made.n_steps += any(id(p) in own for p in parameters_of(other))

    @property
    def parameters(self) -> list[Any]:
        """What all optimizers train."""
        return [p for optimizer in self._living for p in parameters_of(optimizer)]

    def reported(self, metrics: Mapping[str, object]) -> bool:
        """Whether it may end with this report: an epoch with its look at the validation is over."""
        self.n_reports += 1
        if self._metric not in metrics:
            return False
        if not self._made and not self.n_steps:  # a loop without torch's optimizers
            return self.n_reports >= N_STEPS
        return self.enough

    def looked(self) -> None:
        """A module was called without gradients: nearly always the validation."""
        self._n_looks += 1

    def begins_pass(self) -> bool:
        """Whether it may end before another pass over data: an objective that only returns its
        value would train to its end."""
        self._n_passes += self.n_steps > self._n_steps_at_pass
        self._n_steps_at_pass = self.n_steps
        return self.enough and self._n_passes >= _N_PASSES and self._n_looks > 0

    @property
    def waits_for_steps(self) -> bool:
        """Steps of an optimizer of torch's are still to come."""
        return bool(self._made) and not self.enough

    @property
    def enough(self) -> bool:
        """All steps that are needed were seen, of every optimizer."""
        return self.n_steps >= N_STEPS and self.idle_optimizer is None

    @property
    def idle_optimizer(self) -> str | None:
        """An optimizer whose parameters nobody has stepped twice, so that its state may not be
        there yet."""
        return next((made.name for made in self._made if made.n_steps < 2), None)


def parameters_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


_N_FIRST = 2
_MAX_BATCHES = 64
"""So many until steps are taken: gradients may be accumulated over many batches."""
_MAX_INDICES = 2**16
"""Batches that are looked at for the largest and the last; a sampler may have no end."""


def make_short_iter(
    progress: SurveyProgress, end: Callable[[], None]
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


def _cut(indices: Iterable[Any], progress: SurveyProgress) -> Iterator[Any]:
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
