"""The loop on several nodes, and trials that want several devices: all or nothing, on one node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import AdmissionRefusal
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.messages import (
    DeviceShortage,
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    TrialEnded,
)
from automl.trial import (
    LOCAL_NODE,
    DeviceId,
    DeviceKind,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    PackKind,
    ResourceRequest,
    kind_of_label,
    label_seen_from,
    node_of_label,
)
from tests.places import placed
from tests.running.loop.simulated_machine import Hosted, Lane, Plan
from tests.running.loop.simulator import World

GB = 1000**3
TWO_NODES = {f"node-{n}/GPU-{letter}": 24 * GB for n in (1, 2) for letter in "ab"}
CPU_AND_GPU = {"host": 32 * GB, "GPU-a": 24 * GB}
CPU, GPU = frozenset({DeviceKind.CPU}), frozenset({DeviceKind.GPU})


class Watched(World):
    """Keeps where each execution ran."""

    def __post_init__(self) -> None:
        self.places: dict[int, tuple[DeviceId, ...]] = {}
        super().__post_init__()

    def submit(self, start: ExecutionStart) -> None:
        super().submit(start)
        self.places[start.group[0].trial.number] = start.placement.devices


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    request = draw(st.none() | st.integers(0, 30).map(lambda n: n * GB))
    n_devices = draw(st.sampled_from([1, 1, 2, 3]))
    return Plan(
        request_bytes=request,
        peak_bytes=request or 0,
        appears_after=draw(st.floats(0, 4)),
        seconds=draw(st.floats(0, 6)),
        ends=draw(st.sampled_from(["finished", "finished", "failed", "dies"])),
        kind=draw(st.sampled_from([None, PackKind("a", 2)])) if n_devices == 1 else None,
        hosted_after=draw(st.floats(0, 2)),
        n_devices=n_devices,
        kinds=draw(st.sampled_from([frozenset(DeviceKind), CPU, GPU])),
    )


@settings(max_examples=60, deadline=None)
@given(
    planned=st.lists(plans(), min_size=1, max_size=10),
    totals=st.lists(st.integers(4, 24).map(lambda n: n * GB), min_size=4, max_size=4),
    host=st.booleans(),
    told_after=st.floats(0, 2),
    stop_at=st.none() | st.floats(0, 10),
)
def test_over_two_nodes_with_two_devices_each_the_books_stay_straight(
    planned: list[Plan], totals: list[int], host: bool, **how: Any
) -> None:
    """Whatever one, two or three devices are asked for, on the CPU or on GPUs."""
    devices = dict(zip(TWO_NODES, totals, strict=True))
    if host:
        devices["node-2/host"] = 16 * GB
    World(devices, planned, limits=AdmissionLimits(3, GB, 5.0), own_processes=True, **how).run()


def test_a_sweep_whose_trials_want_two_devices_each_fills_both_nodes() -> None:
    pair = Plan(10 * GB, 10 * GB, seconds=5.0, n_devices=2)
    world = Watched(TWO_NODES, [pair] * 6, own_processes=True)
    world.run()
    nodes = [{device.node for device in world.places[number]} for number in range(6)]
    assert nodes[:2] == [{"node-1"}, {"node-2"}]
    assert all(len(world.places[number]) == 2 for number in range(6))
    assert world.now < 20, "four side by side, then two"


def test_a_pair_waits_for_two_places_of_one_node_and_nobody_passes() -> None:
    one = Plan(20 * GB, 20 * GB, seconds=4.0)
    pair = Plan(20 * GB, 20 * GB, n_devices=2)
    world = Watched(TWO_NODES, [one, one, pair, one], own_processes=True)
    world.run()
    assert world.started == [0, 1, 2, 3]
    assert {device.node for device in world.places[2]} in ({"node-1"}, {"node-2"})


def test_what_no_node_could_ever_hold_is_refused_with_the_reason() -> None:
    world = World({"node-1/GPU-a": 24 * GB, "node-2/GPU-a": 24 * GB}, [Plan(GB, GB, n_devices=2)])
    world.run()
    failed = world.told[0]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "2 devices (CPU or GPU) asked, but no machine has more than 1"


def test_cpu_and_gpu_trials_stand_in_one_sweep() -> None:
    on_cpu, on_gpu = Plan(GB, GB, kinds=CPU), Plan(GB, GB, kinds=GPU)
    world = Watched(CPU_AND_GPU, [on_cpu, on_gpu, on_cpu, on_gpu], own_processes=True)
    world.run()
    assert [world.places[n][0].on_host for n in range(4)] == [True, False, True, False]
    assert all(isinstance(world.told[n], FinishedOutcome) for n in range(4))


class PacksOnTheHost(Watched):
    """What goes together there trains alone on a GPU."""

    def kind_of(self, trial: Any, *, on_host: bool) -> PackKind | None:
        return PackKind("small", 2) if on_host else None


@pytest.mark.parametrize(("kinds", "together"), [(CPU, [[0, 1], [2], [3]]), (GPU, None)])
def test_whether_a_trial_is_packed_depends_on_the_device_it_is_placed_on(
    kinds: frozenset[DeviceKind], together: list[list[int]] | None
) -> None:
    """The last two are shared out, as two places are free."""
    world = PacksOnTheHost(CPU_AND_GPU, [Plan(GB, GB, kinds=kinds)] * 4, own_processes=True)
    world.run()
    assert list(world.packs.values()) == (together or [[0], [1], [2], [3]])


def test_while_a_node_is_lost_its_devices_get_nothing() -> None:
    world = Watched(TWO_NODES, [Plan(GB, GB)] * 3, own_processes=True)
    left = [d for d in world.machine.snapshots(0.0) if d.address.node == "node-2"]
    world.loop.handle(DevicesRead(DeviceReading(0.0, tuple(left))), 0.0)
    assert [world.places[n][0].node for n in range(3)] == ["node-2"] * 3


def test_a_trial_goes_on_elsewhere_however_often_its_node_is_lost() -> None:
    world = Watched(TWO_NODES, [Plan(GB, GB, ends="loses nodes")] * 2, own_processes=True)
    world.run()
    assert [type(world.told[n]) for n in range(2)] == [FinishedOutcome, FinishedOutcome]
    assert [world.attempts[n] for n in range(2)] == [4, 4]


@dataclass
class LosingANode(Watched):
    """`node-1` is lost for a while: what trains there is interrupted, and so is at once what is
    started there meanwhile."""

    lost_seconds: tuple[float, float] = (2.0, 8.0)
    still_read: bool = False
    """Readings show the node all the same, as when it takes no trial for another cause."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.n_starts_lost = self.n_readings_lost = 0
        self.heard = False
        """The main thread was told."""
        self._at(self.lost_seconds[0], self._lose_all)

    def is_lost(self, node: str) -> bool:
        begin, end = self.lost_seconds
        return node == "node-1" and begin <= self.now < end

    def submit(self, start: ExecutionStart) -> None:
        super().submit(start)
        if self.is_lost(start.placement.node):
            assert not self.heard or self.still_read, "started on a node that is lost"
            self.n_starts_lost += 1

    def _begin_lane(self, execution: Hosted, lane: Lane) -> None:
        if self.is_lost(execution.placement.node):
            self._at(0.0, partial(self._lose, execution, lane))

    def _lose_all(self) -> None:
        for execution in list(self.machine.executions.values()):
            for lane in list(execution.lanes.values()):
                if self.is_lost(execution.placement.node):
                    self._lose(execution, lane)

    def _lose(self, execution: Hosted, lane: Lane) -> None:
        if lane in execution.lanes.values():
            lost = InterruptedOutcome(lane.number, self.now, "node lost", node_lost=True)
            self._tell_end(execution, lost)

    def _handle(self, message: LoopMessage) -> None:
        if isinstance(message, TrialEnded) and isinstance(message.outcome, InterruptedOutcome):
            self.heard = True
        super()._handle(message)

    def _end_reading(self, asked: DeviceReading) -> None:
        self.n_readings_lost += self.is_lost("node-1")
        if not self.still_read:
            there = tuple(d for d in asked.devices if not self.is_lost(d.address.node))
            asked = replace(asked, devices=there)
        super()._end_reading(asked)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    n_devices=st.integers(0, 2),
    begins=st.floats(0.1, 4),
    lasts=st.floats(0.1, 6),
    still_read=st.booleans(),
    told_after=st.sampled_from([0.0, 0.3]),
    released_after=st.sampled_from([0.0, 0.1]),
)
@example(
    sizes=[4, 4, 4],
    n_devices=1,
    begins=1.0,
    lasts=3.0,
    still_read=True,
    told_after=0.0,
    released_after=0.0,
)
def test_a_lost_node_gets_no_trial_and_a_place_that_loses_them_one_for_each_reading(
    sizes: list[int], n_devices: int, begins: float, lasts: float, **how: Any
) -> None:
    """`n_devices`: GPUs of each trial; 0: they train on the machine itself."""
    devices = TWO_NODES if n_devices else {f"node-{n}/host": 24 * GB for n in (1, 2)}
    planned = [Plan(n * GB, n * GB, seconds=3.0, n_devices=n_devices or 1) for n in sizes]
    lost_seconds = (begins, begins + lasts)
    limits = AdmissionLimits(3, 0, 5.0)
    world = LosingANode(
        devices, planned, own_processes=True, limits=limits, lost_seconds=lost_seconds, **how
    )
    world.run()
    assert world.n_starts_lost <= 3 * (1 + world.n_readings_lost)
    assert all(isinstance(outcome, FinishedOutcome) for outcome in world.told.values())


def test_each_machine_of_a_cluster_trains_as_many_as_it_says() -> None:
    hosts = [DeviceId("a", "host"), DeviceId("b", "host")]
    devices = [
        DeviceSnapshot(host, "cpu", 8 * GB, 8 * GB, n_places=n)
        for host, n in zip(hosts, (3, 0), strict=True)
    ]
    limits = AdmissionLimits(None, GB, 5.0, max_on_host=2).with_places_of(devices)
    assert [limits.max_trials_on(host) for host in hosts] == [3, 0]
    assert (limits.max_trials_on(DeviceId("c", "host")), limits.n_cores) == (2, 3)


def test_a_head_that_waits_for_devices_lacks_them() -> None:
    world = Watched(
        {"node-1/GPU-a": 24 * GB},
        [Plan(20 * GB, 20 * GB, seconds=9.0, kinds=GPU)] * 3,
        own_processes=True,
    )
    world.loop.handle(DevicesRead(DeviceReading(0.0, world.machine.snapshots(0.0))), 0.0)
    assert world.loop.running, "the first has started"
    assert world.loop.snapshot().shortage == DeviceShortage(GPU, 2)
    world.run()
    assert world.loop.snapshot().shortage is None


def test_more_devices_do_not_help_where_as_many_run_as_may() -> None:
    limits = AdmissionLimits(1, GB, 5.0)
    world = Watched({"node-1/GPU-a": 24 * GB}, [Plan(GB, GB)] * 2, limits=limits)
    world.loop.handle(DevicesRead(DeviceReading(0.0, world.machine.snapshots(0.0))), 0.0)
    assert world.loop.running
    assert world.loop.snapshot().shortage is None


def test_devices_that_are_not_held_take_nothing_and_refuse_nothing_for_good() -> None:
    closed = [
        DeviceSnapshot(
            DeviceId("a", uuid), "A10", 24 * GB, 24 * GB, max_processes=0, closed="not held"
        )
        for uuid in ("GPU-a", "GPU-b")
    ]
    world = Watched({"a/GPU-a": 24 * GB}, [Plan(20 * GB, 20 * GB)] * 2, own_processes=True)
    world.loop.handle(DevicesRead(DeviceReading(0.0, tuple(closed))), 0.0)
    assert not world.loop.running
    assert world.loop.snapshot().shortage is not None
    refusal = world.loop.asking.refusal or world.loop.queue.queued[0].refusal
    assert refusal.reason.startswith("waiting: GPU-a… (A10) of a is not held; GPU-b… (A10) of a is")


@pytest.mark.parametrize("alone", [False, True])
def test_on_a_machine_without_a_place_nothing_trains_alone_either(alone: bool) -> None:
    host = DeviceId("a", "host")
    shown = (DeviceSnapshot(host, "cpu", 8 * GB, 8 * GB, n_places=0),)
    limits = AdmissionLimits(None, GB, 5.0).with_places_of(shown)
    for table in (DeviceTable(), None):
        found = place_trial(
            ResourceRequest(None, alone=alone, kinds=CPU),
            DeviceReading(0.0, shown),
            LedgerSnapshot(),
            limits,
            now_seconds=0.0,
            table=table,
        )
        assert isinstance(found, AdmissionRefusal)


def test_what_runs_where_is_told_by_its_label() -> None:
    on_cpu = placed("node-1/host", GB)
    on_gpu = placed("node-2/GPU-a", GB, name="A10 of an odd name")
    assert on_cpu.label == "cpu of node-1"
    found = [(kind_of_label(p.label), node_of_label(p.label)) for p in (on_cpu, on_gpu)]
    assert found == [(DeviceKind.CPU, "node-1"), (DeviceKind.GPU, "node-2")]
    assert node_of_label(placed("GPU-a", GB).label) == LOCAL_NODE


def test_of_a_study_that_machines_share_the_label_names_this_one() -> None:
    here, there = placed("GPU-a", GB, name="A10"), placed("node-1/host", GB)
    assert here.label_at("box-1") == "A10 GPU-a of box-1"
    assert there.label_at("box-1") == "cpu of node-1", "a cluster's nodes have their own names"
    assert label_seen_from(here.label_at("box-1"), "box-1") == here.label
    assert label_seen_from(here.label_at("box-1"), "box-2") == "A10 GPU-a of box-1"
