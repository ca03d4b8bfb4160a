"""Runs the executions of a sweep and ends them: no trial outlives the sweep that began it.

When the `with` of `all_over` is left for whatever reason, nothing runs any more: trials are asked
to stop and given their grace, are killed, and waited for. A trial that still runs, in a thread that
cannot be ended, is left behind: the study stays locked until the process ends, which is at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from automl.config import StudyConfig
from automl.errors import StorageError, TrialsLeftBehindError
from automl.execution.executor import TrialFeed
from automl.record.study_directory import StudyDirectory
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import StopReason
from automl.running.trials.carrier import TrialCarrier
from automl.terminal.live_display import Display
from automl.trial import InterruptedOutcome, Placement, ResourceRequest, TrialSpec

JOIN_SECONDS = 30.0
"""How long threads may take to end after their workers were killed."""
MIN_GRACE_SECONDS, GRACE_FRACTION = 2.0, 0.05
"""After `study.timeout_seconds`, running trials get `MIN_GRACE_SECONDS`, or this fraction of the
time-out if that is longer, to finish."""


class ExecutionPool:
    """Runs the executions of a sweep in the pool's threads. For the main thread only."""

    def __init__(
        self,
        carrier: TrialCarrier,
        directory: StudyDirectory,
        *,
        study: StudyConfig,
        n_threads: int,
        display: Display,
        loop: SweepLoop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the pool, with up to `n_threads` threads that carry trials. The loop is told of
        an error, and knows the trials that have not ended."""
        self._carrier, self._directory, self._study = carrier, directory, study
        self._display, self._loop, self._clock = display, loop, clock
        self._pool = ThreadPoolExecutor(n_threads, "trial")
        self._feeds: dict[int, TrialFeed] = {}
        """The feeds of running executions, by key."""
        self._deadline: float | None = None
        """When waiting ends for trials that were told to stop, or killed."""
        self._late = ""
        """Message about trials that were told to stop and do not."""
        self._killed = False
        self._left_behind = False

    def start(
        self, key: int, specs: Sequence[TrialSpec], placement: Placement, request: ResourceRequest
    ) -> None:
        """Carry these trials in a thread of the pool."""
        feed = self._feeds[key] = self._carrier.open_feed(key, specs, placement)
        self._pool.submit(self._carrier.carry, key, feed, placement, request)

    def add(self, key: int, spec: TrialSpec) -> None:
        """Give a running pack another trial."""
        self._feeds[key].add(spec)

    def released(self, key: int) -> None:
        """Forget an execution that is over."""
        del self._feeds[key]

    @property
    def how_they_stop(self) -> str:
        """How running trials stop, in words for people."""
        return f"running trials write a checkpoint and stop, within {self._study.grace_seconds:g} s"

    def stop(self, reason: StopReason) -> None:
        """Ask running trials to stop at their next report. The first call begins their grace."""
        self._carrier.stopping.set()
        if self._deadline is None:
            timed_out = reason is StopReason.TIMEOUT
            can_kill = self._carrier.executor.can.own_process
            waits_seconds, self._late = grace_period(self._study, timed_out=timed_out and can_kill)
            self._deadline = self._clock() + waits_seconds
            if reason is StopReason.BROKEN and self._loop.running:  # the error is shown later
                self._display.say(f"broken off: {self.how_they_stop}")
        self._carrier.executor.stop_trials()

    def hurry(self) -> None:
        """End the grace of trials that were told to stop. Does nothing if none were."""
        if self._deadline is not None and not self._killed:
            self._deadline = self._clock()

    def overdue(self) -> bool:
        """Return whether trials that were to stop still run though their time is up.

        After their grace they are killed. If that is impossible their time is up at once, otherwise
        after `JOIN_SECONDS`.
        """
        now = self._clock()
        if self._deadline is None or now < self._deadline:
            return False
        if not self._killed:
            self._killed, self._deadline = True, now + JOIN_SECONDS
            if not self._carrier.executor.kill(self._late):
                self._deadline = now
        return now >= self._deadline

    @contextmanager
    def all_over(self, take_next: Callable[[], None]) -> Iterator[None]:
        """Wait, when the block is left, until nothing runs, or leave behind what still does.

        Raises nothing: an error is the loop's from then on. `take_next` waits shortly for a message
        and handles it.
        """
        with self._breaking_off():
            yield
        if self._feeds:
            with self._breaking_off():
                self.stop(StopReason.BROKEN)
        while self._feeds and not self._left_behind:
            with self._breaking_off():
                if self.overdue():
                    self._leave_behind()
                else:
                    take_next()
        self._pool.shutdown(wait=not self._left_behind)

    def closed_by(self, finish: Callable[[], int]) -> int:
        """Return the exit code that `finish` returns. Raises its errors.

        If trials were left behind, raises TrialsLeftBehindError, with such an error as its cause.
        """
        if not self._left_behind:
            return finish()
        try:
            code = finish()
        except BaseException as error:
            raise TrialsLeftBehindError from error
        raise TrialsLeftBehindError(code)

    @contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """Break the loop off at an error, and go on waiting for trials: they must never outlive the
        lock."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised by `SweepFinisher`, when all has ended
            self._loop.break_off(error)

    def _leave_behind(self) -> None:
        """Record the trials of threads that cannot be ended as interrupted. They go on later."""
        self._left_behind = True
        self._directory.stay_locked()
        cause = f"{self._late}; left behind"
        with suppress(StorageError):  # the next sweep takes them over all the same
            for number in self._loop.running:
                self._carrier.log.append(InterruptedOutcome(number, time.time(), cause))


def grace_period(study: StudyConfig, *, timed_out: bool) -> tuple[float, str]:
    """Return how many seconds trials that are told to stop are waited for, and the message about
    later ones.

    When the sweep's time is up, the user is waiting, and only the computation since a trial's last
    report can be lost. The wait is then at most a small part of the time-out.
    """
    seconds, limit = study.grace_seconds, f"study.grace_seconds={study.grace_seconds:g}"
    if timed_out and study.timeout_seconds is not None:
        short = max(MIN_GRACE_SECONDS, GRACE_FRACTION * study.timeout_seconds)
        if short < seconds:
            seconds, limit = (
                short,
                f"{short:g} s of study.timeout_seconds={study.timeout_seconds:g}",
            )
    return seconds, f"did not report within {limit}"
