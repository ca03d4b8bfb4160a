"""Brings a study's events to its runs in MLflow: finds or creates the runs, confirms the events.

Every event is delivered at least once and takes effect once: a batch that fails is kept and
repeated. A run is never made twice: where an earlier attempt may have made it, it is looked for
first.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from automl.config import KeepCheckpoints
from automl.record.event_log import read_events
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecordBuilder
from automl.tracking.deliver.artifacts import add_own_files, without_removed_files
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.mlflow_runs import MlflowRuns, write_all
from automl.tracking.mlflow_store import (
    NotDeliveredError,
    RunDeletedError,
    RunGoneError,
    repeat_lost,
)
from automl.tracking.view.run_update import RunUpdate, StudyRef
from automl.tracking.view.shared_view import N_BEST, VIEW_TAG
from automl.tracking.view.study_run import StudyRun, delivering_user, newest_study
from automl.tracking.view.study_values import StudyValues
from automl.tracking.view.trial_run import TrialRun
from automl.trial import Event, StudyEdited, SweepEnded, SweepStarted, TrialEvent, TrialOutcome

MAX_EVENTS_AT_ONCE = 2000
"""Number of events that are read, delivered and confirmed in one go."""
MAX_EVENTS_PENDING = 10_000
"""Number of undelivered events from which on running trials are shown at once, too.

It bounds memory, and the events that have to be repeated after a kill."""
MAX_SINGLE_SEARCHES = 50
"""Number of doubtful trials up to which each run is looked up by itself; above it, all runs are
listed."""

LIVE_SECONDS = 3.0
"""Seconds that a running trial's events wait until they are shown, at least."""
LIVE_SECONDS_PER_TRIAL = 0.5
"""Seconds that they wait for each trial that runs, so that delivery takes a twentieth of a core.

A trial that ends before is delivered whole: in two pieces its run would cost half as much again."""

logger = logging.getLogger(__name__)


class RunWriter:
    """Writes the runs of one study, and creates a run at most once for each trial. Thread-safe."""

    def __init__(self, runs: MlflowRuns, confirmed: DeliveryConfirmations, study: Path) -> None:
        """Write artifacts from below the folder `study`."""
        self._runs, self._confirmed = runs, confirmed
        self._study = study
        self._revive_lock = threading.Lock()

    def write(self, experiment: str, run_id: str, update: RunUpdate, *, created: bool) -> None:
        """Write the update to the run.

        `created` says that the run was created for this very update. Raise RunGoneError or
        NotDeliveredError.
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
        """Create a run for the trial; return whether it is the one that the trial keeps."""
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


class EventLogDelivery:
    """Delivers one event log. For one thread; its writers are threads of its own."""

    def __init__(
        self,
        log: Path,
        confirmed: DeliveryConfirmations,
        runs: MlflowRuns,
        keep: KeepCheckpoints,
        fresh_from: int | None = None,
        study: StudyRef | None = None,
        n_known_trials: int = 0,
    ) -> None:
        """Read what the log's confirmed part says.

        `fresh_from`, `study` and `n_known_trials` are those of a `DeliveryJob`; None means the end
        of the log, and the study that the log names.
        """
        self._log = log
        self._study = study or newest_study(log)
        self._confirmed = confirmed
        self._runs = runs
        self._keep = keep
        self._n_known_trials = n_known_trials
        self._writer = RunWriter(runs, confirmed, log.parent)
        self.note_taken: Callable[[], None] = lambda: None
        """Called by a writer's thread when MLflow has taken a trial's update."""
        self._is_flushed = True
        """Whether all events that were read are on disk."""
        self._completed: list[int] = []
        """Trials that are delivered to their end, which the confirmations do not have yet."""
        self._learn_confirmed_part(fresh_from)

    def _learn_confirmed_part(self, fresh_from: int | None = None) -> None:
        """Learn the events up to the confirmed offset, without delivering them again."""
        self._sweeps = StudyRecordBuilder()
        """Builder of the record of the sweeps' events alone, which is made in each round."""
        self._all = StudyRecordBuilder()
        """Builder of the record of all events, for the view of the best trials."""
        self._study_open = False
        self._values = StudyValues(StudyFiles(self._log.parent))
        self._trials: dict[int, TrialRun] = {}
        self._trial_events: dict[int, list[TrialEvent]] = {}
        self._pending_from: dict[int, int] = {}
        """Offset of the first undelivered event of each trial that has any."""
        self._with_doubles: set[int] = set()
        """Trials whose run may have been made twice: the answer to a create was lost."""
        self._found_runs: set[int] = set()
        """Trials whose run an earlier process has made, and perhaps brought to its end."""
        self._doubles_due = False
        """Whether trials have ended since the last search for doubles that a network made."""
        if self._study is not None:
            self._confirmed.forget_others(self._study.uuid)
        size = self._log.stat().st_size if self._log.exists() else 0
        self._fresh_from = size if fresh_from is None else fresh_from
        if self._confirmed.offset > min(size, self._fresh_from):
            self._confirmed.reset()  # the disk lost events that were confirmed
            self._fresh_from = sys.maxsize  # MLflow may have runs that are not in the log
        self._offset = 0
        for event, offset in read_events(self._log):
            if offset > self._confirmed.offset:
                break
            self._learn(event)
            self._offset = offset
        for number in [number for number, trial in self._trials.items() if trial.ended]:
            del self._trials[number]

    def read(self) -> bool:
        """Take new events from the log; return whether there may be more."""
        if self._n_pending() >= MAX_EVENTS_PENDING:
            return True  # MLflow takes nothing now: the rest can stay on disk
        n_read = 0
        for event, offset in islice(read_events(self._log, self._offset), MAX_EVENTS_AT_ONCE):
            self._learn(event)
            self._values.take(event)
            if isinstance(event, TrialEvent) and event.trial not in self._confirmed.completed:
                self._trial_events.setdefault(event.trial, []).append(event)
                self._pending_from.setdefault(event.trial, self._offset)
            self._offset = offset
            self._is_flushed = False
            n_read += 1
        if not self._is_flushed:
            self._flush_log()
            self._is_flushed = True
        return n_read == MAX_EVENTS_AT_ONCE

    def deliver(self, *, everything: bool = True) -> None:
        """Deliver the events that were read, and confirm them; young trials may wait.

        With `everything` no trial waits. Raise NotDeliveredError or OSError when MLflow does not
        take events now: call again.
        """
        if self._study is None or not (sweeps := self._sweeps.record()).sweeps:
            return  # no sweep has begun; nothing comes before its SweepStarted
        study = StudyRun(sweeps, self._study)
        try:
            self._deliver_round(study, *self._open_study(study), everything=everything)
        except RunGoneError as error:
            self._confirmed.reset()
            self._learn_confirmed_part()
            raise NotDeliveredError(
                f"runs have vanished, all is delivered again: {error}"
            ) from error
        self._confirmed.confirm(min(self._pending_from.values(), default=self._offset))

    def _deliver_round(
        self, study: StudyRun, experiment: str, parent: str, *, everything: bool
    ) -> None:
        numbers = self._trials_to_deliver(everything)
        self._doubles_due |= any(self._trials[number].ended for number in numbers)
        self._resolve_doubts(numbers, study, experiment)
        self._deliver_trials(numbers, study, experiment, parent)
        self._deliver_study(study, experiment, parent)  # its trials have their runs now
        self._confirmed.note_completed(self._completed)
        self._completed.clear()
        if self._doubles_due and (self._runs.may_make_doubles or self._confirmed.is_shared):
            self._runs.delete_doubles(experiment, study.ref.uuid, self._confirmed.runs)
        self._doubles_due = False

    def may_end(self) -> str:
        """Return an empty text: nothing is left to other sweeps."""
        return ""

    def end(self) -> None:
        """Do nothing: all is noted."""

    @property
    def n_left(self) -> int:
        """Return how many of the updates that were read MLflow lacks; a call of `deliver` that
        fails has made it smaller if MLflow took some of them."""
        return len(self._trial_events) + self._values.n_left

    @property
    def offset(self) -> int:
        """Return the byte of the log before which MLflow has all events."""
        return self._confirmed.offset

    def _learn(self, event: Event) -> None:
        self._all.take(event)
        if isinstance(event, SweepStarted | SweepEnded):
            if isinstance(event, SweepStarted):
                self._study = self._study or StudyRef(event.study_uuid, event.study)
            self._sweeps.take(event)
            return
        if isinstance(event, StudyEdited):
            self._sweeps.take(event)
        if not isinstance(event, TrialEvent) or event.trial in self._confirmed.completed:
            return  # it serves the next sweep and is not shown in MLflow
        trial = self._trials.get(event.trial)
        if trial is None:
            fresh = self._offset >= self._fresh_from and event.trial >= self._n_known_trials
            trial = self._trials[event.trial] = TrialRun(event, fresh=fresh)
        trial.take(event)

    def _n_pending(self) -> int:
        return sum(map(len, self._trial_events.values()))

    def _flush_log(self) -> None:
        """Flush the log to disk, which its writer may not have done: MLflow must not know more."""
        fd = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    # --- the study's own run ---------------------------------------------------------------------

    def _open_study(self, study: StudyRun) -> tuple[str, str]:
        """Return experiment and parent run; the first call finds, creates or restores them."""
        confirmed = self._confirmed
        if not self._study_open:
            experiment, parent = repeat_lost(self._find_or_make_study, study)
            if confirmed.note_study(study.ref.uuid, experiment, parent) != parent:
                self._runs.delete(parent)  # another sweep has made one meanwhile
            self._share_view(study, experiment)
            self._study_open = True
        assert confirmed.experiment is not None
        assert confirmed.parent is not None
        return confirmed.experiment, confirmed.parent

    def _share_view(self, study: StudyRun, experiment: str) -> None:
        """Store the view of a study's runs, by the trials that are the best now.

        A refit's runs stand in the view of its study.
        """
        if study.refit_of is None:
            best = self._all.record().ranking()[:N_BEST]
            self._runs.share_view(experiment, VIEW_TAG, study.shared_view(best))

    def _find_study(self, study: StudyRun) -> tuple[str, str | None]:
        """Return the study's experiment, renamed if the study was, and its run if it exists."""
        ref, parent = study.ref, self._confirmed.parent
        if parent is not None:
            experiment = self._runs.find_experiment_of_run(parent, ref.uuid)
            if experiment is None:
                raise RunGoneError(f"run {parent} of study {ref.name}: this is another store")
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

    def _find_or_make_study(self, study: StudyRun) -> tuple[str, str]:
        experiment, parent = self._find_study(study)
        if parent is None:
            update = study.update([study.first], delivering_user())
            parent = self._runs.create(experiment, update)
            self._runs.write(parent, update, created=True, study=self._log.parent)
        return experiment, parent

    def _deliver_study(self, study: StudyRun, experiment: str, parent: str) -> None:
        def write(run_id: str, update: RunUpdate) -> None:
            self._writer.write(experiment, run_id, update, created=False)

        def find(number: int, update: RunUpdate) -> str | None:
            return self._confirmed.runs.get(number) or self._runs.find(experiment, update.key)

        if self._values.sweeps:
            self._doubles_due = True
            write(parent, self._values.sweeps_update(study))
            self._runs.find(experiment, study.key, keep=parent)  # deletes doubles of it
            self._values.deliver_front(study, find, write)
            if isinstance(self._values.sweeps[-1], SweepEnded):
                self._share_view(study, experiment)
            self._values.sweeps.clear()
        self._values.deliver_ensemble(study, parent, write)
        self._values.deliver_edits(study, parent, write)
        self._values.deliver_report(study, parent, write)
        self._values.deliver_evaluations(study, parent, find, write)
        while self._values.removed:
            if (run_id := self._confirmed.runs.get(self._values.removed[0])) is not None:
                self._runs.remove_files(run_id)
            del self._values.removed[0]

    # --- its trials ------------------------------------------------------------------------------

    def _resolve_doubts(self, numbers: Sequence[int], study: StudyRun, experiment: str) -> None:
        """List all runs at once if many trials may have a run that is not known here."""
        doubtful = [n for n in numbers if self._in_doubt(n)]
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
            if events[0].time <= young or isinstance(events[-1], TrialOutcome)
        ]

    def _deliver_trials(
        self, numbers: Sequence[int], study: StudyRun, experiment: str, parent: str
    ) -> None:
        def write(number: int) -> None:
            trial, events = self._trials[number], self._trial_events[number]
            update = trial.update(events, study.ref.uuid, parent, self._keep)
            update = study.trial_update(update, number)
            if self._confirmed.is_shared:  # the sweep that holds the trial has its files
                update = replace(update, artifacts=())
            elif trial.ended:
                update = add_own_files(update, self._log.parent, number, self._keep)
                update = without_removed_files(update, self._log.parent, study.study.settings)
            repeat_lost(self._deliver_trial, trial, update, experiment)
            del self._trial_events[number], self._pending_from[number]
            self.note_taken()
            if trial.ended:
                del self._trials[number]
                self._completed.append(number)

        write_all(numbers, write, self._runs.n_writers)

    def _deliver_trial(self, trial: TrialRun, update: RunUpdate, experiment: str) -> None:
        number, runs = trial.number, self._confirmed.runs
        if self._in_doubt(number):
            run_id = self._runs.find(experiment, update.key)
            if run_id is not None:
                self._note_found(number, run_id)
        if trial.ended and number in self._found_runs:
            update = self._runs.drop_known_end_metrics(runs[number], update)
        created = number not in runs and self._create(trial, update, experiment)
        self._writer.write(experiment, runs[number], update, created=created)
        if trial.ended and number in self._with_doubles:
            self._runs.find(experiment, update.key, keep=runs[number])
            self._with_doubles.discard(number)

    def _note_found(self, number: int, run_id: str) -> None:
        self._confirmed.note_run(number, run_id)
        self._found_runs.add(number)

    def _create(self, trial: TrialRun, update: RunUpdate, experiment: str) -> bool:
        """Create a run for the trial; return whether it is the one that the trial keeps."""
        try:
            return self._writer.create(experiment, trial.number, update)
        except NotDeliveredError:
            trial.fresh = False
            self._with_doubles.add(trial.number)
            raise
