"""Opens the record of a study that is not at work, for a command that reads or extends it.

Evaluations are stored in the study's event log, and from there in MLflow. The log is what MLflow is
rebuilt from, so that the scores come back with the runs. Writing needs the study's lock: while a
sweep holds it, scores are printed and not stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, StudyConfig
from automl.errors import AutoMLError, StudyInUseError
from automl.record.event_log import EventLog
from automl.record.study_directory import StudyDirectory, StudyPlace, study_command
from automl.record.study_requests import FolderRequestQueue, RequestQueue
from automl.record.texts import Say
from automl.tracking.deliver.delivery import deliver_study
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.tracking.view.run_update import StudyRef
from automl.trial import ExportTuned, ModelsEvaluated

if TYPE_CHECKING:
    from automl.record.sharing.study_fetch import FetchedStudy


def fetch_shared_study(study: StudyConfig) -> FetchedStudy | None:
    """Take over the results of other sweeps of a shared study; None: this folder has all there is.
    Raises AutoMLError."""
    if not study.shared or study.name is None:
        return None
    from automl.record.sharing.study_fetch import fetch_study

    return fetch_study(study)


def open_requests(study: StudyConfig, path: Path) -> RequestQueue:
    """Return the queue of the study at `path`, for a command. Raises AutoMLError."""
    if not study.shared:
        return FolderRequestQueue(path)
    from automl.record.sharing.shared_requests import SharedRequestQueue

    return SharedRequestQueue.open(study)


@contextmanager
def open_event_log(study: StudyConfig, directory: StudyDirectory) -> Iterator[EventLog]:
    """Yield the study's event log; appended events are written to the database, too, if the study
    is shared. Raises AutoMLError."""
    if not study.shared:
        with EventLog.open(directory.files.events) as log:
            yield log
        return
    from automl.record.sharing.shared_record import SharedRecord

    shared = SharedRecord.open(study, directory.path)
    try:
        shared.begin()
        yield shared.log
    finally:
        shared.close()


def record_evaluation(event: ModelsEvaluated | ExportTuned, config: Config) -> bool:
    """Append the event to the event log. Returns False if a sweep works on the study. Raises
    AutoMLError."""
    try:
        with (
            StudyDirectory.open(config.study, must_exist=True) as directory,
            open_event_log(config.study, directory) as log,
        ):
            log.append(event)
    except StudyInUseError:
        return False
    return True


def deliver_evaluation(directory: Path, config: Config, place: StudyPlace | None, say: Say) -> None:
    """Deliver the study's events to MLflow, if results go there. Raises AutoMLError, with the
    remedy."""
    if not config.tracking.uses_mlflow:
        return
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    try:
        shared = SharedDeliveryJob.of(config.study)
        deliver_study(directory, config.tracking, say, study=ref, shared=shared)
    except AutoMLError as error:
        command = study_command("sync", config.study)
        raise AutoMLError(
            f"the figures are kept in the study, and not yet in MLflow: {error} Then: {command}"
        ) from error
