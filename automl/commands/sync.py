"""`sync`: give MLflow what it could not take while it was down; of a shared study first give the
database what a sweep could not, and take what others have done since."""

from __future__ import annotations

from automl.config import Config
from automl.record.opening import bring_up
from automl.record.place import settle_unlocked
from automl.record.studies import study_path
from automl.tracking.delivery import deliver_all
from automl.tracking.division import SharedJob
from automl.tracking.run_update import StudyRef


def run(config: Config, stored_config: str) -> int:
    """Deliver all that a study's event log holds. Raises AutoMLError."""
    directory = study_path(config.study)
    bring_up(config.study)
    place = settle_unlocked(directory, config.study)
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    shared = SharedJob.of(config.study, config.tracking)
    return deliver_all(directory, config.tracking, study=ref, shared=shared)
