"""The messages between the sweep and the process of `gain`: what to time, and the timings.

They are a file of their own because the sweep reads them without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from automl.config import ObjectiveKind, Precision
from automl.objectives.training_plan import SessionSetup
from automl.trial import Params, Placement


@dataclass(frozen=True)
class TrainingWay:
    """A way of training a trial: threads, precision, pack and place of the data."""

    n_threads: int = 1
    precision: Precision = Precision.float32
    n_lanes: int = 1
    """The number of equal trials that train together; above 1 as a pack."""
    copies: bool = False
    """Whether the data stays in main memory, and each step copies its rows to the device."""


@dataclass(frozen=True)
class GainSetup:
    """The order to time a trial, sent to the process that does it. Picklable."""

    session: SessionSetup
    params: Params
    ways: tuple[TrainingWay, ...]
    placement: Placement
    seconds: float
    """The time for all ways together, which single long steps may exceed."""
    folder: str
    """The folder of the checkpoints, which the caller deletes."""

    @property
    def trial_params(self) -> Params:
        """The params of the trials; in built-in training the way sets the precision instead."""
        if self.session.plan.objective.kind is not ObjectiveKind.builtin:
            return self.params
        return {name: value for name, value in self.params.items() if name != "precision"}


@dataclass(frozen=True)
class TrainingTiming:
    """The timing of one way of training so far."""

    way: TrainingWay
    step_seconds: float | None = None
    """The seconds per step and trial: a pack's step divided by its lanes. None if no step was
    measured."""
    trial_seconds: float | None = None
    """The seconds of a whole trial, from its start to its outcome; None if the length of a trial is
    unknown."""
    emulated: bool = False
    """Whether the device has no instructions for the precision."""
    per_report: bool = False
    """Whether `step_seconds` is the time between reports: no optimizer of torch's took a step."""
    trouble: str | None = None
    """The reason why there is no time, one line."""
