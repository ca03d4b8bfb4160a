"""Backfill in the loop: who passes the head, and that the head is never later for it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import (
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    PlannedTrial,
    WaitingTrial,
)
from automl.trial import DeviceId, PackKind
from tests.running.loop.simulated_machine import CONTEXT_BYTES, RELEASED_AFTER, Plan, plans
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}
TWO = {"GPU-a": 24 * GB, "GPU-b": 24 * GB}
A = PackKind("a", 4)


def make_plan(n_gb: int | None, seconds: float = 3.0, **how: Any) -> Plan:
    request = None if n_gb is None else n_gb * GB
    return Plan(request, request or 0, seconds=seconds, **how)


@dataclasses.dataclass
class Passing(World):
    """Trials behind the head may pass it; it keeps when each started, and who had to wait."""

    n_ahead: int = 4
    closes_at: int | None = None
    """The message from which on no trial passes another."""

    def __post_init__(self) -> None:
        self.started_at: dict[int, float] = {}
        self.waited_from: dict[int, int] = {}
        """The message at which a trial was first found to have to wait at the head."""
        self.empty: dict[DeviceId, int] = {}
        """Readings in a row in which nothing ran on a device that would do for the head."""
        self._n_messages = 0
        super().__post_init__()

    def submit(self, start: ExecutionStart) -> None:
        super().submit(start)
        self.started_at |= {w.trial.number: self.now for w in start.group}

    def _handle(self, message: LoopMessage) -> None:
        if self._n_messages == self.closes_at:
            self.loop._lookahead.n_ahead = 0
        super()._handle(message)
        if self.loop.queue.queued:
            self.waited_from.setdefault(self.loop.queue.queued[0].trial.number, self._n_messages)
        if isinstance(message, DevicesRead):
            self._check_idle()
        self._n_messages += 1

    def _check_idle(self) -> None:
        for device, total in self.totals.items():
            head = self.loop.queue.queued[0] if self.loop.queue.queued else None
            there, least = self.machine.on(device), total - 4 * GB
            asked = None if head is None else self.loop._placing.request(head)
            would_do = asked and not (there or asked.alone) and (asked.memory_bytes or 0) <= least
            full = len(self.loop.executions) >= (self.limits.max_concurrent_trials or math.inf)
            self.empty[device] = self.empty.get(device, 0) + 1 if would_do and not full else 0
            n_unheard = self.told_after / self.reading_seconds  # until it knows of the end
            assert self.empty[device] < 5 + n_unheard, "the head waits beside an empty device"


def test_a_small_trial_passes_a_large_one_that_has_to_wait() -> None:
    """20 GB wait for 12 that run for 20 s more; 4 GB for 5 s do not delay them."""
    world = Passing(GPU, [make_plan(12, 20.0), make_plan(20), make_plan(4, 5.0)])
    world.run()
    assert world.started == [0, 2, 1]
    assert world.started_at[2] < 2


def test_who_would_delay_the_head_waits_behind_it() -> None:
    world = Passing(GPU, [make_plan(12, 10.0), make_plan(20), make_plan(4, 30.0)])
    world.run()
    assert world.started == [0, 1, 2]


def test_who_fits_beside_the_head_may_stay_as_long_as_it_likes() -> None:
    world = Passing(GPU, [make_plan(12, 20.0), make_plan(16), make_plan(5, 90.0)])
    world.run()
    assert world.started == [0, 2, 1]


def test_another_device_may_be_taken_where_the_head_was_not_promised_it() -> None:
    world = Passing(
        TWO, [make_plan(12, 20.0), make_plan(12, 40.0), make_plan(20), make_plan(9, 90.0)]
    )
    world.run()
    assert world.started == [0, 1, 3, 2]
    assert world.started_at[2] < 22, "as soon as the first has ended"


def test_larger_ones_pass_first() -> None:
    world = Passing(
        GPU,
        [
            make_plan(12, 30.0),
            make_plan(20),
            make_plan(3, 5.0),
            make_plan(9, 5.0),
            make_plan(3, 5.0),
        ],
    )
    world.run()
    assert world.started[:3] == [0, 3, 2]


def test_without_a_lookahead_nobody_passes() -> None:
    world = Passing(GPU, [make_plan(12, 20.0), make_plan(20), make_plan(4, 5.0)], n_ahead=0)
    world.run()
    assert world.started == [0, 1, 2]


def test_only_so_many_are_looked_at() -> None:
    large = [make_plan(20, 1.0)] * 3
    world = Passing(GPU, [make_plan(12, 20.0), *large, make_plan(4, 5.0)], n_ahead=2)
    world.run()
    assert world.started == [0, 1, 2, 3, 4]


def test_a_sampler_that_learns_is_not_asked_too_far_ahead() -> None:
    world = Passing(
        GPU,
        [make_plan(12, 20.0), make_plan(20), make_plan(4, 5.0)],
        limits=AdmissionLimits(2, 0, 5.0),
    )
    world.most_pending = 2
    world.run()
    assert world.started == [0, 1, 2]


def test_nothing_is_asked_for_ahead_while_nothing_has_room() -> None:
    planned = [make_plan(22, 20.0), make_plan(20), make_plan(4, 5.0)]
    world = Passing(GPU, planned, own_processes=True)
    world._n_asked = world.loop.asking.n_asked = 2
    world.loop.take_over([WaitingTrial(PlannedTrial(n, {"plan": n})) for n in range(2)])
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert (world.started, world.loop.asking.n_asked) == ([0], 2)


def test_trials_of_one_kind_pass_as_one_pack() -> None:
    small = make_plan(1, 5.0, kind=A)
    world = Passing(
        GPU,
        [make_plan(12, 30.0), make_plan(20), small, small, small],
        limits=AdmissionLimits(2, 0, 5.0),
    )
    world.run()
    assert world.packs[2] == [2, 3, 4]


def test_once_its_time_has_come_nobody_passes_the_head() -> None:
    """What runs takes six times as long as was thought."""
    planned = [make_plan(12, 60.0), make_plan(20), *[make_plan(4, 3.0)] * 40]
    world = Passing(GPU, planned, rough=1 / 6)
    world.run()
    late = [n for n, at in world.started_at.items() if 12 < at < world.started_at[1]]
    assert late == []
    assert world.started.index(1) > 1, "some have passed before"


def test_nobody_passes_by_a_reading_that_still_shows_what_has_just_ended() -> None:
    """What runs ends twice as early as was thought, and by that reading the head has no room."""
    world = Passing(
        GPU,
        [make_plan(8, 9.6), make_plan(4, 60.0), make_plan(14), *[make_plan(9, 3.0)] * 9],
        rough=2.0,
    )
    world.run()
    assert world.started[:6] == [0, 1, 3, 4, 5, 2]
    assert world.started_at[2] < 11, "as soon as the last of those that passed has ended"


def lognormal(seed: int, n: int = 40) -> list[Plan]:
    """Sizes and durations as sweeps have them: few are large, few are long."""
    random = Random(seed)
    sizes = [min(max(1, round(3 * math.exp(0.9 * random.gauss(0, 1)))), 20) for _ in range(n)]
    return [make_plan(size, 30 * math.exp(random.gauss(0, 1))) for size in sizes]


@pytest.mark.slow
def test_on_one_gpu_the_large_ones_are_not_left_for_the_end() -> None:
    """With exact requests small ones that pass would leave the large ones to run one by one."""
    seconds = {0: 0.0, 16: 0.0}
    for seed in range(3):
        for n_ahead in seconds:
            limits = AdmissionLimits(16, GB // 4, 5.0)
            world = Passing(GPU, lognormal(seed), limits=limits, n_ahead=n_ahead)
            world.run()
            seconds[n_ahead] += world.now
    assert seconds[16] < 0.97 * seconds[0], seconds


@st.composite
def exact_plans(draw: st.DrawFn) -> Plan:
    size = draw(st.integers(1, 22))
    return make_plan(size, draw(st.floats(1, 30)), appears_after=draw(st.floats(0, 2)))


@settings(max_examples=10, deadline=None)
@given(
    planned=st.lists(exact_plans(), min_size=3, max_size=12),
    totals=st.lists(st.integers(23, 40).map(lambda n: n * GB), min_size=1, max_size=3),
    limit=st.integers(2, 6),
    context=st.integers(300, 1024).map(lambda n: n * 1024**2),
    own_processes=st.booleans(),
    shows_pids=st.booleans(),
)
@example(  # beside the first there is room for the second once its context is seen
    planned=[make_plan(16, 4.3), make_plan(13, 5.1), make_plan(2, 5.0)],
    totals=[32 * GB],
    limit=3,
    context=CONTEXT_BYTES,
    own_processes=True,
    shows_pids=True,
)
@example(  # the head fits on the smaller device only beside a context that is there
    planned=[
        make_plan(13, 1.0),
        make_plan(8, 22.0),
        make_plan(9, 25.0),
        make_plan(21, 1.0),
        make_plan(1, 8.0),
    ],
    totals=[23 * GB, 24 * GB],
    limit=4,
    context=300 * 1024**2,
    own_processes=False,
    shows_pids=False,
)
def test_with_exact_durations_the_head_is_never_later_for_those_that_pass(
    planned: list[Plan],
    totals: list[int],
    limit: int,
    context: int,
    own_processes: bool,
    shows_pids: bool,
) -> None:
    """Each that ever had to wait, against the same sweep in which from then on nobody passes. A
    reservation comes back a moment late, and the second reading shows that idle workers ended."""
    devices = {f"GPU-{i}": total for i, total in enumerate(totals)}

    def passing(closes_at: int | None = None) -> Passing:
        return Passing(
            devices,
            planned,
            limits=AdmissionLimits(limit, GB, 5.0),
            closes_at=closes_at,
            contexts=itertools.repeat(context),
            own_processes=own_processes,
            shows_pids=shows_pids,
        )

    world = passing()
    world.run()
    for head, closes_at in world.waited_from.items():
        closed = passing(closes_at)
        closed.run()
        later = world.started_at[head] - closed.started_at[head]
        seen_after = RELEASED_AFTER + 2 * closed.reading_seconds
        assert later <= seen_after + 1e-6, f"{head} starts {later} s later"


@settings(max_examples=40, deadline=None)
@given(
    planned=st.lists(plans(), min_size=1, max_size=12),
    totals=st.lists(st.integers(4, 24).map(lambda n: n * GB), min_size=1, max_size=3),
    limit=st.integers(1, 4),
    own_processes=st.booleans(),
    told_after=st.floats(0, 2),
    stop_at=st.none() | st.floats(0, 10),
    n_ahead=st.sampled_from([1, 4, 16]),
    rough=st.floats(0.1, 10),
)
def test_whoever_passes_the_books_stay_straight_and_nobody_starves(
    planned: list[Plan], totals: list[int], limit: int, **how: Any
) -> None:
    """Durations are wrong by up to ten times, memory is too: the run checks the promises, that
    nothing is over-committed, and that every trial comes to its end."""
    devices = {f"GPU-{i}": total for i, total in enumerate(totals)}
    Passing(devices, planned, limits=AdmissionLimits(limit, GB, 5.0), **how).run()
