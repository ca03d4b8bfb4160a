"""Where everything of a study stands: the one place that spells the names.

    config.yaml       its settings, as composed; `resume` goes on from them          durable
    journal.log       Optuna's journal: what was asked and how it ended              append-only
    events.log        every event, once                                              append-only
    place.json        which study it is, and where it stood                          durable
    status.json       the view of its sweep, about once a second                     a picture
    events.delivered  what MLflow has taken of the events                            may be lost
    delivery.log      what went wrong in delivering                                  may be lost
    sweep.log         the package's own log lines                                    may be lost
    logs/             what each trial printed                                        may be lost
    checkpoints/      a folder per trial, with `last.pt` and `best.pt`               durable
                      or what its program wrote, and its best report                 may be lost
                      and what was logged as artifacts                               may be lost
    table-….parquet   the frame that `automl.fit` was given                          durable
    exports/          a folder per exported model                                    durable
    ensemble.pt       the weighted mean of its models                                durable
    plots/            what its ensemble found, as pictures                           may be lost
    refit.pt          the model of its last refit                                    durable
    refits/           a folder per refit, which is a small study by itself
    release.json      which steps of a release are done, and what they made          durable
    lock              held by its sweep
    outbox/           of a shared study: each sweep's own lines, until the database has them
                                                                                     append-only
    joined/           of a shared study: folders of sweeps that joined in this one

All are made by `disk.py` or with its mode: readable by all, but for the umask. Durable: on disk
when the call that writes it returns, whole, the old one or the new. How the append-only ones are
flushed stands in `append_only.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automl.trial import CheckpointKind, trial_name

CONFIG = "config.yaml"
JOURNAL = "journal.log"
EVENTS = "events.log"
PLACE = "place.json"
STATUS = "status.json"
DELIVERED = "events.delivered"
DELIVERY_LOG = "delivery.log"
SWEEP_LOG = "sweep.log"
LOGS = "logs"
CHECKPOINTS = "checkpoints"
EXPORTS = "exports"
LOCK = "lock"
PROGRAM_FILES = "files"
LOGGED_FILES = "artifacts"
BEST_REPORT = "best.json"
WRITTEN_FILES = "written.log"
"""Beside the trials' folders: what programs wrote elsewhere."""
LAST = "last.pt"
BEST = "best.pt"
ENSEMBLE = "ensemble.pt"
PLOTS = "plots"
IMPORTANCES_PLOT = "importances.png"
ERRORS_PLOT = "errors.png"
CALIBRATION_PLOT = "calibration.png"
PREDICTED_PLOT = "predicted.png"
PLOT_NAMES = (IMPORTANCES_PLOT, ERRORS_PLOT, CALIBRATION_PLOT, PREDICTED_PLOT)
REFIT = "refit.pt"
REFITS = "refits"
RELEASE = "release.json"

CHECKPOINT_NAMES = {CheckpointKind.LAST: LAST, CheckpointKind.BEST: BEST}


def log_name(number: int) -> str:
    """Of a trial's file in the folder of logs: what it printed, and why it failed."""
    return f"{trial_name(number)}.log"


@dataclass(frozen=True)
class StudyFiles:
    """The paths of the study at `path`, for any process: nothing is opened, and no lock needed."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def events(self) -> Path:
        return self.path / EVENTS

    @property
    def place(self) -> Path:
        return self.path / PLACE

    @property
    def status(self) -> Path:
        return self.path / STATUS

    @property
    def delivered(self) -> Path:
        return self.path / DELIVERED

    @property
    def delivery_log(self) -> Path:
        return self.path / DELIVERY_LOG

    @property
    def sweep_log(self) -> Path:
        return self.path / SWEEP_LOG

    @property
    def ensemble(self) -> Path:
        """The weighted mean of its models."""
        return self.path / ENSEMBLE

    @property
    def plots(self) -> Path:
        """The folder of pictures of what its ensemble found: `PLOT_NAMES`."""
        return self.path / PLOTS

    @property
    def refit(self) -> Path:
        """The model of the last refit."""
        return self.path / REFIT

    @property
    def refits(self) -> Path:
        """The folder of refits, each a study by itself."""
        return self.path / REFITS

    @property
    def release(self) -> Path:
        """The steps of a release that are done."""
        return self.path / RELEASE

    @property
    def lock(self) -> Path:
        return self.path / LOCK

    @property
    def logs(self) -> Path:
        """The folder of what trials printed."""
        return self.path / LOGS

    def log(self, number: int) -> Path:
        """What a trial printed, and why it failed."""
        return self.logs / log_name(number)

    def checkpoints(self, number: int) -> Path:
        """The folder of a trial's checkpoints, and of whatever else its objective writes."""
        return self.path / CHECKPOINTS / trial_name(number)

    def program_files(self, number: int) -> Path:
        """The folder of what a trial's program gives to its run."""
        return self.checkpoints(number) / PROGRAM_FILES

    def logged_files(self, number: int) -> Path:
        """The folder of what a trial's objective logged as artifacts."""
        return self.checkpoints(number) / LOGGED_FILES

    def export(self, model: str, what: str) -> Path:
        """The folder of an exported model, by its name and format."""
        return self.path / EXPORTS / f"{model}-{what}"

    def checkpoint(self, number: int, kind: CheckpointKind) -> Path:
        return self.checkpoints(number) / CHECKPOINT_NAMES[kind]


def study_of_logged(folder: Path) -> StudyFiles:
    """The study of the folder where a trial's artifacts go."""
    return StudyFiles(folder.parents[2])


def study_around(model: Path) -> str | None:
    """Name of the study in whose folder the file of a model lies; None: it lies elsewhere."""
    folders = model.absolute().parents
    if model.name in (ENSEMBLE, REFIT):
        folder = folders[0]
    elif len(folders) < 3 or folders[1].name != CHECKPOINTS:
        return None
    else:
        folder = folders[2]
    return folder.name if StudyFiles(folder).events.exists() else None
