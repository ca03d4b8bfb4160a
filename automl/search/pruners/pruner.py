"""The contract of pruners: one class per option, in a file named for it.

The fields of the class are the option's arguments (`pruner.factor=4`), so it is Hydra's schema as
well; hence plain dataclasses. To add a pruner is to add a file here and one in `conf/pruner/`.

Judging is pure. A rung is a place in training at which trials are compared. Values come as keys, of
which the lower is the better (`trial_standings.py` turns values round when they are maximised; NaN
is
worst of all), and `keys` are those of all trials at the rung, running ones and the judged one
included, in order: of each trial the best that it had reported when it reached the rung.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from automl.config import PrunerConfig


@dataclass
class Pruner(PrunerConfig, ABC):
    """Decides early ends; holds no state. Processes that train know its `rungs` too."""

    @abstractmethod
    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        """The rungs newly reached by reporting `step` after `last_step` (-1: nothing before)."""

    @abstractmethod
    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        """Whether a trial stops that stands at a rung with `key`; `best_key` is its best so far.

        Equals never stop each other.
        """

    def for_length(self, n_steps: int, n_first: int = 1) -> Pruner:
        """The same for trials that are known to have `n_steps` steps when they are not stopped,
        and of whose first `n_first` none is worth judging."""
        return self


@dataclass(frozen=True)
class CombinedRungs:
    """The rungs of several kinds of trials, for processes that train them all."""

    pruners: tuple[Pruner, ...]

    def __call__(self, last_step: int, step: int) -> Sequence[int]:
        """See `Pruner.rungs`."""
        found = {rung for pruner in self.pruners for rung in pruner.rungs(last_step, step)}
        return sorted(found)
