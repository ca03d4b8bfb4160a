"""Computes the time of a step and of a whole trial from the moments at which steps ended."""

from __future__ import annotations

import pytest

from automl.measure.gain.watch import (
    TimedExecution,
    estimate_trial_seconds,
    measured_step_seconds,
    whole_trial_seconds,
)


def call(
    *,
    n_epochs: int,
    n_steps: int,
    step: float = 0.01,
    lead: float = 0.3,
    look: float = 0.1,
    tail: float = 0.2,
    whole: bool = False,
) -> TimedExecution:
    """`lead` before the first step begins, `look` after each epoch, `tail` after the last look."""
    now, passes = lead, []
    for _ in range(n_epochs):
        marks = []
        for _ in range(n_steps):
            now += step
            marks.append(now)
        passes.append(tuple(marks))
        now += look
    return TimedExecution(0.0, tuple(passes), now + tail, whole)


def test_a_whole_trial_is_told_from_a_part_of_it() -> None:
    seen, real = call(n_epochs=2, n_steps=20), call(n_epochs=7, n_steps=50)
    assert measured_step_seconds([seen]) == pytest.approx(0.01)
    assert estimate_trial_seconds([seen], 7, 50) == pytest.approx(real.ended)


def test_of_a_single_epoch_its_end_stands_for_that_of_others() -> None:
    one, three = call(n_epochs=1, n_steps=20, tail=0.0), call(n_epochs=3, n_steps=20, tail=0.0)
    assert estimate_trial_seconds([one], 3, 20) == pytest.approx(three.ended)


def test_epochs_of_one_step_are_timed_from_one_to_the_next() -> None:
    seen, real = call(n_epochs=4, n_steps=1), call(n_epochs=9, n_steps=1)
    assert measured_step_seconds([seen]) == pytest.approx(0.11)
    assert estimate_trial_seconds([seen], 9, 1) == pytest.approx(real.ended)


def test_a_stall_is_no_pace() -> None:
    calls = [call(n_epochs=3, n_steps=20) for _ in range(3)]
    stalled = call(n_epochs=3, n_steps=20, step=1.0)
    assert measured_step_seconds([*calls, stalled]) == pytest.approx(0.01)


def test_short_stretches_count_together() -> None:
    """The mean counts for passes of a millisecond, one in ten of which is stalled."""
    quick, slow = (0.0, 0.001), (0.0, 0.011)
    calls = [TimedExecution(0.0, (slow if n % 10 == 0 else quick,), 1.0) for n in range(1000)]
    assert measured_step_seconds(calls) == pytest.approx(0.002, rel=0.2)


def test_fewer_than_two_steps_tell_nothing() -> None:
    calls = [TimedExecution(0.0, (), 1.0), TimedExecution(0.0, ((0.5,),), 1.0)]
    assert measured_step_seconds(calls) is None
    assert estimate_trial_seconds(calls, 2, 2) is None


def test_a_trial_of_unknown_length_is_told_where_one_was_seen() -> None:
    assert whole_trial_seconds([call(n_epochs=2, n_steps=2)]) is None
    whole = call(n_epochs=2, n_steps=2, whole=True)
    assert whole_trial_seconds([call(n_epochs=9, n_steps=9), whole]) == whole.ended
