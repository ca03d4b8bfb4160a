"""The run in MLflow that a model is logged on: its trial's, the refit's, or of the ensemble itself
the study's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from automl.commands.which_model import TableModel
from automl.config import Config, TrackingConfig
from automl.errors import AutoMLError
from automl.record.files import EVENTS, StudyFiles
from automl.record.place import Place, read_place
from automl.record.studies import read_study
from automl.tracking.confirmed import delivered, is_delivered
from automl.tracking.delivery import deliver_all
from automl.tracking.division import SharedJob
from automl.tracking.registry.words import RunRef
from automl.tracking.run_update import StudyRef


def run_of(
    model: TableModel,
    directory: Path,
    place: Place | None,
    config: Config,
    has_run: Callable[[RunRef], bool],
) -> RunRef:
    """Deliver the runs, and find it; `has_run` asks the store. Raises AutoMLError where MLflow does
    not take them."""
    tracking = config.tracking
    _deliver(directory, place, tracking, SharedJob.of(config.study, tracking))
    if model.refitted is None:
        return _found(directory, None if model.joined else model.trial)
    folder = refit_folder(directory, model)
    log = StudyFiles(folder).events
    there = delivered(log)
    # The refit has delivered them itself: another process that loads MLflow has nothing to do.
    whole = there is not None and is_delivered(log)
    if there is None or not (whole and has_run(RunRef(there.experiment, there.parent))):
        _deliver(folder, read_place(folder), tracking)
    return _found(folder, None)


def refit_folder(directory: Path, model: TableModel) -> Path:
    """The refit that `refit.pt` is of: the last one of its trial, or of an ensemble, and rows that
    ended. Raises AutoMLError where its folder is gone."""
    assert model.refitted is not None
    wanted = "" if model.joined else str(model.trial), model.refitted.rows
    ended: list[tuple[float, Path]] = []
    for log in StudyFiles(directory).refits.glob(f"*/{EVENTS}"):
        record = read_study(log.parent)
        end = record.sweeps[-1].end if record.sweeps else None
        if end is not None and _of(record.settings) == wanted:
            ended.append((end.time, log.parent))
    if not ended:
        raise AutoMLError(
            f"{model.file}: the refit that it came of is not in {StudyFiles(directory).refits} any "
            "more, so that it has no run in MLflow: refit again, or name a trial: register.trial=N"
        )
    return max(ended)[1]


def _of(settings: Mapping[str, str]) -> tuple[str, str]:
    return settings.get("refit.trial", ""), settings.get("refit.rows", "")


def _deliver(
    directory: Path, place: Place | None, tracking: TrackingConfig, shared: SharedJob | None = None
) -> None:
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    deliver_all(directory, tracking, lambda line: None, study=ref, shared=shared)


def _found(directory: Path, trial: int | None) -> RunRef:
    there = delivered(StudyFiles(directory).events)
    run = None if there is None else (there.parent if trial is None else there.runs.get(trial))
    if there is None or run is None:
        raise AutoMLError(
            f"{StudyFiles(directory).delivered}: does not say in which run of MLflow the model is: "
            f"remove the file, and register again, which delivers all runs anew."
        )
    return RunRef(there.experiment, run)
