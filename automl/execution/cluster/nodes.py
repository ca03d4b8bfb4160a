"""The nodes of a cluster as they come and go.

A thread looks every second who is there: a new node gets an agent, and so does one whose agent
ended, up to a number of times.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from automl.errors import AutoMLError, ConfigError
from automl.execution.cluster import messages as m
from automl.execution.cluster.node import EndedError, Node, SilentError, Wire
from automl.trial import Entry

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_JOIN_SECONDS = 10.0
"""A node that is just being started is left to the cluster's end."""
MAX_AGENTS = 5
"""A node whose agents have ended so often gets no other: it may be what runs there."""


@dataclass(frozen=True)
class Machine:
    """A living node, as the cluster knows it."""

    id: str
    host: str
    n_cpus: float


class NotTheSameError(ConfigError):
    """Raised when a node has not what the sweep needs there, or another version of it."""


class Cluster(Protocol):
    """What carries processes and data to nodes."""

    def machines(self) -> Sequence[Machine]:
        """Those that live now."""

    def start(self, machine: Machine, name: str) -> Wire:
        """An agent there. Raises NotTheSameError, SilentError, EndedError."""

    def share(self, entry: Entry) -> object:
        """What stands for it in `Wire.set_up`: it goes to each node once."""

    def close(self) -> None:
        """Give it back."""


class Nodes:
    """Those of one cluster, each with an agent. Any thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()  # guards all below
        self._nodes: dict[str, Node] = {}
        self._names: dict[str, str] = {}
        """By the cluster's id; a name is never given twice."""
        self._n_agents: Counter[str] = Counter()
        self._work: tuple[object, m.NodeWork] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look, name="nodes", daemon=True)

    def open(self) -> None:
        """Start an agent on each node. Raises NotTheSameError, and AutoMLError where none can be
        started at all."""
        errors = self._start_missing()
        if not self.present():
            why = "; ".join(map(str, errors)) or "it has no node"
            raise AutoMLError(f"no node of the Ray cluster can be used: {why}")
        for error in errors:
            logger.warning("a node is not used: %s", error)
        self._thread.start()

    def set_up(self, entry: Entry, work: m.NodeWork) -> None:
        """From now on trials may come, to nodes that come later, too."""
        shared = self._cluster.share(entry)
        with self._lock:
            self._work = shared, work
        for node in self.present():
            node.set_up(shared, work)

    def present(self) -> Sequence[Node]:
        with self._lock:
            return [node for node in self._nodes.values() if node.lost is None]

    def by_name(self, name: str) -> Node | None:
        """None: it is lost."""
        return next((node for node in self.present() if node.name == name), None)

    def tell(self, command: m.ToAgent) -> None:
        """All of them."""
        for node in self.present():
            node.tell(command)

    def close(self) -> None:
        """End all agents, and give the cluster back. No trial is running any more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)
        present = self.present()
        with ThreadPoolExecutor(max(1, len(present))) as pool:
            wait([pool.submit(node.close) for node in present])
        with self._lock:  # nobody closes a lost one
            self._cluster.close()

    def _look(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            for error in self._start_missing():
                logger.warning("a node is not used: %s", error)

    def _start_missing(self) -> list[Exception]:
        machines = self._cluster.machines()
        with self._lock:
            missing = [
                machine
                for machine in machines
                if machine.id not in self._nodes and self._n_agents[machine.id] < MAX_AGENTS
            ]
        if not missing:
            return []
        errors: list[Exception] = []
        with ThreadPoolExecutor(len(missing)) as pool:
            for started in [pool.submit(self._start, machine) for machine in missing]:
                try:
                    started.result()
                except (AutoMLError, SilentError, EndedError) as error:
                    errors.append(error)
        differ = [error for error in errors if isinstance(error, NotTheSameError)]
        if differ and self._work is None:  # it has not begun
            raise differ[0]
        return errors

    def _start(self, machine: Machine) -> None:
        with self._lock:
            self._n_agents[machine.id] += 1
            name = self._name(machine)
        wire = self._cluster.start(machine, name)
        node = Node(name, wire, lambda lost: self._lost(machine, lost))
        with self._lock:
            work = self._work
        if work is not None:
            node.set_up(*work)
        node.start()
        with self._lock:
            late, self._nodes[machine.id] = self._work, node
        if work is None and late is not None:
            node.set_up(*late)
        if self._n_agents[machine.id] > 1 or work is not None:
            logger.info("node %s takes trials now", name)

    def _name(self, machine: Machine) -> str:
        """The host's, if no other node had that."""
        if machine.id not in self._names:
            taken = machine.host in self._names.values()
            self._names[machine.id] = f"{machine.host}-{machine.id[:6]}" if taken else machine.host
        return self._names[machine.id]

    def _lost(self, machine: Machine, node: Node) -> None:
        logger.warning("node %s is lost: %s; its trials go on elsewhere", node.name, node.lost)
        with self._lock:
            self._nodes.pop(machine.id, None)
            node.close()
