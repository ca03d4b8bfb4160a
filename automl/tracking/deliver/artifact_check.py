"""Checks before the first trial whether the files of runs can go to a server.

A server may serve no artifacts (`--no-serve-artifacts`), keep them on a disk of its own, or be
unable to write them; a proxy before it may pass no PUT. Without the check each trial would fail to
store its files. The place of the files belongs to the experiment and is fixed when the experiment
is created; the check creates it if it does not exist.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from automl.errors import ConfigError
from automl.tracking.deliver.artifacts import is_folder_here, local_folder
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.mlflow_store import (
    NotDeliveredError,
    RunDeletedError,
    RunGoneError,
    explain_error,
    repeat_lost,
    unusable_store_error,
)
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.run_update import StudyRef

PROBE = "automl-probe.txt"
"""Name of the probe. A fixed name leaves at most one file where a server deletes nothing."""
_PROBE_TEXT = "Written to see whether this server takes artifacts; it may be deleted.\n"

logger = logging.getLogger(__name__)


def check_artifacts(
    client: MlflowClient, runs: MlflowRuns, uri: TrackingUri, study: StudyRef, parent: str | None
) -> None:
    """Raise ConfigError when the artifacts of the study's runs cannot be stored.

    `parent` is the study's own run, if it is known: its experiment counts, whatever the name.
    """
    try:
        known = runs.find_study(study, filter(None, [parent]))
        experiment = known or runs.open_experiment(study.name)
        place = str(repeat_lost(client.get_experiment, experiment).artifact_location)
        if (refusal := _find_refusal(place, uri)) is None:
            return
        if known is None:  # else a later experiment of this name would get no other place
            runs.set_aside(experiment, f"{study.name} (refused: {experiment})")
    except (MlflowException, NotDeliveredError, RunDeletedError, RunGoneError) as error:
        raise unusable_store_error(uri, error) from error
    raise ConfigError(
        f"{uri}: this server takes no artifacts of study {study.name} ({refusal}): start it "
        "without --no-serve-artifacts, with an --artifacts-destination that it can write, and let "
        "what stands before it pass PUT; an experiment keeps its old place, then choose another "
        "study.name; or do without checkpoints in MLflow: tracking.checkpoints=none."
    )


def _find_refusal(place: str, uri: TrackingUri) -> str | None:
    """Return why no file can be stored at `place`; None if one can, or if it is a bucket."""
    if (folder := local_folder(place)) is not None:
        return (
            None
            if is_folder_here(folder, uri)
            else f"they would lie at {folder}, on another machine"
        )
    if urlsplit(place).scheme != "mlflow-artifacts":
        return None
    repository = get_artifact_repository(place, tracking_uri=uri.text)
    with tempfile.TemporaryDirectory() as own:
        probe = Path(own, PROBE)
        probe.write_text(_PROBE_TEXT, encoding="utf-8")
        try:
            repeat_lost(repository.log_artifact, str(probe))
        except (OSError, MlflowException) as error:
            return explain_error(error, uri)
    try:
        repository.delete_artifacts(PROBE)  # type: ignore[no-untyped-call]
    except (OSError, MlflowException) as error:
        logger.warning("%s stays among the study's artifacts: %s", PROBE, explain_error(error, uri))
    return None
