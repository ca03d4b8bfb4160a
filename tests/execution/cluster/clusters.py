"""Ray clusters of several nodes on this machine, bound to loopback, and ours upon them."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from automl.config import DevicesConfig, DevicesKind, RayConfig
from automl.execution.cluster import messages as m
from automl.execution.cluster.code import Code
from automl.execution.cluster.node import Node, Wire
from automl.execution.cluster.nodes import Machine, Nodes
from automl.execution.cluster.on_ray import RayCluster
from automl.running.machines import AGENT
from automl.running.on_node import NodeSettings
from automl.trial import HOST_UUID, DeviceId, Placement, Share

ROOT = Path(__file__).parents[3]
SETTINGS = NodeSettings(DevicesConfig(kind=DevicesKind.host), False, 1, 4, ())


@contextmanager
def ray_cluster(n_nodes: int) -> Iterator[Any]:
    """Ray's own, of so many nodes with a CPU each."""
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["PYTHONPATH"] = str(ROOT)  # its workers import the tests' objectives
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        from ray.cluster_utils import Cluster

        cluster: Any = Cluster(initialize_head=True, head_node_args={"include_dashboard": False})
        for _ in range(n_nodes - 1):
            cluster.add_node()
    try:
        yield cluster
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cluster.shutdown()


class Apart(RayCluster):
    """Its nodes see no folder of the sweep's, as they would on other machines."""

    def start(self, machine: Machine, name: str) -> Wire:
        wire = super().start(machine, name)
        set_up = wire.set_up

        def elsewhere(entry: object, work: m.NodeWork) -> bool:
            return set_up(entry, replace(work, marked="of another folder"))

        wire.set_up = elsewhere  # type: ignore[method-assign]
        return wire


@contextmanager
def nodes_of(address: str, cluster: type[RayCluster] = RayCluster) -> Iterator[Nodes]:
    """Ours on it, while a sweep would run."""
    nodes = Nodes(cluster(RayConfig(address), Code(Path.cwd(), TESTS), AGENT, SETTINGS))
    try:
        nodes.open()
        yield nodes
    finally:
        nodes.close()


TESTS = ("/.venv*", ".git", "/experiments", "/studies", "__pycache__", "*_cache", ".hypothesis")


def on(node: Node | str) -> Placement:
    """On the machine itself."""
    name = node if isinstance(node, str) else node.name
    return Placement((Share(DeviceId(name, HOST_UUID), "cpu", 0),))


def pid_of(node: Node) -> int:
    """Of its agent, which is on this machine here."""
    wire: Any = node._wire
    pid: int = wire._about["pid"]
    return pid


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def has_ended(pid: int) -> None:
    until(lambda: not runs(pid))


def until(holds: Callable[[], object]) -> None:
    """A minute at the most."""
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("not within a minute")
