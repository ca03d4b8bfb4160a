"""The loop learns what trials hold: those to come ask for that, promises to those that run stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import DevicesRead, ExecutionStart, TrialMemoryMeasured
from automl.trial import DeviceKind, FailedOutcome, FinishedOutcome, MemoryPeakMeasured, PackKind
from tests.running.loop.simulated_machine import Hosted, Lane, Plan
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}
A = PackKind("a", 4)


class Telling(World):
    """Trials tell at their end what they held, and so the next ask for that."""

    def __post_init__(self) -> None:
        self.promised: dict[int, list[int]] = {}
        """Of each execution by its first trial, at each start."""
        super().__post_init__()

    def submit(self, start: ExecutionStart) -> None:
        super().submit(start)
        promised = self.promised.setdefault(start.group[0].trial.number, [])
        promised.append(start.placement.shares[0].reservation_bytes)

    def _end_lane(self, execution: Hosted, lane: Lane) -> None:
        if lane in execution.lanes.values() and execution.n_lanes == 1:
            held = min(lane.plan.peak_bytes, self.machine.can_get(execution, lane, self.now))
            self._post(TrialMemoryMeasured(MemoryPeakMeasured(lane.number, self.now, held)))
        super()._end_lane(execution, lane)

    def _check_promise(self, execution: Hosted) -> None:
        """What was learned may be less than what the plan says."""


def test_trials_that_hold_less_than_arithmetic_says_soon_run_side_by_side() -> None:
    world = Telling(
        GPU, [Plan(8 * GB, 2 * GB, seconds=4.0)] * 18, limits=AdmissionLimits(8, 0, 5.0)
    )
    world.run()
    assert world.promised[0] == [8 * GB]
    assert 2 * GB <= world.promised[17][0] < 3 * GB
    assert world.now < 20, "two at a time would take 36 s"


def test_what_was_measured_on_the_host_says_nothing_of_gpus() -> None:
    on_host = Plan(8 * GB, 2 * GB, kinds=frozenset({DeviceKind.CPU}))
    on_gpu = Plan(8 * GB, 2 * GB, kinds=frozenset({DeviceKind.GPU}))
    world = Telling(
        {"host": 32 * GB} | GPU, [on_host, on_gpu] * 2, limits=AdmissionLimits(1, 0, 5.0)
    )
    world.run()
    assert world.promised[1] == [8 * GB], "the first on a GPU"
    assert world.promised[2][0] < 8 * GB
    assert world.promised[3][0] < 8 * GB


def test_on_a_machine_of_one_kind_the_other_does_not_count() -> None:
    """Measured on the GPU; where it might run without one plays no part."""
    world = Telling(GPU, [Plan(8 * GB, 2 * GB)] * 2, limits=AdmissionLimits(1, 0, 5.0))
    world.run()
    assert world.promised[1][0] < 8 * GB


def test_a_trial_that_failed_tells_nothing_of_others() -> None:
    failed, sound = Plan(8 * GB, GB // 100, ends="failed"), Plan(8 * GB, 8 * GB)
    world = Telling(GPU, [failed, sound], limits=AdmissionLimits(1, 0, 5.0))
    world.run()
    assert world.promised == {0: [8 * GB], 1: [8 * GB]}
    assert isinstance(world.told[0], FailedOutcome)


def test_what_ran_out_asks_for_more_than_it_had_however_little_others_held() -> None:
    """The small ones hold an eighth of what arithmetic says, and end before."""
    small = Plan(2 * GB, GB // 4, seconds=1.0)
    world = Telling(GPU, [Plan(8 * GB, 11 * GB), small, small, small])
    world.run()
    assert world.promised[0] == [8 * GB, 12 * GB]
    assert isinstance(world.told[0], FinishedOutcome)


@pytest.mark.parametrize(
    ("n_gb", "packs"), [(1, {0: [0, 1, 2, 3, 4]}), (9, {0: [0, 1, 2, 3], 4: [4]})]
)
def test_a_pack_that_holds_more_than_was_promised_still_takes_what_makes_it_no_larger(
    n_gb: int, packs: dict[int, list[int]]
) -> None:
    first, other = (Plan(GB, GB, seconds=seconds, kind=A) for seconds in (1.0, 9.0))
    last = Plan(n_gb * GB, n_gb * GB, kind=A)
    world = Telling(GPU, [first, other, other, other, last], limits=AdmissionLimits(1, 0, 5.0))
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    world.loop.handle(TrialMemoryMeasured(MemoryPeakMeasured(1, 0.5, 5 * GB, n_lanes=4)), 0.5)
    world.run()
    assert world.packs == packs


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    peak = draw(st.integers(1, 26)) * GB
    estimate = draw(st.none() | st.floats(0.3, 3).map(lambda ratio: int(ratio * peak)))
    return Plan(
        estimate,
        peak,
        seconds=draw(st.floats(0, 6)),
        ends=draw(st.sampled_from(["finished", "finished", "failed", "dies"])),
    )


@settings(max_examples=50, deadline=None)
@given(
    planned=st.lists(plans(), min_size=1, max_size=12),
    own_processes=st.booleans(),
    told_after=st.floats(0, 2),
    stop_at=st.none() | st.floats(0, 20),
)
def test_whatever_is_learned_the_books_stay_straight(planned: list[Plan], **how: Any) -> None:
    """Also where arithmetic is wrong both ways."""
    Telling(GPU, planned, limits=AdmissionLimits(4, GB, 5.0), **how).run()
