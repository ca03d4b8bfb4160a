"""What stops a sweep: failures, signals, a deadline, a defect."""

from __future__ import annotations

import pytest

from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import AdmissionRefusal, RefusalKind
from automl.running.loop.messages import (
    DevicesRead,
    SignalReceived,
    StopReason,
    SweepFailed,
    TimePassed,
    TrialStartsHeld,
)
from automl.running.loop.retries import MAX_SAME_FAILURES
from tests.running.loop.simulated_machine import GB, GPU, Plan
from tests.running.loop.simulator import World


def one_by_one(*ends: str) -> World:
    """A world in which trials end so, one after the other."""
    return World(GPU, [Plan(GB, GB, ends=end) for end in ends], limits=AdmissionLimits(1, 0, 5.0))


def test_the_same_error_ten_times_in_a_row_stops_the_sweep() -> None:
    world = one_by_one(*["failed alike"] * 30)
    world.run()  # the rest is never asked for
    assert world.loop.stop is StopReason.FAILING
    assert len(world.told) == MAX_SAME_FAILURES


@pytest.mark.parametrize("between", ["finished", "failed"])
def test_failures_that_are_not_in_a_row_stop_nothing(between: str) -> None:
    almost = ["failed alike"] * (MAX_SAME_FAILURES - 1)
    world = one_by_one(*almost, between, *almost)
    world.run()
    assert world.loop.stop is None
    assert len(world.told) == 2 * MAX_SAME_FAILURES - 1


def test_an_objective_that_cannot_work_is_not_tried_again() -> None:
    world = one_by_one(*["hopeless"] * 3)
    world.run()
    assert world.loop.stop is StopReason.FAILING
    assert list(world.told) == [0]


def test_an_objective_that_worked_once_fits_the_config() -> None:
    """A trial that never reports the metric may have taken another branch of the code."""
    world = one_by_one("finished", *["hopeless"] * 3)
    world.run()
    assert world.loop.stop is None
    assert list(world.told) == [0, 1, 2, 3]


def test_after_a_signal_nothing_starts() -> None:
    world = World(GPU, [Plan(GB, GB)] * 3)
    world.loop.handle(SignalReceived(StopReason.INTERRUPTED), 0.0)
    assert world.loop.done
    assert world.started == []


def test_what_a_running_trial_reports_keeps_the_next_one_from_being_asked_for() -> None:
    """There is room for all from the start, and no outcome tells the reason."""
    world = World(GPU, [Plan(GB, GB)] * 3)
    world.loop.asking.why_no_more = lambda: "good enough" if world.started else None
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert world.started == [0]
    assert world.loop.asking.ended == "good enough"


def test_another_total_asks_again_whether_it_is_enough() -> None:
    asking = World(GPU, [Plan(GB, GB)] * 3).loop.asking
    asking.why_no_more = lambda: "good enough"
    asking.end_if_enough()
    assert not asking.wants_new
    asking.change_total(3)
    assert asking.wants_new
    assert asking.next() is None
    assert asking.ended == "good enough"


PAUSED = AdmissionRefusal("waiting: the disk is full", RefusalKind.HELD, for_devices=False)


def test_while_starts_are_held_nothing_starts_and_the_reason_is_shown() -> None:
    world = World(GPU, [Plan(GB, GB)] * 3, limits=AdmissionLimits(1, 0, 5.0))
    seen: list[object] = []

    def look() -> None:
        loop = world.loop.snapshot()
        seen.extend([[*world.started], [*world.told], loop.asking_refusal])

    world._at(1.0, lambda: world._post(TrialStartsHeld(PAUSED)))
    world._at(20.0, look)
    world._at(21.0, lambda: world._post(TrialStartsHeld(None)))
    world.run()
    assert seen == [[0], [0], PAUSED], "what runs goes on to its end"
    assert list(world.told) == [0, 1, 2]


def test_a_defect_stops_the_sweep_and_keeps_its_first_error() -> None:
    world = World(GPU, [Plan(GB, GB)])
    first = OSError("no space left on device")
    world.loop.handle(SweepFailed(first), 0.0)
    world.loop.handle(SweepFailed(ValueError("later")), 0.0)
    assert (world.loop.stop, world.loop.error) == (StopReason.BROKEN, first)


def test_what_ends_after_a_defect_is_not_told_and_nothing_is_decided_on_it() -> None:
    plans = [Plan(GB, GB), Plan(GB, 9 * GB), Plan(GB, GB, ends="dies"), Plan(GB, GB, ends="failed")]
    world = World(GPU, plans)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert world.started == [0, 1, 2, 3]
    world.loop.handle(SignalReceived(StopReason.INTERRUPTED), 0.0)
    world.loop.handle(SweepFailed(OSError("no space left on device")), 0.0)
    world.run()
    assert (world.told, list(world.loop.queue.queued)) == ({}, [])
    assert world.loop.stop is StopReason.BROKEN, "even after Ctrl-C the error is said"


def test_the_deadline_admits_nothing_new() -> None:
    world = World(GPU, [Plan(GB, GB)] * 3)
    world.loop.deadline = lambda: 2.0
    world.loop.handle(DevicesRead(world._reading()), 1.5)
    assert world.started == [0, 1, 2]
    late = World(GPU, [Plan(GB, GB)] * 3)
    late.loop.deadline = lambda: 2.0
    late.loop.handle(DevicesRead(late._reading()), 2.0)
    assert late.started == []
    assert late.loop.stop is StopReason.TIMEOUT


def test_a_study_that_ends_in_time_stops_what_runs_once_there_is_a_result() -> None:
    found: list[int] = []
    world = World(GPU, [Plan(GB, GB)])
    world.loop.deadline = lambda: 2.0
    world.loop.ends_in_time = lambda: bool(found)
    world.loop.handle(DevicesRead(world._reading()), 1.0)
    world.loop.handle(TimePassed(), 2.0)
    assert world.started == [0]
    assert not world.stopping, "nothing was found yet"
    found.append(7)
    world.loop.handle(TimePassed(), 3.0)
    assert (world.loop.stop, world.stopping) == (StopReason.TIMEOUT, True)
    world.stopping = False
    world.loop.handle(TimePassed(), 4.0)
    assert not world.stopping, "it was told once"
    world.loop.handle(SignalReceived(StopReason.INTERRUPTED), 5.0)
    assert world.loop.stop is StopReason.INTERRUPTED


def test_the_first_reason_to_stop_counts_but_for_the_deadline() -> None:
    late, early = World(GPU, [Plan(GB, GB)]), World(GPU, [Plan(GB, GB)])
    late.loop.deadline = early.loop.deadline = lambda: 2.0
    late.loop.handle(TimePassed(), 2.0)
    assert late.loop.stop is StopReason.TIMEOUT
    assert not late.stopping, "running trials may end"
    late.loop.handle(SignalReceived(StopReason.TERMINATED), 3.0)
    assert (late.loop.stop, late.stopping) == (StopReason.TERMINATED, True)
    early.loop.handle(SignalReceived(StopReason.INTERRUPTED), 1.0)
    early.loop.handle(TimePassed(), 2.0)
    early.loop.handle(SignalReceived(StopReason.TERMINATED), 3.0)
    assert early.loop.stop is StopReason.INTERRUPTED
