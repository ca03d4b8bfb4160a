"""Defines the actor that Ray runs on a node, and checks by TCP ports whether processes live.

The actor makes the node's agent. The module imports as little as possible, and imports ray only in
a process of Ray's.

The port `HOST:PORT` of a cluster's head tells at once that the head is gone; Ray itself tells it
after a minute. A head that is stopped looks like one that works, since its kernel still answers.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from automl.execution.executor import resolve_entry

if TYPE_CHECKING:
    from automl.execution.cluster import node_messages as m
    from automl.execution.cluster.agent import NodeAgent
    from automl.trial import ProcessEntry

LOOK_SECONDS = 1.0


class ClusterHeadWatch:
    """Checks every second, in a thread, whether a head answers; start it once, `close` ends it."""

    def __init__(
        self,
        answers: Callable[[], bool],
        patience_seconds: float,
        gone: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `gone` once, in the watch's thread, when the head has not answered for so long."""
        self._answers, self._gone, self._clock = answers, gone, clock
        self._patience_seconds = patience_seconds
        self._silent_since: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="head", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the watch, and return when its thread has ended."""
        self._closing.set()
        self._thread.join()

    def is_gone(self) -> bool:
        """Check the head; return whether it has been silent for `patience_seconds`.

        The time counts from the first check without an answer. A process that was stopped meanwhile
        therefore has to find the head silent twice.
        """
        checked = self._clock()
        if self._answers():
            self._silent_since = None
            return False
        if self._silent_since is None:
            self._silent_since = checked
        return self._clock() - self._silent_since >= self._patience_seconds

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            if self.is_gone():
                self._gone()
                return


_CONNECT_SECONDS = 2.0


def open_listening_port(host: str) -> socket.socket | None:
    """Open a port that accepts connections as long as this process lives; no data is exchanged.

    Returns None where the machine cannot bind that host name.
    """
    with suppress(OSError):
        return socket.create_server((host, 0))
    return None


def socket_address(listening: socket.socket) -> str:
    """Return the `HOST:PORT` under which other processes reach the socket."""
    host, port, *_ = listening.getsockname()
    return f"{host}:{port}"


def accepts_connections(address: str) -> bool:
    """Return whether the address accepts a connection now."""
    try:
        _connect(address)
    except OSError:
        return False
    return True


def refuses_connections(address: str) -> bool:
    """Return whether the machine reports that no process listens at the address.

    A machine that is cut off reports nothing.
    """
    try:
        _connect(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()


RETRIED = {"max_task_retries": -1}
"""Options of a method that Ray calls again where it has lost the call or its answer. An actor that
has ended is not called again."""
COMPARED = ("automl-sweep", "ray", "torch")
"""Packages whose versions have to be the same on each node as in the sweep."""
WITHOUT_A_HEAD_SECONDS = 15.0
"""An agent that does not reach the cluster's head ends its workers after this time. Ray itself
would end the agent after a minute."""


def software_versions() -> Mapping[str, str]:
    """Return the minor version of Python and the versions of the `COMPARED` packages."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def boot_id() -> str:
    """Return an id of this machine's present boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """Return the kernel's start time of a process on this machine; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class AgentActor:
    """The Ray actor of a node's agent, which `target`, as `module:function`, makes of `config`."""

    def __init__(self, target: str, config: object) -> None:
        # Ray puts older copies of packages on the path that our workers import, too.
        ray_copies = os.path.join("ray", "thirdparty_files")
        sys.path[:] = [path for path in sys.path if not path.endswith(ray_copies)]
        self._target, self._config = target, config
        self._agent: NodeAgent | None = None
        self._listening: socket.socket | None = None

    def about(self) -> Mapping[str, object]:
        """Return the versions here, and this process's boot, id, start and listening port."""
        import ray

        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's own
        self._listening = open_listening_port(host)
        port = None if self._listening is None else socket_address(self._listening)
        pid = os.getpid()
        process = {"boot": boot_id(), "pid": pid, "began": process_start(pid), "port": port}
        return {"versions": software_versions(), **process}

    def open(self) -> None:
        """Make the agent, once; call it when the versions are known to be right."""
        if self._agent is not None:  # the answer to the first call was lost
            return
        import ray

        agent: NodeAgent = resolve_entry(self._target)(self._config)
        head: str = ray.get_runtime_context().gcs_address
        cause = f"the cluster's head was not reached for {WITHOUT_A_HEAD_SECONDS:g} s"
        ClusterHeadWatch(
            lambda: accepts_connections(head), WITHOUT_A_HEAD_SECONDS, lambda: agent.end(cause)
        ).start()
        self._agent = agent

    def set_up(self, entry: ProcessEntry, work: m.NodeSetup) -> bool:
        return self._opened.set_up(entry, work)

    def poll(
        self, n_taken: int, echo_seconds: float | None, commands: m.CommandBatch
    ) -> m.PollAnswer:
        return self._opened.poll(n_taken, echo_seconds, commands)

    def tell(self, commands: m.CommandBatch) -> None:
        self._opened.tell(commands)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()

    @property
    def _opened(self) -> NodeAgent:
        assert self._agent is not None, "the agent is opened before"
        return self._agent
