"""Ray clusters of several nodes on this machine, bound to loopback, and ours upon them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from automl.config import DevicesConfig, RayConfig
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.node import AgentConnection, ClusterNode
from automl.execution.cluster.node_files import CodeFolder
from automl.execution.cluster.nodes import ClusterMachine, ClusterNodes
from automl.execution.cluster.ray_cluster import RayCluster
from automl.running.opening.cluster_machines import AGENT_TARGET
from automl.running.opening.node_agent import NodeSettings
from automl.trial import HOST_UUID, DeviceId, DeviceShare, Placement
from tests.processes import is_running

ROOT = Path(__file__).parents[3]
SETTINGS = NodeSettings(DevicesConfig("cpu"), False, 1, 4, ())


_WITHOUT = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""The autoscaler's monitor and that of logs take 1.5 s of a core, and none of these tests asks
them for anything."""


@contextmanager
def ray_cluster(
    n_nodes: int, each: Mapping[str, object] | None = None, **head: object
) -> Iterator[Any]:
    """Ray's own, of so many nodes with a CPU each; what `each` and what its first one has
    besides."""
    each = each or {}
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["PYTHONPATH"] = str(ROOT)  # its workers import the tests' objectives
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        from ray.cluster_utils import Cluster

        class OneMachineCluster(Cluster):
            """A cluster whose nodes unpack the code each into a folder of its own, as machines do.

            Ray's has one folder for all of them, and a new node replaces the code that others run.
            """

            def add_node(self, *args: Any, **node: Any) -> Any:
                if self.head_node is not None:  # the head's has the name that drivers look for
                    node["runtime_env_dir_name"] = f"runtime_resources_{uuid.uuid4().hex[:8]}"
                return super().add_node(*args, **node)

        head_node = {**_WITHOUT, **each, **head}
        cluster: Any = OneMachineCluster(initialize_head=True, head_node_args=head_node)
        for _ in range(n_nodes - 1):
            cluster.add_node(**each)
    try:
        yield cluster
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cluster.shutdown()


class Apart(RayCluster):
    """Its nodes see no folder of the sweep's, as they would on other machines."""

    def start(self, machine: ClusterMachine, name: str) -> AgentConnection:
        wire = super().start(machine, name)
        set_up = wire.set_up

        def elsewhere(entry: object, work: m.NodeSetup) -> bool:
            return set_up(entry, replace(work, marker_content="of another folder"))

        wire.set_up = elsewhere  # type: ignore[method-assign]
        return wire


@contextmanager
def nodes_of(address: str, cluster: type[RayCluster] = RayCluster) -> Iterator[ClusterNodes]:
    """Ours on it, while a sweep would run."""
    nodes = ClusterNodes(
        cluster(RayConfig(address), CodeFolder(Path.cwd(), TESTS), AGENT_TARGET, SETTINGS)
    )
    try:
        nodes.open()
        yield nodes
    finally:
        nodes.close()


TESTS = ("/.venv*", ".git", "/experiments", "/studies", "__pycache__", "*_cache", ".hypothesis")


def on(node: ClusterNode | str) -> Placement:
    """On the machine itself."""
    name = node if isinstance(node, str) else node.name
    return Placement((DeviceShare(DeviceId(name, HOST_UUID), "cpu", 0),))


def pid_of(node: ClusterNode) -> int:
    """Of its agent, which is on this machine here."""
    wire: Any = node._connection
    pid: int = wire._about["pid"]
    return pid


def has_ended(pid: int) -> None:
    until(lambda: not is_running(pid))


def until(holds: Callable[[], object]) -> None:
    """A minute at the most."""
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("not within a minute")


_COMMANDS = (
    "cluster_synced_files",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
"""What the autoscaler has to be told of, and runs nowhere on nodes of this machine."""


@contextmanager
def growing_cluster(max_workers: int) -> Iterator[str]:
    """A head with a CPU, and Ray's autoscaler, which adds nodes with one each; its address.

    What `ray.cluster_utils.AutoscalingCluster` starts, whose configuration is not in Ray's wheel;
    and that ends by `ray stop`, which would end every cluster of this machine.
    """
    port = _free_port()
    types = {
        "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "cpu": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": max_workers},
    }
    config = {
        "cluster_name": "growing",
        "max_workers": max_workers,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": f"127.0.0.1:{port}",
            "use_node_id_as_ip": True,  # all are on this one
        },
        **{key: {} for key in ("auth", "docker", "file_mounts")},
        **{key: [] for key in _COMMANDS},
        "available_node_types": types,
        "head_node_type": "ray.head.default",
    }
    environment = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    with short_folder() as folder:
        (folder / "autoscaling.json").write_text(json.dumps(config))
        word = f"--autoscaling-config={folder / 'autoscaling.json'}"
        with started_head(folder, word, port=port, environment=environment) as address:
            yield address


@contextmanager
def short_folder() -> Iterator[Path]:
    """Where Ray's sockets have names that are short enough."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def started_head(
    folder: Path, *words: str, environment: Mapping[str, str], port: int | None = None
) -> Iterator[str]:
    """A node with a CPU that `ray start --head` makes; its address."""
    address = f"127.0.0.1:{port or _free_port()}"
    ours = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
    }
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"),
        *(f"--port={address.rpartition(':')[2]}", "--node-ip-address=127.0.0.1", "--num-cpus=1"),
        *("--include-dashboard=false", "--dashboard-agent-listen-port=0"),
        *(f"--temp-dir={folder / 'ray'}", *words),
    ]
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(
            command, env={**os.environ, **ours, **environment}, stdout=log, stderr=log
        )
    try:
        until(lambda: "now block" in (folder / "head.log").read_text() or head.poll() is not None)
        assert head.poll() is None, (folder / "head.log").read_text()
        yield address
    finally:
        left = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        left += [process for process in psutil.process_iter() if is_of(process, address)]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        head.wait()


def is_of(process: psutil.Process, address: str) -> bool:
    """A process of Ray's that was told the address of this cluster."""
    with suppress(psutil.Error):
        return any(address in word for word in process.cmdline())
    return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
