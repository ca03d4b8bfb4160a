"""What a sweep relies on of a Ray cluster, on one of two nodes: Ray's own processes, and ours."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.cluster.node import ClusterNode
from automl.execution.cluster.nodes import ClusterNodes
from automl.execution.cluster.nodes_executor import NodesExecutor
from automl.execution.executor import TrialFeed
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.search.pruners.median import MedianPruner
from automl.trial import (
    CheckpointWritten,
    FinishedOutcome,
    InterruptedOutcome,
    ProcessEntry,
    ProcessHosted,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)
from tests.execution.cluster.clusters import (
    Apart,
    has_ended,
    nodes_of,
    on,
    pid_of,
    ray_cluster,
    until,
)
from tests.processes import is_running

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings
ENTRY = ProcessEntry("tests.execution.objectives:open_scripted")
LIMITS = WorkerLimits(
    max_workers=8, judging=JudgedReports("val_loss", MedianPruner(n_warmup_steps=0).rungs)
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(2) as made:
        yield made


@pytest.fixture
def nodes(cluster: Any) -> Iterator[ClusterNodes]:
    with nodes_of(cluster.address) as made:
        yield made


class Carried:
    """An execution in a thread of its own; its events can be waited for."""

    def __init__(
        self, executor: NodesExecutor, node: str, act: str, numbers: Sequence[int]
    ) -> None:
        self.events: queue.SimpleQueue[TrialEvent] = queue.SimpleQueue()
        self.taken: list[int] = []
        specs = [TrialSpec(n, {"act": act}, str(executor._study / str(n)), 0) for n in numbers]
        feed = TrialFeed(specs, lambda spec: self.taken.append(spec.number))
        self._thread = threading.Thread(
            target=executor.execute, args=(feed, on(node), self._on_events)
        )
        self._thread.start()

    def _on_events(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        for event in events:
            self.events.put(event)
        return {}

    def until(self, kind: type[TrialEvent]) -> Any:
        while not isinstance(event := self.events.get(timeout=300), kind):
            pass
        return event

    def outcomes(self) -> list[TrialOutcome]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        found = []
        while not self.events.empty():
            event = self.events.get()
            found += [event] if isinstance(event, TrialOutcome) else []
        return found


def test_each_node_trains_and_a_pack_gets_all_its_trials(
    nodes: ClusterNodes, tmp_path: Path
) -> None:
    executor = NodesExecutor(nodes, ENTRY, tmp_path, LIMITS)
    names = sorted(node.name for node in nodes.present())
    assert len(names) == 2
    packs = [
        Carried(executor, name, "finish", range(10 * n, 10 * n + 3)) for n, name in enumerate(names)
    ]
    for n, (pack, name) in enumerate(zip(packs, names, strict=True)):
        assert pack.until(ProcessHosted).process.node == name
        ended = pack.outcomes()
        assert [type(outcome) for outcome in ended] == [FinishedOutcome] * 3
        assert pack.taken == [10 * n, 10 * n + 1, 10 * n + 2]


def test_a_node_whose_agent_is_killed_loses_its_trials_and_gets_another_agent(
    nodes: ClusterNodes, tmp_path: Path
) -> None:
    executor = NodesExecutor(nodes, ENTRY, tmp_path, LIMITS)
    first, other = nodes.present()
    dying, staying = (
        Carried(executor, n.name, "until_stopped", [i]) for i, n in enumerate((first, other))
    )
    worker = dying.until(ProcessHosted).process.pid
    staying.until(ProcessHosted)
    os.kill(pid_of(first), signal.SIGKILL)
    (lost,) = dying.outcomes()
    assert isinstance(lost, InterruptedOutcome)
    assert (lost.node_lost, lost.by_worker_death) == (True, False)
    assert f"node {first.name} is lost" in lost.cause
    has_ended(worker)
    until(lambda: nodes.by_name(first.name) not in (None, first))
    assert isinstance(Carried(executor, first.name, "finish", [7]).outcomes()[-1], FinishedOutcome)
    executor.stop_trials()
    (stopped,) = staying.outcomes()
    assert isinstance(stopped, InterruptedOutcome)
    assert not stopped.node_lost


def test_workers_end_though_their_agent_was_stopped(nodes: ClusterNodes, tmp_path: Path) -> None:
    executor = NodesExecutor(nodes, ENTRY, tmp_path, LIMITS)
    node = nodes.present()[0]
    cut_off = Carried(executor, node.name, "until_stopped", [0])
    worker, agent = cut_off.until(ProcessHosted).process.pid, pid_of(node)
    os.kill(agent, signal.SIGSTOP)
    (lost,) = cut_off.outcomes()
    assert not is_running(worker), "its trial goes on elsewhere from now"
    assert isinstance(lost, InterruptedOutcome)
    assert lost.node_lost
    has_ended(agent)


def test_checkpoints_arrive_before_they_are_told_of(cluster: Any, tmp_path: Path) -> None:
    with nodes_of(cluster.address, Apart) as nodes:
        study = tmp_path / "study"
        study.mkdir()
        executor = NodesExecutor(
            nodes, ProcessEntry("tests.execution.cluster.sessions:open_writing"), study, LIMITS
        )
        node = nodes.present()[0]
        assert Carried(executor, node.name, "write", [0]).outcomes()[-1].value == 1.0  # type: ignore[attr-defined]
        assert (study / "0" / "last.pt").read_text() == "state 1"
        assert (study / "0" / "artifacts" / "plot").read_text() == "a plot"
        (study / "1").mkdir()
        (study / "1" / "last.pt").write_text("state 41")
        assert Carried(executor, node.name, "write", [1]).outcomes()[-1].value == 42.0  # type: ignore[attr-defined]
        assert (study / "1" / "last.pt").read_text() == "state 42"


@pytest.mark.slow
def test_with_a_bucket_checkpoints_go_there_and_whoever_goes_on_has_them(
    cluster: Any, tmp_path: Path
) -> None:
    study, bucket = tmp_path / "study", tmp_path / "bucket"
    study.mkdir()
    stored = CheckpointStore(f"file://{bucket}", "1234")
    with nodes_of(cluster.address, Apart) as nodes:
        entry = ProcessEntry("tests.execution.cluster.sessions:open_writing")
        executor = NodesExecutor(nodes, entry, study, LIMITS, stored=stored)
        for n, node in enumerate(nodes.present()):
            spec = TrialSpec(0, {"act": "write"}, str(study / "0"), 0, n_starts=n)
            found: list[bool] = []

            def on_events(
                events: Sequence[TrialEvent], n: int = n, found: list[bool] = found
            ) -> Mapping[int, Verdict]:
                kept = bucket / "1234" / "trial-00000" / f"00000-0000{n}" / "last.pt"
                found += [kept.exists() for e in events if isinstance(e, CheckpointWritten)]
                return {}

            executor.execute(TrialFeed([spec], lambda taken: None), on(node), on_events)
            assert found == [True], "before it counts"
            assert (study / "0" / "last.pt").read_text() == f"state {n + 1}", "with the outcome"
            (study / "0" / "last.pt").unlink()  # the sweep's machine is lost, too


@dataclass
class Later:
    """A node that came later, and a trial that runs there."""

    added: Any
    """The cluster's own."""
    node: ClusterNode
    dying: Carried
    worker: int


def later(cluster: Any, nodes: ClusterNodes, folder: Path) -> Later:
    before = {node.name for node in nodes.present()}
    added = cluster.add_node()
    until(lambda: len(nodes.present()) == 3)
    (new,) = (node for node in nodes.present() if node.name not in before)
    executor = NodesExecutor(nodes, ENTRY, folder, LIMITS)
    dying = Carried(executor, new.name, "until_stopped", [0])
    return Later(added, new, dying, dying.until(ProcessHosted).process.pid)


def test_a_node_that_comes_later_is_used_and_one_that_dies_is_not(
    cluster: Any, nodes: ClusterNodes, tmp_path: Path
) -> None:
    before = {node.name for node in nodes.present()}
    there = later(cluster, nodes, tmp_path)
    cluster.remove_node(there.added, allow_graceful=False)
    (lost,) = there.dying.outcomes()
    assert isinstance(lost, InterruptedOutcome)
    assert lost.node_lost
    has_ended(there.worker)
    assert {node.name for node in nodes.present()} == before


def test_an_agent_that_dies_where_ray_cannot_say_so_is_seen_to_have_ended(
    cluster: Any, nodes: ClusterNodes, tmp_path: Path
) -> None:
    there = later(cluster, nodes, tmp_path)
    os.kill(there.added.all_processes["raylet"][0].process.pid, signal.SIGSTOP)
    os.kill(pid_of(there.node), signal.SIGKILL)
    (lost,) = there.dying.outcomes()
    assert isinstance(lost, InterruptedOutcome)
    assert "its agent's process ended" in lost.cause
    has_ended(there.worker)
    cluster.remove_node(there.added, allow_graceful=False)


def test_a_sweep_begins_beside_a_node_that_is_just_dying(cluster: Any) -> None:
    """Ray still takes it for one that lives."""
    added = cluster.add_node()
    cluster.remove_node(added, allow_graceful=False)
    with nodes_of(cluster.address) as nodes:
        assert len(nodes.present()) == 2
