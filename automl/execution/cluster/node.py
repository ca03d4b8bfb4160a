"""Handles one node from the sweep's side: polls its agent, sends it commands, and notes its loss.

One thread polls all the time, another sends commands; how calls are carried is not known here. A
node counts as lost when its agent is known to have ended, or has been silent for so long that its
workers have ended: then, and not before, its trials may go on elsewhere.

A poll takes waiting commands along, since each call costs either side a millisecond. While a poll
is under way, commands go by a call of their own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from automl.execution.cluster import node_messages as m
from automl.execution.cluster.agent import AGENT_LEASE_SECONDS
from automl.trial import DeviceId, ProcessId

REPLY_SECONDS = 0.005
"""Longest wait for replies before a poll, so that the poll takes them along."""


class CommandQueue:
    """Numbers commands, and hands each to the polling or the sending thread.

    Any thread may `put`.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._commands: list[m.ToAgent] = []
        self._n_taken = 0
        self._is_polling = False
        """Whether a poll is under way."""
        self._is_over = False

    def put(self, command: m.ToAgent) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()

    def note_answer(self) -> None:
        """Note that the poll was answered."""
        with self._changed:
            self._is_polling = False

    def take_for_poll(self, n_replies: int) -> m.CommandBatch:
        """Return the commands for the next poll, after waiting briefly for `n_replies` of them."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or len(self._commands) >= n_replies, REPLY_SECONDS
            )
            self._is_polling = True
            self._changed.notify_all()
            return self._take()

    def take_alone(self) -> m.CommandBatch | None:
        """Wait for commands that come during a poll, and return them; None after `end`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or (self._is_polling and self._commands))
            return None if self._is_over else self._take()

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self) -> m.CommandBatch:
        taken = m.CommandBatch(self._n_taken, tuple(self._commands))
        self._n_taken += len(self._commands)
        self._commands.clear()
        return taken


logger = logging.getLogger(__name__)

LOST_SECONDS = 20.0
"""A node whose agent was silent for this long is lost. Its workers have ended by themselves."""
DEAD_SECONDS = AGENT_LEASE_SECONDS + 2.0
"""A node that the cluster also reports as dead is lost after this long. Its processes may live on,
and end by themselves when the lease that began with the last poll is over."""
_RETRY_SECONDS = 0.2


class AgentSilentError(Exception):
    """Raised when an agent does not answer now; it may later."""


class NodeDeadError(AgentSilentError):
    """Raised when the cluster reports a node as dead; processes there may live on."""


class AgentEndedError(Exception):
    """Raised when an agent has ended, and its workers with it."""


class AgentConnection(Protocol):
    """Carries calls to one agent."""

    def set_up(self, entry: object, work: m.NodeSetup) -> bool:
        """Call `NodeAgent.set_up`, with the reference that `ClusterBackend.share` returned.

        Raises NodeDeadError, AgentEndedError.
        """

    def poll(
        self, n_taken: int, echo_seconds: float | None, commands: m.CommandBatch
    ) -> tuple[m.PollAnswer, float]:
        """Call `NodeAgent.poll`; return its answer, and when the call was sent.

        Raises AgentSilentError, after which it is called again with the same arguments, and
        AgentEndedError.
        """

    def tell(self, commands: m.CommandBatch) -> None:
        """Call `NodeAgent.tell`. Raises the same errors as `poll`, and is repeated like it."""

    def close(self) -> None:
        """Let idle workers end, then the agent. Raises nothing."""

    def kill(self) -> None:
        """End the agent, and its workers with it. Raises nothing."""


@dataclass(frozen=True)
class NodeLost:
    """Reports to a conversation that the node is lost, so that no more messages come."""

    cause: str


Conversation: TypeAlias = "queue.SimpleQueue[m.FromExecution | NodeLost]"


class ClusterNode:
    """A node of the cluster whose agent is set up. Any thread."""

    def __init__(
        self, name: str, connection: AgentConnection, on_lost: Callable[[ClusterNode], None]
    ) -> None:
        self.name = name
        self._connection, self._on_lost = connection, on_lost
        self._lock = threading.Lock()  # guards the two below
        self._conversations: dict[int, Conversation] = {}
        self.lost: str | None = None
        """Cause of the node's loss; None while it is not lost."""
        self.shares_folder = False
        """Whether the node sees the study's folder."""
        self.heard_seconds = time.monotonic()
        """Time of the last answer to a poll, by our clock."""
        self.offset_seconds = 0.0
        """Our clock less the node's clock, or a little less than that."""
        self.last: m.PollAnswer | None = None
        """The last answer to a poll, with the last reading that was sent."""
        self._commands = CommandQueue()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"{word} {name}", daemon=True)
            for word, target in (("hearing", self._poll), ("telling", self._send_commands))
        ]

    def start(self) -> None:
        """Start to poll the agent and to send it commands."""
        for thread in self._threads:
            thread.start()

    def set_up(self, entry: object, work: m.NodeSetup) -> None:
        """Prepare the node for its first execution. Raises NodeDeadError, AgentEndedError."""
        self.shares_folder = self._connection.set_up(entry, work)

    def begin(self, begin: m.BeginExecution) -> Conversation:
        """Begin an execution; return the queue that gets all its messages."""
        conversation: Conversation = queue.SimpleQueue()
        with self._lock:
            if self.lost is not None:
                conversation.put(NodeLost(self.lost))
                return conversation
            self._conversations[begin.key] = conversation
        self.tell(begin)
        return conversation

    def end_conversation(self, key: int) -> None:
        """Drop further messages of an execution."""
        with self._lock:
            self._conversations.pop(key, None)

    def tell(self, command: m.ToAgent) -> None:
        self._commands.put(command)

    @property
    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        return {} if self.last is None or self.lost is not None else self.last.idle

    @property
    def n_steps(self) -> Mapping[int, int]:
        return {} if self.last is None or self.lost is not None else self.last.n_steps

    def lose(self, cause: str) -> None:
        """Mark the node as lost, and end its conversations; an earlier cause stays.

        Later messages are dropped. The polling thread calls `on_lost` when it finds the mark.
        """
        with self._lock:
            if self._closing.is_set() or self.lost is not None:
                return
            self.lost = cause
            conversations = [*self._conversations.values()]
        for conversation in conversations:
            conversation.put(NodeLost(cause))

    def close(self) -> None:
        """End the agent. Call it when no trial runs on the node any more."""
        self._closing.set()
        self._commands.end()
        if self.lost is None:
            self._connection.close()
        self._connection.kill()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(1.0)

    # --- the polling and the sending thread ---

    def _poll(self) -> None:
        n_taken, echo, commands = 0, None, self._commands.take_for_poll(0)
        while not self._closing.is_set() and self.lost is None:
            try:
                answer, sent_seconds = self._connection.poll(n_taken, echo, commands)
            except AgentEndedError as error:
                self.lose(str(error))
                continue
            except AgentSilentError as error:
                if self._is_lost(error):
                    self.lose(str(error))
                self._closing.wait(_RETRY_SECONDS)
                continue
            self._commands.note_answer()
            self.heard_seconds = time.monotonic()
            self.offset_seconds = sent_seconds - answer.arrived_seconds
            self._keep(answer)
            echo = answer.lease_clock_seconds
            assert answer.first == n_taken, "each message is taken once"
            n_taken += len(answer.messages)
            for message in answer.messages:
                self._deliver(message)
            if answer.ended is not None:
                self.lose(answer.ended)
                continue
            commands = self._commands.take_for_poll(
                sum(isinstance(message, m.ANSWERED_MESSAGES) for message in answer.messages)
            )
        if self.lost is not None and not self._closing.is_set():
            self._on_lost(self)

    def _keep(self, answer: m.PollAnswer) -> None:
        """Keep the answer, with the earlier reading if it has none: a reading is sent once."""
        if answer.reading is None and self.last is not None:
            answer = replace(answer, reading=self.last.reading)
        self.last = answer

    def _is_lost(self, error: AgentSilentError) -> bool:
        """Return whether a silent node is lost: its workers may live until their lease is over."""
        patience = DEAD_SECONDS if isinstance(error, NodeDeadError) else LOST_SECONDS
        return time.monotonic() - self.heard_seconds > patience

    def _deliver(self, message: m.ToSweep) -> None:
        if isinstance(message, m.AgentWarning):
            logger.warning("%s: %s", self.name, message.text)
            return
        with self._lock:
            conversation = self._conversations.get(message.key)
        if conversation is not None:
            conversation.put(message)

    def _send_commands(self) -> None:
        while (commands := self._commands.take_alone()) is not None:
            while self.lost is None and not self._closing.is_set():
                try:
                    self._connection.tell(commands)
                except AgentEndedError:
                    return  # the polling thread finds out, too
                except AgentSilentError:
                    self._closing.wait(_RETRY_SECONDS)
                else:
                    break
