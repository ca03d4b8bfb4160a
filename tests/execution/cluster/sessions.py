"""A session that writes checkpoints, as its executor is told to."""

from __future__ import annotations

import time
from pathlib import Path

from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    FinishedOutcome,
    OnEvent,
    Placement,
    SweepChannel,
    TrialSpec,
)
from tests.execution.objectives import ScriptedSession


class WritingSession(ScriptedSession):
    """Counts on from `last.pt` by one, and logs a plot."""

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        folder = Path(spec.checkpoint_dir)
        last = folder / "last.pt"
        n = int(last.read_text().split()[1]) if last.exists() else 0
        (folder / "artifacts").mkdir(parents=True, exist_ok=True)
        last.write_text(f"state {n + 1}")
        on_event(CheckpointWritten(spec.number, time.time(), n, str(last), CheckpointKind.LAST))
        (folder / "artifacts" / "plot").write_text("a plot")
        on_event(FinishedOutcome(spec.number, time.time(), n + 1.0))


def open_writing(config: object) -> WritingSession:
    return WritingSession(config)
