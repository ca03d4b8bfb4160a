"""How far a surveyed objective has come, and when enough was seen."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

N_STEPS = 3
"""The first makes the optimizer's state, the second trains beside it, the third repeats that."""
_N_PASSES = 3
"""Passes over the training data after which an objective that never reports was seen."""


class Progress:
    """Counts optimizer steps, reports and passes over data."""

    def __init__(self, metric: str) -> None:
        self.n_steps = 0
        self.n_reports = 0
        self._metric = metric
        self._n_looks = 0
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._n_steps_of: Counter[int] = Counter()
        """Steps by parameter."""
        self._n_passes = self._n_steps_at_pass = 0

    def made(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)

    def stepped(self, optimizer: Any) -> None:
        self.n_steps += 1
        self._n_steps_of.update(id(p) for p in parameters_of(optimizer))

    @property
    def parameters(self) -> list[Any]:
        """What all optimizers train."""
        return [p for optimizer in self._optimizers for p in parameters_of(optimizer)]

    def reported(self, metrics: Mapping[str, object]) -> bool:
        """Whether it may end with this report: an epoch with its look at the validation is over."""
        self.n_reports += 1
        if self._metric not in metrics:
            return False
        if not self._optimizers and not self.n_steps:  # a loop without torch's optimizers
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
        return bool(self._optimizers) and not self.enough

    @property
    def enough(self) -> bool:
        """All steps that are needed were seen, of every optimizer."""
        return self.n_steps >= N_STEPS and self.idle_optimizer is None

    @property
    def idle_optimizer(self) -> str | None:
        """An optimizer whose parameters nobody has stepped twice, so that its state may not be
        there yet."""
        for optimizer in self._optimizers:
            steps = [self._n_steps_of[id(p)] for p in parameters_of(optimizer)]
            if max(steps, default=0) < 2:
                return type(optimizer).__name__
        return None


def parameters_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]
