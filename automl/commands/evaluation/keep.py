"""Where an evaluation is kept: in the study's event log, and from there in MLflow.

The log is what MLflow is rebuilt from, so that the scores come back with the runs. Whoever writes
to it holds the study: while a sweep does, the scores are shown and kept nowhere.
"""

from __future__ import annotations

from pathlib import Path

from automl.config import Config, TrackingStore
from automl.errors import AutoMLError, StudyInUseError
from automl.record.directory import StudyDirectory, command_line
from automl.record.opening import open_log
from automl.record.place import Place
from automl.tracking.delivery import deliver_all
from automl.tracking.division import SharedJob
from automl.tracking.run_update import StudyRef
from automl.tracking.say import Say
from automl.trial import Evaluated, Tuned


def keep(event: Evaluated | Tuned, config: Config) -> bool:
    """Append it to the event log; False: a sweep works on the study. Raises AutoMLError."""
    try:
        with (
            StudyDirectory.open(config.study, must_exist=True) as directory,
            open_log(config.study, directory) as log,
        ):
            log.append(event)
    except StudyInUseError:
        return False
    return True


def deliver(directory: Path, config: Config, place: Place | None, say: Say) -> None:
    """Give it to MLflow, where results go there. Raises AutoMLError, with the remedy."""
    if config.tracking.store is TrackingStore.none:
        return
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    try:
        shared = SharedJob.of(config.study, config.tracking)
        deliver_all(directory, config.tracking, say, study=ref, shared=shared)
    except AutoMLError as error:
        again = command_line("sync", config.study)
        raise AutoMLError(
            f"the figures are kept in the study, and not yet in MLflow: {error} Then: {again}"
        ) from error
