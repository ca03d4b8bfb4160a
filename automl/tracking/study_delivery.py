"""Brings a study's events to its runs: which run is whose, and what has been taken.

Every event is delivered at least once and has its effect once: a batch that fails is kept and given
again. A run is never made twice: where an earlier attempt may have made it, it is looked for first.
"""

from __future__ import annotations

import getpass
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from automl.config import KeepCheckpoints
from automl.record.events import read_events
from automl.record.files import PLOT_NAMES, StudyFiles
from automl.record.study import StudyFold, fold
from automl.tracking.answers import DeletedError, GoneError, NotTakenError
from automl.tracking.confirmed import Confirmed
from automl.tracking.ensembled import of_ensemble
from automl.tracking.evaluated import of_study, of_trial
from automl.tracking.mlflow import MlflowRuns, is_below
from automl.tracking.own_files import with_own_files
from automl.tracking.run_update import RunUpdate, StudyRef
from automl.tracking.shared_view import VIEW_TAG
from automl.tracking.study_run import StudyRun
from automl.tracking.trial_run import TrialRun
from automl.tracking.tuned import of_tuning
from automl.tracking.writers import write_all
from automl.trial import (
    Ensembled,
    Evaluated,
    Event,
    Outcome,
    SweepEnded,
    SweepStarted,
    TrialEvent,
    Tuned,
)

"""Beside the event log: the settings of its last sweep, without credentials."""
MAX_EVENTS_AT_ONCE = 2000
"""Read, delivered and confirmed in one go."""
MAX_EVENTS_PENDING = 10_000
"""Of trials that run; then they are shown too. Bounds memory, and what a kill makes us repeat."""
MAX_SINGLE_SEARCHES = 50
"""Trials in doubt up to which each is looked for alone; above, all runs are listed once."""

LIVE_SECONDS = 3.0
LIVE_SECONDS_PER_TRIAL = 0.5
"""A running trial is shown at most this often, and from this age on: the longer the more there are,
so that it takes a twentieth of a core. One that ends before is delivered whole: in two pieces its
run would cost half as much again."""

logger = logging.getLogger(__name__)


class StudyDelivery:
    """Delivers one event log. Not for use by several threads; its writers are threads of its own,
    and each has whole trials."""

    def __init__(
        self,
        log: Path,
        confirmed: Confirmed,
        runs: MlflowRuns,
        keep: KeepCheckpoints,
        fresh_from: int | None = None,
        study: StudyRef | None = None,
        n_known_trials: int = 0,
    ) -> None:
        """For the last three see `deliver.Job`; None: the log's end, and what the log says."""
        self._log = log
        self._ref = study or _newest_study(log)
        self._confirmed = confirmed
        self._runs = runs
        self._keep = keep
        self._n_known_trials = n_known_trials
        self._reviving = threading.Lock()
        self._begin(fresh_from)

    def _begin(self, fresh_from: int | None = None) -> None:
        """Learn what happened up to the confirmed offset, without delivering it again."""
        self._sweeps = StudyFold()
        """Of the events of sweeps alone; trials that have ended are not kept."""
        self._study_open = False
        self._study_events: list[SweepStarted | SweepEnded] = []
        self._evaluations: list[Evaluated | Tuned] = []
        """To deliver, and what was measured of exports."""
        self._ensemble: Ensembled | None = None
        """To deliver, as the evaluations are; of several the newest."""
        self._trials: dict[int, TrialRun] = {}
        self._trial_events: dict[int, list[TrialEvent]] = {}
        self._pending_from: dict[int, int] = {}
        """Where in the log the first event stands of each trial that has some to deliver."""
        self._with_doubles: set[int] = set()
        """Trials whose run may have been made twice: the answer to a create was lost."""
        self._found: set[int] = set()
        """Trials whose run an earlier process has made, and perhaps brought to its end."""
        self._doubles_due = False
        """Trials have ended since doubles were looked for that a network made."""
        if self._ref is not None:
            self._confirmed.forget_others(self._ref.uuid)
        size = self._log.stat().st_size if self._log.exists() else 0
        self._fresh_from = size if fresh_from is None else fresh_from
        if self._confirmed.offset > min(size, self._fresh_from):  # the disk lost what it promised
            self._confirmed.reset()
            self._fresh_from = sys.maxsize  # MLflow may have runs that the log knows nothing of
        self._offset = 0
        for event, offset in read_events(self._log):
            if offset > self._confirmed.offset:
                break
            self._learn(event)
            self._offset = offset
        for number in [number for number, trial in self._trials.items() if trial.ended]:
            del self._trials[number]

    def read(self) -> bool:
        """Take new events from the log; whether there may be more."""
        if self._n_pending() >= MAX_EVENTS_PENDING:
            return True  # MLflow takes nothing now: the rest can stay on disk
        n_read = 0
        for event, offset in islice(read_events(self._log, self._offset), MAX_EVENTS_AT_ONCE):
            self._learn(event)
            if isinstance(event, SweepStarted | SweepEnded):
                self._study_events.append(event)
            elif isinstance(event, Evaluated | Tuned):
                self._evaluations.append(event)
            elif isinstance(event, Ensembled):
                self._ensemble = event
            elif isinstance(event, TrialEvent):
                self._trial_events.setdefault(event.trial, []).append(event)
                self._pending_from.setdefault(event.trial, self._offset)
            self._offset = offset
            n_read += 1
        if n_read:
            self._flush_log()
        return n_read == MAX_EVENTS_AT_ONCE

    def deliver(self, *, everything: bool = True) -> None:
        """Deliver what was read, and confirm it; unless `everything`, young trials may wait.

        Raises NotTakenError or OSError when that did not work now: call again.
        """
        if self._ref is None or not (sweeps := self._sweeps.record()).sweeps:
            return  # no sweep has begun; nothing comes before its SweepStarted
        study = StudyRun(sweeps, self._ref)
        try:
            experiment, parent = self._open_study(study)
            self._resolve_doubts(study, experiment)
            numbers = self._trials_to_deliver(everything)
            self._doubles_due |= any(self._trials[number].ended for number in numbers)
            self._deliver_trials(numbers, study, experiment, parent)
            if self._study_events:
                self._doubles_due = True
                self._deliver_study(study, experiment, parent)
            self._deliver_ensemble(study, experiment, parent)
            self._deliver_evaluations(study, experiment, parent)  # whose trials have their runs now
            if self._doubles_due and self._runs.may_double:
                self._runs.delete_doubles(experiment, study.ref.uuid, self._confirmed.runs)
            self._doubles_due = False
        except GoneError as error:
            self._confirmed.reset()
            self._begin()
            raise NotTakenError(f"runs have vanished, all is delivered again: {error}") from error
        self._confirmed.confirm(min(self._pending_from.values(), default=self._offset))

    @property
    def offset(self) -> int:
        """MLflow has all events before this byte of the log."""
        return self._confirmed.offset

    def _learn(self, event: Event) -> None:
        if isinstance(event, SweepStarted | SweepEnded):
            if isinstance(event, SweepStarted):
                self._ref = self._ref or StudyRef(event.study_uuid, event.study)
            self._sweeps.take(event)
            return
        if not isinstance(event, TrialEvent):
            return  # for the next sweep; nobody looks at it in MLflow
        trial = self._trials.get(event.trial)
        if trial is None:
            fresh = self._offset >= self._fresh_from and event.trial >= self._n_known_trials
            trial = self._trials[event.trial] = TrialRun(event, fresh=fresh)
        trial.take(event)

    def _n_pending(self) -> int:
        return sum(map(len, self._trial_events.values()))

    def _flush_log(self) -> None:
        """What MLflow knows must not be lost here: its writer may not have flushed it yet."""
        fd = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    # --- the study's own run ---------------------------------------------------------------------

    def _open_study(self, study: StudyRun) -> tuple[str, str]:
        """Experiment and parent run; made, found or restored at the first call."""
        confirmed = self._confirmed
        if not self._study_open:
            experiment, parent = self._find_study(study)
            if parent is None:
                update = study.update([study.first], _user())
                parent = self._runs.create(experiment, update)
                self._runs.write(parent, update, created=True, study=self._log.parent)
            confirmed.note_study(study.ref.uuid, experiment, parent)
            if study.refit_of is None:
                self._runs.share_view(experiment, VIEW_TAG, study.shared_view)
            self._study_open = True
        assert confirmed.experiment is not None
        assert confirmed.parent is not None
        return confirmed.experiment, confirmed.parent

    def _find_study(self, study: StudyRun) -> tuple[str, str | None]:
        """Its experiment, renamed if the study was, and its run if that is there."""
        ref, parent = study.ref, self._confirmed.parent
        if parent is not None:
            experiment = self._runs.experiment_of(parent, ref.uuid)
            if experiment is None:
                raise GoneError(f"run {parent} of study {ref.name}: this is another store")
            self._runs.keep_experiment(experiment, ref)
            return experiment, parent
        for name in ref.former_names:
            experiment = self._runs.find_experiment(name)
            parent = experiment and self._runs.find(experiment, study.key)
            if experiment and parent:
                self._runs.keep_experiment(experiment, ref)
                return experiment, parent
        experiment = self._runs.open_experiment(study.experiment)
        return experiment, self._runs.find(experiment, study.key)

    def _deliver_study(self, study: StudyRun, experiment: str, parent: str) -> None:
        update = study.update(self._study_events, _user(), self._own_file(self._files.config))
        self._write(experiment, parent, update, created=False)
        self._runs.find(experiment, study.key, keep=parent)  # a double of it would be deleted
        self._study_events.clear()

    def _deliver_evaluations(self, study: StudyRun, experiment: str, parent: str) -> None:
        while self._evaluations:
            event = self._evaluations[0]
            if isinstance(event, Tuned):
                self._write(experiment, parent, of_tuning(event, study.ref), created=False)
                del self._evaluations[0]
                continue
            self._write(experiment, parent, of_study(event, study.ref), created=False)
            for number in event.trials:
                update = of_trial(event, number, study.ref.uuid)
                run_id = self._confirmed.runs.get(number)
                run_id = run_id or self._runs.find(experiment, update.key)
                if run_id is not None:  # a stranger's log may name any trial
                    self._write(experiment, run_id, update, created=False)
            del self._evaluations[0]

    def _deliver_ensemble(self, study: StudyRun, experiment: str, parent: str) -> None:
        if self._ensemble is not None:
            file = self._own_file(self._files.ensemble)
            plots = [p for n in PLOT_NAMES for p in self._own_file(self._files.plots / n)]
            update = of_ensemble(self._ensemble, study.ref, file, plots)
            self._write(experiment, parent, update, created=False)
            self._ensemble = None

    @property
    def _files(self) -> StudyFiles:
        return StudyFiles(self._log.parent)

    def _own_file(self, path: Path) -> Sequence[str]:
        """A file of the study; a link could name any file of ours in one that was given to us."""
        below = path.relative_to(self._files.path).as_posix()
        return (below,) if path.is_file() and is_below(self._files.path, below) else ()

    # --- its trials ------------------------------------------------------------------------------

    def _resolve_doubts(self, study: StudyRun, experiment: str) -> None:
        """List all runs at once where many trials may have one that we do not know."""
        doubtful = [n for n in self._trial_events if self._in_doubt(n)]
        if len(doubtful) <= MAX_SINGLE_SEARCHES:
            return
        found = self._runs.find_trials(experiment, study.ref.uuid)
        for number in doubtful:
            if number in found:
                self._note_found(number, found[number])
            else:
                self._trials[number].fresh = True

    def _in_doubt(self, number: int) -> bool:
        return number not in self._confirmed.runs and not self._trials[number].fresh

    def _trials_to_deliver(self, everything: bool) -> list[int]:
        if everything or self._n_pending() >= MAX_EVENTS_PENDING:
            return list(self._trial_events)
        n_running = sum(not trial.ended for trial in self._trials.values())
        young = time.time() - max(LIVE_SECONDS, LIVE_SECONDS_PER_TRIAL * n_running)
        return [
            number
            for number, events in self._trial_events.items()
            if events[0].time <= young or isinstance(events[-1], Outcome)
        ]

    def _deliver_trials(
        self, numbers: Sequence[int], study: StudyRun, experiment: str, parent: str
    ) -> None:
        def write(number: int) -> None:
            trial, events = self._trials[number], self._trial_events[number]
            update = study.own(trial.update(events, study.ref.uuid, parent, self._keep), number)
            if trial.ended:
                update = with_own_files(update, self._log.parent, number, self._keep)
            self._deliver_trial(trial, update, experiment)
            del self._trial_events[number], self._pending_from[number]
            if trial.ended:
                del self._trials[number]

        write_all(numbers, write, self._runs.n_writers)

    def _deliver_trial(self, trial: TrialRun, update: RunUpdate, experiment: str) -> None:
        number, runs = trial.number, self._confirmed.runs
        if self._in_doubt(number):
            run_id = self._runs.find(experiment, update.key)
            if run_id is not None:
                self._note_found(number, run_id)
        if trial.ended and number in self._found:
            update = self._runs.not_yet_ended(runs[number], update)
        created = number not in runs
        if created:
            self._create(trial, update, experiment)
        self._write(experiment, runs[number], update, created=created)
        if trial.ended and number in self._with_doubles:
            self._runs.find(experiment, update.key, keep=runs[number])
            self._with_doubles.discard(number)

    def _note_found(self, number: int, run_id: str) -> None:
        self._confirmed.note_run(number, run_id)
        self._found.add(number)

    def _create(self, trial: TrialRun, update: RunUpdate, experiment: str) -> None:
        try:
            run_id = self._runs.create(experiment, update)
        except DeletedError:
            self._revive(experiment, None)
            run_id = self._runs.create(experiment, update)
        except NotTakenError:
            trial.fresh = False
            self._with_doubles.add(trial.number)
            raise
        self._confirmed.note_run(trial.number, run_id)

    def _write(self, experiment: str, run_id: str, update: RunUpdate, *, created: bool) -> None:
        try:
            self._runs.write(run_id, update, created=created, study=self._log.parent)
        except DeletedError:
            self._revive(experiment, run_id)
            self._runs.write(run_id, update, created=created, study=self._log.parent)

    def _revive(self, experiment: str, run_id: str | None) -> None:
        with self._reviving:  # what another writer has restored meanwhile is not restored again
            self._runs.revive(experiment, run_id)


def _newest_study(log: Path) -> StudyRef | None:
    """The study that the log's last sweep worked on; None: no sweep has begun."""
    study = fold(event for event, _ in read_events(log) if isinstance(event, SweepStarted))
    if not study.sweeps:
        return None
    return StudyRef(study.uuid, study.name, study.former_names)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
