"""One node, from the sweep's side: what its agent said last, and whether it is there at all.

One thread asks for news all the time, another tells; both know nothing of what carries the calls.
A node counts as lost when its agent is known to have ended, or was not heard for so long that its
workers have: then, and not before, its trials may go on elsewhere.

Commands on their way to an agent: a call for news takes along what there is, for each call costs
either side a millisecond; while one is on its way a call of their own carries them.
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
from automl.execution.cluster.agent import LEASE_SECONDS
from automl.trial import DeviceId, ProcessId

REPLY_SECONDS = 0.005
"""How long replies are waited for, so that they go with the next call for news."""


class CommandQueue:
    """Numbers commands and gives each to one of two threads. Any thread may `put`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._commands: list[m.ToAgent] = []
        self._n_given = 0
        self._is_asked = False
        """A call for news is on its way."""
        self._is_over = False

    def put(self, command: m.ToAgent) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()

    def heard(self) -> None:
        """The call for news has been answered."""
        with self._changed:
            self._is_asked = False

    def with_call(self, n_replies: int) -> m.CommandsTold:
        """What goes with the next call for news, after news that want so many replies."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or len(self._commands) >= n_replies, REPLY_SECONDS
            )
            self._is_asked = True
            self._changed.notify_all()
            return self._take()

    def alone(self) -> m.CommandsTold | None:
        """What has to go by itself, once there is something; None: nothing goes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or (self._is_asked and self._commands))
            return None if self._is_over else self._take()

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self) -> m.CommandsTold:
        told = m.CommandsTold(self._n_given, tuple(self._commands))
        self._n_given += len(self._commands)
        self._commands.clear()
        return told


logger = logging.getLogger(__name__)

LOST_SECONDS = 20.0
"""A node that was not heard for so long is lost. Its workers ended by themselves before that."""
DEAD_SECONDS = LEASE_SECONDS + 2.0
"""The same where the cluster says so, too: what its processes do is not known, and these go by the
last word that was heard of them."""
_AGAIN_SECONDS = 0.2


class AgentSilentError(Exception):
    """Raised when an agent does not answer now; it may later."""


class NodeDeadError(AgentSilentError):
    """Raised when the cluster says that its node is dead; processes there may live on."""


class AgentEndedError(Exception):
    """Raised when an agent has ended, and its workers with it."""


class AgentConnection(Protocol):
    """Carries calls to one agent."""

    def set_up(self, entry: object, work: m.NodeSetup) -> bool:
        """`NodeAgent.set_up`, with what stands for the entry. Raises DeadError, EndedError."""

    def poll(
        self, n_taken: int, echo_seconds: float | None, told: m.CommandsTold
    ) -> tuple[m.PollAnswer, float]:
        """`NodeAgent.poll`, and when the call was sent. Raises SilentError, EndedError; called
        again
        with the same arguments after the first."""

    def tell(self, told: m.CommandsTold) -> None:
        """`NodeAgent.tell`. As `poll`."""

    def close(self) -> None:
        """Let idle workers end, then the agent. Raises nothing."""

    def kill(self) -> None:
        """End the agent, and its workers with it. Raises nothing."""


@dataclass(frozen=True)
class NodeLost:
    """The node is lost: nothing more comes of its executions."""

    cause: str


Conversation: TypeAlias = "queue.SimpleQueue[m.FromExecution | NodeLost]"


class ClusterNode:
    """A node whose agent is set up. Any thread."""

    def __init__(
        self, name: str, wire: AgentConnection, on_lost: Callable[[ClusterNode], None]
    ) -> None:
        self.name = name
        self._wire, self._on_lost = wire, on_lost
        self._lock = threading.Lock()  # guards the two below
        self._conversations: dict[int, Conversation] = {}
        self.lost: str | None = None
        """Why it is; None: it is not."""
        self.shares_folder = False
        """It sees the study's."""
        self.heard_seconds = time.monotonic()
        self.offset_seconds = 0.0
        """Our clock less the node's, or a little less than that."""
        self.last: m.PollAnswer | None = None
        self._telling = CommandQueue()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"{word} {name}", daemon=True)
            for word, target in (("hearing", self._hear), ("telling", self._tell))
        ]

    def start(self) -> None:
        """From now on it is listened to."""
        for thread in self._threads:
            thread.start()

    def set_up(self, entry: object, work: m.NodeSetup) -> None:
        """Before the first execution. Raises DeadError, EndedError."""
        self.shares_folder = self._wire.set_up(entry, work)

    def begin(self, begin: m.BeginExecution) -> Conversation:
        """Where all comes that its execution has to say."""
        conversation: Conversation = queue.SimpleQueue()
        with self._lock:
            if self.lost is not None:
                conversation.put(NodeLost(self.lost))
                return conversation
            self._conversations[begin.key] = conversation
        self.tell(begin)
        return conversation

    def over(self, key: int) -> None:
        """Nobody listens to that execution any more."""
        with self._lock:
            self._conversations.pop(key, None)

    def tell(self, command: m.ToAgent) -> None:
        self._telling.put(command)

    @property
    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        return {} if self.last is None or self.lost is not None else self.last.idle

    @property
    def n_steps(self) -> Mapping[int, int]:
        return {} if self.last is None or self.lost is not None else self.last.n_steps

    def lose(self, cause: str) -> None:
        """Nothing comes of it any more, whatever it says; the first cause stays. The thread that
        hears it ends it, as it finds out."""
        with self._lock:
            if self._closing.is_set() or self.lost is not None:
                return
            self.lost = cause
            conversations = [*self._conversations.values()]
        for conversation in conversations:
            conversation.put(NodeLost(cause))

    def close(self) -> None:
        """No trial runs there any more."""
        self._closing.set()
        self._telling.end()
        if self.lost is None:
            self._wire.close()
        self._wire.kill()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(1.0)

    # --- its two threads ---

    def _hear(self) -> None:
        n_taken, echo, told = 0, None, self._telling.with_call(0)
        while not self._closing.is_set() and self.lost is None:
            try:
                polled, sent_seconds = self._wire.poll(n_taken, echo, told)
            except AgentEndedError as error:
                self.lose(str(error))
                continue
            except AgentSilentError as error:
                if self._is_lost(error):
                    self.lose(str(error))
                self._closing.wait(_AGAIN_SECONDS)
                continue
            self._telling.heard()
            self.heard_seconds = time.monotonic()
            self.offset_seconds = sent_seconds - polled.arrived_seconds
            self._keep(polled)
            echo = polled.lease_clock_seconds
            assert polled.first == n_taken, "each message is taken once"
            n_taken += len(polled.messages)
            for message in polled.messages:
                self._take(message)
            if polled.ended is not None:
                self.lose(polled.ended)
                continue
            told = self._telling.with_call(
                sum(isinstance(message, m.ANSWERED) for message in polled.messages)
            )
        if self.lost is not None and not self._closing.is_set():
            self._on_lost(self)

    def _keep(self, polled: m.PollAnswer) -> None:
        """A reading is sent once."""
        if polled.reading is None and self.last is not None:
            polled = replace(polled, reading=self.last.reading)
        self.last = polled

    def _is_lost(self, error: AgentSilentError) -> bool:
        """What is not heard may live on as long as it goes by what it has heard."""
        patience = DEAD_SECONDS if isinstance(error, NodeDeadError) else LOST_SECONDS
        return time.monotonic() - self.heard_seconds > patience

    def _take(self, message: m.ToSweep) -> None:
        if isinstance(message, m.AgentWarning):
            logger.warning("%s: %s", self.name, message.text)
            return
        with self._lock:
            conversation = self._conversations.get(message.key)
        if conversation is not None:
            conversation.put(message)

    def _tell(self) -> None:
        while (told := self._telling.alone()) is not None:
            while self.lost is None and not self._closing.is_set():
                try:
                    self._wire.tell(told)
                except AgentEndedError:
                    return  # the other thread finds out, too
                except AgentSilentError:
                    self._closing.wait(_AGAIN_SECONDS)
                else:
                    break
