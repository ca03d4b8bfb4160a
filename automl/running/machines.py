"""Where a sweep's trials may run: this machine, or the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, ExecutionKind, ObjectiveKind
from automl.config.ray import LOCAL
from automl.devices.device import DeviceReader, Reading
from automl.devices.nodes import NodeReading, NodesReader, as_held
from automl.devices.reader import open_reader
from automl.running.on_node import NodeSettings
from automl.running.prepared import Prepared
from automl.running.warm import for_training
from automl.trial import DeviceKind

if TYPE_CHECKING:
    from automl.execution.cluster.nodes import Nodes

AGENT = "automl.running.on_node:open_agent"
GIVEN_GPU = "automl.devices.given:given_gpu"


@dataclass(frozen=True)
class Machines:
    """What is read of devices, and the nodes that they belong to."""

    reader: DeviceReader
    nodes: Nodes | None = None
    """None: they are this machine's."""


@contextmanager
def open_machines(prepared: Prepared) -> Iterator[Machines]:
    """Raises ConfigError where there is none that can be used, AutoMLError where none answers."""
    if prepared.config.execution.kind is not ExecutionKind.ray:
        beside = prepared.uses_cpu_beside_gpus
        with closing(open_reader(prepared.devices, beside_gpus=beside)) as reader:
            yield Machines(reader)
        return
    with closing(_nodes(prepared)) as nodes:
        nodes.open()
        yield Machines(NodesReader(lambda: readings(nodes)), nodes)


def _nodes(prepared: Prepared) -> Nodes:
    from automl.execution.cluster.claims import Claim, Claims
    from automl.execution.cluster.code import Code, code_of
    from automl.execution.cluster.growing import Growing
    from automl.execution.cluster.nodes import Nodes
    from automl.execution.cluster.on_ray import RayCluster

    config, folder = prepared.config, Path.cwd()
    code = Code(folder, ())
    if config.ray.address != LOCAL:
        away = [Path(config.study.dir), *_tables(config)]
        code = code_of(folder, config.ray.max_code_bytes, away)
    settings = _settings(prepared)
    cluster = RayCluster(config.ray, code, AGENT, settings)
    nodes = Nodes(cluster)

    def ask(kind: DeviceKind) -> Claim:
        return cluster.claim(kind, GIVEN_GPU, settings.cores_per_trial, nodes.name_of)

    if config.ray.claim:
        nodes.claims = Claims(ask, nodes.end_idle)
    else:
        nodes.claims = Growing(cluster.autoscaler, settings.cores_per_trial)
    return nodes


def _tables(config: Config) -> list[Path]:
    """What the sweep reads itself, and shares."""
    paths = (config.data.path, config.data.test_path)
    is_read = config.objective.kind is ObjectiveKind.builtin
    return [Path(path) for path in paths if path is not None and is_read]


def _settings(prepared: Prepared) -> NodeSettings:
    config = prepared.config
    return NodeSettings(
        devices=prepared.devices,
        beside_gpus=prepared.uses_cpu_beside_gpus,
        cores_per_trial=config.execution.threads_per_trial + prepared.n_loaders,
        max_on_host=config.admission.max_concurrent_trials,
        modules=for_training(config),
    )


def readings(nodes: Nodes) -> Sequence[NodeReading]:
    """What each node said last, by our clock; of a cluster that is shared, what of it is held."""
    found, held = [], nodes.claims.held()
    for node in nodes.present():
        reading = None if node.last is None else node.last.reading
        if isinstance(reading, Reading):
            begun = reading.begun_seconds + node.offset_seconds
            ours = replace(reading, begun_seconds=begun)
            ours = ours if held is None else as_held(ours, held)
            found.append(NodeReading(node.name, ours, node.heard_seconds))
    return found
