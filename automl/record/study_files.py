"""The paths of all files of a study: the one module that spells their names.

    config.yaml       its settings, as composed; `resume` goes on from them          durable
    journal.log       Optuna's journal: the trials, and how each ended              append-only
    events.log        every event, once                                              append-only
    place.json        the uuid of the study, and its last path                       durable
    status.json       the view of its sweep, about once a second                     may be lost
    report.html       the page of its report, made when it ends or by `report`       may be lost
    events.delivered  how far MLflow has taken the events                            may be lost
    delivery.log      errors of the delivery                                         may be lost
    sweep.log         the package's own log lines                                    may be lost
    logs/             the output of each trial                                       may be lost
    checkpoints/      a folder per trial, with `last.pt` and `best.pt`               durable
                      and, until the trial ends, the `last.pt` of before             may be lost
                      or its program's files, and its best report                    may be lost
                      and the files logged as artifacts                              may be lost
    table-….parquet   the frame that `automl.fit` was given                          durable
    exports/          a folder per exported model                                    durable
    ensemble.pt       the weighted mean of its models                                durable
    plots/            pictures of its ensemble's results                             may be lost
    refit.pt          the model of its last refit                                    durable
    best.pt           a link to its best model: refit, ensemble or the best trial's  may be lost
    refits/           a folder per refit, which is a small study by itself
    release.json      the finished steps of a release, with their results            durable
    lock              held by its sweep
    requests/         what commands ask its sweep for, and its answers                durable
    outbox/           of a shared study: each sweep's own lines, until the database has them
                                                                                     append-only
    joined/           of a shared study: folders of sweeps that joined in this one

All are made by `disk.py` or with its mode: readable by all, within the umask. "Durable" means: on
disk, whole, when the call that writes it returns; after a power cut the old or the new one is
there. `append_only.py` says how append-only files are flushed. Nothing here opens a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automl.trial import CheckpointKind, trial_name

CONFIG_FILE = "config.yaml"
JOURNAL = "journal.log"
EVENTS_FILE = "events.log"
PLACE = "place.json"
STATUS_FILE = "status.json"
REPORT_FILE = "report.html"
DELIVERED = "events.delivered"
DELIVERY_LOG = "delivery.log"
SWEEP_LOG = "sweep.log"
LOGS_FOLDER = "logs"
REQUESTS_FOLDER = "requests"
OUTBOX_FOLDER = "outbox"
CHECKPOINTS_FOLDER = "checkpoints"
EXPORTS = "exports"
LOCK = "lock"
PROGRAM_FILES_FOLDER = "files"
LOGGED_FILES_FOLDER = "artifacts"
BEST_REPORT_FILE = "best.json"
RETURNED_FILE = "returned.json"
"""File in a trial's folder that holds what its program returns: a number, a JSON object of metrics,
or a text that says why there is no value."""
REPEAT_RESULT_FILE = "repeat.json"
WRITTEN_FILES_LOG = "written.log"
"""File beside the trials' folders that lists the files that programs wrote elsewhere."""
LAST_CHECKPOINT_FILE = "last.pt"
PREVIOUS_CHECKPOINT_FILE = "last.previous.pt"
"""The `last.pt` of before, until its trial has trained to its end or is pruned."""
BEST_CHECKPOINT_FILE = "best.pt"
ENSEMBLE = "ensemble.pt"
PLOTS_FOLDER = "plots"
IMPORTANCES_PLOT = "importances.png"
ERRORS_PLOT = "errors.png"
CALIBRATION_PLOT = "calibration.png"
PREDICTED_PLOT = "predicted.png"
PLOT_NAMES = (IMPORTANCES_PLOT, ERRORS_PLOT, CALIBRATION_PLOT, PREDICTED_PLOT)
REFIT_MODEL_FILE = "refit.pt"
REFITS_FOLDER = "refits"
RELEASE = "release.json"

CHECKPOINT_NAMES = {
    CheckpointKind.LAST: LAST_CHECKPOINT_FILE,
    CheckpointKind.BEST: BEST_CHECKPOINT_FILE,
}


def trial_log_name(number: int) -> str:
    """Return the name of the file with a trial's output and the cause of its failure."""
    return f"{trial_name(number)}.log"


class _StudyPath:
    """The path of a file or folder of a study, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, files: StudyFiles, owner: type) -> Path:
        return files.path / self._name


@dataclass(frozen=True)
class StudyFiles:
    """The paths of the study at `path`, for any process; opens nothing and needs no lock."""

    path: Path

    config = _StudyPath(CONFIG_FILE)
    journal = _StudyPath(JOURNAL)
    events = _StudyPath(EVENTS_FILE)
    place = _StudyPath(PLACE)
    status = _StudyPath(STATUS_FILE)
    report = _StudyPath(REPORT_FILE)
    delivered = _StudyPath(DELIVERED)
    delivery_log = _StudyPath(DELIVERY_LOG)
    sweep_log = _StudyPath(SWEEP_LOG)
    ensemble = _StudyPath(ENSEMBLE)
    plots = _StudyPath(PLOTS_FOLDER)
    refit = _StudyPath(REFIT_MODEL_FILE)
    winner = _StudyPath(BEST_CHECKPOINT_FILE)
    refits = _StudyPath(REFITS_FOLDER)
    release = _StudyPath(RELEASE)
    lock = _StudyPath(LOCK)
    logs = _StudyPath(LOGS_FOLDER)
    requests = _StudyPath(REQUESTS_FOLDER)
    outbox = _StudyPath(OUTBOX_FOLDER)

    def log(self, number: int) -> Path:
        """Return the file of a trial's output and the cause of its failure."""
        return self.logs / trial_log_name(number)

    def checkpoints(self, number: int) -> Path:
        """Return the folder of a trial's checkpoints and its objective's other files."""
        return self.path / CHECKPOINTS_FOLDER / trial_name(number)

    def program_files(self, number: int) -> Path:
        """Return the folder of the files that a trial's program gives to its run."""
        return self.checkpoints(number) / PROGRAM_FILES_FOLDER

    def logged_files(self, number: int) -> Path:
        """Return the folder of the files that a trial's objective logged as artifacts."""
        return self.checkpoints(number) / LOGGED_FILES_FOLDER

    def export(self, model: str, export_format: str) -> Path:
        """Return the folder of an exported model, by its name and format."""
        return self.path / EXPORTS / f"{model}-{export_format}"

    def checkpoint(self, number: int, kind: CheckpointKind) -> Path:
        return self.checkpoints(number) / CHECKPOINT_NAMES[kind]


def study_of_logged_files(folder: Path) -> StudyFiles:
    """Return the paths of the study in which `folder` takes a trial's artifacts."""
    return StudyFiles(folder.parents[2])


def study_around(model: Path) -> str | None:
    """Return the name of the study whose folder holds the model file; None: no study does."""
    folders = model.absolute().parents
    if len(folders) > 2 and folders[1].name == CHECKPOINTS_FOLDER:
        folder = folders[2]
    elif model.name in (ENSEMBLE, REFIT_MODEL_FILE, BEST_CHECKPOINT_FILE):
        folder = folders[0]
    else:
        return None
    return folder.name if StudyFiles(folder).events.exists() else None
