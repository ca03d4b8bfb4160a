"""Promises settle to what was seen, with caps as workers have them, on the simulated machine.

Here a trial takes what it wants, as a process does, until its cap or the device itself ends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES
from automl.admission.limits import AdmissionLimits
from automl.admission.memory_caps import Caps, may_settle, settled_bytes
from automl.running.loop.messages import (
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    TrialMemoryMeasured,
)
from automl.trial import (
    DeviceId,
    FinishedOutcome,
    MemoryPeakMeasured,
    OutOfMemoryOutcome,
    ProcessId,
)
from tests.running.loop.simulated_machine import Hosted, Lane, Machine, Plan
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}


class Free(Machine):
    """Nothing but a cap or the device's end keeps a trial from what it wants."""

    def can_get(self, execution: Hosted, lane: Lane, now: float) -> int:
        return min(self.totals[device] for device in execution.placement.devices)


@dataclass(frozen=True)
class Books:
    """The memory of a device at one moment, in bytes."""

    unpromised: int
    promised: dict[int, int]
    """Promised bytes by the key of each execution."""
    processes: Mapping[ProcessId, bool]
    """The processes that may have a context there, and whether each of them hosts a trial."""


@dataclass
class Settling(World):
    """Trials report 0.1 s after they took their memory, and some grow later."""

    grows: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When each trial grows, and by what factor."""
    caps: Caps = field(default_factory=dict)
    n_capped: int = 0
    """Trials that a cap ended."""
    _books_read: dict[DeviceId, Books] = field(default_factory=dict)
    """At the last reading that the main thread has heard of."""
    _unpromised_told: dict[DeviceId, int] = field(default_factory=dict)
    """When the main thread handled its last message, by which it set the caps."""
    _unheard: deque[dict[DeviceId, Books]] = field(default_factory=deque)
    unsettled: bool = False
    """Mutation: promises are not lowered."""
    uncapped: bool = False
    """Mutation: workers are never told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.machine = Free(
            self.totals, self.strangers, self.own_processes, self.contexts, self.shows_pids
        )

    def cap_memory(self, caps: Caps) -> None:
        if not self.uncapped:
            self.caps = {**self.caps, **caps}

    # --- a trial takes, tells and grows ---

    def _report(self, execution: Hosted, lane: Lane) -> None:
        super()._report(execution, lane)
        self._take(execution, lane, lane.plan.peak_bytes)
        after, factor = self.grows.get(lane.number, (0.0, 1.0))
        grown = int(factor * lane.plan.peak_bytes)
        self._at(0.5 + after, partial(self._take, execution, lane, grown))

    def _take(self, execution: Hosted, lane: Lane, wanted: int) -> None:
        if lane not in execution.lanes.values():
            return
        lane.plan = replace(lane.plan, peak_bytes=0)
        for device in execution.placement.devices:
            if not self._gets(execution, device, wanted):
                self._tell_end(
                    execution, OutOfMemoryOutcome(lane.number, self.now, "out of memory")
                )
                return
        lane.plan = replace(lane.plan, peak_bytes=wanted)
        self._tell_peak(execution, MemoryPeakMeasured(lane.number, self.now, wanted))

    def _gets(self, execution: Hosted, device: DeviceId, wanted: int) -> bool:
        cap = self.caps.get(execution.key, {}).get(device)
        promised = self._promised(execution.key, device)
        if cap is not None and wanted > cap:
            self.n_capped += 1
            room = promised + self._surely_unpromised(device)
            assert wanted > room, "ended while room was unpromised"
            return False
        free = self.totals[device] - self.machine.used_bytes(device, self.now)
        assert wanted <= free or wanted > promised, "ended for what its neighbour took"
        return wanted <= free

    def _tell_peak(self, execution: Hosted, peak: MemoryPeakMeasured) -> None:
        request = self.loop.executions[execution.key].request
        self.ledger.observe_peak(execution.key, peak.peak_bytes)
        shrinks = may_settle(request, execution.placement, execution.n_lanes)
        sizes = settled_bytes(peak, execution.placement)
        if shrinks and sizes is not None and not self.unsettled:
            self.ledger.settle(execution.key, *sizes)
            (held,) = (r for r in self.ledger.snapshot().reservations if r.key == execution.key)
            execution.placement = held.placement
        self._post(TrialMemoryMeasured(peak))

    # --- the books ---

    def _promised(self, key: int, device: DeviceId) -> int:
        held = {r.key: r for r in self.ledger.snapshot().reservations}
        return held[key].counted_bytes(device)

    def _unpromised(self, device: DeviceId) -> int:
        """Surely promised to nobody: each context may take as much as one ever did."""
        there = self.machine.on(device)
        promised = sum(self._promised(execution.key, device) for execution in there)
        contexts = len(self._processes(device)) * CONTEXT_BOUND_BYTES
        strangers = self.machine.strangers_bytes(device, self.now)
        kept = promised + contexts + strangers + self.limits.headroom_bytes
        return max(0, self.totals[device] - kept)

    def _surely_unpromised(self, device: DeviceId) -> int:
        """Now, at the last reading, and at the last message: a worker that lowers its promise, or
        gives memory back, is not heard of at once."""
        now = {execution.key for execution in self.machine.on(device)}
        gone = sum(
            size for key, size in self._books_read[device].promised.items() if key not in now
        )
        there = self._processes(device)
        read = self._books_read[device].processes.items()
        # The reading shows the context of a process that was idle, and may host another trial now.
        gone += sum(not hosts or p not in there for p, hosts in read) * CONTEXT_BOUND_BYTES
        unpromised = min(self._unpromised(device), self._unpromised_told[device])
        return max(0, min(unpromised - gone, self._books_read[device].unpromised))

    def _end_reading(self, *read: Any) -> None:
        self._unheard.append({device: self._books(device) for device in self.totals})
        super()._end_reading(*read)

    def _books(self, device: DeviceId) -> Books:
        keys = [execution.key for execution in self.machine.on(device)]
        promised = {k: self._promised(k, device) for k in keys}
        return Books(self._unpromised(device), promised, self._processes(device))

    def _processes(self, device: DeviceId) -> Mapping[ProcessId, bool]:
        there = (p for p in self.machine.processes if device in p.devices)
        return {p.address: p.n_executions > 0 for p in there}

    def _handle(self, message: LoopMessage) -> None:
        if isinstance(message, DevicesRead):
            self._books_read = self._unheard.popleft()
        super()._handle(message)
        self._unpromised_told = {device: self._unpromised(device) for device in self.totals}

    def _check_room(self, device: DeviceId) -> None:
        super()._check_room(device)
        there = self.machine.on(device)
        promised = sum(self._promised(execution.key, device) for execution in there[:-1])
        new = there[-1].placement.shares[0].reservation_bytes
        taken = promised + new + self.machine.contexts_bytes(device) + self.limits.headroom_bytes
        assert taken <= self.totals[device], "over-committed with what was seen"

    def _check_promise(self, execution: Hosted) -> None:
        """What was learned may be less than what the plan says."""


def test_an_unknown_trial_makes_room_for_one_that_is_known_once_it_was_seen() -> None:
    unknown, known = Plan(None, 4 * GB, seconds=9.0), Plan(8 * GB, 8 * GB, seconds=9.0)
    world = Settling(GPU, [unknown, known], own_processes=True)
    world.run()
    assert world.now < 12, "they ran side by side"
    alone = Settling(GPU, [unknown, known], own_processes=True, unsettled=True)
    alone.run()
    assert alone.now > 18


GROWER = Plan(None, 6 * GB, seconds=9.0)
LATE = Plan(14 * GB, 13 * GB, appears_after=5.0, reports_after=5.0, seconds=9.0)
"""Takes late what it was promised."""


def test_who_outgrows_its_promise_is_ended_itself_and_not_settled_again() -> None:
    world = Settling(GPU, [GROWER, LATE], own_processes=True, grows={0: (1.0, 2.0)})
    world.run()
    assert all(isinstance(outcome, FinishedOutcome) for outcome in world.told.values())
    assert (world.n_capped, world.attempts) == (1, {0: 2, 1: 1})


def test_without_caps_its_neighbour_would_be_ended() -> None:
    world = Settling(GPU, [GROWER, LATE], own_processes=True, grows={0: (1.0, 2.0)}, uncapped=True)
    with pytest.raises(AssertionError, match="for what its neighbour took"):
        world.run()


def test_neighbours_are_capped_before_a_trial_starts_beside_them() -> None:
    class Watching(Settling):
        def submit(self, start: ExecutionStart) -> None:
            seen.append({key: dict(of) for key, of in self.caps.items()})
            super().submit(start)

    seen: list[dict[int, dict[DeviceId, int]]] = []
    plan = Plan(6 * GB, 6 * GB, seconds=9.0)
    Watching(GPU, [plan, plan], own_processes=True).run()
    assert seen[0] == {0: {}}, "not at all while it is alone"
    assert all(seen[1][key] for key in (0, 1))


@st.composite
def worlds(draw: st.DrawFn) -> Settling:
    n = draw(st.integers(1, 10))
    plans = []
    for _ in range(n):
        peak = draw(st.integers(1, 10)) * GB
        estimate = draw(st.none() | st.floats(1.0, 2.5))
        asked = None if estimate is None else int(estimate * peak)
        late = draw(st.floats(0.3, 3))
        plans.append(Plan(asked, peak, appears_after=late, reports_after=late, seconds=late + 9.0))
    grows = {
        number: (draw(st.floats(0, 4)), draw(st.floats(1, 2)))
        for number in range(n)
        if draw(st.booleans())
    }
    devices = {f"GPU-{name}": 24 * GB for name in "ab"[: draw(st.integers(1, 2))]}
    limits = AdmissionLimits(6, draw(st.sampled_from([0, GB])), 5.0)
    shows = draw(st.booleans())
    return Settling(
        devices, plans, limits=limits, own_processes=True, shows_pids=shows, grows=grows
    )


SIZES = ((None, 3 * GB), (6 * GB, 3 * GB), (16 * GB, 8 * GB))
"""What each trial asks for, and takes."""


def test_what_an_ended_trial_gave_back_is_free_once_a_reading_shows_it() -> None:
    """The first grows when the second has just ended."""
    plans = [Plan(asked, peak, 1.0, 10.0, reports_after=1.0) for asked, peak in SIZES]
    grows = {0: (1.25, 2.0), 1: (0.0, 2.0)}
    world = Settling(GPU, plans, own_processes=True, grows=grows)
    world.run()
    assert all(isinstance(outcome, FinishedOutcome) for outcome in world.told.values())


def test_a_cap_goes_by_the_promises_that_were_heard_of() -> None:
    """The second outgrows its promise just after the first has settled, before that is known and
    before the next reading."""
    plans = [
        Plan(asked, peak, at, 10.0, reports_after=at)
        for asked, peak, at in ((14 * GB, 8 * GB, 0.4), (3 * GB, 9 * GB, 0.5))
    ]
    world = Settling(GPU, plans, own_processes=True, told_after=0.2)
    world.run()
    assert (world.n_capped, world.attempts) == (1, {0: 1, 1: 2})


@settings(max_examples=60, deadline=None)
@given(world=worlds())
def test_peaks_that_grow_after_the_first_report_cost_nobody_his_promise(world: Settling) -> None:
    """Never over-committed; none ended by a cap while room was unpromised; all end well."""
    world.run()
    assert all(isinstance(outcome, FinishedOutcome) for outcome in world.told.values())
