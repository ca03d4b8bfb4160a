"""The one process of ours on a node that the sweep speaks to: it supervises that node's workers.

It is asked for news by one call after another, each of which waits until there is some, and lends
its workers their lives: they end by themselves when the sweep was not heard for `LEASE_SECONDS`,
even where this process is stopped. Nothing here knows what carries the calls.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import select
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from automl.errors import AutoMLError
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.node_files import OwnNodeFolder, SharedStudyFolder
from automl.execution.workers_executor import WorkersExecutor
from automl.record.lease import lease_seconds
from automl.record.texts import fit_line
from automl.trial import (
    CheckpointWritten,
    DeviceId,
    MetricsReported,
    ProcessEntry,
    ProcessId,
    Question,
    Reply,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    TrialTagged,
    ValuesLogged,
    Verdict,
)

POLL_SECONDS = 0.2
"""How long a call for news waits for some."""
LEASE_SECONDS = 15.0
"""So long its workers live on without a word of the sweep."""
_FIRST_SECONDS = 60.0
"""The same before the first word."""
_LOOK_SECONDS = 0.25
_LEAVE_SECONDS = 3.0
"""How long the last news wait to be fetched."""

HeldBytes: TypeAlias = Mapping[tuple[DeviceId, ProcessId], int]
ReadHeld: TypeAlias = Callable[[], HeldBytes]


class _ExecutionOverError(Exception):
    """Raised in an execution that the sweep does not want any more."""


class NodeAgent:
    """Hosts the supervision of a node. One thread polls, another tells.

    `take_reading` reads the node's devices, given what tells what its workers hold; `leave` ends
    this process.
    """

    def __init__(
        self,
        take_reading: Callable[[ReadHeld], object],
        interval_seconds: float,
        leave: Callable[[], object],
    ) -> None:
        self._take_reading, self._interval_seconds = take_reading, interval_seconds
        self._leave = leave
        self._parent = ParentWatch()
        self._news = threading.Condition()  # guards the messages and the reading
        self._messages: list[m.ToSweep] = []
        self._n_acked = 0
        self._reading: object = None
        self._is_new = False
        self._calls: dict[int, queue.SimpleQueue[m.CallReplied]] = {}
        self._numbers = itertools.count()
        self._telling = threading.Condition()  # guards the next, held while it is done
        self._n_told = 0
        self._ending: str | None = None
        """Why nothing is told any more; the sweep learns that all is over by the next."""
        self._ended: str | None = None
        self._nobody: str | None = None
        """Why there is nobody to work for; None: there is."""
        self._lease_until = lease_seconds() + _FIRST_SECONDS
        self._executor: WorkersExecutor | None = None
        self._folder: SharedStudyFolder | OwnNodeFolder | None = None
        logging.getLogger("automl").addHandler(_AgentWarningHandler(self._post))
        for name, target in (("reading", self._read), ("lease", self._watch)):
            threading.Thread(target=target, name=name, daemon=True).start()

    def set_up(self, entry: ProcessEntry, work: m.NodeSetup) -> bool:
        """From now on trials may come; those of before have ended. Whether this node sees the
        study's folder."""
        self.close()
        self._folder = _folder(work)
        executor = WorkersExecutor(entry, self._folder.logs, work.limits)
        executor.lease(self._lease_until)
        self._executor = executor
        return isinstance(self._folder, SharedStudyFolder)

    def tell(self, told: m.CommandsTold) -> None:
        """Do these in their order, after those that were numbered before them, but for those that
        were told already."""
        with self._telling:
            self._telling.wait_for(lambda: self._n_told >= told.first)
            for command in told.commands[self._n_told - told.first :]:
                self._n_told += 1
                self._do(command)
            self._telling.notify_all()

    def poll(self, n_taken: int, echo_seconds: float | None, told: m.CommandsTold) -> m.PollAnswer:
        """News, once there are some: messages from number `n_taken` on. Does first what is told."""
        arrived = time.monotonic()
        if echo_seconds is not None:
            self._renew(echo_seconds + LEASE_SECONDS)
        self.tell(told)
        with self._news:
            del self._messages[: n_taken - self._n_acked]
            self._n_acked = n_taken
            self._news.wait_for(lambda: self._messages or self._is_new, POLL_SECONDS)
            sent, reading = [*self._messages], self._reading if self._is_new else None
            self._is_new = False
        executor = self._executor
        return m.PollAnswer(
            first=n_taken,
            messages=sent,
            arrived_seconds=arrived,
            lease_clock_seconds=lease_seconds(),
            reading=reading,
            idle={} if executor is None else executor.idle(),
            n_steps={} if executor is None else executor.n_steps(),
            ended=self._ended,
        )

    def close(self) -> None:
        """Let idle workers end, and leave nothing behind. No trial is running any more."""
        if self._executor is not None:
            self._executor.close()
        if self._folder is not None:
            self._folder.remove()

    def end(self, cause: str) -> None:
        """There is nobody to work for any more. From any thread."""
        self._nobody = cause

    # --- what the sweep wants ---

    def _do(self, command: m.ToAgent) -> None:
        assert self._executor is not None, "an agent is set up before it is told anything"
        match command:
            case m.BeginExecution():
                name = f"trial {command.key}"
                threading.Thread(
                    target=self._carry, args=(command,), name=name, daemon=True
                ).start()
            case m.CallReplied(call=call):
                if (replies := self._calls.get(call)) is not None:  # else it has ended
                    replies.put(command)
            case m.EventsJudged(key=key, verdicts=verdicts):
                self._executor.answer(key, verdicts)
            case m.StopTrials():
                self._executor.stop_trials()
            case m.KillWorkers(cause=cause):
                self._executor.kill(cause)
            case m.EndTrials(trials=trials, cause=cause):
                self._executor.end_trials(trials, cause)
            case m.CapMemory(caps=caps):
                self._executor.cap_memory(caps)
            case m.EndIdle(devices=devices):  # waits for them
                threading.Thread(
                    target=self._executor.end_idle, args=(devices,), daemon=True
                ).start()

    def _carry(self, begin: m.BeginExecution) -> None:
        assert self._executor is not None
        error: Exception | None = None
        try:
            feed = _AgentTrialSource(self, begin)
            self._executor.execute(
                feed,
                begin.placement,
                lambda events: self.told(begin.key, events),
                lambda events: self.noted(begin.key, events),
            )
        except AutoMLError as raised:
            error = raised
        except _ExecutionOverError:
            pass  # the sweep has said so
        except BaseException:  # noqa: BLE001 - the sweep is told, which breaks off
            error = AutoMLError(f"an execution broke:\n{traceback.format_exc()}")
        if self._ending is None:  # else the sweep is told that all are lost
            self._post(m.ExecutionOver(begin.key, error))

    # --- what an execution wants of the sweep ---

    def told(self, key: int, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """The verdicts on these events, whose files are at the sweep's by then."""
        sent, files = self._with_files(events)
        verdicts = self._call(lambda call: m.EventsAwaitingVerdict(key, call, sent, files))
        assert isinstance(verdicts, Mapping)
        return verdicts

    def noted(self, key: int, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """Events on which nobody waits for a verdict, but for a checkpoint to have arrived, of
        which a trial has one on the way. Reports go with what cannot wait, or when a call for news
        has waited for long enough, and an outcome with what its worker does next."""
        ended = {event.trial for event in events if isinstance(event, TrialOutcome)}
        if any(
            isinstance(event, CheckpointWritten) and event.trial not in ended for event in events
        ):
            return self.told(key, events)
        noted = m.EventsNoted(key, *self._with_files(events))
        if ended or all(
            isinstance(event, MetricsReported | ValuesLogged | TrialTagged) for event in events
        ):
            self._leave_for_later(noted)
        else:
            self._post(noted)
        return {}

    def took(self, key: int, number: int) -> None:
        self._leave_for_later(m.TrialTaken(key, number))

    def wants(self, key: int) -> TrialSpec | None:
        given = self._call(lambda call: m.NextTrialWanted(key, call))
        assert isinstance(given, m.NextTrialGiven)
        return None if given.spec is None else self.here(given.spec, given.files)

    def here(self, spec: TrialSpec, files: m.Files) -> TrialSpec:
        """The trial as it is carried out on this node."""
        assert self._folder is not None
        return self._folder.arrived(spec, files)

    def asks(self, key: int, question: Question) -> Reply:
        reply: Reply = self._call(lambda call: m.TrialQuestion(key, call, question))  # type: ignore[assignment]
        return reply

    def _call(self, message: Callable[[int], m.ToSweep]) -> object:
        """Wait for the sweep's reply. Raises _OverError where there is none."""
        call, replies = next(self._numbers), queue.SimpleQueue[m.CallReplied]()
        self._calls[call] = replies
        if self._ending is not None:  # after the call can be found by who ends
            raise _ExecutionOverError(self._ending)
        self._post(message(call))
        replied = replies.get()
        del self._calls[call]
        if replied.error is not None:
            raise _ExecutionOverError(replied.error)
        return replied.value

    def _with_files(self, events: Sequence[TrialEvent]) -> tuple[Sequence[TrialEvent], m.Files]:
        """As they are sent."""
        assert self._folder is not None
        sent, files = [], dict[str, bytes]()
        for event in events:
            as_sent, written = self._folder.told(event)
            sent.append(as_sent)
            files |= written
        return sent, files

    def _leave_for_later(self, message: m.ToSweep) -> None:
        """In its order, with the next that is posted."""
        with self._news:
            self._messages.append(message)

    def _post(self, message: m.ToSweep) -> None:
        with self._news:
            self._messages.append(message)
            self._news.notify_all()

    # --- what it does by itself ---

    def _read(self) -> None:
        while True:
            reading = self._take_reading(self._held_bytes)
            with self._news:
                self._reading, self._is_new = reading, True
                self._news.notify_all()
            time.sleep(self._interval_seconds)

    def _held_bytes(self) -> HeldBytes:
        return {} if self._executor is None else self._executor.held_bytes()

    def _renew(self, until_seconds: float) -> None:
        self._lease_until = until_seconds
        if self._executor is not None:
            self._executor.lease(until_seconds)

    def _watch(self) -> None:
        """End what runs when the sweep is not heard any more, what started this process died, or
        somebody else has found out."""
        while self._ended is None:
            if self._nobody is not None:
                self._end(self._nobody)
            elif self._parent.has_ended(_LOOK_SECONDS):
                self._end("what had started its agent died")
            elif lease_seconds() > self._lease_until:
                self._end(f"the sweep was not heard for {LEASE_SECONDS:g} s")
        time.sleep(_LEAVE_SECONDS)
        if self._folder is not None:
            self._folder.remove()
        self._leave()

    def _end(self, cause: str) -> None:
        self._ending = cause
        if self._executor is not None:
            self._executor.kill(cause)
        with self._news:
            self._ended = cause
            self._news.notify_all()
        for call, replies in [*self._calls.items()]:
            replies.put(m.CallReplied(call, error=cause))


class ParentWatch:
    """What started this process. The kernel tells of its end at once where it can (Linux): Ray ends
    the agent of a dead raylet within a second, and the sweep has to be told before that."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._poll = select.poll()
        if sys.platform == "linux":
            with suppress(OSError):  # an older kernel, or a sandbox
                self._poll.register(os.pidfd_open(self._pid), select.POLLIN)

    def has_ended(self, timeout_seconds: float) -> bool:
        """Waits for so long at the most."""
        return bool(self._poll.poll(1000 * timeout_seconds)) or os.getppid() != self._pid


class _AgentTrialSource:
    """The trials of an execution: those it begins with, then those that the sweep has."""

    def __init__(self, agent: NodeAgent, begin: m.BeginExecution) -> None:
        self._agent, self._begin = agent, begin
        self._specs = [*begin.specs]
        self.n_lanes = begin.n_lanes

    def ahead(self) -> Sequence[TrialSpec]:
        """See `automl.trial.AnsweringTrialSource`."""
        return tuple(self._specs)

    def next(self) -> TrialSpec | None:
        """See `automl.trial.TrialSource`."""
        if not self._specs:
            return self._agent.wants(self._begin.key)
        spec = self._agent.here(self._specs.pop(0), self._begin.files)
        self._agent.took(self._begin.key, spec.number)
        return spec

    def answer(self, question: Question) -> Reply:
        """See `automl.trial.AnsweringTrialSource`."""
        return self._agent.asks(self._begin.key, question)


class _AgentWarningHandler(logging.Handler):
    """What the package warns of here is said by the sweep."""

    def __init__(self, post: Callable[[m.ToSweep], None]) -> None:
        super().__init__(logging.WARNING)
        self._post = post

    def emit(self, record: logging.LogRecord) -> None:
        self._post(m.AgentWarning(fit_line(record.getMessage())))


def _folder(work: m.NodeSetup) -> SharedStudyFolder | OwnNodeFolder:
    """The study's own where this node sees it."""
    try:
        shared = (Path(work.study) / work.marker).read_text() == work.marked
    except OSError:
        shared = False
    if shared:
        return SharedStudyFolder(work.study, work.stored if work.stores_shared else None)
    return OwnNodeFolder(work.study, Path(tempfile.mkdtemp(prefix="automl-")), work.stored)
