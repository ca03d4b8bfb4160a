"""Numbers that worker and parent share: each sees at once what the other wrote."""

from __future__ import annotations

from automl.execution.slots import OwnSlot, Slots


def test_each_side_sees_what_the_other_wrote_in_that_slot() -> None:
    slots = Slots(3)
    own, other = OwnSlot(slots.numbers, 1), OwnSlot(slots.numbers, 2)
    slots.answer(1)
    slots.answer(1)
    slots.sent(1)
    own.write(2**40)
    assert (own.n_answered, own.n_sent, slots.held_bytes(1)) == (2, 1, 2**40)
    assert (other.n_answered, other.n_sent, slots.held_bytes(2)) == (0, 0, 0)
    slots.clear(1)
    assert (own.n_answered, own.n_sent, slots.held_bytes(1)) == (0, 0, 0)
