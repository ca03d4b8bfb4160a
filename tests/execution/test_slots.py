"""Numbers that worker and parent share: each sees at once what the other wrote."""

from __future__ import annotations

import os
import time

from automl.execution.slots import OwnSlot, Slots


def test_each_side_sees_what_the_other_wrote_in_that_slot() -> None:
    slots = Slots(3)
    own, other = OwnSlot(slots.path, 1), OwnSlot(slots.path, 2)
    slots.answer(1)
    slots.answer(1)
    slots.call(1)
    assert (own.n_answered, own.n_called) == (2, 1)
    assert (other.n_answered, other.n_called) == (0, 0)
    own.keep_writing(lambda: 2**40)
    own.write()
    assert (slots.held_bytes(1), slots.held_bytes(2)) == (2**40, 0)
    slots.clear(1)
    assert (own.n_answered, own.n_called) == (0, 0)
    deadline = time.monotonic() + 30
    while slots.held_bytes(1) == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert slots.held_bytes(1) == 2**40, "it is written again without being asked"
    slots.close()
    assert not os.path.exists(slots.path)
