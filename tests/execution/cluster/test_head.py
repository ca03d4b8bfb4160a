"""When the head of a cluster counts as gone, and what a port tells; time is given."""

from __future__ import annotations

import threading

from automl.execution.cluster import agent_actor
from automl.execution.cluster.agent_actor import ClusterHeadWatch
from automl.execution.cluster.node import AgentEndedError, NodeDeadError
from automl.execution.cluster.ray_cluster import _RayAgentConnection
from automl.execution.cluster.ray_resources import LibraryCallCount

PATIENCE_SECONDS = 10.0


class Scene:
    """A head that comes and goes, looked at every second."""

    def __init__(self) -> None:
        self.now, self.is_there = 0.0, True
        self.watch = ClusterHeadWatch(
            lambda: self.is_there, PATIENCE_SECONDS, lambda: None, lambda: self.now
        )

    def gone_after(self, seconds: float) -> float | None:
        """The seconds until it counts as gone; None: not within these."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            if self.watch.is_gone():
                return self.now - until + seconds
        return None


def test_a_head_that_is_silent_for_a_while_is_not_gone() -> None:
    scene = Scene()
    assert scene.gone_after(60) is None
    scene.is_there = False
    assert scene.gone_after(PATIENCE_SECONDS - 1) is None
    scene.is_there = True
    assert scene.gone_after(1) is None
    scene.is_there = False
    assert scene.gone_after(60) == PATIENCE_SECONDS + 1


def test_who_was_stopped_finds_a_head_that_was_silent_before_and_is_there_now() -> None:
    scene = Scene()
    scene.now = 3600.0
    scene.is_there = False
    assert not scene.watch.is_gone(), "it may be the network that wakes up, too"
    scene.is_there = True
    assert scene.gone_after(60) is None


def test_of_a_head_that_is_gone_it_is_told() -> None:
    told = threading.Event()
    watch = ClusterHeadWatch(lambda: False, 0.0, told.set)
    watch.start()
    assert told.wait(300)
    watch.close()


def test_a_port_tells_of_its_process_and_who_is_cut_off_tells_nothing() -> None:
    listening = agent_actor.open_listening_port("127.0.0.1")
    assert listening is not None
    address = agent_actor.socket_address(listening)
    with listening:
        assert [agent_actor.accepts_connections(address) for _ in range(3)] == [True] * 3
        assert not agent_actor.refuses_connections(address)
    assert not agent_actor.accepts_connections(address)
    assert agent_actor.refuses_connections(address)
    assert not agent_actor.refuses_connections("no-such-host.invalid:1")
    assert agent_actor.open_listening_port("no-such-host.invalid") is None


def test_of_a_dead_node_its_machine_tells_whether_the_agent_has_ended() -> None:
    """Else its trials go on elsewhere when all that ran there has surely ended by itself."""
    wire = _RayAgentConnection(None, LibraryCallCount(), "", None, "of a node")
    assert isinstance(wire._error_of_dead_node("Ray says so"), NodeDeadError), "nobody can tell"
    listening = agent_actor.open_listening_port("127.0.0.1")
    assert listening is not None
    wire._port = agent_actor.socket_address(listening)
    with listening:
        assert isinstance(wire._error_of_dead_node("Ray says so"), NodeDeadError), "it lives"
    assert isinstance(wire._error_of_dead_node("Ray says so"), AgentEndedError)
