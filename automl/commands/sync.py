"""`sync`: give MLflow what it could not take while it was down; of a shared study first give the
database what a sweep could not, and take what others have done since."""

from __future__ import annotations

from automl.commands.models.study_opening import bring_up
from automl.config import Config
from automl.record.studies import study_path
from automl.record.study_place import settle_place_unlocked
from automl.tracking.deliver.delivery import deliver_study
from automl.tracking.deliver.division import SharedDeliveryJob
from automl.tracking.view.run_update import StudyRef


def run(config: Config, stored_config: str) -> int:
    """Deliver all that a study's event log holds. Raises AutoMLError."""
    directory = study_path(config.study)
    bring_up(config.study)
    place = settle_place_unlocked(directory, config.study)
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    shared = SharedDeliveryJob.of(config.study, config.tracking)
    return deliver_study(directory, config.tracking, study=ref, shared=shared)
