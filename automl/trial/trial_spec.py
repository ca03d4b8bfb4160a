"""What a trial is: its params, its state, what is decided of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

LARGEST_INTEGER = 2**53
"""The largest whole number of a range: Optuna stores its values as float64, exact up to here."""
MAX_STEP = 2**53
"""The largest step of a report: what float64, every database and MLflow's charts hold exactly."""

ParamValue: TypeAlias = "int | float | str | bool | None"
Params: TypeAlias = Mapping[str, ParamValue]
SpaceEntry: TypeAlias = Mapping[str, object]
"""A param's values as a search space writes them: `{low: …, high: …}` or `{choices: […]}`."""


class TrialState(enum.Enum):
    """Where a trial stands. INTERRUPTED goes on later."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the trial never runs again."""
        return self in (TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED)


class Direction(enum.Enum):
    """Which values of the study's metric are better."""

    minimize = "minimize"
    maximize = "maximize"

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is strictly better than `b`."""
        return a < b if self is Direction.minimize else a > b


class Verdict(enum.Enum):
    """The study's answer to an event: all that travels back into a trial, but for the answer to a
    `Question`."""

    GO_ON = "go on"
    PRUNE = "prune"
    STOP = "stop"


class CheckpointKind(enum.Enum):
    """`last.pt` holds all that is needed to go on; `best.pt` all that is needed to predict."""

    LAST = "last"
    BEST = "best"


def refit_name(number: int | None) -> str:
    """`refit-trial-00003`, or of None, the ensemble, `refit-ensemble`: what a refit is called."""
    return f"refit-{ENSEMBLE_NAME if number is None else trial_name(number)}"


def trial_name(number: int) -> str:
    """`trial-00007`: folder of its checkpoints and name of its MLflow run."""
    return f"trial-{number:05d}"


def number_of(name: str) -> int:
    """Back from `trial_name`. Raises ValueError for another name."""
    return int(name.removeprefix("trial-"))


ENSEMBLE_NAME = "ensemble"
"""What the mean of several trials' models is called."""


@dataclass(frozen=True)
class TrialSpec:
    """One trial as an executor receives it. Picklable."""

    number: int
    params: Params
    checkpoint_dir: str
    """Folder of `last.pt` and `best.pt`; made by the trial when it first writes."""
    study_seed: int
    entries: Mapping[str, SpaceEntry] = field(default_factory=dict)
    """Of an objective that asks for its params: as it is known to ask for those that are in
    `params`. One that it asks for in this way is answered, and no question."""
    drawn_ahead: Sequence[str] = ()
    """Names in `params` that are the trial's own only once its objective asks for them."""
    attempt: int = 0
    """Of a study that several sweeps share; 0: nobody else can have the trial."""
    n_starts: int = 0
    """Times that it was started before, as far as this sweep knows."""

    @property
    def is_first(self) -> bool:
        """Nobody has begun it before."""
        return self.attempt <= 1 and not self.n_starts
