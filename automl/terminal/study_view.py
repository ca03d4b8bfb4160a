"""Shows a study as its record has it: `status`, `list` and the report have their figures from here.

The record tells of the trials, up to the last event. What only a sweep knows (what waits and why,
paces, devices) is in the view that it writes to `status.json`. Whether a sweep works on the study
is told by its lock. Nothing of the study is written here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import UNLIMITED_N_TRIALS
from automl.errors import ConfigError
from automl.record.device_time import merge_spans
from automl.record.studies import is_at_work, is_holder_newer, read_study, suspended_holder
from automl.record.study_files import (
    CONFIG_FILE,
    EVENTS_FILE,
    OUTBOX_FOLDER,
    STATUS_FILE,
    StudyFiles,
)
from automl.record.study_record import StudyRecord
from automl.record.texts import duration_text
from automl.terminal.console import open_console
from automl.terminal.failure_counts import FailureCounts
from automl.terminal.view import (
    BestRow,
    RunningRow,
    SweepView,
    WaitingRow,
    best_row,
    load_view,
    outside_rows,
    read_view,
    spread_values,
)
from automl.trial import TrialState

if TYPE_CHECKING:
    from automl.record.sharing.study_fetch import FetchedStudy

COMPLETE = ("done", "failed")
"""How a sweep ends that has no trial left to try."""
STALE_SECONDS = 10.0
"""A sweep at work writes its view once a second; an older view is told to be one."""


@dataclass(frozen=True)
class StudyStatus:
    """The state of a study at one moment, for people and programs."""

    view: SweepView
    at_work: bool | OSError
    """Whether a sweep works in the study's folder, or the error that hides it."""
    suspended_pid: int | None = None
    """The process of the sweep, if it is stopped, as by Ctrl-Z."""
    is_copy: bool = False
    """Whether this is a folder's copy of a shared study, and the database was not asked."""

    @property
    def state(self) -> str:
        """The state in one word: how the study's sweep goes on, or how it ended."""
        if self.is_copy and not self.is_complete:
            return "unknown"  # other machines may have gone on
        if self.at_work is True:
            at_work = "paused" if self.view.is_paused else "running"
            return at_work if self.suspended_pid is None else "suspended"
        return self.view.ended or ("interrupted" if self.at_work is False else "unknown")

    @property
    def is_complete(self) -> bool:
        """Whether the study has ended all its trials, or needs no more."""
        is_whole = self.view.n_ended >= self.view.n_trials or self.view.reason is not None
        return self.view.ended in COMPLETE and is_whole

    @property
    def goes_on(self) -> bool:
        """Whether a sweep that resumes the study has something to do."""
        return self.at_work is False and self.view.reason is None and not self.is_complete

    def note(self, resume_text: str) -> str | None:
        """Return how the study goes on, or how its sweep ended; None while a sweep is at work.
        `resume_text` is how the study is resumed."""
        age = f"{duration_text(max(0.0, time.time() - self.view.time))} ago"
        if isinstance(self.at_work, OSError):
            lock = StudyFiles(Path(self.view.directory)).lock
            hidden = f"({lock}: {self.at_work.strerror})"
            return f"as of {age}; whether a sweep still works on it cannot be seen {hidden}"
        if self.suspended_pid is not None:
            pid = self.suspended_pid
            return f"as of {age}: process {pid} is stopped; let it go on with: kill -CONT {pid}"
        if self.at_work:
            is_stale = time.time() - self.view.time > STALE_SECONDS and self.view.time > 0
            return f"as of {age}: its sweep has shown nothing since" if is_stale else None
        go_on = f"; go on with: {resume_text}" if self.goes_on else ""
        return f"{self.copy_note or f'{self.state}, {age}'}{go_on}"

    @property
    def copy_note(self) -> str | None:
        """A sentence on when a folder's copy of a shared study was whole; None: it is no copy."""
        if not self.is_copy:
            return None
        then, today = time.localtime(self.view.time), time.strftime("%F")
        clock = time.strftime("%R" if time.strftime("%F", then) == today else "%F %R", then)
        done = f"{self.state} " if self.is_complete else ""
        return f"{done}as of {clock}; its database was not asked (study.storage=… asks it)"


def read_status(path: Path, fetched: FetchedStudy | None = None) -> tuple[StudyStatus, StudyRecord]:
    """Return the status of the study at `path`, and its record. Raises ConfigError for a folder
    that is no study.

    `fetched`: what its database has just said, for a study that machines share.
    """
    at_work = is_at_work(path)  # asked first: after the lock is released nothing more is written
    record, view = read_study(path), None
    if fetched is not None and at_work is False:
        return shared_status(path, record, fetched), record
    if not record.sweeps or StudyFiles(path).status.exists():
        try:
            view = read_view(StudyFiles(path).status)
        except ConfigError as error:
            if not record.sweeps:
                raise
            open_console().say(f"{error} What follows is from {EVENTS_FILE}.", "magenta")
    return _status_of(path, view, record, at_work), record


def shared_status(path: Path, record: StudyRecord, fetched: FetchedStudy) -> StudyStatus:
    """Return the status of a study whose sweeps run on other machines, if any, by its database."""
    n_running = sum(fetched.at_work.values())
    view = SweepView(path.name, str(path), 0.0, fetched.n_trials, record.metric.name)
    if record.sweeps:
        view = recorded_view(view, record, is_swept=n_running > 0)
    n_open = sum(n for state, n in record.counts().items() if not state.is_final)
    n_running = min(n_open, n_running)
    open_counts = {"running": n_running, "interrupted": n_open - n_running}
    view = replace(view, n_trials=fetched.n_trials, counts={**view.counts, **open_counts})
    return StudyStatus(replace(view, time=time.time()) if n_running else view, n_running > 0)


def look_at(path: Path) -> StudyStatus | str:
    """Return the status of the study at `path`, or a word for a folder that has none.

    The log is not read where the last sweep has ended and nothing was logged since, so that a
    thousand studies are listed at once.
    """
    files, view = StudyFiles(path), None
    try:
        names = os.listdir(path)
        if STATUS_FILE not in names and EVENTS_FILE not in names:
            return "not begun" if CONFIG_FILE in names else "foreign"
        at_work = is_at_work(path)
        log_bytes = files.events.stat().st_size if EVENTS_FILE in names else 0
        with suppress(ValueError):  # torn
            view = load_view(files.status) if STATUS_FILE in names else None
        if view is None or (log_bytes and (view.ended is None or view.log_bytes != log_bytes)):
            record = read_study(path)
            return _status_of(path, view, record, at_work) if record.sweeps else "torn"
    except (OSError, ConfigError):
        return "unreadable"
    is_copy = at_work is False and OUTBOX_FOLDER in names
    suspended = suspended_holder(path) if at_work is True else None
    return StudyStatus(view, at_work, suspended, is_copy)


def copy_note(path: Path) -> str | None:
    """Return a sentence on when the folder's copy of a shared study was whole; None: the study at
    `path` is no copy, or a sweep works in the folder."""
    status = look_at(path)
    return status.copy_note if isinstance(status, StudyStatus) else None


def _status_of(
    path: Path, view: SweepView | None, record: StudyRecord, at_work: bool | OSError
) -> StudyStatus:
    view = view or SweepView("", "", 0.0, UNLIMITED_N_TRIALS, record.metric.name)
    view = replace(view, study=path.name, directory=str(path))  # it may have been moved since
    if record.sweeps:  # otherwise its log is lost, and the record is empty
        is_swept = at_work is not False and not is_holder_newer(path, record)
        view = recorded_view(view, record, is_swept=is_swept)
    suspended = suspended_holder(path) if at_work is True else None
    return StudyStatus(view, at_work, suspended, at_work is False and record.is_shared)


def recorded_view(view: SweepView, record: StudyRecord, *, is_swept: bool) -> SweepView:
    """Return the view of a study that has had a sweep, by its record.

    `view`: the last that a sweep has written, perhaps an earlier one; only what the record lacks is
    taken from it. `is_swept`: the last sweep of the record is at work.
    """
    sweep, best = record.sweeps[-1], record.best()
    if view.time < sweep.start.time:  # nothing was shown since it began
        view = replace(
            SweepView(view.study, view.directory, 0.0, view.n_trials, view.metric),
            repeats=view.repeats,
        )
    earlier = merge_spans(s.called_span for s in record.sweeps[:-1])
    called, last = sweep.called_span
    rows, waiting = _open_rows(view, record) if is_swept else ((), ())
    if not is_swept:
        rows = outside_rows(record.trials, time.time())
    if best is not None and len(view.repeats) <= 1:
        view = replace(view, best=best_row(best, record.metric.name), front=front_rows(record))
    return replace(
        view,
        time=max(view.time, sweep.last_seconds),
        n_trials=view.n_trials if record.n_trials is None else record.n_trials,
        metric=record.metric.name,
        counts=_counts(record, rows, waiting),
        running=rows,
        waiting=waiting,
        devices=view.devices if is_swept else (),
        seconds=(view.seconds if is_swept else 0.0) or last - called,
        earlier_seconds=sum(end - start for start, end in earlier),
        seconds_left=view.seconds_left if is_swept else None,
        failures=FailureCounts(record.trials).rows(),
        best_so_far=spread_values(record.best_values()),
        device_seconds=max(record.device_seconds, (view.device_seconds or 0.0) * is_swept),
        ended=view.ended if is_swept else view.ended or record.how_ended(),
        reason=view.reason or (sweep.end and sweep.end.reason) or None,
    )


def _open_rows(
    view: SweepView, record: StudyRecord
) -> tuple[tuple[RunningRow, ...], tuple[WaitingRow, ...]]:
    """Return the rows of `view` whose trials run, or wait, by the record too."""
    states = {number: trial.state for number, trial in record.trials.items()}
    ended = {number for number, state in states.items() if state.is_final}
    stopped = {number for number, state in states.items() if state is not TrialState.RUNNING}
    rows = tuple(row for row in view.running if row.number not in stopped)
    gone = ended | {row.number for row in rows}
    return rows, tuple(row for row in view.waiting if row.number not in gone)


def _counts(
    record: StudyRecord, rows: Sequence[RunningRow], waiting: Sequence[WaitingRow]
) -> Mapping[str, int]:
    """Return the number of trials by state, each in one: those that wait for a sweep at work count
    as waiting, whatever they were before."""
    by_state = {state: set[int]() for state in TrialState}
    for number, trial in record.trials.items():
        by_state[trial.state].add(number)
    queued = {row.number for row in waiting if row.number is not None}
    running = {row.number for row in rows} | by_state[TrialState.RUNNING] - queued
    by_state[TrialState.RUNNING] = running
    by_state[TrialState.INTERRUPTED] -= running | queued
    by_state[TrialState.PAUSED] -= running | queued
    counts = {state.value: len(numbers) for state, numbers in by_state.items()}
    return counts | ({"waiting": len(queued)} if queued else {})


def front_rows(record: StudyRecord) -> tuple[BestRow, ...]:
    """Return the rows of the front; empty in a study of one metric."""
    front = record.front() if record.metrics.are_several else ()
    return tuple(best_row(trial, record.metric.name) for trial in front)
