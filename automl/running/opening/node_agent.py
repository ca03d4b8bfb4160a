"""Makes a sweep's agent on a node of a cluster: a reader of the node's devices, and workers.

The file stands alone because each node imports it by name, without loading what the sweep itself
needs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from automl.config import DevicesConfig
from automl.devices.device_reader import (
    READING_SECONDS,
    DeviceReader,
    open_device_reader,
    take_reading,
)
from automl.devices.device_reading import DeviceReading, address_on_node
from automl.devices.host import usable_cores
from automl.execution.cluster.agent import NodeAgent, ReadHeld
from automl.execution.worker_process import preload_fork_server


@dataclass(frozen=True)
class NodeSettings:
    """The part of the config that each node needs."""

    devices: DevicesConfig
    beside_gpus: bool
    cores_per_trial: int
    max_on_host: int | None
    """Largest number of trials on the host. None for as many as the cores allow."""
    modules: Sequence[str]
    """Modules that the fork server of the workers loads in advance."""

    def n_places(self, n_cpus: float) -> int:
        """Return how many trials the host trains at once with `n_cpus` CPUs of the cluster."""
        if n_cpus < 1:
            return 0
        per_core = max(1, min(usable_cores(), int(n_cpus)) // self.cores_per_trial)
        return self.max_on_host or per_core


def open_agent(config: tuple[str, float, NodeSettings]) -> NodeAgent:
    """Return the agent for a node's name, CPUs and settings. Raises ConfigError."""
    name, n_cpus, settings = config
    reader = open_device_reader(settings.devices, beside_gpus=settings.beside_gpus)
    preload_fork_server(*settings.modules)
    read = partial(_read, reader, name, settings.n_places(n_cpus))
    return NodeAgent(read, READING_SECONDS, leave=partial(os._exit, 1))


def _read(reader: DeviceReader, name: str, n_places: int, held: ReadHeld) -> DeviceReading:
    return address_on_node(take_reading(reader, held), name, n_places)
