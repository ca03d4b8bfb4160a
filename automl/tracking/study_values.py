"""What of a study's own is to be delivered: how its sweeps began and ended, what was measured of
exports, its ensemble. Of a shared study whoever is elected has them."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from pathlib import Path

from automl.record.events import read_events
from automl.record.files import PLOT_NAMES, StudyFiles
from automl.record.study import fold
from automl.tracking.ensembled import of_ensemble
from automl.tracking.evaluated import of_study, of_trial
from automl.tracking.mlflow import is_below
from automl.tracking.run_update import RunUpdate, StudyRef
from automl.tracking.study_run import StudyRun
from automl.tracking.tuned import of_tuning
from automl.trial import Ensembled, Evaluated, Event, SweepEnded, SweepStarted, Tuned

Write = Callable[[str, RunUpdate], None]
"""To a run that is there."""


class StudyValues:
    """Those that were read and are not delivered; each is kept until it is."""

    def __init__(self, files: StudyFiles) -> None:
        self._files = files
        self.sweeps: list[SweepStarted | SweepEnded] = []
        self._evaluations: list[Evaluated | Tuned] = []
        self._ensemble: Ensembled | None = None
        """Of several the newest."""

    def take(self, event: Event) -> None:
        """Those of trials are none of them."""
        if isinstance(event, SweepStarted | SweepEnded):
            self.sweeps.append(event)
        elif isinstance(event, Evaluated | Tuned):
            self._evaluations.append(event)
        elif isinstance(event, Ensembled):
            self._ensemble = event

    def clear(self) -> None:
        """Another delivers them."""
        self.sweeps.clear()
        self._evaluations.clear()
        self._ensemble = None

    def sweeps_update(self, study: StudyRun) -> RunUpdate:
        """Of the study's run, where there are sweeps to tell."""
        return study.update(self.sweeps, user(), self._own_file(self._files.config))

    def deliver_ensemble(self, study: StudyRun, parent: str, write: Write) -> None:
        if self._ensemble is not None:
            file = self._own_file(self._files.ensemble)
            plots = [p for n in PLOT_NAMES for p in self._own_file(self._files.plots / n)]
            write(parent, of_ensemble(self._ensemble, study.ref, file, plots))
            self._ensemble = None

    def deliver_evaluations(
        self,
        study: StudyRun,
        parent: str,
        find: Callable[[int, RunUpdate], str | None],
        write: Write,
    ) -> None:
        """`find` says which run a trial has."""
        while self._evaluations:
            event = self._evaluations[0]
            if isinstance(event, Tuned):
                write(parent, of_tuning(event, study.ref))
                del self._evaluations[0]
                continue
            write(parent, of_study(event, study.ref))
            for number in event.trials:
                update = of_trial(event, number, study.ref.uuid)
                if (run_id := find(number, update)) is not None:  # a stranger's log may name any
                    write(run_id, update)
            del self._evaluations[0]

    def _own_file(self, path: Path) -> Sequence[str]:
        """A file of the study; a link could name any file of ours in one that was given to us."""
        below = path.relative_to(self._files.path).as_posix()
        return (below,) if path.is_file() and is_below(self._files.path, below) else ()


def newest_study(log: Path) -> StudyRef | None:
    """The study that the log's last sweep worked on; None: no sweep has begun."""
    study = fold(event for event, _ in read_events(log) if isinstance(event, SweepStarted))
    if not study.sweeps:
        return None
    return StudyRef(study.uuid, study.name, study.former_names)


def user() -> str:
    """Who delivers, as MLflow shows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
