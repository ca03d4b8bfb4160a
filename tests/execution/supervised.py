"""Trials in worker processes, for tests: how they are carried out and what came of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.trial import (
    ProcessEntry,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)
from tests.places import ON_HOST

ENTRY = ProcessEntry("tests.execution.objectives:open_scripted")
HOST = ON_HOST


def spec(number: int, act: str = "finish") -> TrialSpec:
    return TrialSpec(number, {"act": act}, "", 0)


def execute(
    path: Path, specs: Sequence[TrialSpec], limits: WorkerLimits | None = None
) -> list[TrialEvent]:
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    executor = WorkersExecutor(ENTRY, path, limits or WorkerLimits(max_workers=1))
    try:
        executor.execute(TrialFeed(specs, lambda taken: None), HOST, on_events)
    finally:
        executor.close()
    return events


def outcomes(events: Sequence[TrialEvent]) -> dict[int, TrialOutcome]:
    return {event.trial: event for event in events if isinstance(event, TrialOutcome)}


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came to hold within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def pause(seconds: float) -> None:
    """What takes the sweep so long."""
    threading.Event().wait(seconds)
