"""Trains a trial of each kind for a short time, as a sweep trains it, and says what was seen.

The trials run in worker processes that a sweep would use, as many at once as it would run, and are
ended when their time is up. Their files lie in a temporary folder. What follows from the times is
computed in `trial_forecast.py`.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from automl.config import StudyConfig
from automl.execution.child_calls import call_in_child
from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.record.study_files import LOGS_FOLDER
from automl.record.texts import fit_line
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.trial_forecast import TrialObservation
from automl.trial import (
    CPU_LABEL,
    LOCAL_HOST,
    DeviceShare,
    FailedOutcome,
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OutOfMemoryOutcome,
    Params,
    Placement,
    ProcessEntry,
    ProcessHosted,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)

_ON_HOST = Placement((DeviceShare(LOCAL_HOST, CPU_LABEL, 0),))
_LOOK_SECONDS = 0.1
"""Seconds between two looks for trials whose time is up."""
MAX_START_FRACTION = 0.5
"""The largest fraction of the time that goes to the start of the processes."""
_KILL_SECONDS = 0.5
"""Seconds that a trial gets to stop at a report before its process is ended."""


def _is_never_over(seconds_ago: float) -> bool:
    """Stand in for the time of a trial that has not begun."""
    return False


@dataclass(frozen=True)
class TimeableTrial:
    """A trial to be timed."""

    prepared: PreparedStudy
    """What trains it. Trials of the same one share worker processes."""
    params: Params


@dataclass
class _RunningTrial:
    """A trial that is being timed. One thread of the pool writes to it."""

    task: TimeableTrial
    began: float | None = None
    """Unix time at which a process took the trial."""
    is_over: Callable[[float], bool] = _is_never_over
    """Returns whether its time is up so many seconds ago."""
    reports: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    peaks: list[tuple[int, int]] = field(default_factory=list)
    """The most memory so far, with the number of reports up to then."""
    outcome: TrialOutcome | None = None

    @property
    def _study(self) -> StudyConfig:
        return self.task.prepared.config.study

    def on_events(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        for event in events:
            self._note(event)
        overdue = self.is_over(0.0)
        return {e.trial: Verdict.STOP for e in events if overdue and isinstance(e, MetricsReported)}

    def _note(self, event: TrialEvent) -> None:
        if isinstance(event, ProcessHosted):
            self.began = event.time
        elif isinstance(event, MetricsReported):
            self.reports.append(event.time)
            self.values.append(event.metrics.get(self._study.leading_metric, math.nan))
        elif isinstance(event, MemoryPeakMeasured):
            self.peaks.append((len(self.reports), event.peak_bytes))
        elif isinstance(event, TrialOutcome):
            self.outcome = event

    def observation(self) -> TrialObservation:
        """Return what was seen, after the end of the trial."""
        began = self.began or 0.0
        ended = self.outcome.time - began if isinstance(self.outcome, FinishedOutcome) else None
        failed = isinstance(self.outcome, FailedOutcome | OutOfMemoryOutcome)
        best = 0
        for n, value in enumerate(self.values):
            best = n if self._study.decided_direction.better(value, self.values[best]) else best
        return TrialObservation(
            reports=tuple(moment - began for moment in self.reports),
            n_to_best=best + 1 if self.values else 0,
            ended_seconds=ended,
            peaks=tuple(self.peaks),
            trouble=fit_line(self.outcome.cause, 200) if failed else None,  # type: ignore[union-attr]
        )


@dataclass(frozen=True)
class TimedTrials:
    """What was seen of the trials of some tasks."""

    observations: Mapping[str, TrialObservation]
    start_seconds: float
    """Time until the first worker processes were ready, and had trained a trial to its first
    report: the first trials of a sweep wait as long."""


def time_trials(tasks: Mapping[str, TimeableTrial], n_at_once: int, seconds: float) -> TimedTrials:
    """Train each task's trial on the CPU, and return what was seen of it.

    All together take about `seconds`. What one trial leaves of its share goes to those after it.
    """
    call_in_child(ProcessEntry("builtins:bool", None))  # answers once the fork server has loaded
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="automl-plan-", ignore_cleanup_errors=True)
        timing = _TrialTimer(tasks, n_at_once, Path(stack.enter_context(folder)), stack)
        timing.pool = stack.enter_context(ThreadPoolExecutor(n_at_once, "timing"))
        ends = time.monotonic() + seconds
        start_seconds = timing.warm_up(time.monotonic() + MAX_START_FRACTION * seconds)
        return TimedTrials(timing.run(ends), start_seconds)


class _TrialTimer:
    """Times the trials of some tasks."""

    pool: ThreadPoolExecutor

    def __init__(
        self, tasks: Mapping[str, TimeableTrial], n_at_once: int, folder: Path, stack: ExitStack
    ) -> None:
        """Open an executor for each study of the tasks; leaving `stack` closes them."""
        self._tasks, self._n_at_once, self._folder = tasks, n_at_once, folder
        self._numbers = itertools.count()
        self._running: dict[int, _RunningTrial] = {}
        """The trials that were begun, by number."""
        logs = folder / LOGS_FOLDER
        logs.mkdir()
        studies = {id(task.prepared): task.prepared for task in tasks.values()}
        self._executors = {
            key: stack.enter_context(
                closing(WorkersExecutor(prepared.entry, logs, WorkerLimits(n_at_once)))
            )
            for key, prepared in studies.items()
        }

    def warm_up(self, ends: float) -> float:
        """Start workers, and train in each to the first report, untimed: only later trials show
        the time of one. Return how long that took."""
        begun, first_task = time.monotonic(), next(iter(self._tasks.values()))
        trials = [_RunningTrial(first_task) for _ in range(self._n_at_once)]
        for trial in trials:
            trial.is_over = lambda ago, trial=trial: (  # type: ignore[misc]
                (ago == 0 and bool(trial.reports)) or time.monotonic() - ago >= ends
            )
        self._wait([self.pool.submit(self._train, trial) for trial in trials])
        return time.monotonic() - begun

    def run(self, ends: float) -> Mapping[str, TrialObservation]:
        """Train the trial of each task until it ends or its time is up (monotonic)."""
        clock = _SharedTime(len(self._tasks), self._n_at_once, ends)
        trials = {name: _RunningTrial(task) for name, task in self._tasks.items()}

        def train(trial: _RunningTrial) -> None:
            trial.is_over = clock.begin()
            try:
                self._train(trial)
            finally:
                clock.end()

        self._wait([self.pool.submit(train, trial) for trial in trials.values()])
        return {name: trial.observation() for name, trial in trials.items()}

    def _train(self, trial: _RunningTrial) -> None:
        """Train one trial until it ends or its time is up. In a thread of the pool."""
        task, number = trial.task, next(self._numbers)
        seed = task.prepared.config.study.seed
        spec = TrialSpec(number, task.params, str(self._folder / str(number)), seed)
        self._running[number] = trial
        executor = self._executors[id(task.prepared)]
        executor.execute(TrialFeed([spec], lambda _: None), _ON_HOST, trial.on_events)

    def _wait(self, futures: Iterable[Future[None]]) -> None:
        """Wait for trials, and end those whose time is up."""
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=_LOOK_SECONDS)
                for future in done:
                    future.result()
                self._end_overdue()
        except BaseException:
            for executor in self._executors.values():
                executor.kill("the timing was broken off")
            raise

    def _end_overdue(self) -> None:
        """End the processes of trials that do not stop at a report."""
        late = [
            number
            for number, trial in tuple(self._running.items())
            if trial.outcome is None and trial.is_over(_KILL_SECONDS)
        ]
        for executor in self._executors.values():
            if late:
                executor.end_trials(late, "its time for the plan is up")


class _SharedTime:
    """Shares the time for all trials among them. Any thread."""

    def __init__(self, n_trials: int, n_at_once: int, ends: float) -> None:
        self._n_left, self._n_waiting, self._n_at_once = n_trials, n_trials, n_at_once
        self._ends = ends
        self._lock = threading.Lock()

    def begin(self) -> Callable[[float], bool]:
        """Return whether the time of the trial that begins now is up, as a function: its share is,
        and another one waits; or all of the time is."""
        with self._lock:
            self._n_waiting -= 1
            now = time.monotonic()
            share = min(1.0, self._n_at_once / self._n_left)
            ends = now + share * max(0.0, self._ends - now)

        def is_over(seconds_ago: float) -> bool:
            moment = time.monotonic() - seconds_ago
            return moment >= self._ends or (moment >= ends and self._n_waiting > 0)

        return is_over

    def end(self) -> None:
        with self._lock:
            self._n_left -= 1
