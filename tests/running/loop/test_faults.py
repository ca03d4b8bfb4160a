"""Devices that fail, and devices that take one process: simulated."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import DevicesRead
from automl.running.loop.placing import IN_DOUBT, failed_devices, mark_doubted_devices
from automl.trial import FinishedOutcome, PackKind
from tests.places import device_id
from tests.running.loop.simulated_machine import Fault, Plan
from tests.running.loop.simulator import World

GB = 1000**3
TWO = {"GPU-a": 24 * GB, "GPU-b": 24 * GB}
A, B = device_id("GPU-a"), device_id("GPU-b")
WORKERS: dict[str, Any] = {"own_processes": True, "shows_pids": True}


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.none() | st.integers(1, 20), min_size=1, max_size=10),
    seconds=st.floats(0.5, 6),
    begins=st.floats(0, 12),
    lasts=st.none() | st.floats(0.1, 12),
    lost=st.booleans(),
    told_after=st.floats(0, 2),
    packed=st.booleans(),
    own_processes=st.booleans(),
)
def test_what_ran_on_a_device_that_fails_goes_on_elsewhere_and_none_has_failed(
    sizes: list[int | None],
    seconds: float,
    begins: float,
    lasts: float | None,
    lost: bool,
    packed: bool,
    **how: Any,
) -> None:
    until = float("inf") if lasts is None else begins + lasts
    kind = PackKind("a", 2) if packed else None
    planned = [
        Plan(n and n * GB, (n or 1) * GB, seconds=seconds, kind=kind, hosted_after=0.1)
        for n in sizes
    ]
    limits = AdmissionLimits(None, GB, 5.0, max_per_gpu=4)
    world = World(TWO, planned, faults=[Fault("GPU-a", begins, until, lost)], limits=limits, **how)
    world.run()
    assert all(isinstance(outcome, FinishedOutcome) for outcome in world.told.values())


def test_a_device_that_comes_back_is_used_again() -> None:
    planned = [Plan(20 * GB, GB, seconds=2.0)] * 8
    gone = World({"GPU-a": 24 * GB}, planned, faults=[Fault("GPU-a", 3.0, 20.0)], **WORKERS)
    gone.run()
    assert len(gone.told) == 8
    assert gone.now > 20


def test_idle_processes_of_a_device_that_failed_are_not_used_again() -> None:
    fault = Fault("GPU-a", 4.0, 8.0)
    late = Plan(GB, GB, seconds=1.0)
    world = World(TWO, [late, replace(late, seconds=9.0), late], faults=[fault], **WORKERS)
    world.loop.asking.n_trials = 2
    world._read()
    while world.now < 6.0:
        world.now, _, happens = heapq.heappop(world._heap)
        happens()
    assert world.n_ended_idle == 1


def test_what_fits_on_a_lost_device_alone_is_left_for_later_and_lets_others_pass() -> None:
    sizes = {"GPU-a": 24 * GB, "GPU-b": 8 * GB}
    planned = [Plan(20 * GB, GB, seconds=9.0), *[Plan(GB, GB)] * 4]
    world = World(sizes, planned, faults=[Fault("GPU-a", 1.0)], **WORKERS)
    world.run(left=[0])
    (waiting,) = world.loop.queue.deferred
    assert waiting.refusal.reason == (
        "waiting: 18.6 GiB asked, for which no device is left (GPU-a… (sim): GPU is lost)"
    )
    assert len(world.told) == 4


def test_what_waits_for_a_device_that_does_not_answer_lets_others_pass() -> None:
    """And goes first again as soon as it answers."""
    sizes = {"GPU-a": 24 * GB, "GPU-b": 8 * GB}
    planned = [Plan(20 * GB, GB), *[Plan(GB, GB, seconds=4.0)] * 40]
    fault = Fault("GPU-a", 0.0, 5.0, lost=False)
    world = World(sizes, planned, faults=[fault], limits=AdmissionLimits(2, 0, 5.0), **WORKERS)
    world.run()
    assert world.started[:2] == [1, 2]
    assert world.started.index(0) < 10


def test_what_fits_on_a_device_alone_that_does_not_answer_waits_for_it() -> None:
    sizes = {"GPU-a": 24 * GB, "GPU-b": 8 * GB}
    fault = Fault("GPU-a", 0.0, 9.0, lost=False)
    world = World(sizes, [Plan(20 * GB, GB)], faults=[fault])
    world.run()
    assert isinstance(world.told[0], FinishedOutcome)


def test_a_sampler_that_learns_is_not_asked_for_all_while_a_device_does_not_answer() -> None:
    """Whatever it proposes then waits for that device, too."""
    sizes = {"GPU-a": 24 * GB, "GPU-b": 8 * GB}
    fault = Fault("GPU-a", 0.0, 5.0, lost=False)
    limits = AdmissionLimits(2, 0, 5.0)
    world = World(sizes, [Plan(20 * GB, GB)] * 20, faults=[fault], limits=limits)
    world.most_pending = 4
    world._read()
    while world.now < 4.0:
        world.now, _, happens = heapq.heappop(world._heap)
        happens()
    assert world.loop.asking.n_asked == 4
    whole = World(sizes, world.plans, faults=[fault], limits=limits)
    whole.most_pending = 4
    whole.run()


def test_a_device_that_is_lost_after_it_did_not_answer_is_awaited_no_longer() -> None:
    sizes = {"GPU-a": 24 * GB, "GPU-b": 8 * GB}
    faults = [Fault("GPU-a", 0.0, 5.0, lost=False), Fault("GPU-a", 5.0)]
    planned = [*[Plan(20 * GB, GB)] * 6, *[Plan(GB, GB)] * 4]
    world = World(sizes, planned, faults=faults, limits=AdmissionLimits(2, 0, 5.0))
    world.most_pending = 4
    world.run(left=range(6))
    assert sorted(world.told) == [6, 7, 8, 9]


def test_a_mutation_without_doubt_a_lost_device_takes_the_same_trial_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "automl.running.loop.placing.mark_doubted_devices", lambda reading, died_seconds: reading
    )
    world = World(TWO, [Plan(GB, GB)], faults=[Fault("GPU-a", 0.1)], **WORKERS)
    world.run()
    assert not isinstance(world.told[0], FinishedOutcome)


def test_a_device_is_doubted_until_a_reading_begun_later_shows_it() -> None:
    world = World(TWO, [])
    reading = world._reading()
    faults = [d.fault for d in mark_doubted_devices(reading, {A: reading.begun_seconds}).devices]
    assert faults == [IN_DOUBT, None]
    later = replace(reading, begun_seconds=reading.begun_seconds + 1)
    assert mark_doubted_devices(later, {A: reading.begun_seconds}) is later


def test_a_reading_that_was_begun_before_a_death_tells_nothing_of_its_device() -> None:
    """The reading comes after the death, as a driver takes its time."""
    world = World(TWO, [])
    first, placing = world._reading(), world.loop._placing
    placing.read(first, 0.0)
    placing.died([A], 3.0)
    for begun_seconds, fault in ((2.0, IN_DOUBT), (4.0, None)):
        placing.read(replace(first, begun_seconds=begun_seconds), 4.5)
        assert placing.reading is not None
        assert [device.fault for device in placing.reading.devices] == [fault, None]


def test_a_device_in_doubt_is_not_said_to_have_failed() -> None:
    reading = World(TWO, [], faults=[Fault("GPU-b", 0.0)])._reading()
    doubted = mark_doubted_devices(reading, {A: 0.0, B: 0.0})
    assert [d.fault for d in doubted.devices] == [IN_DOUBT, "GPU is lost"]
    assert failed_devices(doubted) == {B}


@settings(max_examples=60, deadline=None)
@given(
    planned=st.lists(
        st.builds(
            Plan,
            request_bytes=st.none() | st.integers(1, 20).map(lambda n: n * GB),
            peak_bytes=st.just(GB),
            seconds=st.floats(0.5, 6),
            hosted_after=st.floats(0, 2),
            reports_after=st.floats(0, 4),
            n_devices=st.integers(1, 2),
        ),
        min_size=1,
        max_size=8,
    ),
    shows_pids=st.booleans(),
    told_after=st.floats(0, 2),
)
def test_where_one_process_may_be_there_is_never_a_second(planned: list[Plan], **how: Any) -> None:
    """Idle ones are used again, or end for those that need another."""
    limits = AdmissionLimits(None, GB, 5.0)
    World(TWO, planned, own_processes=True, max_processes=1, limits=limits, **how).run()


def test_in_threads_of_one_process_several_trials_share_it() -> None:
    world = World({"GPU-a": 24 * GB}, [Plan(GB, GB, seconds=3.0)] * 4, max_processes=1)
    world.run()
    assert len(world.told) == 4
    assert world.now < 9


def loop_of(world: World) -> SweepLoop:
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    return world.loop


def test_a_prohibited_device_takes_nobody_and_that_is_said() -> None:
    loop = loop_of(World({"GPU-a": 24 * GB}, [Plan(GB, GB)], max_processes=0))
    assert loop.asking.refusal is not None
    assert loop.asking.refusal.reason == (
        "waiting: GPU-a… (sim) takes no process: its compute mode is PROHIBITED"
    )


def test_only_a_device_that_is_well_is_doubted() -> None:
    """When a node is lost, thousands of processes die, which tells nothing new about it."""
    failed = DeviceSnapshot(A, "x", 24 * GB, 0, fault="lost", lost=True)
    reading = DeviceReading(1.0, (failed, DeviceSnapshot(B, "x", 24 * GB, 24 * GB)))
    assert mark_doubted_devices(reading, {A: 2.0, B: 0.5}) is reading
    doubted = mark_doubted_devices(reading, {A: 2.0, B: 2.0})
    assert [device.fault for device in doubted.devices] == ["lost", IN_DOUBT]
    assert failed_devices(doubted) == {A}
