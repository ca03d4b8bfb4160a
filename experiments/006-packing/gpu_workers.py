"""Real workers that carry trials out, without a sweep: what they tell goes to a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from automl.config import ObjectiveConfig, ObjectiveKind
from automl.execution.executor import TrialFeed
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits, preload_fork_server
from automl.execution.workers_executor import WorkersExecutor
from automl.objectives.training_plan import SessionSetup
from automl.trial import (
    MemoryPeakMeasured,
    Params,
    Placement,
    ProcessEntry,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)
from tests.models.conftest import make_plan


def each(last_step: int, step: int) -> Sequence[int]:
    """Every report may end its trial, so that the next waits until this one is answered."""
    return [step]


def setup_of(function: str) -> SessionSetup:
    """Of an objective in `gpu_objectives.py`."""
    objective = ObjectiveConfig(ObjectiveKind.python, f"gpu_objectives:{function}")
    return SessionSetup(make_plan(objective=objective))


def preload_torch() -> None:
    """As a sweep does that surveys: what is forked from there has torch loaded."""
    preload_fork_server("automl.objectives.training_session", "automl.measure.survey.survey_run")


@contextmanager
def workers(function: str, folder: Path, n: int = 1) -> Iterator[WorkersExecutor]:
    """At most n of them; they end with the block."""
    entry = ProcessEntry("automl.objectives.training_session:open_session", setup_of(function))
    limits = WorkerLimits(max_workers=n, judging=JudgedReports("val_loss", each))
    with closing(WorkersExecutor(entry, folder, limits)) as executor:
        yield executor


def spec_of(number: int, params: Params, folder: Path) -> TrialSpec:
    return TrialSpec(number, params, str(folder / f"trial-{number:05}"), study_seed=0)


def carry(
    executor: WorkersExecutor,
    spec: TrialSpec,
    placement: Placement,
    on_event: Callable[[TrialEvent], None] = lambda event: None,
) -> tuple[TrialOutcome, MemoryPeakMeasured | None]:
    """One trial to its end, and the last peak that its worker told."""
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        for event in new:
            on_event(event)
        return {}

    executor.execute(TrialFeed([spec], lambda taken: None), placement, on_events)
    peaks = [event for event in events if isinstance(event, MemoryPeakMeasured)]
    (outcome,) = (event for event in events if isinstance(event, TrialOutcome))
    return outcome, peaks[-1] if peaks else None
