"""A study that is not at work, for a command: its record as it stands, and what is added to it.

Where an evaluation is kept: in the study's event log, and from there in MLflow.

The log is what MLflow is rebuilt from, so that the scores come back with the runs. Whoever writes
to it holds the study: while a sweep does, the scores are shown and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, StudyConfig, TrackingStore
from automl.errors import AutoMLError, StudyInUseError
from automl.record.event_log import EventLog
from automl.record.study_directory import StudyDirectory, command_line
from automl.record.study_place import StudyPlace
from automl.record.texts import Say
from automl.tracking.deliver.delivery import deliver_study
from automl.tracking.deliver.division import SharedDeliveryJob
from automl.tracking.view.run_update import StudyRef
from automl.trial import ExportTuned, ModelsEvaluated

if TYPE_CHECKING:
    from automl.record.sharing.study_fetch import FetchedStudy


def bring_up(study: StudyConfig) -> FetchedStudy | None:
    """Take over what others have done of a shared study; None: this folder has all there is. Raises
    AutoMLError."""
    if not study.shared or study.name is None:
        return None
    from automl.record.sharing.study_fetch import fetch_study

    return fetch_study(study)


@contextmanager
def open_log(study: StudyConfig, directory: StudyDirectory) -> Iterator[EventLog]:
    """What is appended is in the database, too, where the study is shared. Raises AutoMLError."""
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


def deliver_evaluation(directory: Path, config: Config, place: StudyPlace | None, say: Say) -> None:
    """Give it to MLflow, where results go there. Raises AutoMLError, with the remedy."""
    if config.tracking.store is TrackingStore.none:
        return
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    try:
        shared = SharedDeliveryJob.of(config.study, config.tracking)
        deliver_study(directory, config.tracking, say, study=ref, shared=shared)
    except AutoMLError as error:
        again = command_line("sync", config.study)
        raise AutoMLError(
            f"the figures are kept in the study, and not yet in MLflow: {error} Then: {again}"
        ) from error
