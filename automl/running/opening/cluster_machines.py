"""Opens the nodes of a cluster as the machines of a sweep. Sweeps of this machine do not load this
module.

`devices execution=ray` reads the devices of a cluster's nodes in the same way, by an agent on each
node, which ends with the command. It sends no user code, claims nothing, and asks for no node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from automl.config import Config, ObjectiveKind, StudyConfig
from automl.config.execution import LOCAL_ADDRESS
from automl.devices.device_reader import FIRST_READING_SECONDS
from automl.devices.device_reading import (
    DeviceReading,
    NodeReading,
    NodesReader,
    close_unclaimed_devices,
)
from automl.errors import AutoMLError
from automl.execution.cluster.autoscaler import GrowingCluster
from automl.execution.cluster.claims import ClaimedResources, ResourceClaim
from automl.execution.cluster.node_files import CodeFolder, find_code
from automl.execution.cluster.nodes import ClusterNodes
from automl.execution.cluster.nodes_executor import NodesExecutor
from automl.execution.cluster.ray_cluster import RayCluster
from automl.execution.executor import Executor
from automl.record.study_directory import StudyDirectory
from automl.running.loop.messages import DeviceShortage
from automl.running.opening.machines import checkpoint_store, worker_limits
from automl.running.opening.node_agent import NodeSettings
from automl.running.opening.warm_start import training_preloads
from automl.running.prepare.prepared_config import PreparedStudy
from automl.tracking.deliver.process import NICENESS_BELOW_RAY
from automl.trial import DeviceKind

AGENT_TARGET = "automl.running.opening.node_agent:open_agent"
GIVEN_GPU = "automl.devices.torch_gpus:assigned_gpu"
MAX_THREADS = 10_000
"""Largest number of threads for the nodes of a cluster. A thread starts when it is needed."""
MAX_WORKERS = 512
"""Largest number of workers on a node."""


class Cluster:
    """The nodes of a cluster, which may come and go while the sweep runs."""

    niceness = NICENESS_BELOW_RAY
    checkpoints_are_here = False

    def __init__(self, nodes: ClusterNodes) -> None:
        self._nodes = nodes
        self.reader = NodesReader(lambda: node_readings(nodes))

    @classmethod
    def open(cls, prepared: PreparedStudy) -> Cluster:
        """Start an agent on each node. Raises ConfigError if the cluster cannot be used,
        AutoMLError if no node answers."""
        nodes = _nodes(prepared)
        try:
            nodes.open()
        except BaseException:
            nodes.close()
            raise
        return cls(nodes)

    def n_places(self, prepared: PreparedStudy) -> int:
        limits = prepared.limits.with_places_of(self.reader.take().devices)
        return limits.at_once(self.reader.addresses)

    def n_threads(self, prepared: PreparedStudy) -> int:
        """Return `MAX_THREADS`, since nodes may still come."""
        return MAX_THREADS

    def executor(
        self, prepared: PreparedStudy, directory: StudyDirectory, study_uuid: str
    ) -> Executor:
        study = prepared.config.study
        return NodesExecutor(
            self._nodes,
            prepared.entry,
            directory.path,
            worker_limits(prepared, MAX_WORKERS),
            stored=checkpoint_store(study, study_uuid),
            stores_shared=study.shared,
        )

    def checkpoint_store(self, study: StudyConfig, study_uuid: str) -> None:
        """Return None, since the nodes keep the copies."""

    def look_after(self, shortage: DeviceShortage | None) -> AutoMLError | None:
        if (lost := self._nodes.lost()) is not None:
            return lost
        if shortage is not None:
            self._nodes.claims.want(shortage.kinds, shortage.n)
        return None

    def close(self) -> None:
        """End all agents, and give the cluster back."""
        self._nodes.close()


def _nodes(prepared: PreparedStudy) -> ClusterNodes:
    config, folder = prepared.config, Path.cwd()
    code = CodeFolder(folder, ())
    if config.ray.address != LOCAL_ADDRESS:
        away = [Path(config.study.dir), *_tables(config)]
        code = find_code(folder, config.ray.max_code_bytes, away)
    settings = _settings(prepared)
    cluster = RayCluster(config.ray, code, AGENT_TARGET, settings)
    nodes = ClusterNodes(cluster)

    def ask(kind: DeviceKind) -> ResourceClaim:
        return cluster.claim(kind, GIVEN_GPU, settings.cores_per_trial, nodes.name_of)

    if config.ray.claim:
        nodes.claims = ClaimedResources(ask, nodes.end_idle)
    else:
        nodes.claims = GrowingCluster(cluster.autoscaler, settings.cores_per_trial)
    return nodes


def _tables(config: Config) -> list[Path]:
    """Return the tables that the sweep reads itself, and shares."""
    paths = (config.data.path, config.data.test_path)
    is_read = config.objective.kind is ObjectiveKind.builtin
    return [Path(path) for path in paths if path is not None and is_read]


def _settings(prepared: PreparedStudy) -> NodeSettings:
    config = prepared.config
    return NodeSettings(
        devices=prepared.devices,
        beside_gpus=prepared.uses_cpu_beside_gpus,
        cores_per_trial=config.execution.threads_per_trial + prepared.n_loaders,
        max_on_host=config.admission.max_concurrent_trials,
        modules=training_preloads(config),
    )


def node_readings(nodes: ClusterNodes) -> Sequence[NodeReading]:
    """Return the last reading of each node, by our clock. Only what is claimed counts."""
    found, held = [], nodes.claims.held()
    for node in nodes.present():
        reading = None if node.last is None else node.last.reading
        if isinstance(reading, DeviceReading):
            begun = reading.begun_seconds + node.offset_seconds
            ours = replace(reading, begun_seconds=begun)
            ours = ours if held is None else close_unclaimed_devices(ours, held)
            found.append(NodeReading(node.name, ours, node.heard_seconds))
    return found


_STEP_SECONDS = 0.05


@contextmanager
def open_cluster_nodes(config: Config) -> Iterator[ClusterNodes]:
    """Open the nodes of the config's cluster once each was read, or after `FIRST_READING_SECONDS`.

    Raises ConfigError if the cluster cannot be used, AutoMLError if no node answers.
    """
    with closing(
        ClusterNodes(RayCluster(config.ray, None, AGENT_TARGET, _read_only_settings(config)))
    ) as nodes:
        nodes.open()
        ends = time.monotonic() + FIRST_READING_SECONDS
        while unread_nodes(nodes) and time.monotonic() < ends:
            time.sleep(_STEP_SECONDS)
        if not node_readings(nodes):
            raise AutoMLError(
                f"no node's devices have answered for {FIRST_READING_SECONDS:g} s; does "
                f"nvidia-smi answer "
                f"on {', '.join(unread_nodes(nodes)) or 'its nodes'}?"
            )
        yield nodes


def unread_nodes(nodes: ClusterNodes) -> Sequence[str]:
    """Return the nodes whose agents have not reported their devices yet."""
    read = {reading.node for reading in node_readings(nodes)}
    return sorted(node.name for node in nodes.present() if node.name not in read)


def _read_only_settings(config: Config) -> NodeSettings:
    return NodeSettings(
        devices=config.devices,
        beside_gpus=False,
        cores_per_trial=config.execution.threads_per_trial,
        max_on_host=config.admission.max_concurrent_trials,
        modules=(),
    )
