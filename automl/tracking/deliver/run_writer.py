"""Writes updates to a study's runs in MLflow, and collects the files that a trial made for its run.

An experiment that the user deleted meanwhile is restored, once for all writers. Before every call
the confirmations are asked whether this process may still write.

A program's files and logged artifacts each stand in a folder of the trial's own, and become
artifacts when the trial has ended. The study may be a stranger's, hence links are left out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath

from automl.config import KeepCheckpoints
from automl.record.study_files import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    PROGRAM_FILES_FOLDER,
    StudyFiles,
)
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.mlflow_store import RunDeletedError
from automl.tracking.view.run_update import STUDY_TAG, TRIAL_TAG, RunUpdate
from automl.tracking.view.trial_run import stored_kinds


class RunWriter:
    """Writes the runs of one study, and creates a run at most once for each trial. Thread-safe."""

    def __init__(
        self,
        runs: MlflowRuns,
        confirmed: DeliveryConfirmations,
        study: Path,
    ) -> None:
        """Write artifacts from below the folder `study`."""
        self._runs, self._confirmed = runs, confirmed
        self._study = study
        self._revive_lock = threading.Lock()

    def write(self, experiment: str, run_id: str, update: RunUpdate, *, created: bool) -> None:
        """Write the update to the run.

        `created` says that the run was created for this very update. Raise RunGoneError or
        ValueNotTakenError.
        """
        self._confirmed.check()
        self.store_files(experiment, run_id, update, created=created)

    def store_files(
        self, experiment: str, run_id: str, update: RunUpdate, *, created: bool = False
    ) -> None:
        """Do the same for a process that need not be the one that writes the study's runs."""
        try:
            self._runs.write(run_id, update, created=created, study=self._study)
        except RunDeletedError:
            self._revive(experiment, run_id)
            self._runs.write(run_id, update, created=created, study=self._study)

    def create(self, experiment: str, number: int, update: RunUpdate) -> bool:
        """Create a run for the trial; return whether it is the one that the trial keeps.

        Raise ValueNotTakenError, after which there may be a run all the same.
        """
        self._confirmed.check()
        try:
            run_id = self._runs.create(experiment, update)
        except RunDeletedError:
            self._revive(experiment, None)
            run_id = self._runs.create(experiment, update)
        kept_run = self._confirmed.note_run(number, run_id)
        if kept_run != run_id:  # another process was first, and only its run is written to
            self._runs.delete(run_id)
        return kept_run == run_id

    def _revive(self, experiment: str, run_id: str | None) -> None:
        with self._revive_lock:  # only the first writer restores
            self._runs.revive(experiment, run_id)


MAX_FILES = 1_000
"""Number of files stored of a folder; a data set's would be stored again for each trial."""
_RESERVED_NAMES = (CHECKPOINTS_FOLDER, PROGRAM_FILES_FOLDER, CONFIG_FILE)
"""Names of the sweep's own files and folders among a run's artifacts."""


def add_own_files(update: RunUpdate, study: Path, number: int, keep: KeepCheckpoints) -> RunUpdate:
    """Return the update of a trial that has ended, with its files.

    Logged artifacts are stored always, a program's files unless checkpoints are kept out of MLflow.
    """
    files = StudyFiles(Path())
    found, refused = list[tuple[str, str]](), list(update.refused)
    for folder, stored in (
        (files.program_files(number), keep is not KeepCheckpoints.none),
        (files.logged_files(number), True),
    ):
        paths = list(islice(_list_files(study / folder), MAX_FILES + 1)) if stored else []
        if len(paths) > MAX_FILES:
            refused.append(f"{folder} has more than {MAX_FILES} files; the others were not stored")
        found += [
            ((folder / path).as_posix(), _folder_in_run(folder, path)) for path in paths[:MAX_FILES]
        ]
    return replace(update, own_files=sorted(found), refused=refused)


def files_update(study: Path, number: int, study_uuid: str, keep: KeepCheckpoints) -> RunUpdate:
    """Return the update with all files of a trial that has ended, from its folder alone."""
    key = {STUDY_TAG: study_uuid, TRIAL_TAG: str(number)}
    update = RunUpdate("", 0, key, {}, {}, begins=False, tags={}, metrics=())
    update = add_own_files(update, study, number, keep)
    paths = (StudyFiles(Path()).checkpoint(number, kind) for kind in stored_kinds(keep))
    checkpoints = [(str(path), CHECKPOINTS_FOLDER) for path in paths if (study / path).exists()]
    return replace(update, own_files=[*checkpoints, *update.own_files])


def _folder_in_run(folder: Path, path: PurePosixPath) -> str:
    """Return the file's folder in the run: the objective's own, unless the sweep uses the name."""
    is_nested = folder.name == PROGRAM_FILES_FOLDER or path.parts[0] in _RESERVED_NAMES
    below = PurePosixPath(folder.name) / path.parent if is_nested else path.parent
    return "" if below == PurePosixPath() else str(below)


def _list_files(folder: Path) -> Iterator[PurePosixPath]:
    """Yield the files below the folder, in order; none if it is a link or does not exist."""
    if folder.is_symlink():
        return
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield PurePosixPath(path.relative_to(folder).as_posix())
