"""Trials of unknown size join others that have settled, on the simulated machine: see
`test_settling.py` for how trials take memory there, and are capped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import ExecutionStart
from automl.trial import FinishedOutcome, RequestSource, ResourceRequest
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.test_settling import GB, GPU, Settling

TWO_GPUS = {"GPU-a": 24 * GB, "GPU-b": 24 * GB}


@dataclass
class Probing(Settling):
    """Watches who starts beside whom."""

    n_joined: int = 0

    def submit(self, start: ExecutionStart) -> None:
        self.n_joined += start.placement.probing
        super().submit(start)
        for device in start.placement.devices:
            held = self.ledger.snapshot().on(device).reservations
            unsettled = [r for r in held if self._is_unknown(r.key) and not r.settled]
            assert len(unsettled) <= 1, "two of unknown size that were not seen at work"

    def _is_unknown(self, key: int) -> bool:
        request = self.loop.executions[key].request
        return request.memory_bytes is None and not request.alone


def unknown(peak: int, seconds: float = 9.0) -> Plan:
    return Plan(None, peak, appears_after=0.51, seconds=seconds)


def test_trials_of_unknown_size_share_a_gpu_once_most_are_known_to_fit() -> None:
    """The first five one after another, until they have settled; then side by side."""
    world = Probing(
        GPU, [unknown(3 * GB)] * 12, limits=AdmissionLimits(8, 0, 5.0), own_processes=True
    )
    world.run()
    assert world.n_joined == 7
    assert world.now < 75, "one at a time would take 108 s"
    assert {type(outcome) for outcome in world.told.values()} == {FinishedOutcome}


def test_where_most_would_not_fit_each_has_the_gpu_to_itself() -> None:
    world = Probing(
        GPU, [unknown(14 * GB)] * 6, limits=AdmissionLimits(8, 0, 5.0), own_processes=True
    )
    world.run()
    assert (world.n_joined, world.attempts) == (0, dict.fromkeys(range(6), 1))


def test_in_threads_of_one_process_nothing_would_hold_it_to_a_promise() -> None:
    world = Probing(GPU, [unknown(3 * GB)] * 6, limits=AdmissionLimits(8, 0, 5.0))
    world.run()
    assert world.n_joined == 0


def test_one_that_is_larger_than_most_meets_its_own_end_and_runs_again() -> None:
    plans = [unknown(3 * GB, 20.0)] * 7 + [unknown(16 * GB)] + [unknown(3 * GB)] * 2
    world = Probing(GPU, plans, limits=AdmissionLimits(8, 0, 5.0), own_processes=True)
    world.run()
    assert world.n_capped == 1
    assert world.attempts == {n: 2 if n == 7 else 1 for n in range(10)}
    assert {type(outcome) for outcome in world.told.values()} == {FinishedOutcome}


@st.composite
def worlds(draw: st.DrawFn) -> Probing:
    n = draw(st.integers(6, 14))
    plans, grows = [], {}
    for number in range(n):
        peak = draw(st.integers(1, 10)) * GB
        asked = draw(st.none() | st.none() | st.floats(1.0, 2.5))
        late = draw(st.floats(0.3, 3))
        request = None if asked is None else int(asked * peak)
        plan = Plan(request, peak, appears_after=late, reports_after=late)
        plans.append(replace(plan, seconds=late + draw(st.floats(1, 9))))
        if draw(st.booleans()):
            grows[number] = (draw(st.floats(0, 4)), draw(st.floats(1, 2)))
    devices = dict([*TWO_GPUS.items()][: draw(st.integers(1, 2))])
    limits = AdmissionLimits(draw(st.integers(2, 8)), draw(st.sampled_from([0, GB])), 5.0)
    return Probing(
        devices,
        plans,
        limits=limits,
        own_processes=True,
        shows_pids=draw(st.booleans()),
        told_after=draw(st.sampled_from([0.0, 0.2])),
        grows=grows,
    )


@settings(max_examples=40, deadline=None)
@given(world=worlds())
def test_never_two_that_nobody_knows_and_never_more_than_there_is(world: Probing) -> None:
    """Never over-committed (the simulator looks), nor two on one device of which nothing was seen;
    nobody pays for what a neighbour took; all end well."""
    world.run()
    assert {type(outcome) for outcome in world.told.values()} == {FinishedOutcome}


def test_where_the_request_comes_from_and_why_it_waits() -> None:
    world = Probing(
        GPU, [unknown(9 * GB)] * 8, limits=AdmissionLimits(8, 0, 5.0), own_processes=True
    )
    seen: list[tuple[ResourceRequest, str]] = []

    def look() -> None:
        waiting = [w for w in world.loop.queue.queued if not w.refusal.reason.endswith("yet")]
        seen.extend(
            (world.loop.requests.request_for(w.trial.params), w.refusal.reason) for w in waiting
        )
        world._at(1.0, look)

    world._at(1.0, look)
    world.run()
    request, reason = seen[-1]
    assert (request.memory_bytes, request.source) == (None, RequestSource.PROBED)
    assert request.joins_at_bytes == 12 * 9 * GB // 10
    assert "a device to itself asked, or 10.1 GiB beside others, as most trials held" in reason
