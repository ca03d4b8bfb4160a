"""`sync`: delivers to MLflow the results that it could not take while it was down.

A shared study first exchanges events with its database: those that a sweep could not write, and
those of other sweeps. The file is short because each command is a file of its own.
"""

from __future__ import annotations

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study
from automl.record.studies import study_path
from automl.record.study_directory import settle_place_unlocked
from automl.tracking.deliver.delivery import deliver_study
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.tracking.view.run_update import StudyRef


def run(call: CommandCall) -> int:
    """Deliver all events of a study's log that MLflow does not have yet. Raises AutoMLError."""
    config = call.config
    directory = study_path(config.study)
    fetch_shared_study(config.study)
    place = settle_place_unlocked(directory, config.study)
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    shared = SharedDeliveryJob.of(config.study)
    return deliver_study(directory, config.tracking, study=ref, shared=shared)
