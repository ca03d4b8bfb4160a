"""Where trials go by what was timed: until then, while it is learned, and in the next sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from automl.record.study_record import record_from_events
from automl.running.loop.messages import WaitingTrial
from automl.running.loop.trial_paces import DevicePaceModel
from automl.trial import (
    DeviceKind,
    Event,
    FinishedOutcome,
    MemoryPeakMeasured,
    PaceMeasured,
    PackKind,
    Params,
    SweepStarted,
    TrainingWork,
    TrialStarted,
)
from tests.running.loop.choosers import Known
from tests.running.loop.mixed import CPU, GB, GPU, LIMITS, MACHINE, Mixed, mixed, plan
from tests.running.loop.simulated_machine import Plan


class Untold(Known):
    """A chooser that does not know the work of its trials."""

    def __init__(self, plans: Sequence[Plan], **how: Any) -> None:
        super().__init__(plans, **how)
        self.work = lambda params: None

    def seconds(self, waiting: WaitingTrial, kind: DeviceKind) -> float | None:
        return self.paces.seconds(None, kind)


def test_a_cap_on_all_leaves_no_place_to_the_cpu_while_a_gpu_is_free() -> None:
    """Places that are never used together make nobody take twice as long on the CPU."""
    work = TrainingWork(100, 1e6)
    for most, slowest in ((1, 215.0), (2, 145.0)):
        chooser = DevicePaceModel(lambda params: work, frozenset(DeviceKind), likely=[work] * 64)
        chooser.paces.add(-1, CPU, work.step_flops, 0.2)
        chooser.paces.add(-2, GPU, work.step_flops, 0.1)
        limits = replace(LIMITS, max_concurrent_trials=most)
        world = mixed([plan(cpu_takes=2.0)] * 20, chooser=chooser, limits=limits)
        world.run()
        assert world.now < slowest, f"{most} at once; on GPUs alone it takes 202 s"


def test_a_pack_that_is_too_short_to_be_timed_is_noted_once() -> None:
    noted: list[int | None] = []
    planned = [plan(seconds=0.5, cpu_takes=0.5, kind=PackKind("a", 4))] * 40

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
    world = mixed(planned, chooser=Untold(planned, unknown_work_to_cpu=True))
    world.run()
    assert next(n for n, kinds in world.where.items() if kinds == [CPU]) == 1
    assert list(world.where.values()).count([CPU]) < 4


def _work(params: Params) -> TrainingWork:
    return TrainingWork(1000, 10.0 ** (4 + 4 * (int(str(params["plan"])) % 3)))


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
    """The prior says that the CPU is faster for small trials. Here it is not, which the sweep finds
    out."""
    planned = [plan(5.0, cpu_takes=40.0) for _ in range(30)]
    chooser = DevicePaceModel(_work, frozenset(DeviceKind))
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
    """The last pace of an execution counts, and each probe counts."""
    small = _work({"plan": 0}).step_flops
    told = [
        PaceMeasured(2.0, CPU, small, 9.0, execution=3),
        PaceMeasured(3.0, CPU, small, 1 / 1600, execution=3),
    ]
    probes = [PaceMeasured(1.5, CPU, 1e4 * small, 0.02), PaceMeasured(1.5, CPU, 1e5 * small, 0.2)]
    chooser = DevicePaceModel(_work, frozenset(DeviceKind))
    chooser.learn(record_from_events([SWEEP, *told, *probes]))
    found = chooser.paces.seconds(TrainingWork(1000, small), CPU)
    large = chooser.paces.seconds(TrainingWork(1, 1e4 * small), CPU)
    assert found is not None
    assert large is not None
    assert 0.5 < found < 0.8, "1,000 steps of 1/1600 s, and what the prior says"
    assert 0.8 < large / 0.02 < 1.25


def test_what_is_learned_is_noted_for_the_record() -> None:
    """The newest of each execution tells what the loop knew in the end."""
    noted: list[PaceMeasured] = []

    def note(kind: DeviceKind, flops: float, seconds: float, execution: int | None) -> None:
        noted.append(PaceMeasured(0.0, kind, flops, seconds, execution))

    planned = [plan(30.0, cpu_takes=4.0) for _ in range(6)]
    chooser = DevicePaceModel(_work, frozenset(DeviceKind), note=note)
    Stepping(MACHINE, planned, limits=LIMITS, own_processes=True, chooser=chooser).run()
    again = DevicePaceModel(_work, frozenset(DeviceKind))
    again.learn(record_from_events([SWEEP, *noted]))
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
    events: list[Event] = [
        SWEEP,
        TrialStarted(0, 1.0, {"plan": 0}, "cpu"),
        FinishedOutcome(0, 43.0, 0.5),
    ]
    packed = [TrialStarted(1, 1.0, {"plan": 0}, "cpu"), MemoryPeakMeasured(1, 3.0, 7, n_lanes=4)]
    chooser = DevicePaceModel(lambda params: None, frozenset(DeviceKind))
    chooser.learn(record_from_events([*events, *packed, FinishedOutcome(1, 99.0, 0.5)]))
    assert chooser.paces.seconds(None, CPU) == 42.0
    assert chooser.paces.seconds(None, GPU) is None
