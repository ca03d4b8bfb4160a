"""One event of each kind, and those of a log, for tests."""

from __future__ import annotations

import math
from pathlib import Path

from automl.record.events import read_events
from automl.trial import (
    Checkpointed,
    CheckpointKind,
    DeviceKind,
    Difference,
    Ensembled,
    Evaluated,
    Event,
    Failed,
    Finished,
    Interrupted,
    Interval,
    Logged,
    LoggedPoint,
    MemoryPeak,
    OutOfMemory,
    Paced,
    Pruned,
    Reported,
    RequestSource,
    RowsKind,
    Started,
    SweepEnded,
    SweepStarted,
    Tagged,
    TooLarge,
    TrialState,
    Tuned,
)

EVENTS: list[Event] = [
    Started(3, 1.5, params={"lr": 0.1, "n": 2, "kind": "ä", "on": True, "no": None}, device="cpu"),
    Reported(3, 2.5, step=4, metrics={"loss": 0.25, "big": math.inf}),
    Tagged(3, 2.6, name="data", text="ä: 3 rows"),
    Logged(
        3, 2.7, (LoggedPoint("a/b", math.inf, -2, 17), LoggedPoint("c", 0.5, 3, 18)), {"p": "ä"}
    ),
    Checkpointed(3, 2.75, step=4, path="/tmp/ö/last.pt", kind=CheckpointKind.LAST),
    MemoryPeak(3, 2.75, peak_bytes=2**40),
    MemoryPeak(3, 2.75, 2**40, 4, 2**39, 2**41, RequestSource.LEARNED),
    MemoryPeak(3, 2.75, 2**40, on_each_bytes=(2**40, 2**30)),
    Finished(3, 3.5, value=-0.5),
    Pruned(4, 3.5, step=2, value=1.0),
    Interrupted(5, 3.5, cause="killed", by_worker_death=True),
    Failed(6, 3.5, cause="ValueError: x", details="line\nline", hopeless=True),
    OutOfMemory(7, 3.5, cause="no room"),
    TooLarge(8, 3.5, cause="does not fit", excess=0.25, at_least=True),
    SweepStarted(0.5, "s", "u", {"a.b": "1"}),
    SweepEnded(9.5, True, {TrialState.FINISHED: 1, TrialState.PRUNED: 1}, 3, -0.5),
    Paced(10.5, DeviceKind.CPU, 1e9, 0.25, execution=3),
    Paced(10.5, DeviceKind.GPU, 1e9, 0.25),
    Evaluated(
        11.5,
        RowsKind.GIVEN,
        n_rows=60,
        digest="ab",
        trials=(7, 3),
        scores={"trial-00007": {"loss": Interval(0.25, 0.125, math.inf)}},
        differences={"linear": {"loss": Difference(0.5, 0.25, 0.75, "worse")}},
    ),
    Tuned(12.5, "trial-00003", "onnx, 1 thread", {"onnx, 1 thread": {"p50_seconds": 1e-5}}),
    Ensembled(12.5, 300, {7: 0.75, 3: 0.25}, {"loss": 0.5, "auc": math.inf}, {7: 2e6}),
]


def events_of(path: Path) -> list[Event]:
    return [event for event, _ in read_events(path)]
