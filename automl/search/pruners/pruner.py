"""The contract of pruners: one class per option, in a file named for it.

The fields of the class are the option's arguments (`pruner.factor=4`), so it is Hydra's schema as
well; hence plain dataclasses. To add a pruner is to add a file here and one in `conf/pruner/`.

Judging is pure. A rung is a step at which trials are compared. Values come as keys; a lower key is
better; NaN is the worst (`trial_standings.py` negates values that are maximised). `keys` are the
keys of all trials at the rung in ascending order, running ones and the judged one included: for
each trial the best that it had reported when it reached the rung.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from automl.config import PrunerConfig


@dataclass
class Pruner(PrunerConfig, ABC):
    """Decides which trials end early; has no state. Training processes use its `rungs`, too."""

    several_metrics: ClassVar[bool] = False
    """Judges trials by several metrics; the keys say only how many trials at the rung are
    better."""
    pauses: ClassVar[bool] = False
    """Whether a trial that stops at a rung is paused there, and goes on once `promotes` says so."""

    @abstractmethod
    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        """Return the rungs newly reached by reporting `step` after `last_step` (-1: none)."""

    @abstractmethod
    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Return whether a trial stops that reached a rung with `key`.

        `best_key` is the trial's best key so far. Equals never stop each other.
        """

    def promotes(self, key: float, keys: Sequence[float], *, is_last: bool) -> bool:
        """Return whether a trial goes on that was paused at a rung with `key`.

        `is_last`: nothing runs, and no new trial will reach the rung.
        """
        return False

    def for_length(self, n_steps: int, n_first: int = 1) -> Pruner:
        """Return the pruner for trials of `n_steps` steps, whose first `n_first` are not judged."""
        return self


@dataclass(frozen=True)
class CombinedRungs:
    """The rungs of several kinds of trials, for processes that train trials of all kinds."""

    pruners: tuple[Pruner, ...]

    def __call__(self, last_step: int, step: int) -> Sequence[int]:
        rungs = {rung for pruner in self.pruners for rung in pruner.rungs(last_step, step)}
        return sorted(rungs)
