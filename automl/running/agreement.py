"""Two sweeps that choose at once: each shows what it is about to promise before it looks. Pure.

Whoever looks later sees the other, and waits; where both look after both have shown, both wait.
"""

from __future__ import annotations

from collections.abc import Callable

from automl.admission.reasons import Refusal
from automl.running.messages import Start
from automl.trial import Placement

_N_TRIES = 4
_CROWDED = Refusal("waiting: other sweeps take what is free of the devices at this moment")


def agreed(
    first: Start,
    show: Callable[[Start | None], None],
    decide: Callable[[], Start | Refusal],
) -> Start | Refusal:
    """What may start, which others can see, and which has room beside what they promise then.

    Parameters
    ----------
    show: what is promised, and this besides.
    decide: with what others show by then.
    """
    shown = first
    for _ in range(_N_TRIES):
        show(shown)
        decided = decide()
        if isinstance(decided, Refusal):
            break
        if _is_shown(decided.placement, shown.placement):
            return decided
        shown = decided
    show(None)
    return decided if isinstance(decided, Refusal) else _CROWDED


def _is_shown(decided: Placement, shown: Placement) -> bool:
    """On the same devices, and no more of any."""
    return decided.devices == shown.devices and all(
        share.reservation_bytes <= promised.reservation_bytes
        for share, promised in zip(decided.shares, shown.shares, strict=True)
    )
