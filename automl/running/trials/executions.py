"""The executions of a sweep, and their end: no trial outlives the sweep that began it.

When the `with` of `all_over` is left, by whatever, nothing runs any more: trials are told to stop
and given their grace, are killed, and waited for. What even then runs on, in a thread that cannot
be ended, is left behind: the study stays locked until the process ends, at once.

Ctrl-C, SIGTERM and a batch system's SIGUSR1 while a sweep runs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType

from automl.config import StudyConfig
from automl.errors import StorageError, TrialsLeftBehindError
from automl.execution.executor import TrialFeed
from automl.running.display.live_display import Display
from automl.running.finish.sweep_end import EXIT_CODES
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import LoopMessage, SignalReceived, StopReason
from automl.running.setup.parts import SweepParts
from automl.running.trials.carrier import TrialCarrier
from automl.trial import InterruptedOutcome, Placement, ResourceRequest, TrialSpec

JOIN_SECONDS = 30.0
"""How long threads may take to end after their workers were killed."""
LEAST_SECONDS, SHARE = 2.0, 0.05
"""Where a sweep's time is up, so long, or for such a share of it, its trials are waited for."""


class ExecutionPool:
    """What runs in the pool's threads. For the main thread alone."""

    def __init__(
        self,
        parts: SweepParts,
        loop: SweepLoop,
        carrier: TrialCarrier,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts, self._loop, self._carrier = parts, loop, carrier
        self._say, self._clock = say, clock
        self._study = parts.config.study
        self._pool = ThreadPoolExecutor(parts.n_threads, "trial")
        self._feeds: dict[int, TrialFeed] = {}
        """Of those that run, by key."""
        self._deadline: float | None = None
        """When what has been told to stop, or killed, is waited for no longer."""
        self._late = ""
        """What is said of who was told to stop and does not."""
        self._killed = False
        self._left_behind = False

    def start(
        self, key: int, specs: Sequence[TrialSpec], placement: Placement, request: ResourceRequest
    ) -> None:
        """Carry these trials in a thread of the pool."""
        feed = self._feeds[key] = self._carrier.open_feed(specs, placement)
        self._pool.submit(self._carrier.carry, key, feed, placement, request)

    def add(self, key: int, spec: TrialSpec) -> None:
        """Give a running pack another trial."""
        self._feeds[key].add(spec)

    def released(self, key: int) -> None:
        """The execution is over."""
        del self._feeds[key]

    @property
    def how_they_stop(self) -> str:
        """For people."""
        return f"running trials write a checkpoint and stop, within {self._study.grace_seconds:g} s"

    def stop(self) -> None:
        """Running trials stop at their next report; from the first call on their grace runs."""
        self._carrier.stopping.set()
        if self._deadline is None:
            timed_out = self._loop.stop is StopReason.TIMEOUT
            can_kill = self._parts.executor.can.own_process
            waits_seconds, self._late = grace_period(self._study, timed_out=timed_out and can_kill)
            self._deadline = self._clock() + waits_seconds
            if self._loop.error is not None and self._loop.running:  # what it was is told later
                self._say(f"broken off: {self.how_they_stop}")
        self._parts.executor.stop_trials()

    def hurry(self) -> None:
        """What was told to stop has no grace left; where nothing was, nothing happens."""
        if self._deadline is not None and not self._killed:
            self._deadline = self._clock()

    def overdue(self) -> bool:
        """Whether trials that were to stop still run though their time is up.

        After their grace they are killed. It is up at once where that cannot be, else later.
        """
        now = self._clock()
        if self._deadline is None or now < self._deadline:
            return False
        if not self._killed:
            self._killed, self._deadline = True, now + JOIN_SECONDS
            if not self._parts.executor.kill(self._late):
                self._deadline = now
        return now >= self._deadline

    @contextmanager
    def all_over(self, take_next: Callable[[], None]) -> Iterator[None]:
        """When the block is left, nothing runs or what runs is left behind. Raises nothing: an
        error is the loop's from then on. `take_next` waits for a message, shortly, and handles it.
        """
        with self._breaking_off():
            yield
        if self._feeds:
            with self._breaking_off():
                self.stop()
        while self._feeds and not self._left_behind:
            with self._breaking_off():
                if self.overdue():
                    self._leave_behind()
                else:
                    take_next()
        self._pool.shutdown(wait=not self._left_behind)

    def closed_by(self, finish: Callable[[], int]) -> int:
        """The exit code that `finish` returns. Raises what it raises; where trials were left behind
        TrialsLeftBehindError, with that as its cause."""
        if not self._left_behind:
            return finish()
        try:
            code = finish()
        except BaseException as error:
            raise TrialsLeftBehindError from error
        raise TrialsLeftBehindError(code)

    @contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """Trials never outlive the lock: whatever fails, they are still to be waited for."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised by `SweepFinisher`, when all has ended
            self._loop.break_off(error)

    def _leave_behind(self) -> None:
        """Threads cannot be ended: their trials are recorded as interrupted, and go on later."""
        self._left_behind = True
        self._parts.directory.stay_locked()
        cause = f"{self._late}; left behind"
        with suppress(StorageError):  # the next sweep takes them over all the same
            for number in self._loop.running:
                self._parts.log.append(InterruptedOutcome(number, time.time(), cause))


def grace_period(study: StudyConfig, *, timed_out: bool) -> tuple[float, str]:
    """How long trials that are told to stop are waited for, in seconds, and what is said of those
    that take longer.

    Where the sweep's time is up it is the user who waits, and nothing is lost but what was computed
    since their last report: no longer than a small part of that time.
    """
    seconds, of = study.grace_seconds, f"study.grace_seconds={study.grace_seconds:g}"
    if timed_out and study.timeout_seconds is not None:
        short = max(LEAST_SECONDS, SHARE * study.timeout_seconds)
        if short < seconds:
            seconds, of = short, f"{short:g} s of study.timeout_seconds={study.timeout_seconds:g}"
    return seconds, f"did not report within {of}"


NO_SIGNALS = "Ctrl-C and SIGTERM are not its business, and it ends with its trials"
REASONS = {
    signal.SIGINT: StopReason.INTERRUPTED,
    signal.SIGTERM: StopReason.TERMINATED,
    signal.SIGUSR1: StopReason.TERMINATED,
}
ECHO_SECONDS = 0.25
"""So soon after the first, a signal that no person types is the same one: `timeout` sends its own
to the program and then to the whole group."""


def in_main_thread() -> bool:
    """Whether signals can be heard here: Python tells them to the main thread alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def signals_as_messages(
    post: Callable[[LoopMessage], None],
    display: Display,
    how_they_stop: str,
    at_once: Callable[[], None] | None = None,
) -> Iterator[None]:
    """The first stops trials at their next report, the second calls `at_once`; without that it ends
    this process. For the main thread alone."""
    seen: list[int] = []
    first_at = 0.0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        now = time.monotonic()
        if seen and number != signal.SIGINT and now - first_at < ECHO_SECONDS:
            return
        first_at = first_at or now
        seen.append(number)
        if len(seen) > 1 and at_once is not None:
            at_once()
            return
        if len(seen) > 1:  # nothing is lost: what was recorded is on disk
            try:
                display.__exit__(None, None, None)
            finally:
                os._exit(EXIT_CODES[REASONS[signal.Signals(seen[0])]])
        post(SignalReceived(REASONS[signal.Signals(number)]))
        display.say(f"{signal.Signals(number).name}: {how_they_stop}; once more: at once")

    before = {number: signal.signal(number, on_signal) for number in REASONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
