"""Keeps an agent on every node of a cluster while nodes come and go.

A thread checks every second which nodes live: a new node gets an agent, and so does a node whose
agent has ended, up to `MAX_AGENTS` times. What one node does is in `node.py`.
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
from automl.execution.cluster.claims import ClusterUse, WholeCluster
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
"""Longest wait, at the end, for agents that are just being started."""
_MAX_PARALLEL_SETUPS = 64
"""Largest number of nodes that are set up side by side."""
MAX_AGENTS = 5
"""A node gets no other agent after this many: what runs there may be what ends them."""


@dataclass(frozen=True)
class ClusterMachine:
    """A living node as the cluster describes it, whether or not it has an agent."""

    id: str
    host: str
    n_cpus: float


class NodeMismatchError(ConfigError):
    """Raised when a node lacks a package that the sweep needs, or has another version of it."""


class ClusterBackend(Protocol):
    """A cluster that starts agents on its nodes and carries data to them."""

    def machines(self) -> Sequence[ClusterMachine]:
        """Return the nodes that live now."""

    def start(self, machine: ClusterMachine, name: str) -> AgentConnection:
        """Start an agent on a node.

        Raises NodeMismatchError, AgentSilentError, AgentEndedError.
        """

    def share(self, entry: ProcessEntry) -> object:
        """Return a reference to the entry for `AgentConnection.set_up`.

        The entry itself goes to each node once.
        """

    def lost(self) -> str | None:
        """Return why the cluster can be used no more; None while it can."""

    def close(self) -> None:
        """Give the cluster back: disconnect, or end it if it is the sweep's own."""


class ClusterNodes:
    """Manages the nodes of one cluster, each with an agent. Any thread."""

    def __init__(self, cluster: ClusterBackend) -> None:
        self._cluster = cluster
        self.claims: ClusterUse = WholeCluster()
        """Part of the nodes that the sweep may use; set before the nodes are opened."""
        self._changed = threading.Condition()  # guards all below, and never a wait for a node
        self._nodes: dict[str, ClusterNode] = {}
        self._names: dict[str, str] = {}
        """Names of nodes by the cluster's id; no name is used twice."""
        self._n_agents: Counter[str] = Counter()
        self._work: tuple[object, m.NodeSetup] | None = None
        self._starting: set[str] = set()
        """Cluster ids of nodes that are just getting an agent. Starting one on a dead node that is
        still listed takes long, and the other nodes do not wait for it."""
        self._n_ending = 0
        """Number of lost nodes whose agents are just being ended."""
        self._given_back = False
        """Whether the cluster was given back, after which no agent is ended any more."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch_nodes, name="nodes", daemon=True)

    def open(self) -> None:
        """Start an agent on each node.

        Raises NodeMismatchError, and AutoMLError where no agent can be started at all.
        """
        errors = self._start_all()
        if not self.present():
            why = "; ".join(map(str, errors)) or "it has no node"
            raise AutoMLError(f"no node of the Ray cluster can be used: {why}")
        for error in errors:
            logger.warning("a node is not used: %s", error)
        self._thread.start()
        self.claims.start()

    def set_up(self, entry: ProcessEntry, work: m.NodeSetup) -> None:
        """Prepare all nodes for trials; nodes that come later are prepared, too."""
        shared = self._cluster.share(entry)
        with self._changed:
            self._work = shared, work
        present = self.present()
        with ThreadPoolExecutor(max(1, min(len(present), _MAX_PARALLEL_SETUPS))) as pool:
            [*pool.map(lambda node: _set_up_or_lost(node, shared, work), present)]

    def lost(self) -> AutoMLError | None:
        """Return the error that ends the sweep if the cluster is lost; None while it is not."""
        if (cause := self._cluster.lost()) is None:
            return None
        return AutoMLError(
            f"the Ray cluster is lost: {cause}. Start it again, then resume the study."
        )

    def present(self) -> Sequence[ClusterNode]:
        with self._changed:
            return [node for node in self._nodes.values() if node.lost is None]

    def by_name(self, name: str) -> ClusterNode | None:
        """Return the node of that name; None if it is lost."""
        return next((node for node in self.present() if node.name == name), None)

    def name_of(self, machine_id: str) -> str | None:
        """Return the name of a node by the cluster's id; None while it has no agent."""
        with self._changed:
            node = self._nodes.get(machine_id)
            return None if node is None else node.name

    def end_idle(self, device: DeviceId) -> bool:
        """Make idle processes leave a device; return whether none is left there."""
        node = self.by_name(device.node)
        if node is None or not any(device in place for place in node.idle):
            return True
        node.tell(m.EndIdle(frozenset({device})))
        return False

    def tell(self, command: m.ToAgent) -> None:
        """Send a command to all nodes."""
        for node in self.present():
            node.tell(command)

    def close(self) -> None:
        """End all agents, and give the cluster back. Call it when no trial runs any more."""
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

    def _watch_nodes(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            for machine in self._missing():
                threading.Thread(
                    target=self._start_later, args=(machine,), name="starting", daemon=True
                ).start()

    def _start_later(self, machine: ClusterMachine) -> None:
        error: Exception | None
        try:
            error = self._try_start(machine)
        except Exception as unexpected:  # noqa: BLE001 - logged unless the cluster is being closed
            error = unexpected
        if error is not None and not self._closing.is_set():
            logger.warning("a node is not used: %s", error)

    def _start_all(self) -> list[Exception]:
        """Start the first agents; return the errors of the others. Raises NodeMismatchError."""
        missing = self._missing()
        with ThreadPoolExecutor(max(1, len(missing))) as pool:
            errors = [error for error in pool.map(self._try_start, missing) if error is not None]
        for error in errors:
            if isinstance(error, NodeMismatchError):
                raise error
        return errors

    def _missing(self) -> Sequence[ClusterMachine]:
        """Return the nodes that are to get an agent now, and note that they are being started.

        The caller passes each one to `_try_start`, which removes the note.
        """
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

    def _try_start(self, machine: ClusterMachine) -> Exception | None:
        """Start an agent on the node; return why there is none, or None if there is one."""
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
        node = ClusterNode(name, wire, lambda lost: self._on_node_lost(machine, lost))
        with self._changed:
            work = self._work
        if work is not None:
            node.set_up(*work)
        node.start()
        with self._changed:
            later_work, self._nodes[machine.id] = self._work, node
        if work is None and later_work is not None:
            node.set_up(*later_work)
        if self._n_agents[machine.id] > 1 or work is not None:
            logger.info("node %s takes trials now", name)

    def _name(self, machine: ClusterMachine) -> str:
        """Return the node's name: its host's, or the host's and an id if another node has that."""
        if machine.id not in self._names:
            taken = machine.host in self._names.values()
            self._names[machine.id] = f"{machine.host}-{machine.id[:6]}" if taken else machine.host
        return self._names[machine.id]

    def _on_node_lost(self, machine: ClusterMachine, node: ClusterNode) -> None:
        """End the agent of a lost node, in the thread that polls the node.

        This takes seconds. Only the next agent of that machine, and the cluster's end, wait for it.
        """
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
    """Set up a node; a node that dies meanwhile is lost like any other."""
    try:
        node.set_up(shared, work)
    except (AgentSilentError, AgentEndedError) as error:
        node.lose(str(error))
