"""The progress of a surveyed objective: steps, reports and passes, and whether they suffice.

Data loaders are shortened to the first batches, the largest and the last, read in this process.
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
"""The steps that a survey must see. The first makes the optimizer's state, the second trains beside
that state, and the third repeats the second."""
_N_PASSES = 3
"""The passes over the training data after which an objective without reports was seen enough."""


@dataclass
class _SteppedOptimizer:
    """The name of an optimizer, and the number of steps that its parameters took."""

    name: str
    n_steps: int = 0


class SurveyProgress:
    """Counts optimizer steps, reports and passes over data."""

    def __init__(self, metric: str) -> None:
        self.n_steps = 0
        self.n_reports = 0
        self._metric = metric
        self._n_evaluations = 0
        self._living: weakref.WeakKeyDictionary[Any, _SteppedOptimizer] = (
            weakref.WeakKeyDictionary()
        )
        self._all: list[_SteppedOptimizer] = []
        """All optimizers, deleted ones included."""
        self._n_passes = self._n_steps_at_pass = 0

    def add_optimizer(self, optimizer: Any) -> None:
        """Count the steps of a new optimizer from now on."""
        self._living[optimizer] = _SteppedOptimizer(type(optimizer).__name__)
        self._all.append(self._living[optimizer])

    def count_step(self, optimizer: Any) -> None:
        """Count a step for all optimizers that share parameters: some optimizers step others."""
        self.n_steps += 1
        own = {id(p) for p in parameters_of(optimizer)}
        for other, counted in self._living.items():
            counted.n_steps += any(id(p) in own for p in parameters_of(other))

    @property
    def parameters(self) -> list[Any]:
        """The parameters that all optimizers train."""
        return [p for optimizer in self._living for p in parameters_of(optimizer)]

    def count_report(self, metrics: Mapping[str, object]) -> bool:
        """Count a report, and return whether the survey may end with it.

        A report of the study's metric means that an epoch with its validation is over.
        """
        self.n_reports += 1
        if self._metric not in metrics:
            return False
        if not self._all and not self.n_steps:  # a loop without torch's optimizers
            return self.n_reports >= N_STEPS
        return self.has_enough_steps

    def count_evaluation(self) -> None:
        """Count a call of a module without gradients, which is nearly always the validation."""
        self._n_evaluations += 1

    def count_pass(self) -> bool:
        """Count a pass over data, and return whether the survey may end before it.

        An objective that only returns its value would else train to its end.
        """
        self._n_passes += self.n_steps > self._n_steps_at_pass
        self._n_steps_at_pass = self.n_steps
        return self.has_enough_steps and self._n_passes >= _N_PASSES and self._n_evaluations > 0

    @property
    def waits_for_steps(self) -> bool:
        """Whether steps of an optimizer of torch's are still to come."""
        return bool(self._all) and not self.has_enough_steps

    @property
    def has_enough_steps(self) -> bool:
        """Whether all needed steps of every optimizer were seen."""
        return self.n_steps >= N_STEPS and self.idle_optimizer is None

    @property
    def idle_optimizer(self) -> str | None:
        """The name of an optimizer with fewer than two steps, whose state may not exist yet."""
        return next((counted.name for counted in self._all if counted.n_steps < 2), None)


def parameters_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


_N_FIRST = 2
_MAX_BATCHES = 64
"""The most batches until enough steps are taken: gradients may accumulate over many batches."""
_MAX_INDICES = 2**16
"""The most batches searched for the largest and the last; a sampler may have no end."""


def make_short_iter(
    progress: SurveyProgress, end: Callable[[], None]
) -> Callable[[DataLoader[Any]], Iterator[Any]]:
    """Return the `DataLoader.__iter__` of a surveyed objective.

    It calls `end`, which raises, if the survey has seen enough.
    """

    def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
        if progress.count_pass():
            end()
        batches = _in_process_iter(loader)
        indices = batches._sampler_iter
        if loader._dataset_kind == _DatasetKind.Iterable:
            batches._sampler_iter = islice(indices, _N_FIRST + 1)
        else:
            batches._sampler_iter = _shorten(indices, progress)
        return batches

    return iterate


def _in_process_iter(loader: DataLoader[Any]) -> _SingleProcessDataLoaderIter:
    """Return an iterator that loads in this process: few batches are not worth starting workers."""
    without_workers = copy.copy(loader)
    for name, value in (("num_workers", 0), ("timeout", 0), ("pin_memory", False)):
        object.__setattr__(without_workers, name, value)
    return _SingleProcessDataLoaderIter(without_workers)


def _shorten(indices: Iterable[Any], progress: SurveyProgress) -> Iterator[Any]:
    """Yield the first batches, more while steps are missing; then the largest and the last."""
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
