"""Keeps the values of a study that were read from its log until they are delivered.

`study_run.py` computes the updates; trials' values are kept in `trial_run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from automl.record.study_files import PLOT_NAMES, REPORT_FILE, StudyFiles
from automl.tracking.deliver.mlflow_runs import is_path_below
from automl.tracking.view.run_update import RunUpdate
from automl.tracking.view.study_run import (
    StudyRun,
    delivering_user,
    edits_text,
    ensemble_run_update,
    evaluated_study_update,
    evaluated_trial_update,
    front_trial_update,
    study_update,
    tuning_run_update,
)
from automl.trial import (
    EnsembleBuilt,
    Event,
    ExportTuned,
    ModelsEvaluated,
    ReportWritten,
    StudyEdited,
    SweepEnded,
    SweepStarted,
    TrialFilesRemoved,
)

Write = Callable[[str, RunUpdate], None]
"""A function that writes an update to an existing run, given its id."""


class StudyValues:
    """The study's own values that were read from the log and are not delivered yet."""

    def __init__(self, files: StudyFiles) -> None:
        self._files = files
        self.sweeps: list[SweepStarted | SweepEnded] = []
        self._evaluations: list[ModelsEvaluated | ExportTuned] = []
        self._ensemble: EnsembleBuilt | None = None
        """The newest ensemble that is not delivered yet."""
        self._report: ReportWritten | None = None
        """The newest report that is not delivered yet."""
        self._edit: StudyEdited | None = None
        """The newest edit that is not delivered yet."""
        self.removed: list[int] = []
        """Trials whose files are removed here, and not in MLflow yet."""

    def take(self, event: Event) -> None:
        """Keep an event of the study itself; ignore events of trials."""
        if isinstance(event, SweepStarted | SweepEnded):
            self.sweeps.append(event)
        elif isinstance(event, ModelsEvaluated | ExportTuned):
            self._evaluations.append(event)
        elif isinstance(event, EnsembleBuilt):
            self._ensemble = event
        elif isinstance(event, ReportWritten):
            self._report = event
        elif isinstance(event, StudyEdited):
            self._edit = event
        elif isinstance(event, TrialFilesRemoved):
            self.removed += event.trials

    @property
    def n_left(self) -> int:
        """Return how many values are not delivered yet."""
        newest = (self._ensemble, self._report, self._edit)
        n_listed = len(self.sweeps) + len(self._evaluations) + len(self.removed)
        return n_listed + sum(value is not None for value in newest)

    def clear(self) -> None:
        """Drop all values, as another sweep delivers them."""
        self.sweeps.clear()
        self._evaluations.clear()
        self.removed.clear()
        self._ensemble = self._report = self._edit = None

    def sweeps_update(self, study: StudyRun) -> RunUpdate:
        """Return the update of the study's run by the sweeps' events; at least one is needed."""
        return study.update(self.sweeps, delivering_user(), self._own_file(self._files.config))

    def deliver_front(
        self,
        study: StudyRun,
        find: Callable[[int, RunUpdate], str | None],
        write: Write,
    ) -> None:
        """Tag the trials that are on the front at the end of a sweep, and those that were before;
        `find` returns the run of a trial."""
        ended = self.sweeps[-1]
        if not isinstance(ended, SweepEnded):
            return
        before = (sweep.end.front for sweep in study.study.sweeps if sweep.end is not None)
        for number in sorted({*ended.front, *(n for front in before for n in front)}):
            update = front_trial_update(ended, number, study.ref.uuid)
            if (run_id := find(number, update)) is not None:
                write(run_id, update)

    def deliver_ensemble(self, study: StudyRun, parent: str, write: Write) -> None:
        if self._ensemble is not None:
            file = self._own_file(self._files.ensemble)
            plots = [p for n in PLOT_NAMES for p in self._own_file(self._files.plots / n)]
            write(parent, ensemble_run_update(self._ensemble, study.ref, file, plots))
            self._ensemble = None

    def deliver_edits(self, study: StudyRun, parent: str, write: Write) -> None:
        if self._edit is not None:
            write(parent, study_update(self._edit, study.ref, edits_text(study.study.edits)))
            self._edit = None

    def deliver_report(self, study: StudyRun, parent: str, write: Write) -> None:
        if self._report is not None:
            update = study_update(self._report, study.ref, REPORT_FILE, ())
            write(parent, replace(update, files=self._own_file(self._files.report)))
            self._report = None

    def deliver_evaluations(
        self,
        study: StudyRun,
        parent: str,
        find: Callable[[int, RunUpdate], str | None],
        write: Write,
    ) -> None:
        """Deliver evaluations and tunings, in order; `find` returns the run of a trial."""
        while self._evaluations:
            event = self._evaluations[0]
            if isinstance(event, ExportTuned):
                write(parent, tuning_run_update(event, study.ref))
                del self._evaluations[0]
                continue
            write(parent, evaluated_study_update(event, study.ref))
            for number in event.trials:
                update = evaluated_trial_update(event, number, study.ref.uuid)
                run_id = find(number, update)
                if run_id is not None:  # a stranger's log may name trials without a run
                    write(run_id, update)
            del self._evaluations[0]

    def _own_file(self, path: Path) -> Sequence[str]:
        """Return the path of a file below the study; nothing if absent, or a link."""
        below = path.relative_to(self._files.path).as_posix()
        return (below,) if path.is_file() and is_path_below(self._files.path, below) else ()
