"""One event of each kind, and those of a log, for tests."""

from __future__ import annotations

import math
from pathlib import Path

from automl.record.event_log import read_events
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    DeviceKind,
    EnsembleBuilt,
    Event,
    ExportTuned,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    LoggedPoint,
    MemoryPeakMeasured,
    MetricsReported,
    ModelsEvaluated,
    OutOfMemoryOutcome,
    PaceMeasured,
    ParamsSuggested,
    PrunedOutcome,
    ReportWritten,
    RequestSource,
    RowsKind,
    ScoreDifference,
    ScoreInterval,
    StudyEdited,
    SweepEnded,
    SweepStarted,
    TooLargeOutcome,
    TrialFilesRemoved,
    TrialStarted,
    TrialState,
    TrialsWaited,
    TrialTagged,
    ValuesLogged,
)

EVENTS: list[Event] = [
    TrialStarted(
        3, 1.5, params={"lr": 0.1, "n": 2, "kind": "ä", "on": True, "no": None}, device="cpu"
    ),
    ParamsSuggested(3, 2.4, {"k": "b"}, {"k": {"choices": ["ä", 1]}, "x": {"low": 0, "log": True}}),
    MetricsReported(3, 2.5, step=4, metrics={"loss": 0.25, "big": math.inf}),
    TrialTagged(3, 2.6, name="data", text="ä: 3 rows"),
    ValuesLogged(
        3, 2.7, (LoggedPoint("a/b", math.inf, -2, 17), LoggedPoint("c", 0.5, 3, 18)), {"p": "ä"}
    ),
    CheckpointWritten(3, 2.75, step=4, path="/tmp/ö/last.pt", kind=CheckpointKind.LAST),
    MemoryPeakMeasured(3, 2.75, peak_bytes=2**40),
    MemoryPeakMeasured(3, 2.75, 2**40, 4, 2**39, 2**41, RequestSource.LEARNED),
    MemoryPeakMeasured(3, 2.75, 2**40, on_each_bytes=(2**40, 2**30)),
    FinishedOutcome(3, 3.5, value=-0.5, metrics={"val_loss": -0.5}),
    PrunedOutcome(4, 3.5, step=2, value=1.0),
    InterruptedOutcome(5, 3.5, cause="killed", by_worker_death=True),
    FailedOutcome(6, 3.5, cause="ValueError: x", details="line\nline", hopeless=True),
    OutOfMemoryOutcome(7, 3.5, cause="no room"),
    TooLargeOutcome(8, 3.5, cause="does not fit", excess=0.25, at_least=True),
    SweepStarted(
        *(0.5, "s", "u", {"a.b": "1"}, "# ä\nstudy: {}\n", {"objective.target": "1f"}, 2),
        judged_rows="ab",
        loading_seconds=0.25,
    ),
    SweepEnded(
        *(9.5, True, {TrialState.FINISHED: 1, TrialState.PRUNED: 1}, 3, -0.5),
        baseline={"majority": 0.5},
        baseline_scores={"loss": 0.5},
    ),
    PaceMeasured(10.5, DeviceKind.CPU, 1e9, 0.25, execution=3),
    ReportWritten(10.7),
    StudyEdited(
        *(10.75, "1-a", "ada", 3, {"space.lr": "0.1"}, {"space.lr": "0.2", "space.n": "null"}),
        space_before='{"lr": 0.1}',
        space='{"lr": 0.2, "n": null}',
        defaults={"space.n": "4"},
        undoes="0-b",
    ),
    TrialsWaited(10.8, 12.0, "5 GiB asked, 4 free"),
    TrialFilesRemoved(10.9, (3, 5)),
    PaceMeasured(10.5, DeviceKind.GPU, 1e9, 0.25),
    ModelsEvaluated(
        11.5,
        RowsKind.GIVEN,
        n_rows=60,
        digest="ab",
        trials=(7, 3),
        scores={"trial-00007": {"loss": ScoreInterval(0.25, 0.125, math.inf)}},
        differences={"linear": {"loss": ScoreDifference(0.5, 0.25, 0.75, "worse")}},
    ),
    ExportTuned(12.5, "trial-00003", "onnx, 1 thread", {"onnx, 1 thread": {"p50_seconds": 1e-5}}),
    EnsembleBuilt(12.5, 300, {7: 0.75, 3: 0.25}, {"loss": 0.5, "auc": math.inf}, {7: 2e6}),
]


def events_of(path: Path) -> list[Event]:
    return [event for event, _ in read_events(path)]
