"""Trials of one, two and four devices mixed: all or nothing, none waits for ever, no deadlock."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES
from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import ExecutionStart, LoopMessage
from automl.running.loop.packing import TrialDurations
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World

GB = 1000**3
EIGHT = {f"GPU-{letter}": 24 * GB for letter in "abcdefgh"}
LATE_SECONDS = 3.0
"""Until what came free is heard of, given back, read and taken."""


@dataclasses.dataclass
class Several(World):
    """A world that keeps how long each trial stood at the head."""

    limits: AdmissionLimits = dataclasses.field(
        default_factory=lambda: AdmissionLimits(None, 0, 5.0)
    )
    own_processes: bool = True

    def __post_init__(self) -> None:
        self.headed_at: dict[int, float] = {}
        self.waited: dict[int, float] = {}
        super().__post_init__()

    def submit(self, start: ExecutionStart) -> None:
        super().submit(start)
        number = start.group[0].trial.number
        self.waited[number] = self.now - self.headed_at.get(number, self.now)

    def _handle(self, message: LoopMessage) -> None:
        super()._handle(message)
        if self.loop.queue.queued:
            self.headed_at.setdefault(self.loop.queue.queued[0].trial.number, self.now)


@st.composite
def mixed(draw: st.DrawFn) -> list[Plan]:
    def one() -> Plan:
        request = draw(st.one_of(st.none(), st.integers(1, 20).map(lambda n: n * GB)))
        return Plan(
            request,
            request or GB,
            seconds=draw(st.integers(1, 40)),
            n_devices=draw(st.sampled_from([1, 1, 2, 4])),
        )

    return [one() for _ in range(draw(st.integers(2, 14)))]


@settings(max_examples=15, deadline=None)
@given(mixed(), st.sampled_from([0, 4, 16]), st.booleans())
def test_nobody_at_the_head_waits_longer_than_the_longest_trial_lasts(
    plans: list[Plan], n_ahead: int, shows_pids: bool
) -> None:
    """Durations are exact here. `World` checks that all trials end, all or nothing, and that no
    device is promised more than it has."""
    world = Several(EIGHT, plans, n_ahead=n_ahead, shows_pids=shows_pids)
    world.run()
    longest = max(plan.seconds for plan in plans)
    assert max(world.waited.values()) <= longest + LATE_SECONDS


def test_four_devices_are_kept_for_one_that_wants_them_while_small_ones_pass() -> None:
    """Two of the four that it is to have are free from 5 s on, all from 20 s on."""
    plans = [
        *[Plan(None, GB, seconds=seconds) for seconds in (5.0, 5.0, 20.0, 20.0, *[40.0] * 4)],
        head := Plan(None, GB, seconds=5.0, n_devices=4),
        late := Plan(None, GB, seconds=60.0, n_devices=2),
        small := Plan(None, GB, seconds=1.0),
    ]
    world = Several(EIGHT, plans, n_ahead=4)
    world.run()
    order = [plans[number] for number in world.started[8:]]
    assert order == [small, head, late]


@pytest.mark.parametrize(("n_devices", "passes"), [(1, False), (4, True)])
def test_a_head_that_wants_several_devices_is_passed_on_a_smaller_chance(
    n_devices: int, passes: bool
) -> None:
    """One of four was over in 2 s, the others took 30; the head is promised some 20 s from now, and
    beside what it wants there is no room."""
    plans = [
        Plan(12 * GB, 12 * GB, seconds=20.0),
        Plan(20 * GB, 20 * GB, seconds=5.0, n_devices=n_devices),
        Plan(4 * GB, 4 * GB, seconds=2.0),
    ]
    world = Several(dict([*EIGHT.items()][:n_devices]), plans, n_ahead=4)
    learned = TrialDurations()
    for seconds in (2.0, 30.0, 30.0, 30.0):
        learned.finished(seconds)
    world.loop.durations.of = learned.of  # type: ignore[method-assign]
    world.run()
    assert (world.started == [0, 2, 1]) is passes


def test_an_idle_process_of_four_devices_is_used_again() -> None:
    """There is no room for the context of another beside it."""
    large = 24 * GB - CONTEXT_BOUND_BYTES - GB // 10
    plans = [Plan(large, large, seconds=2.0 + n, n_devices=4) for n in range(6)]
    world = Several(EIGHT, plans, shows_pids=True)
    world.run()
    assert [process.address.pid for process in world.machine.processes] == [2, 3]
