"""What Ray runs on a node: the agent, made there. Imports as little as can be, and no ray but in a
process of Ray's.

Whether a cluster's head is there: its port tells at once what Ray itself says after a minute.

One that is stopped is not told from one that works: its kernel still answers.

What a TCP port tells of the process behind it, and of its machine: `HOST:PORT`.
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


class HeadWatch:
    """Looks every second; start it once, `close` ends it."""

    def __init__(
        self,
        answers: Callable[[], bool],
        patience_seconds: float,
        gone: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gone` is called once, in the watch's thread, when it did not answer for so long."""
        self._answers, self._gone, self._clock = answers, gone, clock
        self._patience_seconds = patience_seconds
        self._silent_since: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="head", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Return when it has ended."""
        self._closing.set()
        self._thread.join()

    def is_gone(self) -> bool:
        """Look; whether it has not answered for that long. Who was stopped meanwhile has to find it
        silent twice."""
        looked = self._clock()
        if self._answers():
            self._silent_since = None
            return False
        if self._silent_since is None:
            self._silent_since = looked
        return self._clock() - self._silent_since >= self._patience_seconds

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            if self.is_gone():
                self._gone()
                return


_CONNECT_SECONDS = 2.0


def listen(host: str) -> socket.socket | None:
    """A port that takes connections as long as this process lives; nothing is ever said there.
    None: the machine does not know itself by that name."""
    with suppress(OSError):
        return socket.create_server((host, 0))
    return None


def address_of(listening: socket.socket) -> str:
    """For others."""
    host, port, *_ = listening.getsockname()
    return f"{host}:{port}"


def answers(address: str) -> bool:
    """Whether a connection is taken there now."""
    try:
        _connect(address)
    except OSError:
        return False
    return True


def refuses(address: str) -> bool:
    """Whether the machine says that no process listens there. One that is cut off says nothing."""
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


COMPARED = ("automl-sweep", "ray", "torch")
"""Packages of which each node is to have the version that the sweep has."""
WITHOUT_A_HEAD_SECONDS = 15.0
"""So long an agent's workers live on when it does not reach the cluster's head. Ray itself would
end the agent after a minute."""


def versions() -> Mapping[str, str]:
    """Of Python, by its minor, and of what is compared."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def this_boot() -> str:
    """Tells machines apart, and lives of one; empty where nobody says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def began(pid: int) -> str | None:
    """When the process of this machine began, in words of the kernel; None: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class AgentActor:
    """The agent that `target`, as `module:function`, makes of `config`."""

    def __init__(self, target: str, config: object) -> None:
        of_ray = os.path.join("ray", "thirdparty_files")  # older copies of what our workers import
        sys.path[:] = [path for path in sys.path if not path.endswith(of_ray)]
        self._target, self._config = target, config
        self._agent: NodeAgent | None = None
        self._listening: socket.socket | None = None

    def about(self) -> Mapping[str, object]:
        """Which versions there are here, and which process this is, with a port of its own."""
        import ray

        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's own
        self._listening = listen(host)
        port = None if self._listening is None else address_of(self._listening)
        pid = os.getpid()
        process = {"boot": this_boot(), "pid": pid, "began": began(pid), "port": port}
        return {"versions": versions(), **process}

    def open(self) -> None:
        """Once the versions are known to be right."""
        import ray

        agent: NodeAgent = resolve_entry(self._target)(self._config)
        head: str = ray.get_runtime_context().gcs_address
        cause = f"the cluster's head was not reached for {WITHOUT_A_HEAD_SECONDS:g} s"
        HeadWatch(lambda: answers(head), WITHOUT_A_HEAD_SECONDS, lambda: agent.end(cause)).start()
        self._agent = agent

    def set_up(self, entry: ProcessEntry, work: m.NodeSetup) -> bool:
        return self._opened.set_up(entry, work)

    def poll(self, n_taken: int, echo_seconds: float | None, told: m.CommandsTold) -> m.PollAnswer:
        return self._opened.poll(n_taken, echo_seconds, told)

    def tell(self, told: m.CommandsTold) -> None:
        self._opened.tell(told)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()

    @property
    def _opened(self) -> NodeAgent:
        assert self._agent is not None, "opened before"
        return self._agent
