"""The nodes of a cluster as they come and go.

A thread looks every second who is there: a new node gets an agent, and so does one whose agent
ended, up to a number of times.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from automl.errors import AutoMLError, ConfigError
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.claims import WholeCluster
from automl.execution.cluster.node import (
    AgentConnection,
    AgentEndedError,
    AgentSilentError,
    ClusterNode,
)
from automl.trial import DeviceId, ProcessEntry

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_JOIN_SECONDS = 10.0
"""A node that is just being started is left to the cluster's end."""
_AT_ONCE = 64
"""So many nodes are set up side by side."""
MAX_AGENTS = 5
"""A node whose agents have ended so often gets no other: it may be what runs there."""


@dataclass(frozen=True)
class ClusterMachine:
    """A living node, as the cluster knows it."""

    id: str
    host: str
    n_cpus: float


class NodeMismatchError(ConfigError):
    """Raised when a node has not what the sweep needs there, or another version of it."""


class ClusterBackend(Protocol):
    """What carries processes and data to nodes."""

    def machines(self) -> Sequence[ClusterMachine]:
        """Those that live now."""

    def start(self, machine: ClusterMachine, name: str) -> AgentConnection:
        """An agent there. Raises NotTheSameError, SilentError, EndedError."""

    def share(self, entry: ProcessEntry) -> object:
        """What stands for it in `AgentConnection.set_up`: it goes to each node once."""

    def lost(self) -> str | None:
        """Why nothing can be done there any more; None: it can."""

    def close(self) -> None:
        """Give it back."""


class ClusterNodes:
    """Those of one cluster, each with an agent. Any thread."""

    def __init__(self, cluster: ClusterBackend) -> None:
        self._cluster = cluster
        self.claims = WholeCluster()
        """What is ours of them; set before they are opened."""
        self._changed = threading.Condition()  # guards all below, and never a wait for a node
        self._nodes: dict[str, ClusterNode] = {}
        self._names: dict[str, str] = {}
        """By the cluster's id; a name is never given twice."""
        self._n_agents: Counter[str] = Counter()
        self._work: tuple[object, m.NodeSetup] | None = None
        self._starting: set[str] = set()
        """Those that are just getting an agent, by the cluster's id: one that is dead and still
        listed takes its time, in which nobody waits for it."""
        self._n_ending = 0
        """Lost nodes whose agents are just being ended."""
        self._given_back = False
        """The cluster is: nothing more is to be ended there."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look, name="nodes", daemon=True)

    def open(self) -> None:
        """Start an agent on each node. Raises NotTheSameError, and AutoMLError where none can be
        started at all."""
        errors = self._start_all()
        if not self.present():
            why = "; ".join(map(str, errors)) or "it has no node"
            raise AutoMLError(f"no node of the Ray cluster can be used: {why}")
        for error in errors:
            logger.warning("a node is not used: %s", error)
        self._thread.start()
        self.claims.start()

    def set_up(self, entry: ProcessEntry, work: m.NodeSetup) -> None:
        """From now on trials may come, to nodes that come later, too."""
        shared = self._cluster.share(entry)
        with self._changed:
            self._work = shared, work
        present = self.present()
        with ThreadPoolExecutor(max(1, min(len(present), _AT_ONCE))) as pool:
            [*pool.map(lambda node: _set_up_or_lost(node, shared, work), present)]

    def lost(self) -> AutoMLError | None:
        """What ends the sweep: the cluster is; None: it is not."""
        if (cause := self._cluster.lost()) is None:
            return None
        return AutoMLError(
            f"the Ray cluster is lost: {cause}. Start it again, then resume the study."
        )

    def present(self) -> Sequence[ClusterNode]:
        with self._changed:
            return [node for node in self._nodes.values() if node.lost is None]

    def by_name(self, name: str) -> ClusterNode | None:
        """None: it is lost."""
        return next((node for node in self.present() if node.name == name), None)

    def name_of(self, machine_id: str) -> str | None:
        """The node's, by the cluster's id; None: it has no agent yet."""
        with self._changed:
            node = self._nodes.get(machine_id)
            return None if node is None else node.name

    def end_idle(self, device: DeviceId) -> bool:
        """Have idle processes leave a device; whether none is left there."""
        node = self.by_name(device.node)
        if node is None or not any(device in place for place in node.idle):
            return True
        node.tell(m.EndIdle(frozenset({device})))
        return False

    def tell(self, command: m.ToAgent) -> None:
        """All of them."""
        for node in self.present():
            node.tell(command)

    def close(self) -> None:
        """End all agents, and give the cluster back. No trial is running any more."""
        self._closing.set()
        patient_until = time.monotonic() + _JOIN_SECONDS
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)
        with self._changed:
            self._changed.wait_for(
                lambda: not self._starting, max(0.0, patient_until - time.monotonic())
            )
        present = self.present()
        with ThreadPoolExecutor(max(1, len(present))) as pool:
            wait([pool.submit(node.close) for node in present])
        self.claims.close()
        with self._changed:
            self._given_back = True
            self._changed.wait_for(lambda: not self._n_ending)
        self._cluster.close()

    def _look(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            for machine in self._missing():
                threading.Thread(
                    target=self._start_later, args=(machine,), name="starting", daemon=True
                ).start()

    def _start_later(self, machine: ClusterMachine) -> None:
        error: Exception | None
        try:
            error = self._started(machine)
        except Exception as broken:  # noqa: BLE001 - said below, or the cluster was given back
            error = broken
        if error is not None and not self._closing.is_set():
            logger.warning("a node is not used: %s", error)

    def _start_all(self) -> list[Exception]:
        """Before the first trial. Raises NotTheSameError."""
        missing = self._missing()
        with ThreadPoolExecutor(max(1, len(missing))) as pool:
            errors = [error for error in pool.map(self._started, missing) if error is not None]
        for error in errors:
            if isinstance(error, NodeMismatchError):
                raise error
        return errors

    def _missing(self) -> Sequence[ClusterMachine]:
        """Those that are to get an agent now; `_started` gives each one."""
        machines = self._cluster.machines()
        with self._changed:
            known = {*self._nodes, *self._starting}
            missing = [
                machine
                for machine in machines
                if machine.id not in known and self._n_agents[machine.id] < MAX_AGENTS
            ]
            self._starting |= {machine.id for machine in missing}
        return missing

    def _started(self, machine: ClusterMachine) -> Exception | None:
        """Why it has no agent; None: it has."""
        try:
            self._start(machine)
        except (AutoMLError, AgentSilentError, AgentEndedError) as error:
            return error
        finally:
            with self._changed:
                self._starting.discard(machine.id)
                self._changed.notify_all()
        return None

    def _start(self, machine: ClusterMachine) -> None:
        with self._changed:
            self._n_agents[machine.id] += 1
            name = self._name(machine)
        wire = self._cluster.start(machine, name)
        if self._closing.is_set():
            return wire.kill()
        node = ClusterNode(name, wire, lambda lost: self._lost(machine, lost))
        with self._changed:
            work = self._work
        if work is not None:
            node.set_up(*work)
        node.start()
        with self._changed:
            late, self._nodes[machine.id] = self._work, node
        if work is None and late is not None:
            node.set_up(*late)
        if self._n_agents[machine.id] > 1 or work is not None:
            logger.info("node %s takes trials now", name)

    def _name(self, machine: ClusterMachine) -> str:
        """The host's, if no other node had that."""
        if machine.id not in self._names:
            taken = machine.host in self._names.values()
            self._names[machine.id] = f"{machine.host}-{machine.id[:6]}" if taken else machine.host
        return self._names[machine.id]

    def _lost(self, machine: ClusterMachine, node: ClusterNode) -> None:
        """In the thread that hears the node. Ending its agent takes seconds, in which nobody waits
        but the next agent of that machine, and the end of the cluster."""
        logger.warning("node %s is lost: %s; its trials go on elsewhere", node.name, node.lost)
        with self._changed:
            if self._given_back:
                return
            self._n_ending += 1
        try:
            node.close()
        finally:
            with self._changed:
                self._n_ending -= 1
                self._nodes.pop(machine.id, None)
                self._changed.notify_all()


def _set_up_or_lost(node: ClusterNode, shared: object, work: m.NodeSetup) -> None:
    """A node that dies meanwhile is lost as any other."""
    try:
        node.set_up(shared, work)
    except (AgentSilentError, AgentEndedError) as error:
        node.lose(str(error))
