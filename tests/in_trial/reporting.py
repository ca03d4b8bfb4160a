"""A trial whose reports and files are looked at, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import TrialContext
from automl.trial import (
    CheckpointWritten,
    Direction,
    OnEvent,
)
from tests.models.conftest import Listener, make_spec


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def make_trial(
    folder: Path,
    on_event: OnEvent,
    *,
    every_seconds: float = 0.0,
    clock: Callable[[], float] | None = None,
    direction: Direction = Direction.minimize,
    keeps_last: bool = False,
) -> tuple[TrialContext, TrialReports]:
    spec = make_spec(folder, {"lr": 0.1})
    goal = StudyGoal("val_loss", direction, keeps_last=keeps_last)
    record = TrialReports(spec, goal, on_event, every_seconds, clock or Clock())
    return TrialContext(spec, devices=("cpu",), seed=1, record=record), record


def stored(folder: Path, name: str) -> dict[str, Any]:
    return torch_checkpoint.load(folder / "trial-00000" / name)


def written(listener: Listener) -> list[tuple[int, str]]:
    return [(e.step, e.kind.value) for e in listener.events if isinstance(e, CheckpointWritten)]
