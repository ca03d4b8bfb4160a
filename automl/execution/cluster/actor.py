"""What Ray runs on a node: the agent, made there. Imports as little as can be, and no ray but in a
process of Ray's."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from automl.execution.cluster import ports
from automl.execution.cluster.head import HeadWatch
from automl.execution.executor import resolve

if TYPE_CHECKING:
    from automl.execution.cluster import messages as m
    from automl.execution.cluster.agent import Agent
    from automl.trial import Entry

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
        self._agent: Agent | None = None
        self._listening: socket.socket | None = None

    def about(self) -> Mapping[str, object]:
        """Which versions there are here, and which process this is, with a port of its own."""
        import ray

        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's own
        self._listening = ports.listen(host)
        port = None if self._listening is None else ports.address_of(self._listening)
        pid = os.getpid()
        process = {"boot": this_boot(), "pid": pid, "began": began(pid), "port": port}
        return {"versions": versions(), **process}

    def open(self) -> None:
        """Once the versions are known to be right."""
        import ray

        agent: Agent = resolve(self._target)(self._config)
        head: str = ray.get_runtime_context().gcs_address
        cause = f"the cluster's head was not reached for {WITHOUT_A_HEAD_SECONDS:g} s"
        HeadWatch(
            lambda: ports.answers(head), WITHOUT_A_HEAD_SECONDS, lambda: agent.end(cause)
        ).start()
        self._agent = agent

    def set_up(self, entry: Entry, work: m.NodeWork) -> bool:
        return self._opened.set_up(entry, work)

    def poll(self, n_taken: int, echo_seconds: float | None, told: m.Told) -> m.Polled:
        return self._opened.poll(n_taken, echo_seconds, told)

    def tell(self, told: m.Told) -> None:
        self._opened.tell(told)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()

    @property
    def _opened(self) -> Agent:
        assert self._agent is not None, "opened before"
        return self._agent
