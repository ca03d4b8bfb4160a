"""Where a sweep has the CPU and GPUs: a trial goes where it ends first, and stays there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.governor import Governor, Shared
from automl.admission.limits import Limits
from automl.devices.device import Reading
from automl.record.study import fold
from automl.running.chooser import Chooser
from automl.running.messages import Asked, DevicesRead, Kind, TakenOver, Waiting
from automl.trial import (
    DeviceKind,
    Event,
    Finished,
    MemoryPeak,
    Paced,
    Params,
    Placement,
    Started,
    SweepStarted,
    Work,
)
from tests.places import device_id
from tests.running.choosers import Known
from tests.running.simulated_machine import Plan
from tests.running.simulator import World

GB = 1000**3
CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
MACHINE = {"host": 64 * GB, "GPU-a": 80 * GB}
LIMITS = Limits(None, 0, 5.0, max_per_gpu=1, max_on_host=4)


@dataclass
class Mixed(World):
    """Keeps where each trial was started, one after another."""

    where: dict[int, list[DeviceKind]] = field(default_factory=dict)
    n_looked_at: int = 0

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        for trial in trials:
            self.where.setdefault(trial.number, []).append(placement.kind)
        super().submit(trials, placement, n_lanes)

    def feed(self, key: int, trial: Asked) -> None:
        kind = self.loop.executions[key].placement.kind
        if not self.where.get(trial.number):  # it takes a lane that came free
            self.where[trial.number] = [kind]
        super().feed(key, trial)


def mixed(plans: Sequence[Plan], **how: Any) -> Mixed:
    how.setdefault("limits", LIMITS)
    how.setdefault("chooser", Known(plans))
    return Mixed(MACHINE, plans, own_processes=True, n_ahead=16, **how)


def plan(seconds: float = 10.0, cpu_takes: float = 100.0, **how: Any) -> Plan:
    return Plan(GB, GB, seconds=seconds, cpu_takes=cpu_takes, **how)


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


class Seeing(Governor):
    """Keeps how many it was told that the machine itself takes."""

    def __init__(self) -> None:
        super().__init__()
        self.most: set[int] = set()

    def observe(self, seen: Shared, now_seconds: float) -> None:
        if seen.device.on_host:
            self.most.add(seen.n_most)
        super().observe(seen, now_seconds)


def test_the_cpu_is_governed_without_the_core_that_is_kept() -> None:
    governor = Seeing()
    mixed([plan()], governor=governor).run()
    assert governor.most == {3}


def test_who_waited_for_a_gpu_may_start_on_the_cpu_after_all() -> None:
    """Though it could go with others as a pack: what it waited for before counts no more."""
    world = mixed([plan(kind=Kind("a", 2), cpu_takes=0.5)])
    world.loop.n_asked = 1
    world.loop.waiting.append(Waiting(world.ask() or Asked(0, {}), chosen=GPU))
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
    """Those of an earlier sweep go on where they were, though all are of one kind of pack."""
    pair = Kind("a", 2)
    planned = [plan(kind=pair, seconds=s, cpu_takes=1.0) for s in (3.0, 9.0, 5.0, 5.0, 5.0)]
    world = mixed(planned)
    kinds = (CPU, CPU, GPU, GPU, GPU)
    left = [TakenOver(world.ask() or Asked(0, {}), kind=kind) for kind in kinds]
    world.loop.n_asked = len(left)
    world.loop.take_over(left)
    world.run()
    assert [world.where[n] for n in range(5)] == [[kind] for kind in kinds]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    request = draw(st.sampled_from([None, GB, GB, 40 * GB]))
    pack = draw(st.sampled_from([None, None, Kind("a", 2)]))
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
        TakenOver(world.ask() or Asked(0, {}), kind=kind if kind in p.kinds else None)
        for kind, p in zip(lefts, planned, strict=False)
    ]
    world.loop.n_asked = len(left)
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
        if self.loop.reading is None or self.loop.stop is not None:
            return
        busy = {e.placement.kind for e in self.loop.executions.values()}
        awaited = {w.where for w in self.loop.waiting}
        for waiting in self.loop.waiting:
            for kind in {CPU, GPU} - busy - awaited:
                self.n_looked_at += 1
                chosen, now = waiting.where, self.now
                assert chosen is not None
                here = [e for e in self.loop.executions.values() if e.placement.kind is chosen]
                left = [self.loop.durations.end(e, self.loop.running, now) - now for e in here]
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
    """As does one whose process dies."""
    world = mixed([plan(cpu_takes=100.0, seconds=1.0), plan(ends="dies", cpu_takes=0.5)])
    world.loop.n_asked = 1
    world.loop.take_over([TakenOver(Asked(0, (world.ask() or Asked(0, {})).params), kind=CPU)])
    world.run()
    assert world.where == {0: [CPU], 1: [CPU, CPU]}


def test_a_kind_that_the_sweep_has_not_binds_nobody() -> None:
    world = Mixed({"host": GB}, [Plan(0, 0)], own_processes=True)
    world.loop.n_asked = 1
    world.loop.take_over([TakenOver(world.ask() or Asked(0, {}), kind=GPU)])
    world.run()
    assert world.where == {0: [CPU]}


def test_gpus_that_cannot_be_read_are_waited_for() -> None:
    """Not a failure, and no reason to train on the CPU what belongs on a GPU."""
    world = mixed([plan(), plan(cpu_takes=0.5)])
    host = [d for d in world.machine.snapshots(0.0) if d.address.on_host]
    world.loop.handle(DevicesRead(Reading(0.0, tuple(host))), 0.0)
    assert world.where == {1: [CPU]}
    assert world.loop.waiting[0].refusal.reason.endswith("the CPU): no GPU can be read now")
    world.run()
    assert world.where == {0: [GPU], 1: [CPU]}


def test_what_no_gpu_holds_goes_to_the_cpu() -> None:
    world = mixed([Plan(50 * GB, 50 * GB, cpu_takes=99.0)])
    world.totals[device_id("GPU-a")] = 24 * GB
    world.run()
    assert world.where == {0: [CPU]}


class Untold(Known):
    """Nobody knows their work."""

    def __init__(self, plans: Sequence[Plan], **how: Any) -> None:
        super().__init__(plans, **how)
        self.work = lambda params: None

    def seconds(self, waiting: Waiting, kind: DeviceKind) -> float | None:
        return self.paces.seconds(None, kind)


def test_a_cap_on_all_leaves_no_place_to_the_cpu_while_a_gpu_is_free() -> None:
    """Places that are never used together make nobody take twice as long on the CPU."""
    work = Work(100, 1e6)
    for most, slowest in ((1, 215.0), (2, 145.0)):
        chooser = Chooser(lambda params: work, frozenset(DeviceKind), likely=[work] * 64)
        chooser.paces.add(-1, CPU, work.step_flops, 0.2)
        chooser.paces.add(-2, GPU, work.step_flops, 0.1)
        limits = replace(LIMITS, max_concurrent_trials=most)
        world = mixed([plan(cpu_takes=2.0)] * 20, chooser=chooser, limits=limits)
        world.run()
        assert world.now < slowest, f"{most} at once; on GPUs alone it takes 202 s"


def test_a_pack_that_is_too_short_to_be_timed_is_noted_once() -> None:
    noted: list[int | None] = []
    planned = [plan(seconds=0.5, cpu_takes=0.5, kind=Kind("a", 4))] * 40

    def note(kind: DeviceKind, flops: float, seconds: float, execution: int | None) -> None:
        noted.append(execution)

    world = mixed(planned, chooser=Known(planned, note=note))
    world.run()
    assert max(map(len, world.packs.values())) > 1
    assert len(noted) == len(set(noted)) == len(world.packs)


def test_a_trial_of_unknown_work_goes_to_a_gpu_alone() -> None:
    planned = [plan(cpu_takes=0.1)] * 3
    world = mixed(planned, chooser=Untold(planned))
    world.run()
    assert list(world.where.values()) == [[GPU]] * 3


def test_what_cannot_run_on_a_gpu_waits_for_the_cpu_and_holds_no_gpu_up() -> None:
    """Trees, of which nobody knows how long they take; three at a time have a core."""
    trees = Plan(GB, GB, seconds=10.0, kinds=frozenset({CPU}))
    planned = [trees, trees, trees, trees, plan()]
    world = mixed(planned, chooser=Untold(planned))
    world.run()
    assert world.where == {0: [CPU], 1: [CPU], 2: [CPU], 3: [CPU], 4: [GPU]}
    assert world.started.index(4) < world.started.index(3)


def test_where_anyone_may_one_tries_the_cpu_until_it_is_known() -> None:
    planned = [plan(cpu_takes=8.0)] * 12
    world = mixed(planned, chooser=Untold(planned, anyone_to_cpu=True))
    world.run()
    assert next(n for n, kinds in world.where.items() if kinds == [CPU]) == 1
    assert list(world.where.values()).count([CPU]) < 4


def _work(params: Params) -> Work:
    return Work(1000, 10.0 ** (4 + 4 * (int(str(params["plan"])) % 3)))


@dataclass
class Stepping(Mixed):
    """Tells steps: 1,000 of each trial."""

    def n_steps(self) -> dict[int, int]:
        found = {}
        for e in self.machine.executions.values():
            for lane in e.lanes.values():
                share = (self.now - lane.began) / lane.plan.seconds_on(e.placement.kind)
                found[e.key] = int(1000 * share)
        return found


def test_what_was_timed_decides_where_the_next_go() -> None:
    """By the prior the CPU is faster for small ones; here it is not, which is found out."""
    planned = [plan(5.0, cpu_takes=40.0) for _ in range(30)]
    chooser = Chooser(_work, frozenset(DeviceKind))
    world = Stepping(
        MACHINE, planned, limits=LIMITS, own_processes=True, n_ahead=4, chooser=chooser
    )
    world.run()
    on_cpu = [n for n, kinds in world.where.items() if kinds == [CPU]]
    assert on_cpu
    assert all(n % 3 == 0 for n in on_cpu), "the small ones alone tried it"
    assert len(on_cpu) <= 4
    small = chooser.paces.seconds(_work({"plan": 0}), CPU)
    assert small is not None
    assert 150 < small < 250


SWEEP = SweepStarted(0.0, "s", "u", {"study.metric": "loss"})


def test_an_earlier_sweep_tells_what_steps_took() -> None:
    """Of an execution what is told last counts; each probe counts."""
    small = _work({"plan": 0}).step_flops
    told = [Paced(2.0, CPU, small, 9.0, execution=3), Paced(3.0, CPU, small, 1 / 1600, execution=3)]
    probes = [Paced(1.5, CPU, 1e4 * small, 0.02), Paced(1.5, CPU, 1e5 * small, 0.2)]
    chooser = Chooser(_work, frozenset(DeviceKind))
    chooser.learn(fold([SWEEP, *told, *probes]))
    found = chooser.paces.seconds(Work(1000, small), CPU)
    large = chooser.paces.seconds(Work(1, 1e4 * small), CPU)
    assert found is not None
    assert large is not None
    assert 0.5 < found < 0.8, "1,000 steps of 1/1600 s, and what the prior says"
    assert 0.8 < large / 0.02 < 1.25


def test_what_is_learned_is_noted_for_the_record() -> None:
    """The newest of each execution tells what the loop knew in the end."""
    noted: list[Paced] = []

    def note(kind: DeviceKind, flops: float, seconds: float, execution: int | None) -> None:
        noted.append(Paced(0.0, kind, flops, seconds, execution))

    planned = [plan(30.0, cpu_takes=4.0) for _ in range(6)]
    chooser = Chooser(_work, frozenset(DeviceKind), note=note)
    Stepping(MACHINE, planned, limits=LIMITS, own_processes=True, chooser=chooser).run()
    again = Chooser(_work, frozenset(DeviceKind))
    again.learn(fold([SWEEP, *noted]))
    assert len(noted) < 40, "not at each reading"
    for kind in DeviceKind:
        before, after = (c.paces.seconds(_work({"plan": 1}), kind) for c in (chooser, again))
        assert before is not None
        assert after is not None
        assert 0.95 < after / before < 1.05


def test_until_the_cpu_was_timed_nobody_goes_there_who_may_go_to_a_gpu() -> None:
    planned = [plan(cpu_takes=0.1), plan(cpu_takes=0.1), Plan(GB, GB, kinds=frozenset({CPU}))]
    chooser = Known(planned, is_probing=True)
    world = mixed(planned, chooser=chooser)
    world._at(5.0, lambda: setattr(chooser, "is_probing", False))
    world.run()
    assert world.where == {0: [GPU], 1: [CPU], 2: [CPU]}
    assert world.now < 12, "the second waited for the end of the probes alone"


def test_of_unknown_work_a_whole_trial_of_an_earlier_sweep_counts() -> None:
    events: list[Event] = [SWEEP, Started(0, 1.0, {"plan": 0}, "cpu"), Finished(0, 43.0, 0.5)]
    packed = [Started(1, 1.0, {"plan": 0}, "cpu"), MemoryPeak(1, 3.0, 7, n_lanes=4)]
    chooser = Chooser(lambda params: None, frozenset(DeviceKind))
    chooser.learn(fold([*events, *packed, Finished(1, 99.0, 0.5)]))
    assert chooser.paces.seconds(None, CPU) == 42.0
    assert chooser.paces.seconds(None, GPU) is None


def test_the_reason_says_why_it_is_this_kind_of_device() -> None:
    world = mixed([plan(seconds=10.0, cpu_takes=30.0)] * 2)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    (waiting,) = world.loop.waiting
    assert waiting.refusal.reason == (
        "waiting for a GPU (about 10 s there, 5:00 on the CPU): all places are taken, "
        "admission.max_trials_per_device=1"
    )
