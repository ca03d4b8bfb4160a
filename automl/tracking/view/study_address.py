"""Finds the address where MLflow's UI shows a study, once its runs are in the store.

It is a file of its own because it loads MLflow, which the other addresses do not need.
"""

from __future__ import annotations

from pathlib import Path

from mlflow.exceptions import MlflowException

from automl.errors import ConfigError
from automl.record.event_log import read_events
from automl.tracking.deliver.confirmed_offset import read_delivered_runs
from automl.tracking.mlflow_store import explain_error, open_client
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.shared_view import (
    VIEW_TAG,
    minimizes_metric,
    runs_by_value_address,
    runs_view_address,
)
from automl.trial import SweepStarted


def study_runs_address(server: TrackingUri, log: Path) -> str | None:
    """Return the part of an address that opens the runs of the study with the event log `log`.

    Return None if the server has no such runs: `events.delivered` may be about another store. Raise
    ConfigError when the server does not answer.
    """
    known = read_delivered_runs(log)
    if known is None:
        return None
    client = open_client(server)
    try:
        # The experiment is found by its run, whose id is unique in any store; an experiment's id is
        # a small number.
        experiment = client.get_experiment(client.get_run(known.parent).info.experiment_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise ConfigError(f"{server}: {explain_error(error, server)}") from error
    if VIEW_TAG in experiment.tags:
        return runs_view_address(experiment.experiment_id)
    first = next((event for event, _ in read_events(log) if isinstance(event, SweepStarted)), None)
    settings = {} if first is None else first.settings
    return runs_by_value_address(experiment.experiment_id, minimizes=minimizes_metric(settings))
