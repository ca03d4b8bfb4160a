"""What the loop does of what other sweeps of its study do."""

from __future__ import annotations

import pytest

from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.asking import TrialAsker
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    DevicesRead,
    ExecutionStart,
    NoPeers,
    PeerSweepsObserved,
    PlannedTrial,
    ReservationReleased,
    TrialEnded,
    WaitingTrial,
)
from automl.trial import (
    FinishedOutcome,
    InterruptedOutcome,
    RequestSource,
    ResourceRequest,
)
from tests.places import device_id
from tests.running.loop.plain_ports import PlainPorts, ports_of

GIB = 2**30


class Ports(PlainPorts):
    """Hands out these trials, and starts what it is told to."""

    def __init__(self, *numbers: int) -> None:
        self.to_ask = list(numbers)
        self.started: list[int] = []

    def ask(self) -> PlannedTrial | None:
        return PlannedTrial(self.to_ask.pop(0), {}) if self.to_ask else None

    def submit(self, start: ExecutionStart) -> None:
        self.started += [w.trial.number for w in start.group]


class Peers(NoPeers):
    """Other sweeps as they are at the moment."""

    def __init__(self) -> None:
        self.n_asked = self.n_edits = 0
        self.away = False
        self.taken = frozenset[int]()

    def is_lost(self, trial: int) -> bool:
        return trial in self.taken

    def may_run(self) -> bool:
        return self.away

    def add_news(self) -> int:
        return self.n_asked


def make_loop(
    ports: Ports, n_trials: int, others: PeerSweepsObserved, peers: Peers | None = None
) -> SweepLoop:
    requests = RequestMaker(lambda params: ResourceRequest(GIB, RequestSource.DECLARED), GIB)
    loop = SweepLoop(
        ports_of(ports),
        requests,
        Ledger(),
        AdmissionLimits(1, 0, 1e9),
        TrialAsker(ports_of(ports), n_trials, 0, others=others, peers=peers or Peers()),
    )
    loop.handle(read(0.0), 0.0)
    return loop


def read(at: float) -> DevicesRead:
    gpu = DeviceSnapshot(device_id("GPU-a"), "a GPU", 8 * GIB, 8 * GIB, 0.0)
    return DevicesRead(DeviceReading(at, (gpu,)))


def over(loop: SweepLoop, number: int) -> None:
    """Its reservation is back."""
    (key,) = (key for key, execution in loop.executions.items() if number in execution.members)
    with loop.ledger.releasing(key):
        pass
    loop.handle(ReservationReleased(key), 1.0)


def end(loop: SweepLoop, number: int) -> None:
    loop.handle(TrialEnded(FinishedOutcome(number, 1.0, 0.5)), 1.0)
    over(loop, number)
    loop.handle(read(1.0), 1.0)


def test_a_worker_that_ended_with_its_lease_costs_its_trial_nothing() -> None:
    """However often: who has the trial still goes on with it, once it is known who that is."""
    ports, peers = Ports(0), Peers()
    loop = make_loop(ports, 1, PeerSweepsObserved(), peers)
    for n in range(1, 4):
        loop.handle(TrialEnded(InterruptedOutcome(0, 1.0, "not renewed", lease_ended=True)), 1.0)
        over(loop, 0)
        assert ports.started == [0] * n, "another sweep may have it"
        assert not loop.done
        loop.handle(PeerSweepsObserved(), 1.0)
        assert ports.started == [0] * (n + 1)
    loop.handle(TrialEnded(InterruptedOutcome(0, 1.0, "not renewed", lease_ended=True)), 1.0)
    over(loop, 0)
    peers.taken = frozenset({0})
    loop.handle(PeerSweepsObserved(), 1.0)
    assert ports.started == [0] * 4
    assert loop.done


def test_a_sweep_waits_for_trials_elsewhere_and_takes_one_that_is_left() -> None:
    ports = Ports(0)
    loop = make_loop(ports, 1, PeerSweepsObserved(run=True))
    end(loop, 0)
    assert not loop.done
    ports.to_ask = [0]
    loop.handle(PeerSweepsObserved(n_left=1, run=True), 2.0)
    assert ports.started == [0, 0]
    end(loop, 0)
    loop.handle(PeerSweepsObserved(), 3.0)
    assert loop.done
    assert loop.asking.n_asked == 1


def test_a_sweep_waits_for_what_was_asked_elsewhere_after_it_was_looked_who_runs() -> None:
    ports, peers = Ports(0), Peers()
    loop = make_loop(ports, 1, PeerSweepsObserved(), peers)
    end(loop, 0)
    peers.n_asked = 3
    loop.handle(PeerSweepsObserved(n_trials=3, run=False), 2.0)
    assert not loop.done
    loop.handle(PeerSweepsObserved(n_trials=3, run=False), 3.0)
    assert loop.done


@pytest.mark.parametrize("n_trials", [1, 2])
def test_a_sweep_does_not_end_while_nobody_can_be_heard_of(n_trials: int) -> None:
    ports, peers = Ports(0), Peers()
    peers.away = True
    loop = make_loop(ports, n_trials, PeerSweepsObserved(), peers)
    end(loop, 0)
    assert not loop.done
    peers.away = False
    loop.handle(PeerSweepsObserved(), 2.0)
    assert loop.done


def test_a_total_that_another_raised_counts_and_so_does_what_others_asked() -> None:
    ports, peers = Ports(0, 4), Peers()
    loop = make_loop(ports, 1, PeerSweepsObserved(), peers)
    peers.n_asked = 4
    loop.handle(PeerSweepsObserved(n_trials=5, run=True), 1.0)
    end(loop, 0)
    assert (ports.started, loop.asking.n_asked, loop.asking.n_trials) == ([0, 4], 5, 5)
    end(loop, 4)
    loop.handle(PeerSweepsObserved(n_trials=3), 2.0)
    assert loop.asking.n_trials == 5


def test_a_total_that_was_read_before_an_edit_lowered_it_does_not_raise_it_again() -> None:
    peers = Peers()
    loop = make_loop(Ports(0), 5, PeerSweepsObserved(), peers)
    loop.asking.change_total(3)
    peers.n_edits = 1
    loop.handle(PeerSweepsObserved(n_trials=5), 1.0)
    assert loop.asking.n_trials == 3
    loop.handle(PeerSweepsObserved(n_trials=4, n_edits=1), 2.0)
    assert loop.asking.n_trials == 4


def test_what_waits_and_is_anothers_by_now_does_not_start() -> None:
    ports, peers = Ports(0), Peers()
    loop = make_loop(ports, 2, PeerSweepsObserved(), peers)
    for trial in _waiting(7, 8):
        loop.queue.add(trial)
    peers.taken = frozenset({7})
    loop.handle(PeerSweepsObserved(), 1.0)
    assert [waiting.trial.number for waiting in loop.queue.queued] == [8]


def _waiting(*numbers: int) -> list[WaitingTrial]:
    return [WaitingTrial(PlannedTrial(number, {})) for number in numbers]


def test_what_was_asked_for_in_vain_is_asked_for_again_before_the_sweep_ends() -> None:
    """The database answers again just after it did not, and nothing was heard of it yet."""
    ports, peers = Ports(), Peers()
    peers.away = True
    loop = make_loop(ports, 1, PeerSweepsObserved(), peers)
    peers.away = False
    assert not loop.done
    ports.to_ask.append(0)
    loop.handle(PeerSweepsObserved(), 1.0)
    assert ports.started == [0]
    end(loop, 0)
    assert loop.done
