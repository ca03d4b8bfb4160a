"""Delivering a study in this process, as the delivering process does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient

from automl.config import KeepCheckpoints, TrackingConfig
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.deliver.study_delivery import EventLogDelivery
from automl.tracking.mlflow_store import DoubtfulCallError, open_client
from automl.tracking.tracking_uri import resolve_uri
from automl.tracking.view.run_update import StudyRef
from tests.tracking.conftest import Shown
from tests.tracking.scenes import NAME


@contextmanager
def delivery(
    study: Path,
    *,
    client: MlflowClient | None = None,
    refusals: list[str] | None = None,
    database: str = "mlflow.db",
    fresh_from: int | None = None,
    ref: StudyRef | None = None,
    server: str | None = None,
) -> Iterator[EventLogDelivery]:
    """A delivery as the process has it, in this process; to the database, or to a server."""
    uri = resolve_uri(TrackingConfig(uri=server or f"sqlite:///{study.parents[1] / database}"))
    confirmed = DeliveryConfirmations.open(study / "events.log", wait_seconds=0.0)
    refused = ([] if refusals is None else refusals).append
    runs = MlflowRuns(client or open_client(uri), uri, refused)
    try:
        log, keep = study / "events.log", KeepCheckpoints.all
        yield EventLogDelivery(log, confirmed, runs, keep, fresh_from, ref)
    finally:
        confirmed.close()


def deliver(
    study: Path,
    client: MlflowClient | None = None,
    ref: StudyRef | None = None,
    server: str | None = None,
) -> list[str]:
    """Deliver what is in the log; returns what MLflow refused."""
    refusals: list[str] = []
    with delivery(study, client=client, refusals=refusals, ref=ref, server=server) as delivering:
        delivering.read()
        try:
            delivering.deliver()
        except DoubtfulCallError:  # the server itself has failed: the process tries again, too
            delivering.deliver()
    return refusals


def check_exact(shown: Shown, n_trials: int, n_steps: int) -> None:
    """Each of the trials of `scenes.trial` has one run, and all of it once."""
    names = Counter(run.info.run_name for run in shown.runs())
    assert names == {NAME: 1, **{f"trial-{number:05d}": 1 for number in range(n_trials)}}
    for run in shown.runs():
        assert run.info.status == "FINISHED"
        if run.info.run_name == NAME:
            continue
        number = int(run.data.tags["automl.trial"])
        assert run.data.params == {"lr": "0.1", "depth": str(number)}
        assert run.data.metrics["value"] == number + 0.25
        points = shown.client.get_metric_history(run.info.run_id, "val_loss")
        assert sorted((p.step, p.value) for p in points) == [
            (step, number + step / 5) for step in range(n_steps)
        ]
