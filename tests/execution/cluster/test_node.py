"""A node from the sweep's side, over a wire that loses what a network may lose."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from automl.devices.device_reading import DeviceReading
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.agent import NodeAgent, ReadHeld
from automl.execution.cluster.node import AgentEndedError, AgentSilentError
from automl.execution.cluster.nodes import ClusterMachine, ClusterNodes
from automl.execution.cluster.nodes_executor import NodesExecutor
from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.record.lease import lease_seconds
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    OnEvents,
    ParamAnswer,
    ProcessEntry,
    TrialEvent,
    TrialSpec,
    Verdict,
)
from tests.execution.cluster.clusters import has_ended, on, until

ENTRY = ProcessEntry("tests.execution.objectives:open_scripted")


class Lossy:
    """Each answer is lost once, so that each call is made twice."""

    def __init__(self) -> None:
        self.agent = NodeAgent(self._read, 0.1, leave=lambda: None)
        self._lost: dict[str, tuple[object, ...]] = {}

    def _read(self, held: ReadHeld) -> DeviceReading:
        return DeviceReading(0.0)

    def set_up(self, entry: object, work: m.NodeSetup) -> bool:
        assert isinstance(entry, ProcessEntry)
        return self.agent.set_up(entry, work)

    def poll(
        self, n_taken: int, echo_seconds: float | None, told: m.CommandBatch
    ) -> tuple[m.PollAnswer, float]:
        polled = self.agent.poll(n_taken, echo_seconds, told)
        self._lose("poll", n_taken, echo_seconds)
        return polled, polled.arrived_seconds

    def tell(self, told: m.CommandBatch) -> None:
        self.agent.tell(told)
        self._lose("tell", told.first)

    def close(self) -> None:
        self.agent.close()

    def kill(self) -> None:
        pass

    def _lose(self, *call: object) -> None:
        name = str(call[0])
        if self._lost.get(name) != call:
            self._lost[name] = call
            raise AgentSilentError("lost")


class OneMachine:
    """A cluster of this process."""

    def machines(self) -> Sequence[ClusterMachine]:
        return [ClusterMachine("0", "here", 1.0)]

    def start(self, machine: ClusterMachine, name: str) -> Lossy:
        return Lossy()

    def share(self, entry: ProcessEntry) -> object:
        return entry

    def lost(self) -> str | None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[NodesExecutor]:
    nodes = ClusterNodes(OneMachine())
    nodes.open()
    yield NodesExecutor(nodes, ENTRY, tmp_path, WorkerLimits(max_workers=2))
    nodes.close()


def kept_in(events: list[TrialEvent]) -> OnEvents:
    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    return on_events


def test_what_is_called_twice_happens_once(executor: NodesExecutor) -> None:
    events: list[TrialEvent] = []
    specs = [TrialSpec(0, {"act": "ask"}, "", 0)]
    asked: list[object] = []

    def answer(question: object) -> ParamAnswer:
        asked.append(question)
        return ParamAnswer(7)

    feed = TrialFeed(specs, lambda spec: None, answer)
    executor.execute(feed, on("here"), kept_in(events))
    kinds = [type(event).__name__ for event in events]
    assert kinds.count("ProcessHosted") == kinds.count("FinishedOutcome") == 1
    assert kinds.count("MetricsReported") == 2
    assert len(asked) == 1
    assert isinstance(events[-1], FinishedOutcome)


def test_reports_that_nobody_judges_are_not_waited_for(tmp_path: Path) -> None:
    """Nobody answers here: the trial goes on to its end."""
    agent = NodeAgent(lambda held: DeviceReading(0.0), 0.1, leave=lambda: None)
    begin(agent, tmp_path, "report_without_pause")
    heard: list[m.ToSweep] = []
    while not any(isinstance(message, m.ExecutionOver) for message in heard):
        heard += agent.poll(len(heard), None, m.CommandBatch(1)).messages
    noted = [
        event for message in heard if isinstance(message, m.EventsNoted) for event in message.events
    ]
    assert len([event for event in noted if isinstance(event, MetricsReported)]) > 1
    assert isinstance(noted[-1], FinishedOutcome)
    agent.close()


def test_a_checkpoint_is_waited_for_unless_its_trial_has_ended(tmp_path: Path) -> None:
    """So that a trial has one on the way."""
    agent = NodeAgent(lambda held: DeviceReading(0.0), 0.1, leave=lambda: None)
    begin(agent, tmp_path, "hang")
    there = agent.receive_trial(TrialSpec(0, {}, str(tmp_path / "0"), 0), {}).checkpoint_dir
    Path(there).mkdir(parents=True, exist_ok=True)
    Path(there, "last.pt").write_text("epoch 3")
    written = CheckpointWritten(0, 1.0, 3, str(Path(there, "last.pt")), CheckpointKind.LAST)
    assert agent.send_unjudged(0, [written, FinishedOutcome(0, 2.0, 1.0)]) == {}
    waiting = threading.Thread(target=agent.send_unjudged, args=(0, [written]), daemon=True)
    waiting.start()
    heard: list[m.ToSweep] = []
    while not (
        asked := [message for message in heard if isinstance(message, m.EventsAwaitingVerdict)]
    ):
        heard += agent.poll(len(heard), None, m.CommandBatch(1)).messages
    assert waiting.is_alive()
    agent.tell(m.CommandBatch(1, [m.CallReplied(asked[0].call, {})]))
    waiting.join(60)
    assert not waiting.is_alive()
    agent.end("the test is over")


def test_a_verdict_on_a_report_that_nobody_judges_reaches_its_trial(
    executor: NodesExecutor,
) -> None:
    """The sweep stops, or the trial is another's by now."""
    events: list[TrialEvent] = []

    def stop(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {0: Verdict.STOP} if isinstance(new[-1], MetricsReported) else {}

    feed = TrialFeed([TrialSpec(0, {"act": "asks"}, "", 0)], lambda spec: None)
    executor.execute(feed, on("here"), stop)
    assert isinstance(events[-1], InterruptedOutcome)
    assert events[-1].cause == Verdict.STOP.value


def test_a_trial_for_a_node_that_is_gone_goes_elsewhere(executor: NodesExecutor) -> None:
    events: list[TrialEvent] = []
    feed = TrialFeed([TrialSpec(0, {"act": "finish"}, "", 0)], lambda spec: None)
    executor.execute(feed, on("gone"), kept_in(events))
    (lost,) = events
    assert getattr(lost, "node_lost", False)
    assert feed.next() is None


def test_an_agent_whose_sweep_is_not_heard_ends_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automl.execution.cluster.agent.AGENT_LEASE_SECONDS", 1.0)
    monkeypatch.setattr("automl.execution.cluster.agent._LEAVE_SECONDS", 0.0)
    left = threading.Event()
    agent = NodeAgent(lambda held: DeviceReading(0.0), 0.1, leave=left.set)
    worker = hanging_in(agent, tmp_path)
    polled = agent.poll(0, None, m.CommandBatch(1))
    polled = agent.poll(0, polled.lease_clock_seconds, m.CommandBatch(1))
    assert left.wait(300), "and then itself"
    has_ended(worker)
    assert agent.poll(0, None, m.CommandBatch(1)).ended is not None


def begin(agent: NodeAgent, folder: Path, act: str) -> None:
    agent.set_up(ENTRY, m.NodeSetup(WorkerLimits(max_workers=1), str(folder), "marker", "none"))
    spec = TrialSpec(0, {"act": act}, str(folder / "0"), 0)
    agent.tell(m.CommandBatch(0, [m.BeginExecution(0, [spec], 1, on("here"), {})]))


def hanging_in(agent: NodeAgent, folder: Path) -> int:
    """The process of a trial there that hangs."""
    begin(agent, folder, "hang")
    told = m.CommandBatch(1)
    while not any(
        isinstance(message, m.EventsNoted) for message in agent.poll(0, None, told).messages
    ):
        pass
    return next(iter(process.pid for _, process in agent._held_bytes()))


def test_an_agent_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder of its own, where it does not see the study's; whether the sweep ends or goes."""
    monkeypatch.setattr("automl.execution.cluster.agent._LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    for end in (NodeAgent.close, lambda agent: agent.end("there is nobody")):
        left = threading.Event()
        agent = NodeAgent(lambda held: DeviceReading(0.0), 0.1, leave=left.set)
        begin(agent, tmp_path, "finish")
        heard: list[m.ToSweep] = []
        while not any(isinstance(message, m.ExecutionOver) for message in heard):
            heard += agent.poll(len(heard), None, m.CommandBatch(1)).messages
        assert [*(tmp_path / "own").glob("automl-*")]
        end(agent)
        assert end is NodeAgent.close or left.wait(300)
        assert not [*(tmp_path / "own").glob("automl-*")]
        agent.close()  # its process would have left, and its workers with it


def test_a_worker_that_is_begun_later_lives_no_longer(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    executor.lease(lease_seconds() + 1.0)
    events: list[TrialEvent] = []
    feed = TrialFeed([TrialSpec(0, {"act": "hang"}, "", 0)], lambda spec: None)
    executor.execute(feed, on("here"), kept_in(events))
    assert isinstance(events[-1], InterruptedOutcome)
    assert events[-1].lease_ended
    executor.close()


class Dying:
    """An agent that ends when it is told to, whose node then takes its time to be rid of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dies, self.is_killed, self.may_go = (threading.Event() for _ in range(3))

    def set_up(self, entry: object, work: m.NodeSetup) -> bool:
        return True

    def poll(
        self, n_taken: int, echo_seconds: float | None, told: m.CommandBatch
    ) -> tuple[m.PollAnswer, float]:
        if self.dies.wait(0.05):
            raise AgentEndedError("it died")
        return m.PollAnswer(n_taken, (), 0.0, 0.0, None, {}, {}), 0.0

    def tell(self, told: m.CommandBatch) -> None:
        pass

    def close(self) -> None:
        self.may_go.set()

    def kill(self) -> None:
        self.is_killed.set()
        assert self.may_go.wait(300)


class TwoMachines:
    """Each agent that was started there, by name in the order of their starts."""

    def __init__(self) -> None:
        self.started: list[Dying] = []
        self.given_back = threading.Event()

    def machines(self) -> Sequence[ClusterMachine]:
        return [ClusterMachine("0", "first", 1.0), ClusterMachine("1", "other", 1.0)]

    def start(self, machine: ClusterMachine, name: str) -> Dying:
        self.started.append(Dying(name))
        return self.started[-1]

    def share(self, entry: ProcessEntry) -> object:
        return entry

    def lost(self) -> str | None:
        return None

    def close(self) -> None:
        self.given_back.set()

    def first(self) -> Dying:
        return next(dying for dying in self.started if dying.name == "first")


class Growing(TwoMachines):
    """A second machine comes later, and a third; the second is dead and still listed."""

    def __init__(self) -> None:
        super().__init__()
        self.there = [ClusterMachine("0", "first", 1.0)]
        self.n_begun, self.is_known_dead = 0, threading.Event()

    def machines(self) -> Sequence[ClusterMachine]:
        return [*self.there]

    def start(self, machine: ClusterMachine, name: str) -> Dying:
        if machine.host != "dead":
            return super().start(machine, name)
        self.n_begun += 1
        assert self.is_known_dead.wait(300)
        raise AgentEndedError("it is dead")


class Unwilling(TwoMachines):
    """The first agent of the other machine dies before it is set up."""

    def start(self, machine: ClusterMachine, name: str) -> Dying:
        is_first = not any(dying.name == name for dying in self.started)
        agent = super().start(machine, name)
        agent.may_go.set()
        if name == "other" and is_first:
            agent.set_up = self._refuse  # type: ignore[method-assign]
        return agent

    def _refuse(self, entry: object, work: m.NodeSetup) -> bool:
        raise AgentEndedError("it died")


def test_a_node_that_dies_as_it_is_set_up_is_lost_and_gets_another_agent(tmp_path: Path) -> None:
    cluster = Unwilling()
    nodes = ClusterNodes(cluster)
    nodes.open()
    executor = NodesExecutor(nodes, ENTRY, tmp_path, WorkerLimits(max_workers=1))
    assert [node.name for node in nodes.present()] == ["first"]
    until(lambda: len(nodes.present()) == 2)
    assert len(cluster.started) == 3
    executor.close()
    nodes.close()


def test_nobody_waits_for_a_node_that_is_dead_and_still_listed() -> None:
    """Nor does the end of the sweep, for long."""
    cluster = Growing()
    nodes = ClusterNodes(cluster)
    nodes.open()
    cluster.there.append(ClusterMachine("1", "dead", 1.0))
    until(lambda: cluster.n_begun)
    cluster.there.append(ClusterMachine("2", "other", 1.0))
    until(lambda: len(nodes.present()) == 2)
    assert [node.name for node in nodes.present()] == ["first", "other"]
    assert cluster.n_begun == 1
    cluster.is_known_dead.set()
    nodes.close()
    assert cluster.given_back.is_set()


def test_an_agent_without_a_head_ends_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sweep is still heard, and is told."""
    monkeypatch.setattr("automl.execution.cluster.agent._LEAVE_SECONDS", 0.0)
    left = threading.Event()
    agent = NodeAgent(lambda held: DeviceReading(0.0), 0.1, leave=left.set)
    worker = hanging_in(agent, tmp_path)
    agent.end("the cluster's head was not reached")
    assert left.wait(300), "and then itself"
    has_ended(worker)
    assert agent.poll(0, None, m.CommandBatch(1)).ended == "the cluster's head was not reached"


def test_nobody_waits_for_the_end_of_a_lost_agent_but_the_next_one_and_the_cluster() -> None:
    cluster = TwoMachines()
    nodes = ClusterNodes(cluster)
    nodes.open()
    lost = cluster.first()
    lost.dies.set()
    assert lost.is_killed.wait(300)
    looked = threading.Thread(target=nodes.present, daemon=True)
    looked.start()
    looked.join(60)
    assert not looked.is_alive(), "the main loop looks who is there"
    assert [node.name for node in nodes.present()] == ["other"]
    assert len(cluster.started) == 2, "no agent is begun beside one that may live"
    closing = threading.Thread(target=nodes.close)
    closing.start()
    closing.join(0.5)
    assert not cluster.given_back.is_set()
    lost.may_go.set()
    closing.join(60)
    assert cluster.given_back.is_set()
