"""Numbers that worker and parent share: each sees what the other wrote, in its own slot."""

from __future__ import annotations

from automl.execution.worker_messages import SharedSlot, make_worker_slots
from automl.execution.worker_process import FORK_SERVER_CONTEXT
from automl.record.lease import lease_seconds


def write_what_is_seen(slot: SharedSlot) -> None:
    """In a process of its own."""
    slot.write_steps(5)
    slot.write([2**40 + 10 * slot.n_answered + slot.n_sent, 7])


def test_a_worker_and_its_parent_see_what_the_other_wrote() -> None:
    slots = make_worker_slots(3, n_devices=2)
    slots[1].answer()
    slots[1].answer()
    slots[1].sent()
    worker = FORK_SERVER_CONTEXT.Process(target=write_what_is_seen, args=(slots[1],))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    held = [(slot.held_bytes(0), slot.held_bytes(1)) for slot in slots]
    assert held == [(0, 0), (2**40 + 21, 7), (0, 0)]
    assert [slot.n_steps for slot in slots] == [0, 5, 0]


def test_a_slot_is_cleared_for_the_next_worker() -> None:
    first, other = make_worker_slots(2)
    for slot in (first, other):
        slot.answer()
        slot.sent()
        slot.cap([8])
    first.write([1])
    first.clear()
    assert (first.n_answered, first.n_sent, first.held_bytes(0)) == (0, 0, 0)
    assert (other.n_answered, other.n_sent) == (1, 1)
    assert ([*first.caps_bytes], [*other.caps_bytes]) == ([0], [8])


def test_caps_stand_beside_what_is_held() -> None:
    first, other = make_worker_slots(2, n_devices=2)
    first.write([1, 2])
    first.cap([3, 4, 99])
    assert ([*first.caps_bytes], [*other.caps_bytes]) == ([3, 4], [0, 0])
    assert (first.held_bytes(0), first.held_bytes(1), other.n_answered) == (1, 2, 0)


def test_what_a_process_sees_beyond_its_devices_is_nobodys() -> None:
    first, other = make_worker_slots(2)
    other.answer()
    first.write([1, 99])
    assert (first.held_bytes(0), other.n_answered) == (1, 1)


def test_a_worker_is_lent_its_devices_for_a_time() -> None:
    slot = make_worker_slots(1)[0]
    assert not slot.is_over, "for ever"
    slot.lease(lease_seconds() + 60)
    assert not slot.is_over
    slot.lease(lease_seconds() - 0.1)
    assert slot.is_over
