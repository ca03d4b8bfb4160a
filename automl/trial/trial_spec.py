"""Defines what a trial is: its params, its state, and the verdicts on it.

The module also names trials and refits; it knows nothing of devices or events.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

LARGEST_INTEGER = 2**53
"""The largest whole number of a range: Optuna stores its values as float64, exact up to here."""
MAX_STEP = 2**53
"""The largest step of a report: float64, every database and MLflow's charts hold it exactly."""

ParamValue: TypeAlias = "int | float | str | bool | None"
Params: TypeAlias = Mapping[str, ParamValue]
SpaceEntry: TypeAlias = Mapping[str, object]
"""The values of a param as a search space writes them: `{low: …, high: …}` or `{choices: […]}`."""
FAMILY_PARAM = "family"
"""Name of the param that chooses the family of a trial."""
ROWS_PARAM = "rows"
"""Name of the param that says on how many rows a trial of a large table trains."""


class TrialState(enum.Enum):
    """Tells where a trial stands. An INTERRUPTED trial goes on later, a PAUSED one if the pruner
    promotes it."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    FINISHED = "finished"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the trial never runs again."""
        return self in (TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED)


class Direction(enum.Enum):
    """Tells which values of the study's metric are better."""

    minimize = "minimize"
    maximize = "maximize"

    def better(self, a: float, b: float) -> bool:
        """Return whether `a` is strictly better than `b`."""
        return a < b if self is Direction.minimize else a > b


class Verdict(enum.Enum):
    """The study's answer to an event, which travels back into the trial."""

    GO_ON = "go on"
    PRUNE = "prune"
    PAUSE = "pause"
    """The trial stops at a rung and may go on later. Training processes get STOP in its place."""
    STOP = "stop"


class CheckpointKind(enum.Enum):
    """Tells the two checkpoints apart: `last.pt` holds all that is needed to resume, `best.pt` all
    that is needed to predict."""

    LAST = "last"
    BEST = "best"


def refit_name(number: int | None) -> str:
    """Return the name of a refit: `refit-trial-00003`, or for None `refit-ensemble`."""
    return f"refit-{ENSEMBLE_NAME if number is None else trial_name(number)}"


def trial_name(number: int) -> str:
    """Return `trial-00007`, which names the checkpoint folder and the MLflow run of a trial."""
    return f"trial-{number:05d}"


def trial_number_of(name: str) -> int:
    """Return the number of a trial from its `trial_name`. Raises ValueError for another name."""
    return int(name.removeprefix("trial-"))


ENSEMBLE_NAME = "ensemble"
"""Name of the model that averages the models of several trials."""


@dataclass(frozen=True)
class TrialSpec:
    """One trial as an executor receives it. Picklable."""

    number: int
    params: Params
    checkpoint_dir: str
    """Folder of `last.pt` and `best.pt`; the trial creates it when it first writes."""
    study_seed: int
    entries: Mapping[str, SpaceEntry] = field(default_factory=dict)
    """Search space entries of the `params`, for an objective that asks for its params itself.

    A request for a param with an equal entry is answered at once, without a question to the sweep.
    """
    drawn_ahead: Sequence[str] = ()
    """Names in `params` that are the trial's own only once its objective asks for them."""
    attempt: int = 0
    """Number of this attempt in a shared study; 0: no other sweep can have the trial."""
    n_starts: int = 0
    """Number of earlier starts of the trial, as far as this sweep knows."""
    n_repeats: int = 1
    """Number of repeats of the trial; above 1 `number` counts the repeats of all trials."""

    @property
    def trial(self) -> int:
        """The number of the trial in its study, which its repeats share."""
        return self.number // self.n_repeats

    def repeat(self, repeat: int, n_repeats: int) -> TrialSpec:
        """Return the spec of one of the trial's repeats, each with a number, and so a seed, of its
        own. The first one has the trial's folder, the others have folders beside it."""
        folder = f"{self.checkpoint_dir}.repeat-{repeat}" if repeat else self.checkpoint_dir
        number = self.number * n_repeats + repeat
        return replace(self, number=number, n_repeats=n_repeats, checkpoint_dir=folder)

    @property
    def is_first(self) -> bool:
        """Whether the trial was never started before."""
        return self.attempt <= 1 and not self.n_starts


@dataclass(frozen=True)
class PackKind:
    """The property that trials of one pack share. Trials of equal kind can train together."""

    key: Hashable
    n_lanes: int
    """Largest number of trials of this kind in one pack, at least 2."""
