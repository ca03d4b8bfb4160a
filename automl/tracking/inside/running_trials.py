"""Keeps the trials that run in this process, for a store that MLflow makes by itself.

A call belongs to the trial of its run, else to the trial of its thread. A thread that the objective
started has no trial of its own: its calls belong to the process's only trial.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from automl.tracking.inside.runs import LoggedRun, TrialRuns
from automl.trial import LoggedPoint
from automl.trial.session_protocols import LoggingTrial

logger = logging.getLogger(__name__)


class NoTrialError(LookupError):
    """Raised when it is unknown which trial a call belongs to, or when the trial has ended."""


@dataclass
class MlflowTrial:
    """A trial and the runs that its objective made so far."""

    side: LoggingTrial
    runs: TrialRuns
    lock: threading.RLock = field(default_factory=threading.RLock)
    """The lock that guards the trial's runs, for reading and for changing them."""
    pid: int = field(default_factory=os.getpid)
    ended: bool = False

    def folder(self, run: LoggedRun) -> Path:
        """Return the folder that a run's artifacts go to."""
        return self.side.folder / run.label

    def tell(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Pass values on to the sweep.

        Raise NoTrialError when the trial has ended, and whatever `LoggingTrial.log` raises.
        """
        with self.lock:
            if self.ended:
                raise NoTrialError("the trial has ended")
            self.side.log(points, params, tags)

    def end(self) -> None:
        with self.lock:
            self.ended = True


_thread_trial: ContextVar[MlflowTrial | None] = ContextVar("automl_trial", default=None)
_running_trials: list[MlflowTrial] = []
_shown_remarks: set[str] = set()
_waiting_remarks: list[str] = []
"""Remarks from a time when no trial ran: a module may be loaded only to be looked at."""
_lock = threading.Lock()  # guards the three variables above


@contextmanager
def register_trial_of_thread(side: LoggingTrial) -> Iterator[MlflowTrial]:
    """Register a trial as the one of this thread, for the block."""
    trial = MlflowTrial(side, TrialRuns(side.params))
    token = _thread_trial.set(trial)
    _add_trial(trial)
    try:
        yield trial
    finally:
        trial.end()
        with _lock:
            _running_trials.remove(trial)
        _thread_trial.reset(token)


def join_trial(side: LoggingTrial) -> MlflowTrial:
    """Register a trial that another process carries out, for the rest of this process's life."""
    trial = MlflowTrial(side, TrialRuns(side.params))
    _add_trial(trial)
    return trial


def _add_trial(trial: MlflowTrial) -> None:
    with _lock:
        _running_trials.append(trial)
        waiting = _waiting_remarks[:]
        _waiting_remarks.clear()
    for text in waiting:
        _show_remark(text)


def current_trial() -> MlflowTrial:
    """Return the trial of this thread, else the process's only one. Raise NoTrialError."""
    trials = _trials_of_process()
    own = _thread_trial.get()
    if own in trials:
        return own
    if len(trials) == 1:
        return trials[0]
    if trials:
        raise NoTrialError(
            "several trials run in this process, and this thread was started by one of them: "
            "begin the run in the trial's own thread, and give its run_id, or use "
            "execution=workers."
        )
    raise NoTrialError(
        "no trial runs in this process: log in the process that called the objective, or set "
        "MLFLOW_TRACKING_URI for this one."
    )


def has_trials() -> bool:
    """Return whether this process runs a trial or has joined one."""
    return bool(_trials_of_process())


def find_trial_of_run(run_id: str) -> tuple[MlflowTrial, LoggedRun]:
    """Return the trial that began this run, and the run. Raise NoTrialError if there is none."""
    for trial in _trials_of_process():
        # This takes no lock, as other trials may hold theirs for long.
        if (run := trial.runs.get(run_id)) is not None:
            return trial, run
    raise NoTrialError(f"Run '{run_id}' is none of a trial that runs in this process.")


def remark_once(text: str) -> None:
    """Show a remark to the user once: now if a trial runs, else when the next trial begins."""
    with _lock:
        if text in _shown_remarks:
            return
        _shown_remarks.add(text)
        if not _running_trials:
            _waiting_remarks.append(text)
            return
    _show_remark(text)


def _show_remark(text: str) -> None:
    logger.warning("MLflow inside the objective: %s.", text)


def _trials_of_process() -> list[MlflowTrial]:
    """Return the trials of this process; a process that was forked has none of its parent's."""
    with _lock:
        return [trial for trial in _running_trials if trial.pid == os.getpid()]
