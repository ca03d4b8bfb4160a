"""The process that trains: takes trials over a pipe, sends their events back, until told to end.

Belongs to one device for life: `CUDA_VISIBLE_DEVICES` is set before anything asks CUDA. Events go
one way; the verdict on a report is seen at the next one at the latest.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from automl.errors import StorageError
from automl.execution.executor import open_session
from automl.execution.lifeline import die_with_parent
from automl.execution.protocol import (
    Answer,
    Begun,
    CannotOpen,
    CannotStore,
    Fed,
    Idle,
    Next,
    Said,
    ToWorker,
    Work,
    WorkerSetup,
)
from automl.execution.slots import OwnSlot
from automl.trial import HOST_UUID, Reported, Session, TrialEvent, TrialSpec, Verdict

_POLL_SECONDS = 0.001  # what `poll` counts in
# Shares of the time between two reports. Where trials are pruned, a wasted epoch is dearer than
# some waiting; else the verdict can only be that the sweep stops.
_PATIENCE_PRUNING, _PATIENCE = 0.05, 0.01


def main(setup: WorkerSetup, pipe: Connection) -> None:
    """Run in the child process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's business
    if setup.device_uuid != HOST_UUID:
        os.environ["CUDA_VISIBLE_DEVICES"] = setup.device_uuid
    logging.getLogger("automl").addHandler(_ToParent(pipe))
    slot = OwnSlot(setup.slots_path, setup.slot)
    reporter = Reporter(pipe, slot, prunes=setup.prunes)
    session: Session | None = None
    while (work := reporter.next_work()) is not None:
        _print_to(work.output_path)
        if session is None:
            try:
                session = open_session(setup.entry)
            except BaseException as error:  # noqa: BLE001 - whatever it was, the parent is told
                pipe.send(CannotOpen(f"{type(error).__name__}: {error}", traceback.format_exc()))
                return
            slot.keep_writing(session.held_bytes)
        pipe.send(Begun())
        try:
            _carry_out(session, work, reporter)
        except StorageError as error:
            pipe.send(CannotStore(str(error)))
            return
        session.give_back_memory()
        slot.write()
        pipe.send(Idle())


class _ToParent(logging.Handler):
    """What the package warns of is said by the sweep, once, not in each worker's own output."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(Said(record.getMessage()))


def _carry_out(session: Session, work: Work, reporter: Reporter) -> None:
    if work.n_lanes == 1:
        session.run(work.spec, work.placement, reporter.one)
    else:
        session.run_pack(PipeFeed(work, reporter), work.placement, reporter)


class Reporter:
    """The worker's end of the pipe: takes work, sends events, learns of verdicts.

    The verdict on a report is waited for no longer than it is worth: a share of the time since the
    last report, and not at all where that is less than a millisecond (`poll` counts in those, and
    an answer takes about one). So a trial of long epochs is pruned at once, one of short epochs at
    its next report. Never later, because a report is sent only when the one before was answered.
    """

    def __init__(self, pipe: Connection, slot: OwnSlot, *, prunes: bool) -> None:
        self._pipe, self._slot = pipe, slot
        self._patience = _PATIENCE_PRUNING if prunes else _PATIENCE
        self._n_sent = 0
        self._n_answers = 0
        """Answers that came by the pipe; the others are counted in the slot."""
        self._n_calls = 0
        self._sent_seconds = time.monotonic()
        self._verdicts: dict[int, Verdict] = {}

    def next_work(self) -> Work | None:
        """Wait for work. What else comes now is about trials that have ended."""
        while not isinstance(message := self._receive(), Work | None):
            pass
        self._verdicts = {}
        return message

    def __call__(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if not any(isinstance(event, Reported) for event in events):
            self._pipe.send(events)
            return self._verdicts
        while self._waits():
            self._take_within(_POLL_SECONDS)
        before, self._sent_seconds = self._sent_seconds, time.monotonic()
        self._pipe.send(events)
        self._n_sent += 1
        ends = self._sent_seconds + self._patience * (self._sent_seconds - before)
        while self._waits() and (left := ends - time.monotonic()) >= _POLL_SECONDS:
            self._take_within(min(left, _POLL_SECONDS))
        return self._verdicts

    def one(self, event: TrialEvent) -> Verdict:
        """For a trial that trains alone."""
        return self([event]).get(event.trial, Verdict.GO_ON)

    def next(self) -> TrialSpec | None:
        """Ask for another trial."""
        self._pipe.send(Next())
        while not isinstance(message := self._receive(), Fed):
            pass
        return message.spec

    def _waits(self) -> bool:
        """Whether a report has no answer yet, or a call was not taken from the pipe."""
        n_answered = self._slot.n_answered + self._n_answers
        return n_answered < self._n_sent or self._n_calls < self._slot.n_called

    def _take_within(self, seconds: float) -> None:
        if self._pipe.poll(seconds):
            answer = self._receive()
            assert isinstance(answer, Answer), f"{answer} came while a trial runs"

    def _receive(self) -> ToWorker:
        message: ToWorker = self._pipe.recv()
        if isinstance(message, Answer):
            self._verdicts |= message.verdicts
            self._n_answers += not message.unasked
            self._n_calls += message.unasked
        return message


class PipeFeed:
    """The trials of a pack: the one it begins with, then those that the parent has."""

    def __init__(self, work: Work, reporter: Reporter) -> None:
        self._first: TrialSpec | None = work.spec
        self._reporter = reporter
        self.n_lanes = work.n_lanes

    def next(self) -> TrialSpec | None:
        """See `automl.trial.Feed`."""
        spec, self._first = self._first, None
        return spec if spec is not None else self._reporter.next()


def _print_to(path: str) -> None:
    """From now on what this process and its children print goes to the end of a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
