"""Small studies for the tests of this folder: events written as a sweep writes them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from automl.record.event_log import EventLog
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    Event,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    SweepEnded,
    SweepStarted,
    TrialOutcome,
    TrialStarted,
    TrialState,
)

NAME, UUID = "brave-otter", "5b7c-uuid"
BEGUN = 1_700_000_000.0
"""Unix seconds at which every scene begins: times in MLflow are the trials', not the writer's."""


def sweep_started(**settings: str) -> SweepStarted:
    return SweepStarted(BEGUN, NAME, UUID, settings or {"training.epochs": "3"})


def sweep_ended(n_finished: int, done: bool = True) -> SweepEnded:
    counts = {TrialState.FINISHED: n_finished, TrialState.FAILED: 0}
    return SweepEnded(BEGUN + 900, done, counts, best_trial=0, best_value=0.25)


def begin(number: int) -> TrialStarted:
    return TrialStarted(number, BEGUN + number, params={"lr": 0.1, "depth": number}, device="cpu")


def report(number: int, step: int) -> MetricsReported:
    metrics = {"train_loss": number + step / 10, "val_loss": number + step / 5}
    return MetricsReported(number, BEGUN + number + step / 100, step, metrics)


def finish(number: int) -> FinishedOutcome:
    return FinishedOutcome(number, BEGUN + number + 0.5, value=number + 0.25)


def interrupt(number: int) -> InterruptedOutcome:
    return InterruptedOutcome(number, BEGUN + number + 0.4, cause="Ctrl-C")


def trial(number: int, n_steps: int = 3, outcome: TrialOutcome | None = None) -> list[Event]:
    """A trial from its start to its outcome (finished, unless another one is given)."""
    reports = [report(number, step) for step in range(n_steps)]
    return [begin(number), *reports, outcome or finish(number)]


def write(directory: Path, *events: Event) -> None:
    """Append `events` to the study's log, as one sweep."""
    with EventLog.open(directory / "events.log") as log:
        for event in events:
            log.append(event)


def write_checkpoint(directory: Path, number: int, kind: CheckpointKind) -> CheckpointWritten:
    """A checkpoint on disk, and its event."""
    path = directory / "checkpoints" / f"trial-{number:05d}" / f"{kind.value}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"{kind.value} of {number}".encode())
    return CheckpointWritten(number, BEGUN + number + 0.3, step=2, path=str(path), kind=kind)


def wait_for(holds: Callable[[], bool], what: str, timeout_seconds: float = 30.0) -> None:
    """Return when `holds`; for things that another process does in its own time."""
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_seconds} s"
        time.sleep(0.02)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
