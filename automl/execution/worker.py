"""Runs in the worker process, which trains: it takes trials over a pipe, and sends their events.

A worker belongs to its devices for life: `CUDA_VISIBLE_DEVICES` is set before anything asks CUDA.
Events need no answer; the verdict on a report is read at the next report at the latest. The
parent's side is `worker_process.py`, and `supervision.py` decides when a worker is ended.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from automl.errors import StorageError
from automl.execution.executor import open_session
from automl.execution.process_tree import die_with_parent, kill_own_group, mark_programs
from automl.execution.trial_isolation import WorkerIsolation
from automl.execution.trial_output import (
    StandardStreams,
    begin_worker_life,
    end_process_with_error,
    end_worker_life,
    flush_stream,
)
from automl.execution.worker_messages import (
    CarryOutTrial,
    CheckpointUnwritable,
    EventsForVerdict,
    JudgedReports,
    NextTrialAsked,
    NextTrialFed,
    ObjectiveUnavailable,
    SharedNumbers,
    ToParent,
    ToWorker,
    VerdictsAnswered,
    WorkerCounters,
    WorkerIdle,
    WorkerReady,
    WorkerSetup,
    WorkerWarning,
)
from automl.record.stop_signals import ignore_stop_signals
from automl.record.texts import fit_line, fit_text
from automl.trial import (
    MetricsReported,
    ObjectiveSession,
    ParamAnswer,
    ParamRefusal,
    Question,
    Reply,
    StillRunning,
    SweepStopping,
    TrialEvent,
    TrialSpec,
    TrialTagged,
    ValuesLogged,
    Verdict,
    single_event_handler,
)

_POLL_SECONDS = 0.001  # `Connection.poll` counts in milliseconds
_GATHER_SECONDS = 0.02
_UPDATE_SECONDS = 0.1
"""Pause between two updates of the shared numbers."""
_LEASE_CHECK_SECONDS = 1.0
_PATIENCE = 0.05
"""Fraction of the time between two reports that a trial waits for the verdict on a report."""
_VERDICT_SECONDS = 10.0
"""A trial that asks for its verdict goes on after that time, whatever delays the parent."""


def main(setup: WorkerSetup, pipe: Connection, bell: Connection) -> None:
    """Run the worker in the child process; end the process at once if it fails."""
    die_with_parent()
    mark_programs()
    begin_worker_life()
    ignore_stop_signals()
    try:
        _serve(setup, pipe, bell)
    except BaseException:  # noqa: BLE001 - whatever it was, this process cannot go on
        end_process_with_error()
    end_worker_life()


def _serve(setup: WorkerSetup, pipe: Connection, bell: Connection) -> None:
    """Carry out work until the parent ends it, or no trial can run here any more."""
    gpus = [device.uuid for device in setup.devices if not device.on_host]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # none for trials placed on the host
    threading.Thread(target=_end_with_lease, args=(setup.numbers,), daemon=True).start()
    del sys.argv[1:]  # an objective that parses arguments would take the sweep's for its own
    outbox = WorkerOutbox(pipe, bell)
    logging.getLogger("automl").addHandler(_WorkerWarningHandler(outbox))
    reporter = WorkerReporter(pipe, outbox, setup.numbers.counters, setup.judging)
    streams = StandardStreams()
    session: ObjectiveSession | None = None
    isolation: WorkerIsolation | None = None
    while (work := reporter.next_work()) is not None:
        streams.print_to(work.output_path)
        if session is None or isolation is None:
            try:
                session = open_session(setup.entry)
            except BaseException as error:  # noqa: BLE001 - whatever it was, the parent learns it
                cause = fit_line(f"{type(error).__name__}: {error}")
                outbox.ring(ObjectiveUnavailable(cause, fit_text(traceback.format_exc())))
                return
            streams.keep()
            _update_numbers_in_thread(session, setup.numbers, outbox)
            isolation = WorkerIsolation()  # changes by the user's module itself stay
            session.keep_apart(isolation)
        outbox.put(WorkerReady())
        session.cap_memory([*setup.numbers.caps_bytes])
        try:
            if work.n_lanes == 1:
                session.run(work.spec, work.placement, single_event_handler(reporter), reporter)
            else:
                session.run_pack(reporter, work.placement, reporter)
        except StorageError as error:
            outbox.ring(CheckpointUnwritable(str(error)))
            return
        session.give_back_memory()
        setup.numbers.write_held(session.held_bytes())
        outbox.ring(WorkerIdle(isolation.process_is_reusable))


class WorkerOutbox:
    """Sends messages to the parent, in order, from any thread.

    A message costs the trial a system call, and waking the parent costs more. Therefore reports
    that are not judged, and logged values, are gathered for 20 ms, and the parent is woken only by
    a message that cannot wait. It takes the other messages from the pipe then, or ten times a
    second by itself. Messages in the pipe outlive this process; gathered reports do not, and are
    made again when the trial goes on from its checkpoint.
    """

    def __init__(self, pipe: Connection, bell: Connection) -> None:
        self._pipe, self._bell = pipe, bell
        self._lock = threading.Lock()
        self._gathered: list[TrialEvent] = []
        self._sent_seconds = time.monotonic()

    def gather(self, events: Sequence[TrialEvent]) -> None:
        """Gather events on which no verdict is expected, and send them now and then."""
        with self._lock:
            self._gathered += events
            if time.monotonic() - self._sent_seconds >= _GATHER_SECONDS:
                self._send()

    def flush(self) -> None:
        """Send the gathered events now."""
        with self._lock:
            self._send()

    def put(self, message: ToParent) -> None:
        """Send a message for which the parent need not be woken."""
        with self._lock:
            self._send(message)

    def ring(self, message: ToParent) -> None:
        """Send a message that cannot wait."""
        self.put(message)
        os.write(self._bell.fileno(), b"!")

    def _send(self, *messages: ToParent) -> None:
        gathered, self._gathered = self._gathered, []
        for message in [gathered, *messages] if gathered else messages:
            self._pipe.send(message)
        self._sent_seconds = time.monotonic()


class _WorkerWarningHandler(logging.Handler):
    """Sends the package's warnings to the sweep, which shows each once, not in a trial's output."""

    def __init__(self, outbox: WorkerOutbox) -> None:
        super().__init__(logging.WARNING)
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        self._outbox.put(WorkerWarning(fit_line(record.getMessage())))


def _update_numbers_in_thread(
    session: ObjectiveSession, numbers: SharedNumbers, outbox: WorkerOutbox
) -> None:
    """Start a thread that exchanges numbers with the parent until the process ends.

    It writes the memory held and the steps taken, sends the gathered reports, and passes the
    memory caps to the session.
    """

    def update() -> None:
        never = threading.Event()
        with suppress(OSError):  # the parent has ended, and so will this process
            while not never.wait(_UPDATE_SECONDS):
                session.cap_memory([*numbers.caps_bytes])
                numbers.write_held(session.held_bytes())
                numbers.counters.n_steps = session.n_steps
                numbers.counters.programs_bytes = session.programs_bytes
                outbox.flush()

    threading.Thread(target=update, name="telling", daemon=True).start()


def _end_with_lease(numbers: SharedNumbers) -> None:
    """Wait until the lease is over, then kill this process and its children.

    The supervisor of this process is then cut off or stopped, and the trial may go on elsewhere.
    This needs a thread of its own, since the other threads may wait at a full pipe by then.
    """
    while not numbers.lease_is_over:
        time.sleep(_LEASE_CHECK_SECONDS)
    numbers.counters.lease_has_ended = True
    kill_own_group()


class WorkerReporter:
    """The worker's end of the pipe, which takes work, sends events and receives verdicts.

    It feeds a pack its trials: the one that the pack begins with, then the parent's (an
    `automl.trial.TrialSource`).

    A trial waits for the verdict on a judged report no longer than a wasted epoch is worth: a
    fraction of the time since the last report, and not at all where that is less than a millisecond
    (`poll` counts in milliseconds, and an answer takes about one). A trial of long epochs is
    therefore pruned at once, a trial of short epochs at its next report; never later, because no
    report is sent before the last judged one was answered. On any other report the verdict can only
    be that the sweep stops, and the trial does not wait. An objective that asks for its verdict
    waits (`verdict`).

    Any thread of the trial may call; a lock admits one at a time, since each would otherwise take
    answers that another thread waits for.
    """

    def __init__(
        self,
        pipe: Connection,
        outbox: WorkerOutbox,
        counters: WorkerCounters,
        judging: JudgedReports | None,
    ) -> None:
        self._pipe, self._outbox, self._counters = pipe, outbox, counters
        self._judging = judging
        self._lock = threading.RLock()  # a signal handler may report while its thread does
        self.n_lanes = 1
        self._first: TrialSpec | None = None
        """The trial that a pack begins with, until it is taken."""
        self._last_steps: dict[int, int] = {}
        """Last reported step of each trial, as the study's record has it."""
        self._n_taken = 0
        self._n_for_verdict = 0
        self._reported_seconds = time.monotonic()
        self._verdicts: dict[int, Verdict] = {}

    def next_work(self) -> CarryOutTrial | None:
        """Wait for work, and return it; None: the worker is to end.

        Other messages that arrive meanwhile concern trials that have ended, and are dropped.
        """
        while not isinstance(message := self._receive(), CarryOutTrial | None):
            pass
        self._verdicts, self._last_steps = {}, {}
        if message is not None:
            self._first, self.n_lanes = message.spec, message.n_lanes
        return message

    def __call__(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        reports = [event for event in events if isinstance(event, MetricsReported)]
        with self._lock:
            if reports:
                self._report(events, reports)
            elif isinstance(events[0], ValuesLogged | TrialTagged):
                self._outbox.gather(events)
            elif not isinstance(events[0], StillRunning):
                flush_stream(sys.stdout)  # the parent reads the output once it knows the outcome
                flush_stream(sys.stderr)
                self._outbox.put(events)
            self._take_sent()
            return self._verdicts

    def next(self) -> TrialSpec | None:
        """Return a pack's first trial, then ask the parent for another; None if none is left."""
        with self._lock:
            first, self._first = self._first, None
            if first is not None:
                return first
            self._outbox.ring(NextTrialAsked())
            while not isinstance(message := self._receive(), NextTrialFed):
                pass
            if message.spec is not None:  # a verdict is of its earlier start, before it paused
                self._verdicts.pop(message.spec.number, None)
            return message.spec

    def ask(self, question: Question) -> Reply:
        """Return the parent's reply; the parent takes earlier reports before the question."""
        with self._lock:
            self._outbox.ring(question)
            while not isinstance(
                message := self._receive(), ParamAnswer | ParamRefusal | SweepStopping
            ):
                pass
            return message

    def verdict(self, trial: int) -> Verdict:
        """Return the trial's verdict once its reports are answered, after 10 seconds at most.

        Where no report waits for an answer it costs two reads of shared memory.
        """
        deadline = time.monotonic() + _VERDICT_SECONDS
        with self._lock:
            while self._waits() and time.monotonic() < deadline:
                self._take_within(_POLL_SECONDS)
            self._take_sent()
            return self._verdicts.get(trial, Verdict.GO_ON)

    def _report(self, events: Sequence[TrialEvent], reports: Sequence[MetricsReported]) -> None:
        while self._waits():
            self._take_within(_POLL_SECONDS)
        before, self._reported_seconds = self._reported_seconds, time.monotonic()
        # A list, since `_is_judged` has to note the step of every report.
        if not [report for report in reports if self._is_judged(report)]:
            self._outbox.gather(events)
            return
        self._outbox.ring(EventsForVerdict(events))
        self._n_for_verdict += 1
        deadline = self._reported_seconds + _PATIENCE * (self._reported_seconds - before)
        while self._waits() and (left := deadline - time.monotonic()) >= _POLL_SECONDS:
            self._take_within(min(left, _POLL_SECONDS))

    def _is_judged(self, report: MetricsReported) -> bool:
        if self._judging is None or self._judging.metric not in report.metrics:
            return False
        last_step = self._last_steps.get(report.trial, -1)
        self._last_steps[report.trial] = max(last_step, report.step)
        return bool(self._judging.rungs(last_step, report.step))

    def _waits(self) -> bool:
        return self._counters.n_answered < self._n_for_verdict

    def _take_sent(self) -> None:
        while self._n_taken < self._counters.n_sent:
            self._take()

    def _take_within(self, seconds: float) -> None:
        if self._pipe.poll(seconds):
            self._take()

    def _take(self) -> None:
        answer = self._receive()
        assert isinstance(answer, VerdictsAnswered), f"{answer} came while a trial runs"

    def _receive(self) -> ToWorker:
        message: ToWorker = self._pipe.recv()
        self._n_taken += 1
        if isinstance(message, VerdictsAnswered):
            self._verdicts |= message.verdicts
        return message
