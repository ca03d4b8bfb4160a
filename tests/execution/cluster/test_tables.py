"""A table on Ray's nodes: sent to each once, by file where the object store is full, then freed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automl.execution.cluster.nodes import ClusterNodes
from automl.execution.cluster.nodes_executor import NodesExecutor
from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits
from automl.trial import FinishedOutcome, ProcessEntry, TrialEvent, TrialSpec, TrialTagged, Verdict
from tests.execution.cluster.clusters import nodes_of, on, ray_cluster, short_folder, until
from tests.execution.cluster.memory import mapped, pids_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings
STORE_BYTES = 80 * 2**20
"""Ray takes no less than 75 MB."""
LIMITS = WorkerLimits(max_workers=2)


@pytest.fixture(scope="module")
def spilled() -> Iterator[Path]:
    """Where a node puts what its object store does not hold."""
    with short_folder() as folder:
        yield folder / "spilled"


@pytest.fixture(scope="module")
def cluster(spilled: Path) -> Iterator[Any]:
    small = {"object_store_memory": STORE_BYTES, "object_spilling_directory": str(spilled)}
    with ray_cluster(2, each=small) as made:
        yield made


def by_file(cluster: Any, spilled: Path) -> list[bool]:
    """Whether each node has something in such a file."""
    return [str(spilled) in mapped(pid) for pid in pids_of(cluster, "raylet")]


@contextmanager
def sent(
    address: str, study: Path, table: np.ndarray
) -> Iterator[tuple[ClusterNodes, NodesExecutor]]:
    """To the nodes of a sweep, while it lasts."""
    with nodes_of(address) as nodes:
        entry = ProcessEntry("tests.execution.objectives:open_scripted", table)
        yield nodes, (executor := NodesExecutor(nodes, entry, study, LIMITS))
        executor.close()


def said_on(executor: NodesExecutor, study: Path, node: str, number: int) -> Mapping[str, str]:
    """By a trial there, of the table."""
    said: dict[str, str] = {}

    def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        for event in events:
            if isinstance(event, TrialTagged):
                said[event.name] = event.text
            if isinstance(event, FinishedOutcome):
                said["ended"] = "well"
        return {}

    spec = TrialSpec(number, {"act": "tell_of_table"}, str(study / str(number)), 0)
    executor.execute(TrialFeed([spec], lambda spec: None), on(node), on_events)
    return said


def table_of(times: float) -> np.ndarray:
    """So many times as large as a node's object store."""
    return np.arange(int(times * STORE_BYTES) // 8)


def test_a_table_goes_to_each_node_and_is_freed_with_the_sweep(
    cluster: Any, spilled: Path, tmp_path: Path
) -> None:
    table = table_of(0.6)
    expected = {"sum": str(table.sum()), "may be written": "True", "ended": "well"}
    for _ in range(3):  # two do not fit at once
        with sent(cluster.address, tmp_path, table) as (nodes, executor):
            for node, number in itertools.product(nodes.present(), range(2)):
                assert said_on(executor, tmp_path, node.name, number) == expected
        assert by_file(cluster, spilled) == [False, False]


def test_a_table_that_no_object_store_holds_goes_by_file(
    cluster: Any, spilled: Path, tmp_path: Path
) -> None:
    table = table_of(2.0)
    with sent(cluster.address, tmp_path, table) as (nodes, executor):
        assert by_file(cluster, spilled) == [True, True]
        for node in nodes.present():
            assert said_on(executor, tmp_path, node.name, 0)["sum"] == str(table.sum())
    until(lambda: by_file(cluster, spilled) == [False, False])
