"""What is promised to a trial once it was seen at work. Pure.

Its request was a bound on trials like it; after the first report of the study's metric it has
trained and validated, and holds about what it ever will. The rest of the promise goes to the next
trial at once. Who then outgrows what is left to it is ended by its own worker, not by a neighbour
(`caps.py`), and is believed the next time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from automl.trial import MemoryPeak, Placement, Request, RequestSource

SETTLED_MARGIN = 1.1
"""Of what a trial was seen to hold, to what it may hold later."""
_KEPT = (RequestSource.DECLARED, RequestSource.RAN_OUT)
"""The user's own word, and that of a trial that outgrew a promise before."""


def may_settle(request: Request, placement: Placement, n_lanes: int) -> bool:
    """Whether this promise shrinks at all.

    Not on the host, where nothing holds a process to it, and not a pack's, whose lanes are filled
    again with trials that may be larger than those seen.
    """
    predicted = request.source not in _KEPT and not request.alone
    return predicted and n_lanes == 1 and not placement.on_host


def settled_bytes(peak: MemoryPeak, placement: Placement) -> Sequence[int] | None:
    """What it shrinks to on each of its devices. Where nothing was seen it stays (the memory is not
    torch's, or that of a process which the trial started); None: that is so everywhere."""
    if peak.peak_bytes <= 0:
        return None
    return [
        math.ceil(SETTLED_MARGIN * seen) if seen > 0 else share.reservation_bytes
        for seen, share in zip(peak.by_device, placement.shares, strict=True)
    ]
