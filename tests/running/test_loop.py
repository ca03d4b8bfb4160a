"""The main loop's decisions under a simulator: any order of messages, no clock, no threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.account import CONTEXT_BOUND_BYTES
from automl.admission.ledger import Ledger, LedgerSnapshot
from automl.admission.limits import Limits
from automl.errors import ConfigError
from automl.running.loop import MAX_SAME_FAILURES
from automl.running.messages import (
    Asked,
    Broke,
    DevicesRead,
    Kind,
    Signalled,
    StopReason,
    TakenOver,
    Tick,
)
from automl.trial import Failed, Finished, TooLarge
from tests.running.simulated_machine import Plan, Stranger
from tests.running.simulator import World

CONTEXT = 600 * 1024**2
GB = 1000**3
GPU = {"GPU-a": 24 * GB}


def n_gb(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda n: n * GB)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    request = draw(st.one_of(st.none(), n_gb(0, 30)))
    return Plan(
        request_bytes=request,
        peak_bytes=draw(n_gb(0, 26)) if draw(st.booleans()) else (request or 0),
        appears_after=draw(st.floats(0, 4)),
        seconds=draw(st.floats(0, 6)),
        ends=draw(st.sampled_from(["finished", "finished", "failed", "dies", "dies twice"])),
        kind=draw(st.sampled_from([None, Kind("a", 2), Kind("b", 4)])),
        hosted_after=draw(st.floats(0, 2)),
        reports_after=draw(st.floats(0, 4)),
    )


@settings(max_examples=60, deadline=None)
@given(
    planned=st.lists(plans(), min_size=1, max_size=12),
    totals=st.lists(n_gb(4, 24), min_size=1, max_size=3),
    limit=st.none() | st.integers(1, 4),
    per_gpu=st.integers(1, 3),
    own_processes=st.booleans(),
    told_after=st.floats(0, 2),
    stop_at=st.none() | st.floats(0, 10),
)
def test_any_order_of_messages_keeps_the_books_straight(
    planned: list[Plan], totals: list[int], limit: int | None, per_gpu: int, **how: Any
) -> None:
    """In threads and in workers, whose pid is known late and whose contexts come later still. Never
    more than the cap, nor more than may be on a device."""
    devices = {f"GPU-{i}": total for i, total in enumerate(totals)}
    World(devices, planned, limits=Limits(limit, GB, 5.0, per_gpu), **how).run()


@settings(max_examples=50, deadline=None)
@given(
    planned=st.lists(plans(), min_size=1, max_size=8),
    when=st.floats(0.1, 20),
    size=n_gb(1, 10),
    own_processes=st.booleans(),
)
def test_a_stranger_that_comes_and_goes_is_never_admitted_upon(
    planned: list[Plan], when: float, size: int, own_processes: bool
) -> None:
    stranger = Stranger("GPU-a", size, when, when + 30)
    world = World(GPU, planned, strangers=[stranger], own_processes=own_processes)
    world.run(left=range(len(planned)))


@settings(max_examples=50, deadline=None)
@given(
    members=st.lists(
        st.tuples(st.none() | st.integers(1, 8), st.floats(0, 9)), min_size=2, max_size=12
    ),
    own_processes=st.booleans(),
    told_after=st.floats(0, 2),
)
def test_packs_of_unequal_members_are_promised_what_they_ask_for(
    members: list[tuple[int | None, float]], **how: Any
) -> None:
    planned = [of(A, seconds, n_gb=size) for size, seconds in members]
    World(GPU, planned, limits=Limits(2, GB, 5.0), **how).run()


def test_without_a_cap_every_device_is_filled_to_its_own_limit() -> None:
    two = {"GPU-a": 24 * GB, "GPU-b": 24 * GB}
    world = World(two, [Plan(GB, GB, seconds=9.0)] * 8, limits=Limits(None, GB, 5.0, 3))
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert len(world.loop.executions) == 6
    assert world.loop.refusal is not None
    assert "max_trials_per_device=3" in world.loop.refusal.reason


def test_the_last_trials_are_divided_among_the_cores_not_the_places() -> None:
    limits = Limits(None, 0, 5.0, max_per_gpu=16, max_on_host=2)
    world = World(GPU, [of(Kind("a", 8))] * 8, limits=limits)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert [len(pack) for pack in world.packs.values()] == [4, 4]


def test_memory_that_appears_late_is_not_promised_twice() -> None:
    late = Plan(request_bytes=10 * GB, peak_bytes=10 * GB, appears_after=2.5)
    world = World(GPU, [late] * 5)
    world.run()
    assert all(isinstance(outcome, Finished) for outcome in world.told.values())


class NoLedger(Ledger):
    """Mutation: promises are forgotten, NVML alone decides."""

    def snapshot(self) -> LedgerSnapshot:
        return LedgerSnapshot()


def test_mutation_without_the_ledger_memory_runs_out() -> None:
    late = Plan(request_bytes=10 * GB, peak_bytes=10 * GB, appears_after=2.5)
    with pytest.raises(AssertionError, match="over-committed"):
        World(GPU, [late] * 5, ledger=NoLedger()).run()


def test_mutation_without_nvml_memory_runs_out() -> None:
    tenant = Stranger("GPU-a", 20 * GB)
    with pytest.raises(AssertionError, match="over-committed"):
        World(GPU, [Plan(10 * GB, 10 * GB)] * 3, strangers=[tenant], blind=True).run()


def test_a_hanging_nvml_admits_nothing_and_stops_nothing() -> None:
    world = World(GPU, [Plan(GB, GB, seconds=9.0)] * 8, silent_between=(1.0, 40.0))
    world.run()
    assert len(world.told) == 8
    assert world.now > 40, "the second half waited for a fresh reading"


def test_nobody_overtakes_the_trial_at_the_head() -> None:
    """A large request waits while small ones run, and is the next to start."""
    small, large = Plan(2 * GB, 2 * GB), Plan(20 * GB, 20 * GB)
    world = World(GPU, [small, small, large, small, small])
    world.run()
    assert world.started == [0, 1, 2, 3, 4]


def test_out_of_memory_grows_then_gets_the_device_alone_then_fits_never() -> None:
    fits_grown, fits_alone, never = Plan(8 * GB, 11 * GB), Plan(4 * GB, 20 * GB), Plan(GB, 30 * GB)
    world = World(GPU, [fits_grown, fits_alone, never])
    world.run()
    assert world.attempts == {0: 2, 1: 3, 2: 4}, "alone twice"
    assert [type(world.told[n]) for n in range(3)] == [Finished, Finished, TooLarge]
    told = world.told[2]
    assert isinstance(told, TooLarge)
    assert told.cause == "does not fit, even alone on sim: CUDA out of memory"
    assert told.excess == pytest.approx(math.log(1.5))
    assert told.at_least
    assert world.loop.last_failure is not None, "what is said where nothing else came of it"
    assert world.loop.last_failure.cause == told.cause


def test_memory_of_the_host_runs_out_in_the_same_way() -> None:
    on_host = {"host": 24 * GB}
    fits_grown, fits_alone, never = Plan(8 * GB, 11 * GB), Plan(4 * GB, 20 * GB), Plan(GB, 30 * GB)
    world = World(on_host, [fits_grown, fits_alone, never])
    world.run()
    assert world.attempts == {0: 2, 1: 3, 2: 4}
    assert [type(world.told[n]) for n in range(3)] == [Finished, Finished, TooLarge]


def test_a_declared_request_that_no_device_can_hold_costs_no_device_time() -> None:
    world = World(GPU, [Plan(GB, GB)], declared_bytes=40 * GB)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert world.loop.done
    assert isinstance(world.loop.error, ConfigError)
    assert str(world.loop.error) == (
        "admission.request: 37.3 GiB asked, but at most 21.4 GiB fit on the largest device "
        "(GPU-a… (sim)); declare less."
    )


def test_a_predicted_request_that_no_device_can_hold_is_tried_alone() -> None:
    """A prediction is rather too much: what fits is not lost for it."""
    world = World(GPU, [Plan(40 * GB, 20 * GB), Plan(GB, GB), Plan(40 * GB, 40 * GB)])
    world.run()
    assert world.attempts == {0: 1, 1: 1, 2: 2}
    assert [type(world.told[n]) for n in range(3)] == [Finished, Finished, TooLarge]
    told = world.told[2]
    assert isinstance(told, TooLarge)
    assert not told.at_least, "what was predicted came true"
    room = 24 * GB - CONTEXT_BOUND_BYTES
    assert told.excess == pytest.approx(math.log(40 * GB / room), abs=0.03)


def test_two_deaths_in_one_trial_fail_it() -> None:
    world = World(GPU, [Plan(GB, GB, ends="dies"), Plan(GB, GB, ends="dies twice")])
    world.run()
    assert isinstance(world.told[0], Finished)
    failed = world.told[1]
    assert isinstance(failed, Failed)
    assert failed.cause == "killed by SIGSEGV (2 times)"


def taken_over(plans: Sequence[Plan], *known: tuple[int, int]) -> World:
    """A world in which an earlier sweep began the first trials; how often memory ran out, and how
    many processes died."""
    world = World(GPU, plans, limits=Limits(3, 0, 5.0))
    world._n_asked = world.loop.n_asked = len(known)
    left = [TakenOver(Asked(n, {"plan": n}), *counts) for n, counts in enumerate(known)]
    world.loop.take_over(left)
    world.run()
    return world


def test_a_death_of_before_counts() -> None:
    dies = Plan(GB, GB, ends="dies")
    failed = taken_over([dies], (0, 1)).told[0]
    assert getattr(failed, "cause", None) == "killed by SIGSEGV (2 times)"
    assert isinstance(taken_over([dies], (0, 0)).told[0], Finished)


@pytest.mark.parametrize(
    ("attempts", "asked", "n_starts"), [(0, 8, 2), (1, 8, 1), (1, 7, 2), (2, 7, 1), (1, None, 1)]
)
def test_memory_that_ran_out_before_is_asked_for_again(
    attempts: int, asked: int | None, n_starts: int
) -> None:
    """Of 11 GB that it wants: 1.5 times 8 GB are enough, 1.5 times 7 GB are not, a device is."""
    request = None if asked is None else asked * GB
    world = taken_over([Plan(request, 11 * GB)], (attempts, 0))
    assert isinstance(world.told[0], Finished)
    assert world.attempts == {0: n_starts}


def test_a_trial_that_died_or_ran_out_of_memory_before_goes_on_alone() -> None:
    world = taken_over([of(A), of(A), of(A), of(A)], (1, 0), (0, 1))
    assert world.packs == {0: [0], 1: [1], 2: [2, 3]}


def one_by_one(*ends: str) -> World:
    """A world in which trials end so, one after the other."""
    return World(GPU, [Plan(GB, GB, ends=end) for end in ends], limits=Limits(1, 0, 5.0))


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


def test_after_a_signal_nothing_starts() -> None:
    world = World(GPU, [Plan(GB, GB)] * 3)
    world.loop.handle(Signalled(StopReason.INTERRUPTED), 0.0)
    assert world.loop.done
    assert world.started == []


def test_a_defect_stops_the_sweep_and_keeps_its_first_error() -> None:
    world = World(GPU, [Plan(GB, GB)])
    first = OSError("no space left on device")
    world.loop.handle(Broke(first), 0.0)
    world.loop.handle(Broke(ValueError("later")), 0.0)
    assert (world.loop.stop, world.loop.error) == (StopReason.BROKEN, first)


def test_what_ends_after_a_defect_is_not_told_and_nothing_is_decided_on_it() -> None:
    plans = [Plan(GB, GB), Plan(GB, 9 * GB), Plan(GB, GB, ends="dies"), Plan(GB, GB, ends="failed")]
    world = World(GPU, plans)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert world.started == [0, 1, 2, 3]
    world.loop.handle(Signalled(StopReason.INTERRUPTED), 0.0)
    world.loop.handle(Broke(OSError("no space left on device")), 0.0)
    world.run()
    assert (world.told, list(world.loop.waiting)) == ({}, [])
    assert world.loop.stop is StopReason.BROKEN, "even after Ctrl-C the error is said"


def test_the_deadline_admits_nothing_new() -> None:
    world = World(GPU, [Plan(GB, GB)] * 3)
    world.loop.deadline_seconds = 2.0
    world.loop.handle(DevicesRead(world._reading()), 1.5)
    assert world.started == [0, 1, 2]
    late = World(GPU, [Plan(GB, GB)] * 3)
    late.loop.deadline_seconds = 2.0
    late.loop.handle(DevicesRead(late._reading()), 2.0)
    assert late.started == []
    assert late.loop.stop is StopReason.TIMEOUT


def test_a_study_that_ends_in_time_stops_what_runs_once_there_is_a_result() -> None:
    found: list[int] = []
    world = World(GPU, [Plan(GB, GB)])
    world.loop.deadline_seconds = 2.0
    world.loop.ends_in_time = lambda: bool(found)
    world.loop.handle(DevicesRead(world._reading()), 1.0)
    world.loop.handle(Tick(), 2.0)
    assert world.started == [0]
    assert not world.stopping, "nothing was found yet"
    found.append(7)
    world.loop.handle(Tick(), 3.0)
    assert (world.loop.stop, world.stopping) == (StopReason.TIMEOUT, True)
    world.stopping = False
    world.loop.handle(Tick(), 4.0)
    assert not world.stopping, "it was told once"
    world.loop.handle(Signalled(StopReason.INTERRUPTED), 5.0)
    assert world.loop.stop is StopReason.INTERRUPTED


def test_the_first_reason_to_stop_counts_but_for_the_deadline() -> None:
    late, early = World(GPU, [Plan(GB, GB)]), World(GPU, [Plan(GB, GB)])
    late.loop.deadline_seconds = early.loop.deadline_seconds = 2.0
    late.loop.handle(Tick(), 2.0)
    assert late.loop.stop is StopReason.TIMEOUT
    assert not late.stopping, "running trials may end"
    late.loop.handle(Signalled(StopReason.TERMINATED), 3.0)
    assert (late.loop.stop, late.stopping) == (StopReason.TERMINATED, True)
    early.loop.handle(Signalled(StopReason.INTERRUPTED), 1.0)
    early.loop.handle(Tick(), 2.0)
    early.loop.handle(Signalled(StopReason.TERMINATED), 3.0)
    assert early.loop.stop is StopReason.INTERRUPTED


A, B = Kind("a", 4), Kind("b", 4)


def of(
    kind: Kind | None, seconds: float = 3.0, ends: str = "finished", n_gb: int | None = 1
) -> Plan:
    request = None if n_gb is None else n_gb * GB
    return Plan(request, request or 0, seconds=seconds, kind=kind, ends=ends)


def test_trials_of_the_heads_kind_start_as_one_pack() -> None:
    world = World(GPU, [of(A), of(B), of(A), of(None), of(A), of(A), of(A)])
    world.run()
    assert world.packs[0][:4] == [0, 2, 4, 5]


def test_a_free_lane_takes_the_next_of_its_kind() -> None:
    world = World(GPU, [of(A, 1), of(A, 9), of(A, 9), of(A, 9), of(A)], limits=Limits(1, 0, 5.0))
    world.run()
    assert world.packs == {0: [0, 1, 2, 3, 4]}


def test_a_lane_stays_free_while_another_kind_waits_at_the_head() -> None:
    planned = [of(A, 1), of(A, 9), of(A, 9), of(A, 9), of(None), of(A)]
    world = World(GPU, planned, limits=Limits(1, 0, 5.0))
    world.run()
    assert world.packs == {0: [0, 1, 2, 3], 4: [4], 5: [5]}


def test_a_pack_that_dies_is_dissolved_without_a_strike() -> None:
    world = World(GPU, [of(A), of(A, ends="dies"), of(A), of(A)], limits=Limits(1, 0, 5.0))
    world.run()
    assert {n: type(o) for n, o in world.told.items()} == dict.fromkeys(range(4), Finished)
    assert world.packs[2] == [2], "alone"
    assert world.started == [0, 1, 2, 3, 1, 1, 2, 3], "in their order; 1 dies once more, alone"


def test_samplers_that_learn_are_not_asked_too_far_ahead() -> None:
    world = World(GPU, [of(A)] * 8, limits=Limits(1, 0, 5.0))
    world.most_pending = 3
    world.run()
    assert len(world.packs[0]) > 3, "refilled one by one"
    assert world.started[:3] == [0, 1, 2]


def test_the_rest_is_divided_among_those_that_could_run_it() -> None:
    world = World(GPU, [of(A)] * 4, limits=Limits(2, 0, 5.0))
    world.run()
    assert world.packs == {0: [0, 1], 2: [2, 3]}


def test_after_ctrl_c_a_free_lane_takes_nobody() -> None:
    """A trial may well end between the signal and its next report."""
    planned = [of(A, 0.7), of(A, 9), of(A, 9), of(A, 9), of(A)]
    world = World(GPU, planned, limits=Limits(1, 0, 5.0), stop_at=0.5)
    world.run()  # checks that nothing starts
    assert (list(world.told), world.interrupted) == ([0], {1, 2, 3})


def test_a_trial_fed_to_a_pack_that_had_just_ended_starts_elsewhere() -> None:
    """The main thread hears of the first end when the second has come already."""
    planned = [of(A, 1.0), of(A, 1.1), of(A)]
    world = World(GPU, planned, limits=Limits(1, 0, 5.0), told_after=0.5)
    world.most_pending = 2
    world.run()
    assert world.packs == {0: [0, 1, 2], 2: [2]}


def test_a_pack_asks_for_its_lanes_times_its_largest_member() -> None:
    planned = [of(A, n_gb=1), of(A, n_gb=5), of(A, n_gb=2)]
    world = World(GPU, planned, limits=Limits(1, 0, 5.0))
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    (reservation,) = world.ledger.snapshot().reservations
    assert [s.reservation_bytes for s in reservation.placement.shares] == [3 * 5 * GB]


@pytest.mark.parametrize("second", [None, 1])
def test_a_pack_of_unknown_size_has_a_device_to_itself(second: int | None) -> None:
    planned = [of(A, n_gb=None), of(A, n_gb=second)]
    World(GPU, planned, limits=Limits(1, 0, 5.0)).run()  # checks it


@pytest.mark.parametrize("third", [None, 9])
def test_a_lane_takes_no_trial_larger_than_what_its_pack_was_promised(third: int | None) -> None:
    planned = [of(A, 1), of(A, 9), of(A, n_gb=third)]
    world = World(GPU, planned, limits=Limits(1, 0, 5.0))
    world.most_pending = 2
    world.run()
    assert world.packs == {0: [0, 1], 2: [2]}


# --- workers: a process for each execution, known late and kept warm ---


def test_memory_is_not_promised_twice_while_nobody_knows_whose_it_is() -> None:
    late = Plan(10 * GB, 10 * GB, appears_after=2.0, hosted_after=4.0, seconds=6.0)
    World(GPU, [late] * 5, own_processes=True).run()  # checks what is promised


def test_a_context_is_kept_free_until_a_reading_shows_it() -> None:
    """With two contexts a third trial of 7 GB does not fit: 21 of 23 GB, and three times 0.6."""
    late = Plan(7 * GB, 7 * GB, hosted_after=1.0, reports_after=4.0, seconds=9.0)
    World(GPU, [late] * 4, own_processes=True, limits=Limits(4, GB, 5.0)).run()


def test_warm_processes_are_used_again() -> None:
    world = World(GPU, [Plan(GB, GB)] * 9, own_processes=True, limits=Limits(3, GB, 5.0))
    world.run()
    assert len(world.machine.processes) == 3


def test_warm_processes_end_where_a_large_trial_needs_their_memory() -> None:
    planned = [Plan(GB, GB)] * 4 + [Plan(22 * GB, 22 * GB)]
    World(GPU, planned, own_processes=True, limits=Limits(4, GB, 5.0)).run()
