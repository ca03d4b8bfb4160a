"""What is timed, and what came of it. Light: no torch."""

from __future__ import annotations

from dataclasses import dataclass

from automl.config import ObjectiveKind, Precision
from automl.objectives.training_plan import SessionSetup
from automl.trial import Params, Placement


@dataclass(frozen=True)
class TrainingWay:
    """One way of training the same trial."""

    n_threads: int = 1
    precision: Precision = Precision.float32
    n_lanes: int = 1
    """Above 1: a pack of so many like it."""
    copies: bool = False
    """The data stays in main memory, and each step's rows are copied to the device."""


@dataclass(frozen=True)
class GainSetup:
    """What a process that times a trial is given. Picklable."""

    session: SessionSetup
    params: Params
    ways: tuple[TrainingWay, ...]
    placement: Placement
    seconds: float
    """For all ways together, as far as single steps allow."""
    folder: str
    """For the checkpoints; to be thrown away."""

    @property
    def trial_params(self) -> Params:
        """Without what each way has of its own, where the training is ours."""
        if self.session.plan.objective.kind is not ObjectiveKind.builtin:
            return self.params
        return {name: value for name, value in self.params.items() if name != "precision"}


@dataclass(frozen=True)
class TrainingTiming:
    """What is known of one way so far."""

    way: TrainingWay
    step_seconds: float | None = None
    """Of one trial: a pack's step by its lanes. None: no step was seen."""
    trial_seconds: float | None = None
    """A whole trial, from its start to its outcome; None: nobody knows how long one is."""
    emulated: bool = False
    """The device has no instructions for the precision."""
    per_report: bool = False
    """No optimizer of torch's took a step: from one report to the next."""
    trouble: str | None = None
    """Why there is no time, one line."""
