"""Follows one execution in a worker, a trial or a pack of them, until every trial has an outcome.

A worker that dies, falls silent or takes too long is ended here, with its whole process group, and
each of its remaining trials gets the outcome that follows from that. All messages that the worker
sent before its end count: a trial whose outcome lay in the pipe has that outcome. The worker's
process itself is handled in `worker_process.py`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from automl.errors import StorageError
from automl.execution.trial_output import append_failure, read_last_lines
from automl.execution.worker_messages import (
    CarryOutTrial,
    CheckpointUnwritable,
    EventsForVerdict,
    NextTrialAsked,
    ObjectiveUnavailable,
    ToParent,
    WorkerIdle,
    WorkerReady,
    WorkerWarning,
)
from automl.execution.worker_process import WorkerLimits, WorkerProcess
from automl.record.study_files import trial_log_name
from automl.trial import (
    ExecutionFeed,
    FailedOutcome,
    InterruptedOutcome,
    OnEvents,
    OutOfMemoryOutcome,
    ParamQuestion,
    ParamsNotSuggested,
    Placement,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)

_LOOK_SECONDS = 0.1
"""Interval at which the pipe is polled, and deadlines are checked while messages come without a
pause. A worker rings for messages that cannot wait (`worker.WorkerOutbox`)."""
_N_TOGETHER = 200
"""Number of events in the pipe, roughly, that are passed on together: on a cluster each batch is a
call to another machine."""
_LEASE_ENDED = "nobody renewed its lease: the sweep was stopped, or its database away"
_OUTPUT_LINES = 20
"""Number of printed lines of a failed trial that go into its details."""


class ExecutionSupervisor:
    """Supervises one execution in one worker; `run` returns when the execution is over."""

    def __init__(
        self,
        worker: WorkerProcess,
        feed: ExecutionFeed,
        on_events: OnEvents,
        on_unjudged: OnEvents,
        limits: WorkerLimits,
        warn: Callable[[str], None],
    ) -> None:
        self.worker, self.key = worker, feed.key
        self._feed = feed
        self._on_events, self._on_unjudged = on_events, on_unjudged
        self._limits = limits
        self._warn = warn
        self._is_pack = feed.n_lanes > 1
        self._began: dict[int, float] = {}
        """Start (monotonic) of each trial without an outcome; infinity before it has begun."""
        self._heard = math.inf
        """When a trial last sent a message (monotonic); infinity before the first has begun."""
        self._next_message: ToParent | None = None
        """A message that was read already, to be handled next."""
        self._next_check = 0.0
        """When deadlines are checked next, whether or not messages come."""
        self._ending = threading.Lock()  # guards the field below, which is set once
        self._end_of: Callable[[int], TrialOutcome] | None = None
        """Returns a trial's outcome if its worker was ended on purpose; None if it was not."""
        self._output = Path()
        self._n_oom_kills = limits.n_oom_kills()
        """Count of the kernel's kills for lack of memory when the execution began."""
        self._device_failed = False
        """Whether a trial reported a failed device: its process can train nothing any more."""

    @property
    def live(self) -> tuple[int, ...]:
        """Numbers of the trials that run; any thread."""
        return tuple(self._began)

    def kill(self, cause: str) -> None:
        """End the trials now, as interrupted; any thread. An earlier reason to end them stays."""
        self._end(lambda number: InterruptedOutcome(number, time.time(), cause))

    def end(self, trials: Collection[int], cause: str) -> None:
        """End these trials now, as interrupted; others of their pack go on alone."""

        def end_of(number: int) -> InterruptedOutcome:
            if number in trials:
                return InterruptedOutcome(number, time.time(), cause)
            return self._dissolved(number, cause)

        self._end(end_of)

    def run(self, first: TrialSpec, placement: Placement, output: Path) -> None:
        """Run the feed's first trial, or a pack, until every trial has an outcome.

        Raises StorageError when a checkpoint cannot be written, and what `on_events` raises.
        """
        self._output = output
        self._began[first.number] = math.inf
        self.worker.begin(CarryOutTrial(first, placement, str(output), self._feed.n_lanes))
        while self._act_on(self._receive()):
            pass
        assert not self._began, f"trials {self.live} have no outcome"
        with suppress(FileNotFoundError):
            if output.stat().st_size == 0:  # most trials print nothing
                output.unlink()

    def _act_on(self, message: ToParent | None) -> bool:
        """Act on the worker's message (None: it died); return whether more messages are to come."""
        match message:
            case None:
                self._all_died()
            case WorkerIdle(is_reusable=is_reusable):
                self.worker.is_reusable = is_reusable
                self.worker.idle = self._end_of is None and not self._device_failed
            case ObjectiveUnavailable(cause=cause, details=details):
                self._all_failed(cause, details)
            case WorkerReady():
                self._heard = time.monotonic()
                self._began = dict.fromkeys(self._began, self._heard)
                return True
            case WorkerWarning(text=text):
                self._warn(text)
                return True
            case CheckpointUnwritable(message=text):
                raise StorageError(text)
            case NextTrialAsked():
                self._feed_next()
                return True
            case ParamQuestion() | ParamsNotSuggested() as question:
                self.worker.reply(self._feed.answer(question))
                return True
            case EventsForVerdict(events=events):
                self.worker.answer(self._pass_on(self._corrected(events)), waits=True)
                return True
            case events:
                verdicts = self._pass_on(self._corrected(events), self._on_unjudged)
                self.worker.answer(verdicts, waits=False)
                return True
        return False

    def _receive(self) -> ToParent | None:
        """Return the next message, joining events that lie one behind the other in the pipe.

        Returns None when the worker has ended and its pipe is read to the end.
        """
        message, self._next_message = self._next_message or self._read(), None
        while isinstance(message, Sequence) and len(message) < _N_TOGETHER:
            if not self.worker.pipe.poll():
                break
            second = self._read()
            if isinstance(second, EventsForVerdict):
                return EventsForVerdict([*message, *second.events])
            if not isinstance(second, Sequence):  # at the pipe's end None is read again
                self._next_message = second
                break
            message = [*message, *second]
        return message

    def _read(self) -> ToParent | None:
        if time.monotonic() >= self._next_check:
            self._end_overdue()
        has_ended = False
        while not self.worker.pipe.poll():
            if has_ended:
                return None
            self._end_overdue()
            has_ended = self.worker.wait(self._wait_seconds())
        try:
            message: ToParent = self.worker.pipe.recv()
        except (EOFError, OSError):
            return None
        if self._heard < math.inf and not isinstance(message, WorkerWarning):
            self._heard = time.monotonic()
        return message

    def _feed_next(self) -> None:
        spec = self._feed.next() if self._end_of is None else None
        if spec is not None:
            self._began[spec.number] = time.monotonic()
        self.worker.feed(spec)

    def _pass_on(
        self, events: Sequence[TrialEvent], on_events: OnEvents | None = None
    ) -> Mapping[int, Verdict]:
        events = [self._with_output(e) if isinstance(e, FailedOutcome) else e for e in events]
        for event in events:
            if isinstance(event, TrialOutcome):
                del self._began[event.trial]
            if isinstance(event, InterruptedOutcome) and event.by_worker_death and not event.killed:
                self._device_failed = True
        verdicts = (on_events or self._on_events)(events)
        if not self._began:  # the worker's time to become idle begins
            self._heard = time.monotonic()
        return verdicts

    # --- ends that the worker did not report ---

    def _all_died(self) -> None:
        if not self._began:
            if self._end_of is None and not self.worker.numbers.counters.lease_has_ended:
                self._warn(
                    f"worker {self.worker.pid} ended after its last trial: {self._how_it_died()}; "
                    "the next trial gets another"
                )
            return
        if self._end_of is not None:
            self._pass_on([self._end_of(number) for number in self.live])
            return
        self._pass_on([self._died(number) for number in self.live])

    def _corrected(self, events: Sequence[TrialEvent]) -> Sequence[TrialEvent]:
        """Return a worker's events, with what only this process knows.

        A program of a trial that was killed ran out of memory if the kernel killed it.
        """
        return [
            OutOfMemoryOutcome(
                e.trial, e.time, f"{e.cause}; the kernel killed for lack of main memory"
            )
            if isinstance(e, InterruptedOutcome) and e.killed and self._kernel_killed()
            else e
            for e in events
        ]

    def _died(self, number: int) -> TrialOutcome:
        cause, now = self._how_it_died(), time.time()
        if self.worker.numbers.counters.lease_has_ended:
            return InterruptedOutcome(number, now, _LEASE_ENDED, lease_ended=True)
        if self._is_pack:
            return self._dissolved(number, cause)
        if self._was_killed_for_memory():
            return OutOfMemoryOutcome(number, now, cause)
        return InterruptedOutcome(number, now, cause, by_worker_death=True)

    def _was_killed_for_memory(self) -> bool:
        """Return whether the kernel killed the worker for lack of memory.

        The kernel's count has to confirm it, since anybody may send a SIGKILL.
        """
        return self._kernel_killed() and self.worker.how_it_died() == "SIGKILL"

    def _kernel_killed(self) -> bool:
        """Return whether the kernel killed any process for lack of memory since the start."""
        before, after = self._n_oom_kills, self._limits.n_oom_kills()
        return before is not None and after is not None and after > before

    def _how_it_died(self) -> str:
        cause = f"its process died: {self.worker.how_it_died()}"
        if self._was_killed_for_memory():
            cause += " by the kernel, for lack of main memory"
        line = read_last_lines(self._output, 1)
        return f"{cause}; last output: {line}" if line else cause

    def _dissolved(self, number: int, cause: str) -> InterruptedOutcome:
        return InterruptedOutcome(
            number, time.time(), f"its pack broke: {cause}", pack_dissolved=True
        )

    def _all_failed(self, cause: str, details: str) -> None:
        now = time.time()
        self._pass_on([FailedOutcome(n, now, cause, details, hopeless=True) for n in self.live])

    def _failed(self, number: int, cause: str) -> FailedOutcome:
        if line := read_last_lines(self._output, 1):
            cause += f"; last output: {line}"
        return FailedOutcome(number, time.time(), cause)

    def _with_output(self, failed: FailedOutcome) -> FailedOutcome:
        lines = read_last_lines(self._output, _OUTPUT_LINES)
        append_failure(self._output.parent / trial_log_name(failed.trial), failed)
        if not lines or self._is_pack:  # a pack's output cannot be told apart by trial
            return failed
        return replace(failed, details=f"{failed.details}\nlast output:\n{lines}".lstrip())

    # --- time-outs ---

    def _end(self, end_of: Callable[[int], TrialOutcome]) -> None:
        with self._ending:
            self._end_of = self._end_of or end_of  # the first reason stays
        self.worker.kill()

    def _end_overdue(self) -> None:
        """End the worker where a trial's time is up, or its own time after the last trial."""
        now = time.monotonic()
        self._next_check = now + _LOOK_SECONDS
        overdue = {number: cause for at, number, cause in self._deadlines() if now >= at}
        if overdue:
            self._end(lambda number: self._overdue_outcome(number, overdue))
        if None in overdue:
            self._warn(f"worker {self.worker.pid} {overdue[None]}; the next trial gets another")

    def _overdue_outcome(self, number: int, overdue: Mapping[int | None, str]) -> TrialOutcome:
        """Return a failure for a trial whose time is up; others of its pack go on alone."""
        if number in overdue:
            return self._failed(number, overdue[number])
        late_trial, cause = next(iter(overdue.items()))
        return self._dissolved(number, f"trial {late_trial} {cause}")

    def _deadlines(self) -> Iterator[tuple[float, int | None, str]]:
        """Yield each deadline, its trial, and the cause to report when it has passed.

        The trial is None for the deadline of a worker that has no trial left.
        """
        if self._end_of is not None:
            return
        if not self._began:
            patience = self._limits.idle_patience_seconds
            cause = f"did not become idle within {patience:g} s after its last trial: killed"
            yield self._heard + patience, None, cause
        if (limit := self._limits.trial_timeout_seconds) is not None:
            cause = f"exceeded execution.trial_timeout_seconds={limit:g}"
            yield from ((began + limit, n, cause) for n, began in self._began.items())
        if (limit := self._limits.silence_timeout_seconds) is not None:
            cause = f"reported nothing for execution.silence_timeout_seconds={limit:g}"
            yield from ((self._heard + limit, n, cause) for n in self._began)

    def _wait_seconds(self) -> float:
        """Return the seconds until the pipe is polled next, or until the next deadline."""
        deadlines = [at - time.monotonic() for at, _, _ in self._deadlines() if at < math.inf]
        return max(0.0, min(_LOOK_SECONDS, *deadlines)) if deadlines else _LOOK_SECONDS
