"""Delivers runs of 20 epochs, 3 metrics, 6 params and one artifact, and says how fast.

Run by `server_speed.py`, with the tree to be measured first on PYTHONPATH: URI, runs, writers.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from automl.config import KeepCheckpoints, TrackingConfig
from automl.record.event_log import EventLog
from automl.tracking.mlflow_loading import set_delivery_environment
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    Event,
    FinishedOutcome,
    MetricsReported,
    SweepEnded,
    SweepStarted,
    TrialStarted,
    TrialState,
)

N_EPOCHS, N_PARAMS, ARTIFACT_BYTES = 20, 6, 50_000
METRICS = ("train_loss", "val_loss", "val_error")
N_WARM = 8
"""Runs before those that are counted: each worker of the server has answered."""


def events_of(study: Path, number: int) -> list[Event]:
    now = time.time()
    params: dict[str, float | int | str | bool] = {
        f"p{i}": i + number / 100 for i in range(N_PARAMS)
    }
    path = study / "checkpoints" / f"trial-{number:05d}" / "best.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(ARTIFACT_BYTES))
    reports = [
        MetricsReported(
            number, now + epoch / 100, epoch, dict.fromkeys(METRICS, number + epoch / 20)
        )
        for epoch in range(N_EPOCHS)
    ]
    best = CheckpointWritten(number, now + 1, step=19, path=str(path), kind=CheckpointKind.BEST)
    begun = TrialStarted(number, now, params=params, device="cpu")
    return [begun, *reports, best, FinishedOutcome(number, now + 1, value=0.5)]


class Counted:
    """How many requests were made."""

    def __init__(self) -> None:
        import requests

        self.n = 0
        send = requests.Session.send

        def counted(session: requests.Session, *args: object, **kwargs: object) -> object:
            self.n += 1
            return send(session, *args, **kwargs)  # type: ignore[arg-type]

        requests.Session.send = counted  # type: ignore[method-assign, assignment]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(address: str, n_runs: int, n_writers: int) -> None:
    set_delivery_environment(os.environ)
    from automl.tracking.mlflow_loading import load_lean

    load_lean("automl.tracking.deliver.study_delivery")
    from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
    from automl.tracking.deliver.mlflow_runs import MlflowRuns
    from automl.tracking.deliver.study_delivery import EventLogDelivery
    from automl.tracking.mlflow_store import open_client
    from automl.tracking.tracking_uri import resolve_uri

    class Runs(MlflowRuns):
        n_writers = 1

    Runs.n_writers = n_writers
    try:
        from automl.tracking.mlflow_loading import quicken_answers
    except ImportError:
        pass  # a tree from before
    else:
        quicken_answers()
    counted = Counted()
    uri = resolve_uri(TrackingConfig(uri=address))
    name = f"brave-{uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder, name)
        study.mkdir()
        confirmed = DeliveryConfirmations.open(study / "events.log", 0.0)
        with EventLog.open(study / "events.log") as log:
            log.append(SweepStarted(time.time(), name, uuid4().hex, {"training.epochs": "20"}))
            runs = Runs(open_client(uri), uri, lambda text: sys.exit(f"refused: {text}"))
            delivery = EventLogDelivery(
                study / "events.log", confirmed, runs, KeepCheckpoints.best, fresh_from=0
            )
            numbers = iter(range(N_WARM + n_runs))

            def deliver(n: int) -> tuple[float, float, int]:
                for _ in range(n):
                    for event in events_of(study, next(numbers)):
                        log.append(event)
                begun, cpu, calls = time.perf_counter(), cpu_seconds(), counted.n
                while True:
                    more = delivery.read()
                    delivery.deliver(everything=True)
                    if not more:
                        break
                return time.perf_counter() - begun, cpu_seconds() - cpu, counted.n - calls

            deliver(N_WARM)
            seconds, cpu, calls = deliver(n_runs)
            log.append(SweepEnded(time.time(), True, {TrialState.FINISHED: 1}, 0, 0.5))
    found = {"runs_per_second": n_runs / seconds, "cpu_ms": 1000 * cpu / n_runs}
    sys.stdout.write(json.dumps({**found, "calls": calls / n_runs}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
