"""Writes what is told to one run of MLflow, and makes a run at most once for each trial.

An experiment that the user deleted meanwhile is restored, once for all writers; before every call
the division is asked whether this process may still write.
"""

from __future__ import annotations

import threading
from pathlib import Path

from automl.tracking.answers import DeletedError
from automl.tracking.confirmed import Confirmed
from automl.tracking.division import Division
from automl.tracking.mlflow import MlflowRuns
from automl.tracking.run_update import RunUpdate


class RunWriter:
    """Of one study; for any thread."""

    def __init__(
        self, runs: MlflowRuns, confirmed: Confirmed, division: Division, study: Path
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
        except DeletedError:
            self._revive(experiment, run_id)
            self._runs.write(run_id, update, created=created, study=self._study)

    def create(self, experiment: str, number: int, update: RunUpdate) -> bool:
        """Have a run for the trial; whether it is the one made here. Raises NotTakenError, after
        which there may be one all the same."""
        self._division.check()
        try:
            run_id = self._runs.create(experiment, update)
        except DeletedError:
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
