"""How far a trial that never fits is beyond what there is: for the sampler, which learns the wall.

The excess is log(needed / room). What a trial takes is, over most of a space, a product of powers
of its params (widths, depth, batch), so its logarithm changes evenly along params searched on a log
scale; it does not depend on the unit or on the GPU's size; and trials 1.2 and 12 times too large
differ without the second drowning the first. 0 is the wall; what lies beyond is above it.
"""

from __future__ import annotations

import math

from automl.admission.requests import OOM_GROWTH


def excess(needed_bytes: int, room_bytes: int) -> float:
    """log(needed / room) of a request larger than the room; always above 0."""
    room = max(room_bytes, 1)
    return math.log(max(needed_bytes, room + 1) / room)


def excess_of_ran_out(
    held_bytes: int, predicted_bytes: int | None, room_bytes: int
) -> tuple[float, bool]:
    """The same of a trial that ran out of memory with all that room to itself; and whether it may
    be more.

    What it needs was not seen, only that it is more. A prediction beyond the room, which has come
    true so far, is the best that is known. Without one it is what the next try would have asked
    for, and never less than what the trial held: a guess, whose size tells nothing.
    """
    is_guess = predicted_bytes is None or predicted_bytes <= room_bytes
    needed = math.ceil(OOM_GROWTH * room_bytes) if is_guess else predicted_bytes
    assert needed is not None
    return excess(max(held_bytes, needed), room_bytes), is_guess
