"""Two sweeps that choose at once: each shows what it is about to promise before it looks. Pure.

Whoever looks later sees the other, and waits; where both look after both have shown, both wait.
"""

from __future__ import annotations

from collections.abc import Callable

from automl.admission.reasons import Refusal
from automl.devices.device import Elsewhere
from automl.trial import Placement

_N_TRIES = 4
_CROWDED = Refusal("waiting: other sweeps take what is free of the devices at this moment")


def agreed(
    first: Placement,
    promise: Callable[[Placement | None], Elsewhere],
    decide: Callable[[Elsewhere], Placement | Refusal],
) -> Placement | Refusal:
    """The placement, or another that has room beside what others promise, once they can see it.

    Parameters
    ----------
    promise: shows what is promised, and this besides; returns what others show then.
    decide: with that.
    """
    shown = first
    for _ in range(_N_TRIES):
        decided = decide(promise(shown))
        if isinstance(decided, Refusal):
            break
        if decided.devices == shown.devices:
            return decided
        shown = decided
    promise(None)
    return decided if isinstance(decided, Refusal) else _CROWDED
