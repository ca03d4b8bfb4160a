"""Where a sweep has the CPU and GPUs: a trial goes where it ends first, and stays there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.governor import SharedDevice, SharingGovernor
from automl.devices.device_reading import DeviceReading
from automl.running.loop.messages import DevicesRead, PlannedTrial, WaitingTrial
from automl.trial import (
    DeviceKind,
    PackKind,
)
from tests.places import device_id
from tests.running.loop.choosers import Known
from tests.running.loop.mixed import CPU, GB, GPU, LIMITS, MACHINE, Mixed, mixed, plan
from tests.running.loop.simulated_machine import Plan


def test_small_ones_stay_on_the_cpu_while_a_gpu_trains_the_large() -> None:
    world = mixed([plan(), plan(), plan(cpu_takes=0.5), plan(), plan(cpu_takes=0.9)])
    world.run()
    assert world.where == {0: [GPU], 1: [GPU], 2: [CPU], 3: [GPU], 4: [CPU]}
    assert world.now < 33, "nobody waited for those in front of it on another kind"


def test_the_wait_counts_with_those_that_wait_before_it() -> None:
    """The third would end on the GPU after three times 10 s, the fourth after four."""
    world = mixed([plan(cpu_takes=3.5)] * 5)
    world.run()
    assert world.where == {0: [GPU], 1: [GPU], 2: [GPU], 3: [CPU], 4: [CPU]}


def test_a_core_is_kept_for_each_gpu() -> None:
    world = mixed([plan(cpu_takes=0.1, seconds=100.0)] * 4)
    world.run()
    assert list(world.where.values()).count([CPU]) == 4
    assert 20 < world.now < 25, "three at a time"


class Seeing(SharingGovernor):
    """Keeps how many it was told that the machine itself takes."""

    def __init__(self) -> None:
        super().__init__()
        self.most: set[int] = set()

    def observe(self, seen: SharedDevice, now_seconds: float) -> None:
        if seen.device.on_host:
            self.most.add(seen.n_most)
        super().observe(seen, now_seconds)


def test_the_cpu_is_governed_without_the_core_that_is_kept() -> None:
    governor = Seeing()
    mixed([plan()], governor=governor).run()
    assert governor.most == {3}


def test_who_waited_for_a_gpu_may_start_on_the_cpu_after_all() -> None:
    """Though it could go with others as a pack: what it waited for before counts no more."""
    world = mixed([plan(kind=PackKind("a", 2), cpu_takes=0.5)])
    world.loop.asking.n_asked = 1
    world.loop.queue.add(WaitingTrial(world.ask() or PlannedTrial(0, {}), chosen=GPU))
    world.run()
    assert world.where == {0: [CPU]}


def test_nobody_passes_who_waits_for_its_kind() -> None:
    """The third would fit beside what runs, and delay the second."""
    sizes = (50 * GB, 70 * GB, 20 * GB)
    planned = [Plan(size, size, seconds=10.0, cpu_takes=50.0) for size in sizes]
    world = mixed([*planned, plan(cpu_takes=0.5)], limits=replace(LIMITS, max_per_gpu=4))
    world.run()
    assert world.where == {0: [GPU], 1: [GPU], 2: [GPU], 3: [CPU]}
    assert world.started == [0, 3, 1, 2]


def test_a_lane_that_came_free_is_for_its_kind_of_device() -> None:
    """Trials of an earlier sweep go on where they were, though all are of one kind of pack."""
    pair = PackKind("a", 2)
    planned = [plan(kind=pair, seconds=s, cpu_takes=1.0) for s in (3.0, 9.0, 5.0, 5.0, 5.0)]
    world = mixed(planned)
    kinds = (CPU, CPU, GPU, GPU, GPU)
    left = [WaitingTrial(world.ask() or PlannedTrial(0, {}), kind=kind) for kind in kinds]
    world.loop.asking.n_asked = len(left)
    world.loop.take_over(left)
    world.run()
    assert [world.where[n] for n in range(5)] == [[kind] for kind in kinds]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    request = draw(st.sampled_from([None, GB, GB, 40 * GB]))
    pack = draw(st.sampled_from([None, None, PackKind("a", 2)]))
    some = [*[frozenset(DeviceKind)] * 3, frozenset({CPU}), frozenset({GPU})]
    return Plan(
        request_bytes=request,
        peak_bytes=draw(st.sampled_from([request or 0, 50 * GB])),
        seconds=draw(st.floats(0.5, 6)),
        ends=draw(st.sampled_from(["finished", "finished", "finished", "failed", "dies"])),
        kind=pack,
        hosted_after=draw(st.floats(0, 2)),
        kinds=draw(st.sampled_from(some)) if pack is None else frozenset(DeviceKind),
        cpu_takes=draw(st.sampled_from([0.2, 1.0, 3.0, 30.0])),
    )


@settings(max_examples=30, deadline=None)
@given(
    planned=st.lists(plans(), min_size=1, max_size=8),
    told_after=st.floats(0, 2),
    stop_at=st.none() | st.floats(0, 10),
    lefts=st.lists(st.sampled_from([None, CPU, GPU]), max_size=3),
)
def test_a_trial_never_changes_its_kind_and_everyone_ends(
    planned: list[Plan], lefts: list[DeviceKind | None], **how: Any
) -> None:
    """Out of memory, deaths, packs that dissolve, trials of an earlier sweep; `run` sees that none
    is lost or waits for ever."""
    world = mixed(planned, **how)
    left = [
        WaitingTrial(world.ask() or PlannedTrial(0, {}), kind=kind if kind in p.kinds else None)
        for kind, p in zip(lefts, planned, strict=False)
    ]
    world.loop.asking.n_asked = len(left)
    world.loop.take_over(left)
    world.run()
    assert all(len(set(kinds)) == 1 for kinds in world.where.values())
    for number, taken in enumerate(left):
        if taken.kind is not None and number in world.where:
            assert world.where[number][0] is taken.kind


@dataclass
class Watched(Mixed):
    """Sees who waits, and what for."""

    def _handle(self, message: Any) -> None:
        super()._handle(message)
        if self.loop._placing.reading is None or self.loop.stop is not None:
            return
        busy = {e.placement.kind for e in self.loop.executions.values()}
        awaited = {w.where for w in self.loop.queue.queued}
        for waiting in self.loop.queue.queued:
            for kind in {CPU, GPU} - busy - awaited:
                self.n_looked_at += 1
                chosen, now = waiting.where, self.now
                assert chosen is not None
                here = [e for e in self.loop.executions.values() if e.placement.kind is chosen]
                left = [self.loop.durations.end(e, now) - now for e in here]
                chooser = self.chooser
                assert chooser is not None
                there, elsewhere = chooser.seconds(waiting, chosen), chooser.seconds(waiting, kind)
                assert there is not None
                assert elsewhere is not None
                assert elsewhere > there + max(0.0, min(left)), "it would have ended first there"


@settings(max_examples=30, deadline=None)
@given(
    planned=st.lists(
        st.builds(plan, st.floats(0.5, 20), st.sampled_from([0.3, 0.9, 1.5, 4.0, 50.0])),
        min_size=2,
        max_size=10,
    )
)
def test_nobody_waits_while_a_kind_that_would_end_it_first_is_empty(planned: list[Plan]) -> None:
    world = Watched(
        MACHINE, planned, limits=LIMITS, own_processes=True, n_ahead=16, chooser=Known(planned)
    )
    world.run()


def test_a_trial_that_goes_on_keeps_its_kind() -> None:
    """A trial whose process dies keeps its kind, too."""
    world = mixed([plan(cpu_takes=100.0, seconds=1.0), plan(ends="dies", cpu_takes=0.5)])
    world.loop.asking.n_asked = 1
    world.loop.take_over(
        [WaitingTrial(PlannedTrial(0, (world.ask() or PlannedTrial(0, {})).params), kind=CPU)]
    )
    world.run()
    assert world.where == {0: [CPU], 1: [CPU, CPU]}


def test_a_kind_that_the_sweep_has_not_binds_nobody() -> None:
    world = Mixed({"host": GB}, [Plan(0, 0)], own_processes=True)
    world.loop.asking.n_asked = 1
    world.loop.take_over([WaitingTrial(world.ask() or PlannedTrial(0, {}), kind=GPU)])
    world.run()
    assert world.where == {0: [CPU]}


def test_gpus_that_cannot_be_read_are_waited_for() -> None:
    """Not a failure, and no reason to train on the CPU what belongs on a GPU."""
    world = mixed([plan(), plan(cpu_takes=0.5)])
    host = [d for d in world.machine.snapshots(0.0) if d.address.on_host]
    world.loop.handle(DevicesRead(DeviceReading(0.0, tuple(host))), 0.0)
    assert world.where == {1: [CPU]}
    assert world.loop.queue.queued[0].refusal.reason.endswith("the CPU): no GPU can be read now")
    world.run()
    assert world.where == {0: [GPU], 1: [CPU]}


def test_what_no_gpu_holds_goes_to_the_cpu() -> None:
    world = mixed([Plan(50 * GB, 50 * GB, cpu_takes=99.0)])
    world.totals[device_id("GPU-a")] = 24 * GB
    world.run()
    assert world.where == {0: [CPU]}


def test_the_reason_says_why_it_is_this_kind_of_device() -> None:
    world = mixed([plan(seconds=10.0, cpu_takes=30.0)] * 2)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    (waiting,) = world.loop.queue.queued
    assert waiting.refusal.reason == (
        "waiting for a GPU (about 10 s there, 5:00 on the CPU): all places are taken, "
        "admission.max_trials_per_device=1"
    )
