"""By how much a trial is too large for what there is."""

from __future__ import annotations

import math

import pytest

from automl.admission.refusals import excess_after_out_of_memory, memory_excess

GIB = 2**30


def test_it_is_the_logarithm_of_needed_to_room_and_does_not_depend_on_the_unit() -> None:
    assert memory_excess(48 * GIB, 24 * GIB) == pytest.approx(math.log(2))
    assert memory_excess(48, 24) == memory_excess(48 * GIB, 24 * GIB)


@pytest.mark.parametrize(("needed", "room"), [(5, 5), (0, 0), (1, -GIB), (5 * GIB, 0)])
def test_it_is_always_a_violation(needed: int, room: int) -> None:
    """A device that has no room at all has none for anything."""
    assert 0 < memory_excess(needed, room) < math.inf
    assert 0 < excess_after_out_of_memory(needed, None, room)[0] < math.inf


@pytest.mark.parametrize(
    ("held", "predicted", "times", "at_least"),
    [
        (23, None, 1.5, True),
        (23, 20, 1.5, True),
        (23, 30, 1.25, False),
        (40, None, 40 / 24, True),
    ],
)
def test_what_ran_out_needs_what_was_predicted_else_more_than_there_was(
    held: int, predicted: int | None, times: float, at_least: bool
) -> None:
    predicted_bytes = None if predicted is None else predicted * GIB
    found, may_be_more = excess_after_out_of_memory(held * GIB, predicted_bytes, 24 * GIB)
    assert found == pytest.approx(math.log(times))
    assert may_be_more == at_least
