"""Others hold memory of our devices: what runs out of memory for their sake is not lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.trial import FailedOutcome, FinishedOutcome, TooLargeOutcome
from tests.running.loop.simulated_machine import Plan, Stranger
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}
SIZED = Plan(2 * GB, 2 * GB, seconds=2.0)
LARGE = Plan(None, 20 * GB, seconds=6.0)
"""A trial of unknown size, which gets the device to itself."""


def test_what_runs_out_alone_as_a_stranger_grew_goes_on_when_that_has_left() -> None:
    """The stranger comes while the trial trains; ten small trials pass meanwhile."""
    stranger = Stranger("GPU-a", 6 * GB, from_seconds=2.0, until_seconds=30.0)
    world = World(GPU, [LARGE, *[SIZED] * 40], strangers=[stranger])
    world.run()
    assert isinstance(world.told[0], FinishedOutcome)
    assert world.started[-1] == 0, "behind the others"
    assert world.now > 30


def test_the_sweep_does_not_end_by_a_reading_that_is_older_than_the_last_end() -> None:
    """The stranger leaves between the last reading and the end of the last trial."""
    stranger = Stranger("GPU-a", 6 * GB, from_seconds=2.0, until_seconds=15.5)
    large, other = replace(LARGE, seconds=4.0), replace(SIZED, seconds=4.0)
    world = World(GPU, [large, other], strangers=[stranger], reading_seconds=3.0)
    world.run()
    assert isinstance(world.told[0], FinishedOutcome)
    assert world.started == [0, 0, 1, 0]


def test_while_the_stranger_stays_it_is_interrupted_not_failed() -> None:
    stranger = Stranger("GPU-a", 6 * GB, from_seconds=2.0)
    how = {"own_processes": True, "shows_pids": True}
    world = World(GPU, [LARGE, SIZED], strangers=[stranger], **how)  # type: ignore[arg-type]
    world.run(left=[0])
    (waiting,) = world.loop.queue.deferred
    assert waiting.trial.number == 0
    assert waiting.refusal.reason == (
        "waiting: a device to itself asked (it ran out of memory while others held more), "
        "16.8 GiB room on GPU-a… (sim); 5.6 GiB held by others"
    )


def test_what_runs_out_beside_a_stranger_before_the_next_reading_has_not_failed() -> None:
    """The stranger is there when the trial starts, which ends each time before another reading."""
    stranger = Stranger("GPU-a", 6 * GB, from_seconds=0.5)
    first, large = Plan(None, GB, seconds=2.0), Plan(None, 20 * GB, seconds=0.05)
    world = World(GPU, [first, large], strangers=[stranger], reading_seconds=0.9)
    world.run(left=[1])
    assert world.attempts[1] == 2
    assert 1 not in world.told


def test_a_stranger_that_was_always_there_is_no_excuse() -> None:
    """The stranger holds 12 % for ever: a trial that does not fit beside it never fits."""
    stranger = Stranger("GPU-a", 24 * GB * 12 // 100)
    world = World(GPU, [Plan(None, 23 * GB), SIZED], strangers=[stranger])
    world.run()
    assert isinstance(world.told[0], TooLargeOutcome)
    assert world.attempts[0] == 3, "unknown, then alone twice"


@settings(max_examples=60, deadline=None)
@given(
    planned=st.lists(
        st.builds(
            Plan,
            request_bytes=st.none() | st.integers(1, 20).map(lambda n: n * GB),
            peak_bytes=st.integers(1, 20).map(lambda n: n * GB),
            seconds=st.floats(0.5, 6),
        ),
        min_size=1,
        max_size=8,
    ),
    breaths=st.lists(
        st.tuples(st.floats(0.1, 30), st.floats(1, 10), st.integers(1, 20)), max_size=4
    ),
    own_processes=st.booleans(),
    shows_pids=st.booleans(),
)
@example(  # the second ends while a reading is taken
    planned=[
        Plan(6 * GB, GB, seconds=1.0),
        Plan(6 * GB, GB, seconds=0.7),
        Plan(11 * GB, GB, seconds=1.0),
    ],
    breaths=[],
    own_processes=True,
    shows_pids=True,
)
@example(  # idle processes are ended whose reservations have not come back yet
    planned=[Plan(GB, GB, seconds=2.0), Plan(2 * GB, GB, seconds=2.0), Plan(13 * GB, 14 * GB)],
    breaths=[],
    own_processes=True,
    shows_pids=False,
)
def test_while_strangers_breathe_nothing_that_fits_alone_is_lost(
    planned: list[Plan], breaths: list[tuple[float, float, int]], **how: Any
) -> None:
    """They come when the sweep has seen the device without them."""
    strangers = [Stranger("GPU-a", n * GB, begin, begin + lasts) for begin, lasts, n in breaths]
    world = World(GPU, planned, strangers=strangers, **how)
    world.run(left=range(len(planned)))
    assert not [
        n
        for n, outcome in world.told.items()
        if isinstance(outcome, FailedOutcome | TooLargeOutcome)
    ]
