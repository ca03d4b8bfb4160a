"""Delivering a study in this process, as the delivering process does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient

from automl.config import KeepCheckpoints, TrackingConfig
from automl.tracking.confirmed import Confirmed
from automl.tracking.mlflow import MlflowRuns
from automl.tracking.run_update import StudyRef
from automl.tracking.store import open_client
from automl.tracking.study_delivery import StudyDelivery
from automl.tracking.uri import resolve_uri


@contextmanager
def delivery(
    study: Path,
    *,
    client: MlflowClient | None = None,
    refusals: list[str] | None = None,
    database: str = "mlflow.db",
    fresh_from: int | None = None,
    ref: StudyRef | None = None,
) -> Iterator[StudyDelivery]:
    """A delivery as the process has it, in this process."""
    uri = resolve_uri(TrackingConfig(uri=f"sqlite:///{study.parents[1] / database}"))
    confirmed = Confirmed.open(study / "events.log", wait_seconds=0.0)
    refused = ([] if refusals is None else refusals).append
    runs = MlflowRuns(client or open_client(uri), uri, refused)
    try:
        log, keep = study / "events.log", KeepCheckpoints.all
        yield StudyDelivery(log, confirmed, runs, keep, fresh_from, ref)
    finally:
        confirmed.close()


def deliver(
    study: Path, client: MlflowClient | None = None, ref: StudyRef | None = None
) -> list[str]:
    """Deliver what is in the log; returns what MLflow refused."""
    refusals: list[str] = []
    with delivery(study, client=client, refusals=refusals, ref=ref) as delivering:
        delivering.read()
        delivering.deliver()
    return refusals
