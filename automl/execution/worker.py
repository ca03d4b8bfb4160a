"""The process that trains: takes trials over a pipe, sends their events back, until told to end.

Belongs to one device for life: `CUDA_VISIBLE_DEVICES` is set before anything asks CUDA. Events go
one way and a report costs microseconds; its verdict is seen at the next one at the latest.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

from automl.execution.executor import open_session
from automl.execution.lifeline import die_with_parent
from automl.execution.memory_slots import SlotWriter
from automl.trial import (
    HOST_UUID,
    Entry,
    Placement,
    Reported,
    Session,
    TrialEvent,
    TrialSpec,
    Verdict,
)


@dataclass(frozen=True)
class Work:
    """Parent to worker: carry out this trial; what it prints goes to `output_path`."""

    spec: TrialSpec
    placement: Placement
    output_path: str


@dataclass(frozen=True)
class Answer:
    """Parent to worker: the study's verdicts, by trial; those that go on may be left out."""

    verdicts: Mapping[int, Verdict]
    unasked: bool = False
    """The sweep stops; otherwise each message with reports gets one answer."""


@dataclass(frozen=True)
class Idle:
    """Worker to parent: the trial is over, and its memory given back."""


@dataclass(frozen=True)
class Broken:
    """Worker to parent: the objective cannot be opened here; no trial can run."""

    cause: str
    details: str


ToWorker: TypeAlias = "Work | Answer | None"
"""None: end."""
ToParent: TypeAlias = "Sequence[TrialEvent] | Idle | Broken"


@dataclass(frozen=True)
class WorkerSetup:
    """What a new worker is told. Picklable."""

    entry: Entry
    device_uuid: str
    slots_path: str
    slot: int


def main(setup: WorkerSetup, pipe: Connection) -> None:
    """Run in the child process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's business
    if setup.device_uuid != HOST_UUID:
        os.environ["CUDA_VISIBLE_DEVICES"] = setup.device_uuid
    session: Session | None = None
    while (work := _next_work(pipe)) is not None:
        _print_to(work.output_path)
        if session is None:
            try:
                session = open_session(setup.entry)
            except BaseException as error:  # noqa: BLE001 - whatever it was, the parent is told
                pipe.send(Broken(f"{type(error).__name__}: {error}", traceback.format_exc()))
                return
            slot = SlotWriter(setup.slots_path, setup.slot, session.held_bytes)
        reporter = Reporter(pipe)
        session.run(work.spec, work.placement, reporter.one)
        reporter.settle()
        session.give_back_memory()
        slot.write()
        pipe.send(Idle())


def _next_work(pipe: Connection) -> Work | None:
    """Wait for work; a call to stop that came too late for its trial is dropped."""
    while True:
        message: ToWorker = pipe.recv()
        if message is None or isinstance(message, Work):
            return message


class Reporter:
    """Sends events; the verdict on a report is waited for no longer than it is worth.

    The wait is at most 1 % of the time since the last report: a trial of long epochs is pruned at
    once, one of short epochs at its next report. Never later, because a report is sent only when
    the one before was answered.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._n_unanswered = 0
        self._sent_seconds = time.monotonic()
        self._verdicts: dict[int, Verdict] = {}

    def __call__(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if not any(isinstance(event, Reported) for event in events):
            self._pipe.send(events)
            return {}
        while self._n_unanswered:
            self._take()
        before, self._sent_seconds = self._sent_seconds, time.monotonic()
        self._pipe.send(events)
        self._n_unanswered += 1
        if self._pipe.poll(0.01 * (self._sent_seconds - before)):
            self._take()
        return self._verdicts

    def one(self, event: TrialEvent) -> Verdict:
        """For a trial that trains alone."""
        return self([event]).get(event.trial, Verdict.GO_ON)

    def settle(self) -> None:
        """At the end of the work: no answer is left in the pipe."""
        while self._n_unanswered:
            self._take()

    def _take(self) -> None:
        answer: ToWorker = self._pipe.recv()
        assert isinstance(answer, Answer), f"{answer} came while a trial runs"
        self._verdicts |= answer.verdicts
        self._n_unanswered -= not answer.unasked


def _print_to(path: str) -> None:
    """From now on what this process and its children print goes to the end of a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
