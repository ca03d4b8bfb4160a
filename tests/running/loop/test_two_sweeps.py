"""Two sweeps on one machine, which know of each other by the driver and by their promises."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import OtherPromises
from automl.devices.memory_promises import MemoryPromise, missed_promises
from automl.running.loop.messages import DevicesRead
from automl.trial import DeviceId, DeviceShare
from tests.places import device_id
from tests.running.loop.simulated_machine import Hosted, Machine, Plan
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}
TWO = {"GPU-a": 24 * GB, "GPU-b": 12 * GB}
LATE: dict[str, Any] = {"appears_after": 2.5, "reports_after": 3.0}


class Shared(Machine):
    """The machine as one sweep sees it. What the other sweep holds is a stranger's."""

    other: Machine

    def strangers_bytes(self, device: DeviceId, now: float) -> int:
        return self.other.own_bytes(device, now) + self.other.contexts_bytes(device)

    def _can_get_of(self, share: DeviceShare, execution: Hosted, now: float) -> int:
        """With a device to itself, too: the other sweep may have the rest."""
        return share.reservation_bytes


@dataclass
class Sweep(World):
    name: str = ""
    shown: tuple[MemoryPromise, ...] = ()
    mute: bool = False
    """Mutation: the sweep shows nothing."""
    other: Sweep | None = field(default=None, repr=False)

    def show(self, promises: Sequence[MemoryPromise]) -> None:
        self.shown = () if self.mute else tuple(promises)

    def _elsewhere(self, begun_seconds: float) -> OtherPromises:
        assert self.other is not None
        return missed_promises(self.other.shown, self.other.name, begun_seconds)

    def _check_room(self, device: DeviceId) -> None:
        assert self.other is not None
        super()._check_room(device)
        taken = self.promised_bytes(device) + self.other.promised_bytes(device)
        assert taken <= self.totals[device], "both promised the same memory"

    def leave(self) -> None:
        """The program ends, with its processes and its file."""
        self.shown = ()
        self.machine.processes.clear()


def run_both(one: Sweep, two: Sweep) -> None:
    for sweep, other in ((one, two), (two, one)):
        machine = Shared(sweep.totals, (), True, sweep.contexts, sweep.shows_pids)
        sweep.machine, sweep.other = machine, other
    assert isinstance(one.machine, Shared)
    assert isinstance(two.machine, Shared)
    one.machine.other, two.machine.other = two.machine, one.machine
    left = [one, two]
    for sweep in left:
        sweep._read()
    for _ in range(10_000):
        if not left:
            break
        sweep = min(left, key=lambda s: s._heap[0][0])
        now, _, happens = heapq.heappop(sweep._heap)
        one.now = two.now = now
        happens()
        for device, total in sweep.totals.items():
            assert sweep.machine.used_bytes(device, now) <= total, "out of memory"
        if sweep.loop.done:
            sweep.leave()
            left.remove(sweep)
    assert not left, "a sweep never ends"
    for sweep in (one, two):
        held_back = [waiting.trial.number for waiting in sweep.loop.queue.deferred]
        assert sorted([*sweep.told, *held_back]) == list(range(len(sweep.plans)))


def sweeps(one: Sequence[Plan], two: Sequence[Plan], **how: Any) -> tuple[Sweep, Sweep]:
    how = {"own_processes": True, "sizes": TWO, "limits": AdmissionLimits(None, GB, 5.0), **how}
    return Sweep(plans=one, name="one", **how), Sweep(plans=two, name="two", **how)


plans = st.lists(
    st.builds(
        Plan,
        request_bytes=st.none() | st.integers(1, 20).map(lambda n: n * GB),
        peak_bytes=st.integers(1, 4).map(lambda n: n * GB),
        appears_after=st.floats(0, 3),
        reports_after=st.floats(0, 4),
        seconds=st.floats(0.5, 6),
        hosted_after=st.floats(0, 2),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(
    one=plans,
    two=plans,
    told_after=st.floats(0, 2),
    reading_takes=st.floats(0, 0.5),
    shows_pids=st.booleans(),
    n_ahead=st.sampled_from([0, 4]),
)
def test_two_sweeps_promise_no_memory_twice_and_both_end(
    one: list[Plan], two: list[Plan], **how: Any
) -> None:
    """Whatever memory shows late, whoever hears late, and whoever passes whom."""
    run_both(*sweeps(one, two, **how))


def test_a_mutation_without_promises_they_take_the_same_memory() -> None:
    large = [Plan(15 * GB, 15 * GB, seconds=6.0, **LATE)]
    run_both(*sweeps(large, large, sizes=GPU))
    with pytest.raises(AssertionError, match="both promised"):
        run_both(*sweeps(large, large, sizes=GPU, mute=True))


@dataclass
class Beside(World):
    """Beside a sweep that shows a promise after the reading was taken."""

    elsewhere: OtherPromises = field(default_factory=dict)

    def others(self, begun_seconds: float) -> OtherPromises:
        return self.elsewhere


def started_beside(promised_bytes: int, plans: Sequence[Plan]) -> list[int]:
    elsewhere = {(device_id("GPU-a"), "x t1"): promised_bytes}
    world = Beside(GPU, plans, limits=AdmissionLimits(None, 0, 5.0), n_ahead=4, elsewhere=elsewhere)
    for seconds in (0.0, 1.0):
        world.now = seconds
        world.loop.handle(DevicesRead(world._reading()), seconds)
    return world.started


def test_who_passes_the_head_does_not_take_what_another_sweep_was_promised() -> None:
    runs, head = Plan(8 * GB, 8 * GB, seconds=30.0), Plan(20 * GB, 20 * GB)
    passes = Plan(6 * GB, 6 * GB, seconds=3.0)
    assert started_beside(0, [runs, head, passes]) == [0, 2]
    assert started_beside(11 * GB, [runs, head, passes]) == [0]


def test_the_head_does_not_take_what_another_sweep_was_promised() -> None:
    head = Plan(8 * GB, 8 * GB, seconds=30.0)
    assert started_beside(12 * GB, [head]) == [0]
    assert started_beside(17 * GB, [head]) == []
