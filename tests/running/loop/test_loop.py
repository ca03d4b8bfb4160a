"""The main loop's decisions under a simulator: any order of messages, no clock, no threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES
from automl.admission.accounting.ledger import Ledger, LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.errors import ConfigError
from automl.running.loop.messages import (
    DevicesRead,
    PlannedTrial,
    WaitingTrial,
)
from automl.trial import FailedOutcome, FinishedOutcome, TooLargeOutcome
from tests.running.loop.simulated_machine import GB, GPU, A, Plan, Stranger, make_plan, n_gb, plans
from tests.running.loop.simulator import World

CONTEXT = 600 * 1024**2


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
    """Neither the cap nor the limit per device is exceeded.

    Trials run in threads, and in workers whose pid is known late and whose contexts come later
    still.
    """
    devices = {f"GPU-{i}": total for i, total in enumerate(totals)}
    World(devices, planned, limits=AdmissionLimits(limit, GB, 5.0, per_gpu), **how).run()


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


def test_without_a_cap_every_device_is_filled_to_its_own_limit() -> None:
    two = {"GPU-a": 24 * GB, "GPU-b": 24 * GB}
    world = World(two, [Plan(GB, GB, seconds=9.0)] * 8, limits=AdmissionLimits(None, GB, 5.0, 3))
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert len(world.loop.executions) == 6
    assert world.loop.asking.refusal is not None
    assert "max_trials_per_device=3" in world.loop.asking.refusal.reason


def test_memory_that_appears_late_is_not_promised_twice() -> None:
    late = Plan(request_bytes=10 * GB, peak_bytes=10 * GB, appears_after=2.5)
    world = World(GPU, [late] * 5)
    world.run()
    assert all(isinstance(outcome, FinishedOutcome) for outcome in world.told.values())


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
    assert [type(world.told[n]) for n in range(3)] == [
        FinishedOutcome,
        FinishedOutcome,
        TooLargeOutcome,
    ]
    told = world.told[2]
    assert isinstance(told, TooLargeOutcome)
    assert told.cause == "does not fit, even alone on sim: CUDA out of memory"
    assert told.excess == pytest.approx(math.log(1.5))
    assert told.at_least
    assert world.loop.snapshot().last_failure is not None, (
        "what is said where nothing else came of it"
    )
    assert world.loop.snapshot().last_failure == told.cause


def test_memory_of_the_host_runs_out_in_the_same_way() -> None:
    on_host = {"host": 24 * GB}
    fits_grown, fits_alone, never = Plan(8 * GB, 11 * GB), Plan(4 * GB, 20 * GB), Plan(GB, 30 * GB)
    world = World(on_host, [fits_grown, fits_alone, never])
    world.run()
    assert world.attempts == {0: 2, 1: 3, 2: 4}
    assert [type(world.told[n]) for n in range(3)] == [
        FinishedOutcome,
        FinishedOutcome,
        TooLargeOutcome,
    ]


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
    assert [type(world.told[n]) for n in range(3)] == [
        FinishedOutcome,
        FinishedOutcome,
        TooLargeOutcome,
    ]
    told = world.told[2]
    assert isinstance(told, TooLargeOutcome)
    assert not told.at_least, "what was predicted came true"
    room = 24 * GB - CONTEXT_BOUND_BYTES
    assert told.excess == pytest.approx(math.log(40 * GB / room), abs=0.03)


def test_two_deaths_in_one_trial_fail_it() -> None:
    world = World(GPU, [Plan(GB, GB, ends="dies"), Plan(GB, GB, ends="dies twice")])
    world.run()
    assert isinstance(world.told[0], FinishedOutcome)
    failed = world.told[1]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "killed by SIGSEGV (2 times)"


def taken_over(plans: Sequence[Plan], *known: tuple[int, int]) -> World:
    """A world in which an earlier sweep began the first trials; how often memory ran out, and how
    many processes died."""
    world = World(GPU, plans, limits=AdmissionLimits(3, 0, 5.0))
    world._n_asked = world.loop.asking.n_asked = len(known)
    left = [
        WaitingTrial(PlannedTrial(n, {"plan": n}), not (oom or dead), n_ran_out=oom, deaths=dead)
        for n, (oom, dead) in enumerate(known)
    ]
    world.loop.take_over(left)
    world.run()
    return world


def test_a_death_of_before_counts() -> None:
    dies = Plan(GB, GB, ends="dies")
    failed = taken_over([dies], (0, 1)).told[0]
    assert getattr(failed, "cause", None) == "killed by SIGSEGV (2 times)"
    assert isinstance(taken_over([dies], (0, 0)).told[0], FinishedOutcome)


@pytest.mark.parametrize(
    ("attempts", "asked", "n_starts"), [(0, 8, 2), (1, 8, 1), (1, 7, 2), (2, 7, 1), (1, None, 1)]
)
def test_memory_that_ran_out_before_is_asked_for_again(
    attempts: int, asked: int | None, n_starts: int
) -> None:
    """The trial wants 11 GB: 1.5 times 8 GB are enough, 1.5 times 7 GB are not, a whole device
    is."""
    request = None if asked is None else asked * GB
    world = taken_over([Plan(request, 11 * GB)], (attempts, 0))
    assert isinstance(world.told[0], FinishedOutcome)
    assert world.attempts == {0: n_starts}


def test_a_trial_that_died_or_ran_out_of_memory_before_goes_on_alone() -> None:
    world = taken_over([make_plan(A), make_plan(A), make_plan(A), make_plan(A)], (1, 0), (0, 1))
    assert world.packs == {0: [0], 1: [1], 2: [2, 3]}


# --- workers: a process for each execution, known late and kept warm ---


def test_memory_is_not_promised_twice_while_nobody_knows_whose_it_is() -> None:
    late = Plan(10 * GB, 10 * GB, appears_after=2.0, hosted_after=4.0, seconds=6.0)
    World(GPU, [late] * 5, own_processes=True).run()  # checks what is promised


def test_a_context_is_kept_free_until_a_reading_shows_it() -> None:
    """With two contexts a third trial of 7 GB does not fit: 21 of 23 GB, and three times 0.6."""
    late = Plan(7 * GB, 7 * GB, hosted_after=1.0, reports_after=4.0, seconds=9.0)
    World(GPU, [late] * 4, own_processes=True, limits=AdmissionLimits(4, GB, 5.0)).run()


def test_warm_processes_are_used_again() -> None:
    world = World(GPU, [Plan(GB, GB)] * 9, own_processes=True, limits=AdmissionLimits(3, GB, 5.0))
    world.run()
    assert len(world.machine.processes) == 3


def test_warm_processes_end_where_a_large_trial_needs_their_memory() -> None:
    planned = [Plan(GB, GB)] * 4 + [Plan(22 * GB, 22 * GB)]
    World(GPU, planned, own_processes=True, limits=AdmissionLimits(4, GB, 5.0)).run()
