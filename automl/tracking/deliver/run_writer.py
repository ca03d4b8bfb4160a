"""Writes what is told to one run of MLflow, and makes a run at most once for each trial.

An experiment that the user deleted meanwhile is restored, once for all writers; before every call
the division is asked whether this process may still write.

The files that a trial made for its run: by a program, and by logging artifacts.

Both stand in a folder of the trial's own, and become artifacts when it has ended. The study may be
a stranger's: links are none of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath

from automl.config import KeepCheckpoints
from automl.record.study_files import CHECKPOINTS, CONFIG, PROGRAM_FILES, StudyFiles
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.division import DeliveryDivision
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.mlflow_store import RunDeletedError
from automl.tracking.view.run_update import RunUpdate


class RunWriter:
    """Of one study; for any thread."""

    def __init__(
        self,
        runs: MlflowRuns,
        confirmed: DeliveryConfirmations,
        division: DeliveryDivision,
        study: Path,
    ) -> None:
        """`study`: the folder below which artifacts lie."""
        self._runs, self._confirmed, self._division = runs, confirmed, division
        self._study = study
        self._reviving = threading.Lock()

    def write(self, experiment: str, run_id: str, update: RunUpdate, *, created: bool) -> None:
        """`created`: the run was made for this very update. Raises GoneError, NotTakenError."""
        self._division.check()
        try:
            self._runs.write(run_id, update, created=created, study=self._study)
        except RunDeletedError:
            self._revive(experiment, run_id)
            self._runs.write(run_id, update, created=created, study=self._study)

    def create(self, experiment: str, number: int, update: RunUpdate) -> bool:
        """Have a run for the trial; whether it is the one made here. Raises NotTakenError, after
        which there may be one all the same."""
        self._division.check()
        try:
            run_id = self._runs.create(experiment, update)
        except RunDeletedError:
            self._revive(experiment, None)
            run_id = self._runs.create(experiment, update)
        kept = self._division.note_run(number, run_id)
        self._confirmed.note_run(number, kept)
        if kept != run_id:  # another was first, and only that one is written to
            self._runs.delete(run_id)
        return kept == run_id

    def _revive(self, experiment: str, run_id: str | None) -> None:
        with self._reviving:  # what another writer has restored meanwhile is not restored again
            self._runs.revive(experiment, run_id)


MAX_FILES = 1_000
"""Of a folder; one of a data set would be stored again for each trial."""
_TAKEN = (CHECKPOINTS, PROGRAM_FILES, CONFIG)
"""What stands beside logged artifacts in a run."""


def add_own_files(update: RunUpdate, study: Path, number: int, keep: KeepCheckpoints) -> RunUpdate:
    """The update of a trial that has ended, with its files; what is logged is always kept."""
    files = StudyFiles(Path())
    found, refused = list[tuple[str, str]](), list(update.refused)
    for folder, stored in (
        (files.program_files(number), keep is not KeepCheckpoints.none),
        (files.logged_files(number), True),
    ):
        paths = list(islice(_files(study / folder), MAX_FILES + 1)) if stored else []
        if len(paths) > MAX_FILES:
            refused.append(f"{folder} has more than {MAX_FILES} files; the others were not stored")
        found += [((folder / path).as_posix(), _below(folder, path)) for path in paths[:MAX_FILES]]
    return replace(update, own_files=sorted(found), refused=refused)


def _below(folder: Path, path: PurePosixPath) -> str:
    """The folder of the run: as the objective has laid it out, beside what is the sweep's."""
    beside = folder.name == PROGRAM_FILES or path.parts[0] in _TAKEN
    below = PurePosixPath(folder.name) / path.parent if beside else path.parent
    return "" if below == PurePosixPath() else str(below)


def _files(folder: Path) -> Iterator[PurePosixPath]:
    """Paths below the folder, in their order; none where it is a link or not there."""
    if folder.is_symlink():
        return
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield PurePosixPath(path.relative_to(folder).as_posix())
