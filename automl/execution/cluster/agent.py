"""Runs a node's agent: the one process on a node that the sweep calls, which supervises workers.

The sweep polls the agent by one call after another, each of which waits until there are messages.
The agent renews the lease of its workers: they end by themselves when the sweep has not polled for
`AGENT_LEASE_SECONDS`, even where this process is stopped. The module does not know how calls are
carried
(Ray: `ray_cluster.py` and `agent_actor.py`); the sweep's side is `node.py`.
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
"""Longest time that a poll waits for messages."""
AGENT_LEASE_SECONDS = 15.0
"""The agent's workers live on for this long after the last poll."""
_FIRST_SECONDS = 60.0
"""Lease of the workers before the first poll."""
_LOOK_SECONDS = 0.25
_LEAVE_SECONDS = 3.0
"""The last messages wait this long for a poll before the process ends."""

HeldBytes: TypeAlias = Mapping[tuple[DeviceId, ProcessId], int]
ReadHeld: TypeAlias = Callable[[], HeldBytes]


class _ExecutionOverError(Exception):
    """Raised in an execution that the sweep does not want any more."""


class NodeAgent:
    """Supervises the workers of a node. One thread of the sweep polls it, another sends commands.

    `take_reading` reads the node's devices, given a function that returns the memory that workers
    hold; `leave` ends this process.
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
        self._n_acknowledged = 0
        self._reading: object = None
        self._is_new = False
        self._calls: dict[int, queue.SimpleQueue[m.CallReplied]] = {}
        self._numbers = itertools.count()
        self._commands_lock = threading.Condition()  # guards the next, held while commands run
        self._n_done = 0
        """Number of commands that were carried out."""
        self._ending: str | None = None
        """Cause for which all executions end, set before the workers are killed; executions report
        no more from then on, since `_ended` tells the sweep that all are lost."""
        self._ended: str | None = None
        """Cause for which all workers were ended; the next poll reports it."""
        self._orphan_cause: str | None = None
        """Cause for which no sweep needs this agent any more; None while one does."""
        self._lease_until = lease_seconds() + _FIRST_SECONDS
        self._executor: WorkersExecutor | None = None
        self._folder: SharedStudyFolder | OwnNodeFolder | None = None
        logging.getLogger("automl").addHandler(_AgentWarningHandler(self._post))
        for name, target in (("reading", self._read_devices), ("lease", self._watch_sweep)):
            threading.Thread(target=target, name=name, daemon=True).start()

    def set_up(self, entry: ProcessEntry, work: m.NodeSetup) -> bool:
        """Prepare for trials; return whether this node sees the study's folder.

        Trials of an earlier set-up have ended.
        """
        self.close()
        self._folder = _folder(work)
        executor = WorkersExecutor(entry, self._folder.logs, work.limits)
        executor.lease(self._lease_until)
        self._executor = executor
        return isinstance(self._folder, SharedStudyFolder)

    def tell(self, commands: m.CommandBatch) -> None:
        """Carry out commands in the order of their numbers, waiting for earlier ones.

        Commands that were carried out already are skipped.
        """
        with self._commands_lock:
            self._commands_lock.wait_for(lambda: self._n_done >= commands.first)
            for command in commands.commands[self._n_done - commands.first :]:
                self._n_done += 1
                self._do(command)
            self._commands_lock.notify_all()

    def poll(
        self, n_taken: int, echo_seconds: float | None, commands: m.CommandBatch
    ) -> m.PollAnswer:
        """Carry out commands, then return messages from number `n_taken` on, once there are some.

        Waits at most `POLL_SECONDS`. `echo_seconds` is the `lease_clock_seconds` of the last
        answer, from which the workers' lease is renewed.
        """
        arrived = time.monotonic()
        if echo_seconds is not None:
            self._renew(echo_seconds + AGENT_LEASE_SECONDS)
        self.tell(commands)
        with self._news:
            del self._messages[: n_taken - self._n_acknowledged]
            self._n_acknowledged = n_taken
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
        """End idle workers and delete the node's folder. Call it when no trial runs any more."""
        if self._executor is not None:
            self._executor.close()
        if self._folder is not None:
            self._folder.remove()

    def end(self, cause: str) -> None:
        """Note that no sweep needs this agent any more; it then ends. Any thread."""
        self._orphan_cause = cause

    # --- commands of the sweep ---

    def _do(self, command: m.ToAgent) -> None:
        assert self._executor is not None, "an agent is set up before it is told anything"
        match command:
            case m.BeginExecution():
                name = f"execution {command.key}"
                threading.Thread(
                    target=self._carry, args=(command,), name=name, daemon=True
                ).start()
            case m.CallReplied(call=call):
                if (replies := self._calls.get(call)) is not None:  # else the call has ended
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
            case m.EndIdle(devices=devices):  # in a thread, since it waits for the workers' end
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
                lambda events: self.request_verdicts(begin.key, events),
                lambda events: self.send_unjudged(begin.key, events),
            )
        except AutoMLError as raised:
            error = raised
        except _ExecutionOverError:
            pass  # the sweep itself has ended the execution
        except BaseException:  # noqa: BLE001 - the sweep gets the error, and breaks off
            error = AutoMLError(f"an execution broke:\n{traceback.format_exc()}")
        if self._ending is None:  # else the next poll reports that all executions are lost
            self._post(m.ExecutionOver(begin.key, error))

    # --- calls of an execution to the sweep ---

    def request_verdicts(self, key: int, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """Send events, wait, and return the verdicts; the sweep has the events' files by then."""
        sent, files = self._with_files(events)
        verdicts = self._call(lambda call: m.EventsAwaitingVerdict(key, call, sent, files))
        assert isinstance(verdicts, Mapping)
        return verdicts

    def send_unjudged(self, key: int, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """Send events on which no trial waits for a verdict, and return no verdicts.

        A checkpoint of a trial that goes on is waited for, so that a trial has at most one on the
        way. Reports travel with the next message that cannot wait, or when a poll has waited for
        `POLL_SECONDS`; an outcome travels with the message of what its worker does next.
        """
        ended = {event.trial for event in events if isinstance(event, TrialOutcome)}
        if any(
            isinstance(event, CheckpointWritten) and event.trial not in ended for event in events
        ):
            return self.request_verdicts(key, events)
        message = m.EventsNoted(key, *self._with_files(events))
        if ended or all(
            isinstance(event, MetricsReported | ValuesLogged | TrialTagged) for event in events
        ):
            self._leave_for_later(message)
        else:
            self._post(message)
        return {}

    def note_trial_taken(self, key: int, number: int) -> None:
        self._leave_for_later(m.TrialTaken(key, number))

    def request_next_trial(self, key: int) -> TrialSpec | None:
        reply = self._call(lambda call: m.NextTrialWanted(key, call))
        assert isinstance(reply, m.NextTrialGiven)
        return None if reply.spec is None else self.receive_trial(reply.spec, reply.files)

    def receive_trial(self, spec: TrialSpec, files: m.Files) -> TrialSpec:
        """Write a trial's files; return the trial with its folder on this node."""
        assert self._folder is not None
        return self._folder.receive_trial(spec, files)

    def ask_sweep(self, key: int, question: Question) -> Reply:
        reply: Reply = self._call(lambda call: m.TrialQuestion(key, call, question))  # type: ignore[assignment]
        return reply

    def _call(self, message: Callable[[int], m.ToSweep]) -> object:
        """Send a message and return the sweep's reply.

        Raises _ExecutionOverError where the sweep replies with an error, or the agent ends.
        """
        call, replies = next(self._numbers), queue.SimpleQueue[m.CallReplied]()
        self._calls[call] = replies
        # Checked after the call is listed: `_end` sets the cause before it fails the listed calls.
        if self._ending is not None:
            raise _ExecutionOverError(self._ending)
        self._post(message(call))
        replied = replies.get()
        del self._calls[call]
        if replied.error is not None:
            raise _ExecutionOverError(replied.error)
        return replied.value

    def _with_files(self, events: Sequence[TrialEvent]) -> tuple[Sequence[TrialEvent], m.Files]:
        """Return the events with the sweep's paths, and the files that travel with them."""
        assert self._folder is not None
        sent, files = [], dict[str, bytes]()
        for event in events:
            outgoing, written = self._folder.prepare_event(event)
            sent.append(outgoing)
            files |= written
        return sent, files

    def _leave_for_later(self, message: m.ToSweep) -> None:
        """Queue a message in its order, without waking the poll: it travels with a later one."""
        with self._news:
            self._messages.append(message)

    def _post(self, message: m.ToSweep) -> None:
        with self._news:
            self._messages.append(message)
            self._news.notify_all()

    # --- the agent's own threads ---

    def _read_devices(self) -> None:
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

    def _watch_sweep(self) -> None:
        """End all workers, then this process, when the sweep or the parent process is gone.

        The sweep is gone when it has not polled for the lease's time, or when `end` was called.
        """
        while self._ended is None:
            if self._orphan_cause is not None:
                self._end(self._orphan_cause)
            elif self._parent.has_ended(_LOOK_SECONDS):
                self._end("what had started its agent died")
            elif lease_seconds() > self._lease_until:
                self._end(f"the sweep was not heard for {AGENT_LEASE_SECONDS:g} s")
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
    """Watches the process that started this one.

    On Linux the kernel reports its end at once. Ray ends the agent of a dead raylet within a
    second, and the sweep must learn of it first.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._poll = select.poll()
        if sys.platform == "linux":
            with suppress(OSError):  # an older kernel, or a sandbox
                self._poll.register(os.pidfd_open(self._pid), select.POLLIN)

    def has_ended(self, timeout_seconds: float) -> bool:
        """Return whether the parent has ended, after waiting for that time at most."""
        return bool(self._poll.poll(1000 * timeout_seconds)) or os.getppid() != self._pid


class _AgentTrialSource:
    """Feeds an execution on a node: the trials it begins with, then further ones of the sweep."""

    def __init__(self, agent: NodeAgent, begin: m.BeginExecution) -> None:
        self._agent, self._begin = agent, begin
        self._specs = [*begin.specs]
        self.key, self.n_lanes = begin.key, begin.n_lanes

    def ahead(self) -> Sequence[TrialSpec]:
        return tuple(self._specs)

    def next(self) -> TrialSpec | None:
        if not self._specs:
            return self._agent.request_next_trial(self._begin.key)
        spec = self._agent.receive_trial(self._specs.pop(0), self._begin.files)
        self._agent.note_trial_taken(self._begin.key, spec.number)
        return spec

    def answer(self, question: Question) -> Reply:
        return self._agent.ask_sweep(self._begin.key, question)


class _AgentWarningHandler(logging.Handler):
    """Sends the package's warnings to the sweep, which shows them."""

    def __init__(self, post: Callable[[m.ToSweep], None]) -> None:
        super().__init__(logging.WARNING)
        self._post = post

    def emit(self, record: logging.LogRecord) -> None:
        self._post(m.AgentWarning(fit_line(record.getMessage())))


def _folder(work: m.NodeSetup) -> SharedStudyFolder | OwnNodeFolder:
    """Return the study's own folder where this node sees it, else a new folder of the node."""
    try:
        shared = (Path(work.study) / work.marker).read_text() == work.marker_content
    except OSError:
        shared = False
    if shared:
        return SharedStudyFolder(work.study, work.stored if work.stores_shared else None)
    return OwnNodeFolder(work.study, Path(tempfile.mkdtemp(prefix="automl-")), work.stored)
