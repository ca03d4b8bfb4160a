"""The trials that run in this process, for a store that MLflow makes by itself.

A call belongs to the trial of its run, else to the trial of its thread. A thread that the objective
started has none of its own: then it is the process's only one.
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
from automl.trial.library_redirect import LoggingTrial

logger = logging.getLogger(__name__)


class NoTrialError(LookupError):
    """Raised when nobody can tell which trial a call belongs to."""


@dataclass
class MlflowTrial:
    """A trial and the runs that its objective made so far."""

    side: LoggingTrial
    runs: TrialRuns
    lock: threading.RLock = field(default_factory=threading.RLock)
    """For whoever reads or changes its runs."""
    pid: int = field(default_factory=os.getpid)
    ended: bool = False

    def folder(self, run: LoggedRun) -> Path:
        """Where a run's artifacts go."""
        return self.side.folder / run.label

    def tell(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Tell the sweep, unless the trial has come to its end: nothing follows that.

        Raises NoTrialError then, and what `LoggingTrial.log` raises.
        """
        with self.lock:
            if self.ended:
                raise NoTrialError("the trial has ended")
            self.side.log(points, params, tags)

    def end(self) -> None:
        with self.lock:
            self.ended = True


_here: ContextVar[MlflowTrial | None] = ContextVar("automl_trial", default=None)
_all: list[MlflowTrial] = []
_said: set[str] = set()
_unsaid: list[str] = []
"""What was remarked while no trial ran: a module may be loaded only to be looked at."""
_lock = threading.Lock()  # guards the three above


@contextmanager
def run_trial_in_thread(side: LoggingTrial) -> Iterator[MlflowTrial]:
    """While a trial runs in this thread."""
    trial = MlflowTrial(side, TrialRuns(side.params))
    token = _here.set(trial)
    _begin(trial)
    try:
        yield trial
    finally:
        trial.end()
        with _lock:
            _all.remove(trial)
        _here.reset(token)


def join_trial(side: LoggingTrial) -> MlflowTrial:
    """A trial that another process carries out: this one is its, to its end."""
    trial = MlflowTrial(side, TrialRuns(side.params))
    _begin(trial)
    return trial


def _begin(trial: MlflowTrial) -> None:
    with _lock:
        _all.append(trial)
        unsaid = _unsaid[:]
        _unsaid.clear()
    for text in unsaid:
        _say(text)


def current_trial() -> MlflowTrial:
    """The trial of this thread, else the only one. Raises NoTrialError."""
    trials = _own()
    here = _here.get()
    if here in trials:
        return here
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
    """Whether a trial runs in this process, or was joined by it."""
    return bool(_own())


def find_trial_of_run(run_id: str) -> tuple[MlflowTrial, LoggedRun]:
    """The trial that began this run, and the run. Raises NoTrialError."""
    for trial in _own():
        if (run := trial.runs.get(run_id)) is not None:  # no lock: others' trials are busy
            return trial, run
    raise NoTrialError(f"Run '{run_id}' is none of a trial that runs in this process.")


def remark_once(text: str) -> None:
    """Say it to people, once, while a trial runs or when the next begins."""
    with _lock:
        if text in _said:
            return
        _said.add(text)
        if not _all:
            _unsaid.append(text)
            return
    _say(text)


def _say(text: str) -> None:
    logger.warning("MLflow inside the objective: %s.", text)


def _own() -> list[MlflowTrial]:
    """Those of this process: one that was forked from it has none."""
    with _lock:
        return [trial for trial in _all if trial.pid == os.getpid()]
