"""Numbers that worker and parent share: each sees what the other wrote, in its own slot."""

from __future__ import annotations

from automl.execution.process import CONTEXT
from automl.execution.slots import Numbers, OwnSlot, Slots


def write_what_is_seen(numbers: Numbers, slot: int) -> None:
    """In a process of its own."""
    own = OwnSlot(numbers, slot)
    own.write(2**40 + 10 * own.n_answered + own.n_sent)


def test_a_worker_and_its_parent_see_what_the_other_wrote() -> None:
    slots = Slots(3)
    slots.answer(1)
    slots.answer(1)
    slots.sent(1)
    worker = CONTEXT.Process(target=write_what_is_seen, args=(slots.numbers, 1))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    assert [slots.held_bytes(slot) for slot in range(3)] == [0, 2**40 + 21, 0]


def test_a_slot_is_cleared_for_the_next_worker() -> None:
    slots = Slots(2)
    own, other = OwnSlot(slots.numbers, 0), OwnSlot(slots.numbers, 1)
    for slot in range(2):
        slots.answer(slot)
        slots.sent(slot)
    own.write(1)
    slots.clear(0)
    assert (own.n_answered, own.n_sent, slots.held_bytes(0)) == (0, 0, 0)
    assert (other.n_answered, other.n_sent) == (1, 1)
