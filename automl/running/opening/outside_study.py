"""Opens a study that no sweep holds, for as long as one answer to `ask` or `tell` takes.

Nothing of a sweep runs: no device is read, and MLflow gets what is told from the next sweep or from
`sync`. A sweep that holds the study answers by itself (`trials/steering.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from automl.config import Config
from automl.errors import ConfigError, StudyInUseError
from automl.record.event_log import EventLog, read_edits
from automl.record.studies import study_path
from automl.record.study_directory import StudyDirectory, holding_for, settle_place
from automl.record.study_files import StudyFiles
from automl.record.study_requests import FolderRequestQueue, RequestAnswer, StudyRequest
from automl.running.opening.outside_trials import OutsideTrials
from automl.running.opening.parts import open_outside_trials, store_config
from automl.running.opening.recovery import take_over_trials
from automl.running.opening.study_store import FolderStore
from automl.running.prepare.identity_settings import flat_settings
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.study import Study
from automl.terminal.view import BestRow, SweepView, outside_rows, write_view
from automl.trial import OUTSIDE_DEVICE, SweepStarted, TrialOutcome, TrialState

OPEN = "open"
"""How `status` and `list` call a study that waits for results from outside."""


@dataclass(frozen=True)
class UnsweptStudy:
    """A study that is open and locked here, while no sweep works on it."""

    prepared: PreparedStudy
    directory: StudyDirectory
    study: Study
    log: EventLog
    outside: OutsideTrials

    def answer(self, request: StudyRequest) -> RequestAnswer:
        """Answer an `ask` or a `tell`. Raises ConfigError and StorageError."""
        self.outside.end_leases(time.time())
        n_trials = self.prepared.config.study.decided_n_trials
        answer = self.outside.answer(request, n_trials, self.tell)
        self.show()
        return answer

    def show(self) -> None:
        """Write `status.json`. Raises StorageError."""
        write_view(self.directory.files.status, self._view())

    def tell(self, outcome: TrialOutcome) -> None:
        """Tell the study how a trial has ended. Raises StorageError."""
        self.study.tell(outcome.trial, outcome, OUTSIDE_DEVICE)

    def _view(self) -> SweepView:
        now, best, counts = time.time(), self.study.best(), dict(self.study.counts())
        n_trials = self.prepared.config.study.decided_n_trials
        running = outside_rows(self.outside.trials, now)
        n_left = counts[TrialState.RUNNING] - len(running)
        counts |= {TrialState.RUNNING: len(running), TrialState.INTERRUPTED: n_left}
        is_done = not n_left and self.study.n_asked >= n_trials
        ended = "done" if is_done else "interrupted"
        return SweepView(
            study=self.study.name,
            directory=str(self.directory.path),
            time=now,
            n_trials=n_trials,
            metric=self.prepared.config.study.leading_metric,
            counts={state.value: n for state, n in counts.items()},
            best=None if best is None else BestRow(best.number, best.value, best.params),
            running=running,
            device_seconds=self.log.device_seconds(now),
            log_bytes=self.log.size_bytes(),
            ended=OPEN if self.outside.may_come(n_trials) else ended,
        )


def answer_here(config: Config, stored_config: str, request: StudyRequest) -> RequestAnswer | None:
    """Answer a request about a study that no sweep holds; None: somebody holds it.

    Raises ConfigError and StorageError.
    """
    try:
        with open_without_sweep(config, stored_config) as opened:
            # A sweep may have answered just before it ended.
            path = opened.directory.path
            answer = FolderRequestQueue(path).take_answer(request) if request.id else None
            return answer or opened.answer(request)
    except StudyInUseError:
        return None


def begin_here(config: Config, stored_config: str) -> None:
    """Begin a study that no sweep runs. Raises ConfigError and StorageError."""
    with holding_for("ask"), open_without_sweep(config, stored_config) as opened:
        opened.show()


@contextmanager
def open_without_sweep(config: Config, stored_config: str) -> Iterator[UnsweptStudy]:
    """Open or begin a study, and hold it during the block.

    Raises StudyInUseError where somebody else holds it, ConfigError and StorageError.
    """
    assert config.study.name is not None, "the commands refuse a line without a name"
    events = StudyFiles(study_path(config.study)).events
    prepared = prepare_study(config, edits=read_edits(events))
    with (
        StudyDirectory.open(config.study, must_exist=False) as directory,
        closing(FolderStore.open(prepared, directory, stored_config)) as store,
    ):
        study, log = store.study, store.log
        place = settle_place(directory.path, config.study, study.uuid, study.stored_name)
        store.settle_uuid(place)
        if log.record.edits != prepared.edits:
            raise ConfigError(
                f"study.name={config.study.name}: it was edited meanwhile; give the command again."
            )
        store.restore()
        if not directory.files.config.exists():
            store_config(directory, stored_config)
        if not log.record.sweeps:  # MLflow's run of the study is made from it
            settings = flat_settings(config)
            log.append(SweepStarted(time.time(), study.name, study.uuid, settings, stored_config))
        outside = open_outside_trials(prepared, study, log, directory.path)
        opened = UnsweptStudy(prepared, directory, study, log, outside)
        take_over_trials(study, log.record, opened.tell)
        yield opened
