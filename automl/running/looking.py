"""The devices of a cluster's nodes, for who only looks (`devices execution=ray`).

As a sweep has them read: by an agent on each node, which ends with the look. None of the user's
code goes there, nothing is claimed, and no node is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from automl.config import Config
from automl.devices.reader import FIRST_SECONDS
from automl.errors import AutoMLError
from automl.execution.cluster.nodes import Nodes
from automl.execution.cluster.on_ray import RayCluster
from automl.running.machines import AGENT, readings
from automl.running.on_node import NodeSettings

_STEP_SECONDS = 0.05


@contextmanager
def open_nodes(config: Config) -> Iterator[Nodes]:
    """The nodes of the cluster that the config names, once each was read, or `FIRST_SECONDS` went
    by. Raises ConfigError where it cannot be used, AutoMLError where no node answers."""
    with closing(Nodes(RayCluster(config.ray, None, AGENT, _settings(config)))) as nodes:
        nodes.open()
        ends = time.monotonic() + FIRST_SECONDS
        while unread(nodes) and time.monotonic() < ends:
            time.sleep(_STEP_SECONDS)
        if not readings(nodes):
            raise AutoMLError(
                f"no node's devices have answered for {FIRST_SECONDS:g} s; does nvidia-smi answer "
                f"on {', '.join(unread(nodes)) or 'its nodes'}?"
            )
        yield nodes


def unread(nodes: Nodes) -> Sequence[str]:
    """The nodes whose agents have not said yet what their devices are."""
    read = {reading.node for reading in readings(nodes)}
    return sorted(node.name for node in nodes.present() if node.name not in read)


def _settings(config: Config) -> NodeSettings:
    return NodeSettings(
        devices=config.devices,
        beside_gpus=False,
        cores_per_trial=config.execution.threads_per_trial,
        max_on_host=config.admission.max_concurrent_trials,
        modules=(),
    )
