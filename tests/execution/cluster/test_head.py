"""When the head of a cluster counts as gone, and what a port tells; time is given."""

from __future__ import annotations

import threading

from automl.execution.cluster import ports
from automl.execution.cluster.head import HeadWatch
from automl.execution.cluster.in_use import InUse
from automl.execution.cluster.node import DeadError, EndedError
from automl.execution.cluster.on_ray import _RayWire

PATIENCE_SECONDS = 10.0


class Scene:
    """A head that comes and goes, looked at every second."""

    def __init__(self) -> None:
        self.now, self.is_there = 0.0, True
        self.watch = HeadWatch(
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
    watch = HeadWatch(lambda: False, 0.0, told.set)
    watch.start()
    assert told.wait(60)
    watch.close()


def test_a_port_tells_of_its_process_and_who_is_cut_off_tells_nothing() -> None:
    listening = ports.listen("127.0.0.1")
    assert listening is not None
    address = ports.address_of(listening)
    with listening:
        assert [ports.answers(address) for _ in range(3)] == [True] * 3
        assert not ports.refuses(address)
    assert not ports.answers(address)
    assert ports.refuses(address)
    assert not ports.refuses("no-such-host.invalid:1")
    assert ports.listen("no-such-host.invalid") is None


def test_of_a_dead_node_its_machine_tells_whether_the_agent_has_ended() -> None:
    """Else its trials go on elsewhere when all that ran there has surely ended by itself."""
    wire = _RayWire(None, InUse(), "", None, "of a node")
    assert isinstance(wire._dead("Ray says so"), DeadError), "nobody can tell"
    listening = ports.listen("127.0.0.1")
    assert listening is not None
    wire._port = ports.address_of(listening)
    with listening:
        assert isinstance(wire._dead("Ray says so"), DeadError), "it lives"
    assert isinstance(wire._dead("Ray says so"), EndedError)
