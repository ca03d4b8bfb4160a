"""The main loop's decisions about packs, under a simulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import AdmissionRefusal, RefusalKind
from automl.running.loop.messages import DevicesRead, TrialStartsHeld
from automl.trial import FinishedOutcome, PackKind
from tests.running.loop.simulated_machine import GB, GPU, A, B, make_plan
from tests.running.loop.simulator import World


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
    planned = [make_plan(A, seconds, n_gb=size) for size, seconds in members]
    World(GPU, planned, limits=AdmissionLimits(2, GB, 5.0), **how).run()


def test_the_last_trials_are_divided_among_the_cores_not_the_places() -> None:
    limits = AdmissionLimits(None, 0, 5.0, max_per_gpu=16, max_on_host=2)
    world = World(GPU, [make_plan(PackKind("a", 8))] * 8, limits=limits)
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    assert [len(pack) for pack in world.packs.values()] == [4, 4]


def test_trials_of_the_heads_kind_start_as_one_pack() -> None:
    world = World(
        GPU,
        [
            make_plan(A),
            make_plan(B),
            make_plan(A),
            make_plan(None),
            make_plan(A),
            make_plan(A),
            make_plan(A),
        ],
    )
    world.run()
    assert world.packs[0][:4] == [0, 2, 4, 5]


def test_a_free_lane_takes_the_next_of_its_kind() -> None:
    world = World(
        GPU,
        [make_plan(A, 1), make_plan(A, 9), make_plan(A, 9), make_plan(A, 9), make_plan(A)],
        limits=AdmissionLimits(1, 0, 5.0),
    )
    world.run()
    assert world.packs == {0: [0, 1, 2, 3, 4]}


def test_a_lane_stays_free_while_another_kind_waits_at_the_head() -> None:
    planned = [
        make_plan(A, 1),
        make_plan(A, 9),
        make_plan(A, 9),
        make_plan(A, 9),
        make_plan(None),
        make_plan(A),
    ]
    world = World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0))
    world.run()
    assert world.packs == {0: [0, 1, 2, 3], 4: [4], 5: [5]}


def test_a_pack_that_dies_is_dissolved_without_a_strike() -> None:
    world = World(
        GPU,
        [make_plan(A), make_plan(A, ends="dies"), make_plan(A), make_plan(A)],
        limits=AdmissionLimits(1, 0, 5.0),
    )
    world.run()
    assert {n: type(o) for n, o in world.told.items()} == dict.fromkeys(range(4), FinishedOutcome)
    assert world.packs[2] == [2], "alone"
    assert world.started == [0, 1, 2, 3, 1, 1, 2, 3], "in their order; 1 dies once more, alone"


def test_samplers_that_learn_are_not_asked_too_far_ahead() -> None:
    world = World(GPU, [make_plan(A)] * 8, limits=AdmissionLimits(1, 0, 5.0))
    world.most_pending = 3
    world.run()
    assert len(world.packs[0]) > 3, "refilled one by one"
    assert world.started[:3] == [0, 1, 2]


def test_the_rest_is_divided_among_those_that_could_run_it() -> None:
    world = World(GPU, [make_plan(A)] * 4, limits=AdmissionLimits(2, 0, 5.0))
    world.run()
    assert world.packs == {0: [0, 1], 2: [2, 3]}


def test_after_ctrl_c_a_free_lane_takes_nobody() -> None:
    """A trial may well end between the signal and its next report."""
    planned = [make_plan(A, 0.7), make_plan(A, 9), make_plan(A, 9), make_plan(A, 9), make_plan(A)]
    world = World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0), stop_at=0.5)
    world.run()  # checks that nothing starts
    assert (list(world.told), world.interrupted) == ([0], {1, 2, 3})


def test_while_starts_are_held_a_free_lane_takes_nobody() -> None:
    planned = [make_plan(A, 1), make_plan(A, 9), make_plan(A, 9), make_plan(A, 9), make_plan(A)]
    world = World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0))
    refusal = AdmissionRefusal("waiting: paused", RefusalKind.HELD)
    seen: list[int] = []
    world._at(0.8, lambda: world._post(TrialStartsHeld(refusal)))
    world._at(8.0, lambda: seen.extend([len(world.told), *world.started]))
    world._at(8.0, lambda: world._post(TrialStartsHeld(None)))
    world.run()
    assert seen == [1, 0, 1, 2, 3]


def test_a_trial_fed_to_a_pack_that_had_just_ended_starts_elsewhere() -> None:
    """The main thread hears of the first end when the second has come already."""
    planned = [make_plan(A, 1.0), make_plan(A, 1.1), make_plan(A)]
    world = World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0), told_after=0.5)
    world.most_pending = 2
    world.run()
    assert world.packs == {0: [0, 1, 2], 2: [2]}


def test_a_pack_asks_for_its_lanes_times_its_largest_member() -> None:
    planned = [make_plan(A, n_gb=1), make_plan(A, n_gb=5), make_plan(A, n_gb=2)]
    world = World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0))
    world.loop.handle(DevicesRead(world._reading()), 0.0)
    (reservation,) = world.ledger.snapshot().reservations
    assert [s.reservation_bytes for s in reservation.placement.shares] == [3 * 5 * GB]


@pytest.mark.parametrize("second", [None, 1])
def test_a_pack_of_unknown_size_has_a_device_to_itself(second: int | None) -> None:
    planned = [make_plan(A, n_gb=None), make_plan(A, n_gb=second)]
    World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0)).run()  # checks it


@pytest.mark.parametrize("third", [None, 9])
def test_a_lane_takes_no_trial_larger_than_what_its_pack_was_promised(third: int | None) -> None:
    planned = [make_plan(A, 1), make_plan(A, 9), make_plan(A, n_gb=third)]
    world = World(GPU, planned, limits=AdmissionLimits(1, 0, 5.0))
    world.most_pending = 2
    world.run()
    assert world.packs == {0: [0, 1], 2: [2]}
